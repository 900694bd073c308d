//! What became of a sandbox, in the words that programs read: one shape for all callers.

use crate::Changes;
use belljar_overlay::quote;
use belljar_spec::egress::Refused;
use belljar_workspace::private_git::ImportReport;
use belljar_workspace::protect::Findings;
use serde::Serialize;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Something that was tried to reach and may not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedReport {
    pub destination: String,
    pub port: Option<u16>,
    pub reason: &'static str,
    pub detail: Option<String>,
    /// What would allow it.
    pub remedy: Option<String>,
    pub times: u64,
    /// The same, for people.
    #[serde(skip)]
    pub sentence: String,
}

impl From<Refused> for RefusedReport {
    fn from(Refused { refusal, times }: Refused) -> RefusedReport {
        RefusedReport {
            destination: refusal.destination.to_string(),
            port: refusal.port,
            reason: refusal.reason.code(),
            detail: refusal.detail.as_ref().map(|detail| detail.as_str().to_string()),
            remedy: refusal.remedy(),
            times,
            sentence: refusal.to_string(),
        }
    }
}

impl Changes {
    /// For programs; nothing where there is nothing to tell.
    pub fn report(&self) -> Option<Value> {
        Some(match self {
            Changes::None => return None,
            Changes::Folder { findings: Findings { left, executed, is_whole }, git } => json!({
                "left": left.iter().map(|one| json!({
                    "path": shown(&one.path),
                    "kind": one.what.code(),
                    "what": one.what.sentence(),
                })).collect::<Vec<_>>(),
                "runs_on_host": executed.iter().map(|one| json!({
                    "path": shown(&one.path),
                    "reason": one.reason,
                })).collect::<Vec<_>>(),
                "looked_at_all": is_whole,
                "git": git_report(git),
            }),
            Changes::Layer { id, summary, git, .. } => {
                json!({ "layer": id.to_string(), "changes": summary, "git": git_report(git) })
            }
            Changes::ManagedClone { clone_name, branch, folder, left } => json!({
                "managed_clone": clone_name,
                "branch": branch,
                "folder": shown(folder),
                "pushed": left.is_on_host(),
                "uncommitted": left.unknown.is_none().then_some(&left.uncommitted),
            }),
            Changes::Clone { id, url, collected } => json!({
                "clone": id,
                "url": url,
                "branch": collected.branch,
                "commits": collected.commits.iter().map(|commit| json!({
                    "hash": commit.hash.as_str(),
                    "author": commit.author,
                    "subject": commit.subject,
                    "files": commit.files,
                })).collect::<Vec<_>>(),
                "count": collected.count,
                "uncommitted": collected.uncommitted,
            }),
        })
    }
}

/// What became of commits.
pub fn git_report(git: &ImportReport) -> Value {
    json!({
        "followed": git.followed.iter().map(|one| json!({
            "ref": one.reference,
            "old": one.old.as_ref().map(|id| id.as_str()),
            "new": one.new.as_ref().map(|id| id.as_str()),
        })).collect::<Vec<_>>(),
        "set_aside": git.set_aside.iter().map(|one| json!({
            "ref": one.reference,
            "kept_as": one.kept_as,
            "commit": one.commit.as_str(),
            "reason": one.reason,
            "makes_submodule": one.makes_submodule,
        })).collect::<Vec<_>>(),
    })
}

/// An agent may have chosen the name.
fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}
