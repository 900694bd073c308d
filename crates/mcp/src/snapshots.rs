//! Snapshots: the sandbox's files kept, and brought back.

use crate::conversation::{Conversation, failed};
use crate::tools::{RestoreSnapshot, TakeSnapshot};
use belljar_api::SnapshotPart;
use belljar_spec::{ErrorCode, SandboxError, SnapshotName};

impl Conversation {
    pub(crate) async fn take_snapshot(&self, arguments: TakeSnapshot) -> Result<String, SandboxError> {
        let name = arguments.name.as_deref().map(named).transpose()?;
        let take = belljar_api::TakeSnapshot { name, ..belljar_api::TakeSnapshot::default() };
        let take = &take;
        let taken =
            self.with(|held| async move { held.sandbox.snapshot(take).await.map_err(failed) }).await?;
        let parts: Vec<&str> = taken.parts.iter().copied().map(part).collect();
        let mut text = format!("the snapshot `{}` has: {}", taken.name, parts.join(", "));
        for left_out in &taken.left_out {
            text.push_str(&format!("\nnot in it: {left_out}"));
        }
        Ok(text)
    }

    pub(crate) async fn restore_snapshot(&self, arguments: RestoreSnapshot) -> Result<String, SandboxError> {
        let restore = belljar_api::RestoreSandbox { snapshot: named(&arguments.name)?, force: false };
        let restore = &restore;
        let restored =
            self.with(|held| async move { held.sandbox.restore(restore).await.map_err(failed) }).await?;
        // Its commands are counted anew.
        self.shown().clear();
        let saved = restored.saved.map(|saved| format!("; the files before are kept as `{}`", saved.name));
        Ok(format!("the sandbox has the files of `{}`{}", arguments.name, saved.unwrap_or_default()))
    }
}

fn named(name: &str) -> Result<SnapshotName, SandboxError> {
    name.parse().map_err(|error| {
        ErrorCode::RequestValue
            .error(format!("`{}` is not a name of a snapshot: {error}", name.escape_debug()))
            .hint("use letters, digits, `-` and `_`")
    })
}

fn part(part: SnapshotPart) -> &'static str {
    match part {
        SnapshotPart::Root => "the system",
        SnapshotPart::Home => "the home folder",
        SnapshotPart::Workspace => "the workspace",
    }
}
