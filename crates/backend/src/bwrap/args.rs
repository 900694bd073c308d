//! A layout as words for bubblewrap.

use crate::layout::{BindKind, BindOrigin, HOSTNAME, Layout};
use crate::native::{DEVICES, Sources, user_inside};
use belljar_spec::Admin;
use belljar_wire::message::Source;

/// Everything, with the guest as its program. Descriptors: 3 is the control socket, 4 the guest itself, 5 where bubblewrap
/// says which process the guest is, 6 only keeps that one from breaking. What has to lie over the guest's own mounts, and
/// devices, is staged where the guest finds it; `sources` are changed to say so. Bubblewrap follows links: the guest mounts
/// what is staged only if it is what was judged.
pub(super) fn args(admin: Admin, layout: &Layout, sources: &mut Sources) -> Vec<String> {
    let id = user_inside(admin).to_string();
    let mut args: Vec<String> = [
        "bwrap",
        "--unshare-all",
        // Not --die-with-parent, which means the thread that starts it: the guest leaves when the control socket closes.
        "--info-fd",
        "5",
        "--new-session",
        "--as-pid-1",
        "--clearenv",
        "--setenv",
        "MALLOC_ARENA_MAX",
        "1",
        "--uid",
        &id,
        "--gid",
        &id,
        "--hostname",
        HOSTNAME,
        // For the guest's part of the setup; it gives all of them up when it confines itself.
        "--cap-add",
        "ALL",
    ]
    .map(str::to_string)
    .to_vec();
    // Parents that bubblewrap makes by itself would be closed to others.
    for directory in ["/etc", "/etc/ssl", "/sys", "/sys/devices", "/sys/devices/system"] {
        args.extend(["--dir".into(), directory.into()]);
    }
    for bind in layout.binds.iter().filter(|bind| bind.origin == BindOrigin::System) {
        args.extend([
            "--ro-bind".into(),
            bind.source.to_string_lossy().into_owned(),
            format!("/{}", bind.target),
        ]);
    }
    args.extend(["--tmpfs".into(), STAGE.into()]);
    for name in DEVICES {
        args.extend(["--dev-bind".into(), format!("/dev/{name}"), format!("{STAGED_DEVICES}/{name}")]);
    }
    for (index, (bind, source)) in layout.binds.iter().zip(&mut sources.binds).enumerate() {
        let Source::Judged { path, .. } = source else { continue };
        let word = match bind.kind {
            BindKind::ReadOnly => "--ro-bind",
            BindKind::ReadWrite | BindKind::Reopened => "--bind",
        };
        let staged = format!("{STAGE}/{index}");
        args.extend([word.into(), std::mem::replace(path, staged.clone()), staged]);
    }
    for (index, source) in sources.layers.iter_mut().enumerate() {
        let Source::Judged { path, .. } = source else { continue };
        let staged = format!("{STAGE}/layer{index}");
        args.extend(["--bind".into(), std::mem::replace(path, staged.clone()), staged]);
    }
    if let Some(root) = &mut sources.root {
        for (name, word, source) in [
            ("root", "--ro-bind", Some(&mut root.holder)),
            ("changes", "--bind", root.layer.as_mut()),
            ("sealed", "--ro-bind", root.sealed.as_mut()),
        ] {
            let Some(Source::Judged { path, .. }) = source else { continue };
            let staged = format!("{STAGE}/{name}");
            args.extend([word.into(), std::mem::replace(path, staged.clone()), staged]);
        }
    }
    args.extend(["--proc", "/proc", "--chdir", "/", "/proc/self/fd/4"].map(str::to_string));
    args
}

/// The same words for a person: without the descriptors that belljar passes, and with a shell where it starts the guest. What is
/// left to the guest is not there, but for the links at the top, without which no program starts: its part is in the steps.
pub(super) fn by_hand(words: &[String], links: &[(String, String)]) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some(at) = words.iter().position(|word| word == "--info-fd") {
        words.drain(at..at + 2);
    }
    // The last is the guest's program.
    words.pop();
    for (place, to) in links.iter().filter(|(place, _)| !place.contains('/')) {
        words.extend(["--symlink".into(), to.clone(), format!("/{place}")]);
    }
    words.push("/bin/sh".into());
    words
}

/// Where bubblewrap puts what the guest moves to its place.
pub(super) const STAGE: &str = "/.stage";
/// Devices among it.
pub(super) const STAGED_DEVICES: &str = "/.stage/dev";
