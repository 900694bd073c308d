//! A layout as steps for the guest.

use super::Identity;
use super::identity::{Passed, mapped_mount};
use crate::Plan;
use crate::layout::{Bind, BindKind, BindOrigin, Layout};
use belljar_spec::{Nesting, SandboxError};
use belljar_sys::mount;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::CWD;
use belljar_wire::message::{Access, Bytes, NodeKind, Source, Step};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

/// The whole of it: from an empty root to a finished one.
pub(super) fn steps(plan: &Plan, layout: &Layout, identity: Identity, sources: &[Source]) -> Vec<Step> {
    let mut steps = Vec::from_iter(identity.step());
    steps.extend([private_step(plan, layout, "/tmp"), Step::NewRoot]);
    let (system, rest): (Vec<_>, Vec<_>) =
        layout.binds.iter().zip(sources).partition(|(bind, _)| bind.origin == BindOrigin::System);
    steps.extend(system.iter().map(|(bind, source)| step(bind, source)));
    steps.push(Step::Proc { target: "proc".into() });
    steps.extend(after_root(plan, layout, "/dev"));
    steps.extend(rest.iter().map(|(bind, source)| step(bind, source)));
    steps.extend(layout.masks.iter().map(|target| Step::Mask { target: target.clone() }));
    steps.push(Step::Hostname { name: crate::layout::HOSTNAME.into() });
    steps.push(Step::EnterNetwork { intake: plan.intake() });
    steps.push(Step::Pivot);
    steps.push(Step::ReadOnlyRoot);
    steps
}

/// What every root gets, whoever made it: private files, devices (from where they are seen), our own files.
pub(crate) fn after_root(plan: &Plan, layout: &Layout, devices: &str) -> Vec<Step> {
    let Layout { links, files, private, .. } = layout;
    let mut steps: Vec<Step> =
        private.iter().map(|directory| Step::PrivateDir { target: directory.target.into() }).collect();
    steps.push(Step::Dir { target: "run".into(), mode: 0o755 });
    steps.extend(device_steps(devices));
    steps.extend(links.iter().map(|(target, to)| Step::Symlink { target: target.clone(), to: to.clone() }));
    steps.extend(files.iter().map(|(target, content)| Step::File {
        target: target.clone(),
        mode: 0o644,
        content: Bytes(content.clone()),
    }));
    if plan.nesting() == Nesting::Denied {
        // A second lock beside the seccomp filter's.
        steps.push(Step::Write { target: "proc/sys/user/max_user_namespaces".into(), content: "0".into() });
    }
    steps
}

/// The steps for binds that are not part of the system.
pub(crate) fn bind_steps<'a>(binds: impl Iterator<Item = (&'a Bind, &'a Source)>) -> Vec<Step> {
    binds.map(|(bind, source)| step(bind, source)).collect()
}

/// Opens what the guest cannot open itself: as root, everything under homes and everything that was named. The
/// result says for each bind where it comes from.
pub(crate) fn passed_mounts(
    layout: &Layout,
    identity: Identity,
) -> Result<(Vec<Source>, Vec<Passed>), SandboxError> {
    let mut mounts = Vec::new();
    let mut sources = Vec::new();
    for bind in &layout.binds {
        let mount = match (identity, bind.origin) {
            (Identity::Own { .. }, _) | (_, BindOrigin::System) => None,
            (Identity::Range { .. }, BindOrigin::Home) => Some(plain_mount(bind)?.into()),
            (Identity::Range { .. }, BindOrigin::Named) => Some(mapped_mount(&bind.source, identity)?),
        };
        sources.push(match mount {
            None => Source::Path(bind.source.to_string_lossy().into_owned()),
            Some(mount) => {
                mounts.push(mount);
                Source::Passed((mounts.len() - 1) as u8)
            }
        });
    }
    Ok((sources, mounts))
}

fn plain_mount(bind: &Bind) -> Result<OwnedFd, SandboxError> {
    let failed = |reason: String| {
        SandboxError::runtime("share_failed", format!("cannot mount `{}`: {reason}", bind.source.display()))
    };
    let path = CString::new(bind.source.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
    mount::clone_tree(CWD, &path).map_err(|errno| failed(errno.to_string()))
}

fn step(bind: &Bind, source: &Source) -> Step {
    let kind = if bind.source.is_dir() { NodeKind::Directory } else { NodeKind::File };
    let access = match bind.kind {
        BindKind::ReadOnly => Access::ReadOnly,
        BindKind::ReadWrite => Access::ReadWrite,
    };
    Step::Bind { source: source.clone(), target: bind.target.clone(), kind, access }
}

/// The private filesystem: made first, over a directory (`cover`) that goes away with what is there now.
pub(crate) fn private_step(plan: &Plan, layout: &Layout, cover: &str) -> Step {
    let bytes = plan.limits.disk.value.as_u64();
    let inodes = (bytes / BYTES_AN_INODE).clamp(MIN_INODES, MAX_INODES);
    let modes = layout.private.iter().map(|directory| directory.mode).collect();
    Step::Private { cover: cover.into(), bytes, inodes, modes }
}

fn device_steps(devices: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = DEVICES
        .iter()
        .map(|name| Step::Bind {
            source: Source::Path(format!("{devices}/{name}")),
            target: format!("dev/{name}"),
            kind: NodeKind::File,
            access: Access::Device,
        })
        .collect();
    steps.push(Step::DevPts { target: "dev/pts".into() });
    steps.extend(
        DEVICE_LINKS
            .iter()
            .map(|(name, to)| Step::Symlink { target: format!("dev/{name}"), to: (*to).into() }),
    );
    steps
}

/// Devices that hold nothing of anybody's.
pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// An inode takes about a kilobyte of kernel memory that the size does not count.
const BYTES_AN_INODE: u64 = 4096;
const MIN_INODES: u64 = 1024;
const MAX_INODES: u64 = 1 << 20;
