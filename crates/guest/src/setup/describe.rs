//! Steps in words.

use belljar_wire::message::{Restriction, Source, Step};

/// What a step does, for the message when it fails.
pub(super) fn describe(step: &Step) -> String {
    match step {
        Step::NewRoot => "make a new root".into(),
        Step::PreparedRoot { .. } => "mount the prepared root".into(),
        Step::Restrict(Restriction::ReadOnly) => "make the root read-only".into(),
        Step::Restrict(Restriction::NoSetuid) => "turn off set-user-id programs".into(),
        Step::OwnFiles { target, .. } => format!("write /{target}"),
        Step::Dir { target, .. } => format!("make the directory /{target}"),
        Step::File { target, .. } => format!("write /{target}"),
        Step::Symlink { target, .. } => format!("make the link /{target}"),
        Step::Private { .. } => "make the private filesystem".into(),
        Step::PrivateDir { target } => format!("mount /{target}"),
        Step::Bind { source: Source::Path(path) | Source::Judged { path, .. }, target, .. } => {
            format!("mount {path} at /{target}")
        }
        Step::Bind { source: Source::Inside(_) | Source::Planted(_), target, .. } => {
            format!("hold /{target}")
        }
        Step::Overlay { target, .. } => format!("lay an overlay over /{target}"),
        Step::RootOverlay { .. } => "lay an overlay over the root".into(),
        Step::Bind { target, .. } => format!("mount /{target}"),
        Step::Unmount { target } => format!("unmount /{target}"),
        Step::RemoveDir { target } => format!("remove /{target}"),
        Step::Proc { target } => format!("mount proc at /{target}"),
        Step::DevPts { target } => format!("mount devpts at /{target}"),
        Step::Mask { target, .. } => format!("hide /{target}"),
        Step::Cover { target, .. } => format!("show another file at /{target}"),
        Step::Pivot => "change to the new root".into(),
        Step::ReadOnlyRoot => "make the root read-only".into(),
        Step::Hostname { .. } => "set the host name".into(),
        Step::BecomeUser { .. } => "become the sandbox's user".into(),
        Step::EnterNetwork { .. } => "make the network".into(),
        Step::OpenEgress(_) | Step::RelayEgress(_) => {
            "open the egress sockets of the network namespace".into()
        }
        Step::Write { target, .. } => format!("write /{target}"),
        Step::Subreaper => "become the reaper".into(),
        Step::Stage { place } => format!("make a new root at {place}"),
        Step::Uncover { cover } => format!("uncover {cover}"),
        Step::ActAs { .. } => "act as the sandbox's user".into(),
        Step::JoinNetwork => "enter the container's network namespace".into(),
        Step::NetworkIsReady { .. } => "take note of the network".into(),
    }
}
