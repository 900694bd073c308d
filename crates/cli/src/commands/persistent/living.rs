//! A sandbox that lives, found without its daemon: its shim says in its directory where it listens, readable only by us. A
//! command that runs there is a use of the sandbox, as the daemon knows it: no lease is needed for that.

use super::shell_rc;
use super::target::Target;
use crate::commands::daemon;
use belljar_api::SOCKET_VARIABLE;
use belljar_api::client::{Client, Sandbox};
use belljar_fleet::{FolderId, SandboxDir, is_name, name_of};
use belljar_server::shim::Contact;
use std::path::PathBuf;

/// A sandbox that answers.
pub(super) struct Living {
    pub(super) sandbox: Sandbox,
    /// Where in the workspace we stand.
    pub(super) below: Option<PathBuf>,
    /// What a person should know.
    pub(super) notes: Vec<String>,
}

impl Living {
    /// The one that is meant by its folder, its name or its key. Nothing where that is not sure, or none answers: the daemon knows more,
    /// and can start it.
    pub(super) async fn find(target: &Target) -> Option<Living> {
        // Another daemon is meant, which may keep its sandboxes elsewhere.
        if std::env::var_os(SOCKET_VARIABLE).is_some_and(|path| !path.is_empty()) {
            return None;
        }
        let name = match target {
            Target::Folder(repository) => name_of(&repository.key()),
            Target::Named(word) if is_name(word) => word.clone(),
            Target::Named(word) => name_of(word),
        };
        let directory = SandboxDir::of_fleet(&daemon::directory().ok()?, &name);
        let contact = Contact::read(&directory).ok().flatten()?;
        let below = match (target, contact.alive.folder) {
            // Another folder may be at its path by now.
            (Target::Folder(repository), Some(folder))
                if repository.is_ready() && FolderId::of(&repository.folder) == Some(folder) =>
            {
                // A sandbox can write to what its shells read: that is made anew before each command.
                shell_rc::prepare(repository).ok()?;
                repository.below.clone()
            }
            (Target::Named(_), None) => None,
            // Where that folder was is in the daemon's record.
            (Target::Folder(_), _) | (Target::Named(_), Some(_)) => return None,
        };
        let client = Client::shim(contact.address, &contact.token);
        client.connect().await.ok()?;
        Some(Living { sandbox: client.sandbox(&name), below, notes: contact.alive.notes })
    }
}
