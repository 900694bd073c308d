//! What to do next, in pieces. The command line and the HTTP API have different names for the same thing (`--overlay`,
//! `workspace.overlay`), so a hint holds a [`Term`] for it, and each front writes that in its own words. As text ([`Hint`]'s `Display`)
//! it is what an API caller, a library caller and a log read; `cli/src/terms.rs` has the words of the command line.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What to do next. On the wire it is a list of texts and objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint(Vec<Piece>);

/// A part of a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Piece {
    Text(String),
    Term {
        term: Term,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    CommandLine {
        command_line: CommandLine,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
}

/// A hint with terms, values and other hints in the gaps of a sentence: `hint!("omit {}", Term::Overlay)`.
#[macro_export]
macro_rules! hint {
    ($text:literal $(, $piece:expr)+ $(,)?) => {{
        const _: () = assert!($crate::Hint::gaps($text) == [$(stringify!($piece)),+].len(), "a piece for each gap");
        $crate::Hint::filled($text, [$($crate::Hint::from($piece)),+])
    }};
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $(#[doc = $text] $variant,)*
        }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

words! {
    /// What a request to the API can set or ask for; the command line has other words for it.
    Term {
        AgentContext "workspace.agent_context"
        AtLeast "at_least"
        Backend "backend"
        Branch "workspace.branch"
        Budget "budget"
        Clone "workspace.clone"
        Disk "limits.disk"
        Effort "effort"
        Egress "egress.mode"
        EgressAllow "egress.allow"
        EgressGroups "egress.groups"
        EgressHostPorts "egress.host_ports"
        Env "env"
        Folder "workspace.folder"
        GitHub "github.profile"
        Hide "workspace.hide"
        Placeholders "workspace.placeholders"
        LlmKey "llm.key"
        LlmKind "llm.kind"
        LlmUrl "llm.url"
        Memory "limits.memory"
        Model "model"
        Nested "nested"
        Overlay "workspace.overlay"
        Pids "limits.pids"
        ReadyTimeout "limits.ready"
        Ro "workspace.ro"
        Rootfs "rootfs"
        Rw "workspace.rw"
        ShareGit "workspace.share_git"
        Terminal "terminal"
        Timeout "timeout_s"
        WebSearch "web_search"
        Capabilities "GET /v1/capabilities"
        CreateGrant "POST /v1/grants"
        CreateSandbox "POST /v1/sandboxes"
        DeleteSandbox "DELETE /v1/sandboxes/NAME"
        ForceDeleteSandbox "DELETE /v1/sandboxes/NAME?force=true"
        GetSandbox "GET /v1/sandboxes/NAME"
        ListGrants "GET /v1/grants"
        ListSandboxes "GET /v1/sandboxes"
        ListSnapshots "GET /v1/snapshots"
        StopSandbox "POST /v1/sandboxes/NAME/stop"
        Sweep "POST /v1/sweep"
    }
}

words! {
    /// What only the command line has: the API tells its caller that the owner of the host can do it.
    CommandLine {
        AgentRun "belljar agent run"
        AgentRuns "belljar agent runs"
        Apply "belljar apply"
        Audit "belljar audit"
        AuditShow "belljar audit show"
        AuditVerify "belljar audit verify"
        Build "belljar images build"
        BuildBase "belljar images build-base"
        ConfigSchema "belljar config schema"
        DiffNames "belljar diff --names"
        DiffPatch "belljar diff PATH | patch -p1 --merge"
        Discard "belljar changes discard"
        GoldenBuild "belljar images golden build"
        GoldenStatus "belljar images golden status"
        Help "belljar help"
        ImagesGc "belljar images gc"
        ImagesImport "belljar images import FILE"
        ImagesPull "belljar images pull"
        Layers "belljar changes list"
        LlmPrices "belljar llm prices"
        SecretsList "belljar secrets list"
        SecretsSet "belljar secrets set"
        Serve "belljar serve"
        Trust "belljar config trust"
        BuildFrom "--base"
        BuildPullFrom "--pull-from"
        Context "--context"
        DangerForwardAppKey "--danger-forward-app-key"
        ForwardSecret "--forward-secret"
        Mirror "--mirror"
        NpmRegistry "--npm-registry"
        PromptFile "--prompt-file"
        PublishToken "--token"
        ServeE2b "belljar serve --e2b"
        ServeE2bDomain "belljar serve --e2b-domain"
        ServeHostName "belljar serve --host-name"
        ServeListen "belljar serve --listen"
        ServeMaxUpload "belljar serve --max-upload"
        ServeOrigin "belljar serve --origin"
        ServeSocket "belljar serve --socket"
    }
}

impl Hint {
    /// How many gaps a sentence has. For [`hint!`].
    pub const fn gaps(text: &str) -> usize {
        let (bytes, mut at, mut gaps) = (text.as_bytes(), 1, 0);
        while at < bytes.len() {
            gaps += (bytes[at - 1] == b'{' && bytes[at] == b'}') as usize;
            at += 1;
        }
        gaps
    }

    /// With a piece in each gap. For [`hint!`].
    pub fn filled<const N: usize>(text: &str, pieces: [Hint; N]) -> Hint {
        let pieces = pieces.into_iter().chain([Hint::default()]);
        let all = text.split("{}").zip(pieces).flat_map(|(text, hint)| {
            let text = (!text.is_empty()).then(|| Piece::Text(text.into()));
            text.into_iter().chain(hint.0)
        });
        Hint(all.collect())
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Whether every front says it in the same words.
    pub fn is_text(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }
}

impl Term {
    /// With a value: `backend: native`.
    pub fn to(self, value: impl fmt::Display) -> Piece {
        Piece::Term { term: self, value: Some(value.to_string()) }
    }
}

impl CommandLine {
    /// With what stands behind it: `belljar changes discard ID`.
    pub fn of(self, value: impl fmt::Display) -> Piece {
        Piece::CommandLine { command_line: self, value: Some(value.to_string()) }
    }
}

impl From<Piece> for Hint {
    fn from(piece: Piece) -> Hint {
        Hint(vec![piece])
    }
}

impl From<Term> for Hint {
    fn from(term: Term) -> Hint {
        Piece::Term { term, value: None }.into()
    }
}

impl From<CommandLine> for Hint {
    fn from(command_line: CommandLine) -> Hint {
        Piece::CommandLine { command_line, value: None }.into()
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Hint {
        Piece::Text(text).into()
    }
}

impl From<&str> for Hint {
    fn from(text: &str) -> Hint {
        text.to_string().into()
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Term { term, value: None } => write!(f, "`{}`", term.as_str()),
            Piece::Term { term, value: Some(value) } => write!(f, "`{}: {value}`", term.as_str()),
            Piece::CommandLine { command_line, value: None } => {
                write!(f, "`{}` on the host", command_line.as_str())
            }
            Piece::CommandLine { command_line, value: Some(value) } => {
                write!(f, "`{} {value}` on the host", command_line.as_str())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_hint_is_text_with_fields_of_the_api_and_a_list_on_the_wire() {
        let backend = Term::Backend.to("native");
        let hint = hint!("omit {}: {}, {}, {}", "it", Term::Overlay, backend, CommandLine::Discard.of(7));
        assert_eq!(
            hint.to_string(),
            "omit it: `workspace.overlay`, `backend: native`, `belljar changes discard 7` on the host"
        );
        let wire = json!([
            "omit ", "it", ": ", { "term": "overlay" }, ", ", { "term": "backend", "value": "native" }, ", ",
            { "command_line": "discard", "value": "7" },
        ]);
        assert_eq!(serde_json::to_value(&hint).unwrap(), wire);
        assert_eq!(serde_json::from_value::<Hint>(wire).unwrap(), hint);
    }
}
