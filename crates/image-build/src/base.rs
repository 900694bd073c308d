//! `belljar-base`: the image with tools and agents that repositories' images are made from.

use super::ask::Asker;
use super::authorities::Authorities;
use super::daemon_build::{self, Ended, Files, How, Job, OnEvent};
use super::versions::VersionRequest;
use belljar_docker::Daemon;
use belljar_spec::{CommandLine, ErrorCode, ImageName, SandboxError, hint};
use std::collections::BTreeMap;

/// The repository of base images, on the daemon.
pub const BASE: &str = "belljar-base";
/// What a base is made from by default: Node 24 on the Debian that has every tool as a package.
pub const DEFAULT_FROM: &str = "node:24-trixie-slim";
/// Where npm's packages come from by default.
pub const NPM: &str = "https://registry.npmjs.org";
/// Where git-delta's makers have theirs.
pub const GIT_DELTA: &str = "https://github.com/dandavison/delta";

/// What base is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseRequest {
    /// `belljar-base:TAG`.
    pub image: ImageName,
    /// What it is made from.
    pub from: ImageName,
    /// Ask this registry for it instead of the one that its name means: `host[:port][/path]`.
    pub pull_from: Option<String>,
    pub npm_registry: WebAddress,
    pub claude_code: VersionRequest,
    pub codex: VersionRequest,
    pub opencode: VersionRequest,
    pub ast_grep: VersionRequest,
    /// Without one, the package of the distribution.
    pub git_delta: Option<VersionRequest>,
    pub git_delta_from: WebAddress,
    /// CAs to trust besides the system's, here and in the image: PEM.
    pub authorities: Option<Authorities>,
    pub how: How,
}

/// A base that is ready to be built: every version is an exact one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasePlan {
    pub image: ImageName,
    pub from: ImageName,
    /// By the names that people know them by.
    pub versions: BTreeMap<&'static str, String>,
    npm_registry: WebAddress,
    git_delta_from: WebAddress,
    authorities: Option<Authorities>,
    how: How,
}

/// `http(s)://host/path` without a password: it ends up in the image's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebAddress(String);

/// Not such an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWebAddress {
    #[error("`{0}` is no address: write one like `https://registry.example.com/npm`")]
    Malformed(String),
    #[error("an address with a user or a password in it would be kept in the image: leave them out")]
    Password,
}

impl BaseRequest {
    /// Asks registries what floating versions mean today. Exact ones need no registry.
    pub async fn settle(&self) -> Result<BasePlan, SandboxError> {
        let asker = Asker::new(self.authorities.as_ref())?;
        let mut versions = BTreeMap::new();
        for (program, package, requested) in [
            ("claude-code", "@anthropic-ai/claude-code", &self.claude_code),
            ("codex", "@openai/codex", &self.codex),
            ("opencode", "opencode-ai", &self.opencode),
            ("ast-grep", "@ast-grep/cli", &self.ast_grep),
        ] {
            versions.insert(program, asker.npm(&self.npm_registry.0, package, requested).await?.to_string());
        }
        let delta = match &self.git_delta {
            Some(requested) => asker.git(&self.git_delta_from.0, requested).await?.to_string(),
            None => DISTRIBUTION.to_string(),
        };
        versions.insert("git-delta", delta);
        Ok(BasePlan {
            image: self.image.clone(),
            from: self.source()?,
            versions,
            npm_registry: self.npm_registry.clone(),
            git_delta_from: self.git_delta_from.clone(),
            authorities: self.authorities.clone(),
            how: self.how.clone(),
        })
    }

    /// The image that it is made from, by the name under which it is available.
    fn source(&self) -> Result<ImageName, SandboxError> {
        let Some(mirror) = &self.pull_from else { return Ok(self.from.clone()) };
        let no = |message: String| {
            ErrorCode::RequestValue.error(message).hint(hint!(
                "write {}, or the whole name of the image at {}",
                CommandLine::BuildPullFrom.of("registry.example.com:5000"),
                CommandLine::BuildFrom
            ))
        };
        if let Some(registry) = self.from.registry() {
            return Err(no(format!(
                "`{}` says itself that it comes from `{registry}`, so not from a mirror",
                self.from
            )));
        }
        let repository = self.from.repository();
        // What Docker's own registry has without an owner is its library's.
        let owner = if repository.contains('/') { "" } else { "library/" };
        let tag = self.from.tag().map(|tag| format!(":{tag}")).unwrap_or_default();
        let digest = self.from.digest().map(|digest| format!("@{digest}")).unwrap_or_default();
        let mirror = mirror.trim_end_matches('/');
        let named: ImageName = format!("{mirror}/{owner}{repository}{tag}{digest}")
            .parse()
            .map_err(|_| no(format!("`{mirror}` is not the name of a registry")))?;
        match named.registry() {
            Some(_) => Ok(named),
            None => {
                Err(no(format!("`{mirror}` is not the name of a registry: it has neither a dot nor a port")))
            }
        }
    }
}

impl BasePlan {
    /// Builds it.
    pub fn build(&self, daemon: &Daemon, on_event: OnEvent<'_>) -> Result<Ended, SandboxError> {
        daemon_build::ensure(daemon, &self.from, self.how.pull, on_event)?;
        let version = |program: &str| self.versions.get(program).cloned().unwrap_or_default();
        let authorities = self.authorities.as_ref().map(Authorities::pem).unwrap_or_default();
        let job = Job {
            image: &self.image.to_string(),
            dockerfile: "Dockerfile",
            files: Files::Given(&[("Dockerfile", DOCKERFILE), ("authorities.pem", authorities)]),
            arguments: BTreeMap::from([
                ("BASE_IMAGE", self.from.to_string()),
                ("NPM_REGISTRY", self.npm_registry.0.clone()),
                ("GIT_DELTA_FROM", self.git_delta_from.0.clone()),
                ("GIT_DELTA_VERSION", version("git-delta")),
                ("AST_GREP_VERSION", version("ast-grep")),
                ("OPENCODE_VERSION", version("opencode")),
                ("CODEX_VERSION", version("codex")),
                ("CLAUDE_CODE_VERSION", version("claude-code")),
            ]),
            labels: BTreeMap::from([
                ("belljar.image", "base".to_string()),
                ("belljar.from", self.from.to_string()),
                ("belljar.versions", self.shown_versions()),
            ]),
            how: &self.how,
        };
        daemon_build::build(daemon, &job, on_event)
    }

    /// `claude-code 2.1.3, codex 0.9.0`.
    pub fn shown_versions(&self) -> String {
        let all: Vec<String> =
            self.versions.iter().map(|(program, version)| format!("{program} {version}")).collect();
        all.join(", ")
    }
}

impl std::str::FromStr for WebAddress {
    type Err = NoWebAddress;

    fn from_str(text: &str) -> Result<WebAddress, NoWebAddress> {
        let malformed = || {
            NoWebAddress::Malformed(text.chars().filter(|letter| !letter.is_control()).take(200).collect())
        };
        let address = reqwest::Url::parse(text).map_err(|_| malformed())?;
        if !address.username().is_empty() || address.password().is_some() {
            return Err(NoWebAddress::Password);
        }
        let is_plain = address.query().is_none() && address.fragment().is_none() && address.has_host();
        if !matches!(address.scheme(), "http" | "https") || !is_plain {
            return Err(malformed());
        }
        Ok(WebAddress(address.as_str().trim_end_matches('/').to_string()))
    }
}

impl std::fmt::Display for WebAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

const DOCKERFILE: &str = include_str!("base/Dockerfile");
/// What the Dockerfile takes for the distribution's own package.
const DISTRIBUTION: &str = "distribution";

#[cfg(test)]
mod tests {
    use super::*;

    fn request(from: &str, pull_from: Option<&str>) -> BaseRequest {
        let exact = || "1.2.3".parse::<VersionRequest>().unwrap();
        BaseRequest {
            image: "belljar-base:latest".parse().unwrap(),
            from: from.parse().unwrap(),
            pull_from: pull_from.map(String::from),
            npm_registry: NPM.parse().unwrap(),
            claude_code: exact(),
            codex: exact(),
            opencode: exact(),
            ast_grep: exact(),
            git_delta: None,
            git_delta_from: GIT_DELTA.parse().unwrap(),
            authorities: None,
            how: How::default(),
        }
    }

    #[test]
    fn a_mirror_has_what_dockers_registry_has_under_its_full_name() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (from, mirror, meant) in [
            ("node:24", "localhost:5000", "localhost:5000/library/node:24"),
            ("owner/node:24", "mirror.example.com/hub/", "mirror.example.com/hub/owner/node:24"),
            (&format!("node@{digest}"), "m.example.com", &format!("m.example.com/library/node@{digest}")),
        ] {
            assert_eq!(request(from, Some(mirror)).source().unwrap().to_string(), meant);
        }
        for (from, mirror) in
            [("ghcr.io/x/y:1", "localhost:5000"), ("node:24", "mirror"), ("node:24", "https://m.example.com")]
        {
            assert_eq!(
                request(from, Some(mirror)).source().unwrap_err().code,
                ErrorCode::RequestValue,
                "{from} {mirror}"
            );
        }
    }

    #[tokio::test]
    async fn no_registry_is_asked_about_exact_versions() {
        let mut request = request("node:24", None);
        request.npm_registry = "http://127.0.0.1:1".parse().unwrap();
        let plan = request.settle().await.unwrap();
        assert_eq!(plan.versions["claude-code"], "1.2.3");
        assert_eq!(plan.versions["git-delta"], "distribution");
        request.codex = VersionRequest::latest();
        let error = request.settle().await.unwrap_err();
        assert_eq!(error.code, ErrorCode::RegistryFailed);
        assert!(error.message.contains("@openai/codex"), "{}", error.message);
    }

    #[test]
    fn an_address_holds_no_password_and_nothing_that_a_shell_reads() {
        assert_eq!(
            "http://localhost:4873/".parse::<WebAddress>().unwrap().to_string(),
            "http://localhost:4873"
        );
        assert_eq!("https://u:p@x.example/".parse::<WebAddress>(), Err(NoWebAddress::Password));
        for text in ["", "x", "file:///etc", "https://x/?a=b", "ftp://x", "https://"] {
            assert!(text.parse::<WebAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_argument_is_one_of_the_dockerfile_and_no_step_is_tolerant() {
        for name in [
            "BASE_IMAGE",
            "NPM_REGISTRY",
            "GIT_DELTA_FROM",
            "GIT_DELTA_VERSION",
            "AST_GREP_VERSION",
            "OPENCODE_VERSION",
        ] {
            assert!(DOCKERFILE.contains(&format!("\nARG {name}")), "{name}");
        }
        let scripts = DOCKERFILE.split("\nRUN : ").skip(1);
        assert_eq!(scripts.clone().count(), DOCKERFILE.matches("\nRUN ").count());
        assert!(
            scripts.clone().count() >= 8 && scripts.clone().all(|script| script.contains("; set -eu; \\\n"))
        );
        assert!(!DOCKERFILE.contains("|| true") && !DOCKERFILE.contains("sudo "));
        assert!(DOCKERFILE.contains(&format!("ARG BASE_IMAGE={DEFAULT_FROM}\n")));
    }
}
