//! The words about a sandbox as the daemon is told: what a command line understood, said again in the API's words.

use super::PlaceArgs;
use belljar_api::{
    EgressRequest, GitHubRequest, LimitsRequest, LlmRequest, SandboxRequest, WorkspaceRequest,
};
use belljar_engine::asked::{Asked, Value};
use belljar_engine::config::{CredentialFlags, EgressFlags, LlmFlags, LlmWhere, WebSearch};
use belljar_spec::egress::Rule;
use belljar_spec::llm::Budget;
use belljar_spec::workspace::{GitAccess, WorkspaceMode};
use belljar_spec::{BackendChoice, LimitsSpec, Nesting, Permission, SandboxError, WorkspacePath};
use std::collections::BTreeMap;
use std::path::Path;

impl PlaceArgs {
    /// What was said, as a request. The folder and its branch are the caller's business.
    pub(crate) fn request(self) -> Result<SandboxRequest, SandboxError> {
        let asked = self.asked()?;
        let (secrets, web_search, github) = credentials(&asked.secrets)?;
        Ok(SandboxRequest {
            backend: match asked.backend {
                BackendChoice::Auto => None,
                BackendChoice::Named(name) => Some(name.to_string()),
            },
            at_least: text(&asked.at_least),
            rootfs: text(&asked.root),
            workspace: workspace(&asked)?,
            egress: egress(&asked.egress),
            llm: llm(&asked.llm),
            secrets,
            web_search,
            github,
            env: env(asked.env)?,
            limits: limits(&asked.limits),
            nested: asked.nesting == Nesting::Allowed,
            ..SandboxRequest::default()
        })
    }

    /// Whether nothing was said but where.
    pub(crate) fn is_silent(&self) -> bool {
        self.clone().request().is_ok_and(|request| request == SandboxRequest::default())
    }
}

fn workspace(asked: &Asked) -> Result<WorkspaceRequest, SandboxError> {
    let overlay = match &asked.mode {
        // Which branch is part of the key.
        WorkspaceMode::Bind | WorkspaceMode::Shelf { .. } | WorkspaceMode::Own(_) => false,
        WorkspaceMode::Overlay { layer: None } => true,
        WorkspaceMode::Overlay { layer: Some(_) } => return Err(once("--layer")),
        WorkspaceMode::Clone(_) => return Err(once("--clone")),
    };
    let shared = |permission: Permission| {
        let paths = asked.shared.iter().filter(move |shared| shared.permission == permission);
        paths.map(|shared| absolute(&shared.path)).collect::<Result<Vec<_>, _>>()
    };
    Ok(WorkspaceRequest {
        overlay,
        same_path: asked.workspace_path == WorkspacePath::SameAsHost,
        share_git: asked.git == GitAccess::Share,
        ro: shared(Permission::Read)?,
        rw: shared(Permission::Write)?,
        protect: texts(&asked.protect),
        push: texts(&asked.push),
        agent_context: asked.agent_context.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?,
        ..WorkspaceRequest::default()
    })
}

fn egress(flags: &EgressFlags) -> EgressRequest {
    let rules = |rules: &[Rule]| rules.iter().map(|rule| rule.label.text().to_string()).collect();
    EgressRequest {
        mode: text(&flags.mode),
        allow: rules(&flags.allow),
        deny: rules(&flags.deny),
        groups: texts(&flags.groups),
        inspect: flags.inspect,
    }
}

type Credentials = (Vec<String>, Option<String>, Option<GitHubRequest>);

fn credentials(flags: &CredentialFlags) -> Result<Credentials, SandboxError> {
    if !flags.forward.is_empty() {
        return Err(once("--forward-secret"));
    }
    if flags.github.as_ref().is_some_and(|github| github.danger_forward_key) {
        return Err(once("--danger-forward-app-key"));
    }
    let web_search = flags.web_search.as_ref().map(|search| match search {
        WebSearch::Detect | WebSearch::IfKept => "auto".to_string(),
        WebSearch::Named(name) => name.to_string(),
    });
    let github = flags.github.as_ref().map(|github| GitHubRequest {
        profile: github.profile.to_string(),
        repositories: texts(&github.repositories),
    });
    Ok((texts(&flags.secrets), web_search, github))
}

fn llm(flags: &LlmFlags) -> Option<LlmRequest> {
    let url = flags.to.as_ref().map(|to| match to {
        LlmWhere::Off => "off".to_string(),
        LlmWhere::To(upstream) => upstream.to_string(),
    });
    (*flags != LlmFlags::default()).then(|| LlmRequest {
        url,
        key: text(&flags.key),
        kind: text(&flags.kind),
        models: texts(&flags.models),
        budget: (flags.budget != Budget::default()).then(|| flags.budget.to_string()),
    })
}

fn limits(spec: &LimitsSpec) -> LimitsRequest {
    // To the byte: what people read is rounded.
    let bytes = |size: Option<belljar_spec::ByteSize>| size.map(|size| size.as_u64().to_string());
    LimitsRequest {
        memory: bytes(spec.memory),
        cpus: text(&spec.cpus),
        pids: spec.pids,
        open_files: spec.open_files,
        disk: bytes(spec.disk),
        timeout: spec.wall_time.map(|time| format!("{}ms", time.as_millis())),
        output: bytes(spec.output),
        ready: spec.ready.map(|time| format!("{}ms", time.as_millis())),
    }
}

fn env(said: Vec<(belljar_spec::EnvName, Value)>) -> Result<BTreeMap<String, String>, SandboxError> {
    let one = |(name, value): (belljar_spec::EnvName, Value)| {
        let no = |why: &str| {
            SandboxError::policy("bad_variable", format!("the value of `{name}` {why}"))
                .hint("write the value into a file of the folder, and let the command read it")
        };
        let value = match value {
            Value::Secret(secret) => format!("secret:{secret}"),
            Value::Text(text) => {
                let text = text.into_string().map_err(|_| no("is no text"))?;
                // Taken from outside, it would mean something else there.
                if text.starts_with("secret:") {
                    return Err(no("looks like the name of a secret"));
                }
                text
            }
        };
        Ok((name.to_string(), value))
    };
    said.into_iter().map(one).collect()
}

/// What only a sandbox for one command understands.
fn once(flag: &str) -> SandboxError {
    SandboxError::policy("only_for_one_command", format!("`{flag}` is for a sandbox of one command"))
        .hint("say it to `belljar run`, or to `belljar shell --once`")
}

fn absolute(path: &Path) -> Result<String, SandboxError> {
    let odd = |why: &str| SandboxError::policy("bad_path", format!("`{}` {why}", path.display()));
    let path = std::path::absolute(path).map_err(|error| odd(&format!("cannot be used: {error}")))?;
    path.into_os_string().into_string().map_err(|_| odd("is no text"))
}

fn text<T: ToString>(value: &Option<T>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use crate::args::{Args, Command, KeptCommand};
    use belljar_api::SandboxRequest;
    use clap::Parser;

    fn request(words: &str) -> Result<SandboxRequest, &'static str> {
        let words = ["belljar", "start"].into_iter().chain(words.split_whitespace());
        match Args::try_parse_from(words).expect("words that are understood").command {
            Some(Command::Kept(KeptCommand::Start(options))) => {
                options.place.request().map_err(|error| error.code)
            }
            _ => panic!("it is `start`"),
        }
    }

    #[test]
    fn every_flag_reaches_the_daemon() {
        let words = "--backend bwrap --at-least namespace --image alpine:3.22 --workspace-path same --ro /a --rw b --env A=b --env K=secret:key \
            --nested --overlay --protect x --push agent/* --egress strict --allow =a.example:8443 --group github \
            --secret anthropic --web-search --github read --github-repo a/b --llm https://m.example --llm-key secret:m \
            --llm-kind openai --llm-model gpt-* --llm-budget calls=5 --timeout 90s --memory 1536m --cpus 0.5 --pids 64 \
            --open-files 512 --disk 1g --output 10k";
        let request = request(words).unwrap();
        let json = serde_json::to_value(&request).unwrap();
        let here = std::env::current_dir().unwrap().join("b");
        assert_eq!(
            json,
            serde_json::json!({
                "backend": "bwrap", "at_least": "namespace", "rootfs": "oci:alpine:3.22",
                "workspace": {
                    "overlay": true, "same_path": true, "ro": ["/a"], "rw": [here], "protect": ["x"], "push": ["agent/*"],
                },
                "egress": { "mode": "strict", "allow": ["=a.example:8443"], "deny": [], "groups": ["github"] },
                "llm": {
                    "url": "https://m.example", "key": "secret:m", "kind": "openai", "models": ["gpt-*"],
                    "budget": "calls=5",
                },
                "secrets": ["anthropic"], "web_search": "auto",
                "github": { "profile": "read", "repositories": ["a/b"] },
                "env": { "A": "b", "K": "secret:key" },
                "limits": {
                    "memory": "1610612736", "cpus": "0.5", "pids": 64, "open_files": 512, "disk": "1073741824",
                    "timeout": "90000ms", "output": "10240",
                },
                "ports": [], "nested": true, "volumes": {}, "admin": false, "root": false,
            })
        );
    }

    #[test]
    fn what_a_kept_sandbox_cannot_have_is_said() {
        for words in ["--layer 3f2a", "--clone https://a.example/b", "--env K=secret:k --forward-secret k"] {
            assert_eq!(request(words), Err("only_for_one_command"), "{words}");
        }
        assert_eq!(request("--branch fix/login --workspace /"), Ok(SandboxRequest::default()));
    }
}
