//! Pushes collected commits, only when the user asks for it.

use super::CloneError;
use super::address::{Address, Service};
use super::clone_dir::CloneDir;
use crate::foreign::object;
use crate::inert::{Finished, Git};
use belljar_git::ObjectId;
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::BranchName;
use belljar_vault::Secret;
use std::path::Path;

/// What was pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub branch: BranchName,
    pub commit: ObjectId,
    pub url: String,
}

/// Pushes the collected branch; `to` is another name for it on the remote. Never by force, and to the remote's default branch only
/// if `to` names it.
pub fn push(
    state: &Path,
    id: SandboxId,
    to: Option<&BranchName>,
    token: Option<Secret>,
) -> Result<Pushed, CloneError> {
    let git = Git::find()?;
    let (place, mut label) = CloneDir::find(state, id)?;
    let branch = label.branch().map_err(|reason| place.damaged(reason))?;
    let target = to.cloned().unwrap_or_else(|| branch.clone());
    if to.is_none() && label.default.as_deref() == Some(target.as_str()) {
        return Err(CloneError::DefaultBranch(target.to_string()));
    }
    let ours = place.ours();
    let found =
        git.on(&ours).args(["rev-parse", "-q", "--verify", &format!("{}^{{commit}}", branch.full())]).run();
    let commit = found.ok().and_then(|found| object(String::from_utf8_lossy(&found.stdout).trim_end()));
    let commit = commit.filter(|commit| label.base.as_deref() != Some(commit.as_str()));
    let commit = commit.ok_or(CloneError::NothingToPush)?;
    let address = Address::understand(&label.url, token)?;
    let call = git.on(&ours).args(["push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags"]);
    let call =
        address.reach(call.arg("--recurse-submodules=no"), Service::Receive).args(["--", &address.url]);
    let pushed = call.arg(format!("{commit}:{}", target.full())).run()?;
    if pushed.code != Some(0) {
        let reason = Printable::from(address.scrub(&why(&pushed)).as_str());
        return Err(CloneError::NotPushed { branch: target.to_string(), url: address.url, reason });
    }
    label.pushed = Some((commit.to_string(), target.to_string()));
    place.write_label(&label)?;
    Ok(Pushed { branch: target, commit, url: address.url })
}

/// git reports the result of every ref: `!<TAB>from:to<TAB>[rejected] (non-fast-forward)`.
fn why(pushed: &Finished) -> String {
    let text = String::from_utf8_lossy(&pushed.stdout);
    let refused =
        text.lines().find_map(|line| Some(line.strip_prefix("!\t")?.split_once('\t')?.1.to_string()));
    refused.unwrap_or_else(|| pushed.reason())
}
