//! A layout as steps for the guest.

use super::identity::{Passed, Users, layer_mount, mapped_mount, private_copy, root_mounts};
use super::{Identity, shares};
use crate::Plan;
use crate::layout::{Bind, BindKind, BindOrigin, GIT_GUARD, Layered, Layout, ROOT_ID};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::opened::{FileIdentity, OpenedPath};
use belljar_wire::message::{Access, Bytes, NodeKind, Source, Step};
use std::path::Path;

/// The whole of it: from an empty root to a finished one.
pub(super) fn steps(plan: &Plan, layout: &Layout, identity: Identity, sources: &Sources) -> Vec<Step> {
    let mut steps = Vec::from_iter(identity.step());
    steps.push(private_step(plan, layout, "/tmp"));
    // Where there are all ids, what belongs to the system is root's.
    let owner = matches!(identity, Identity::Range { .. }).then_some((ROOT_ID, ROOT_ID));
    steps.push(root_step(layout, sources, owner).unwrap_or(Step::NewRoot));
    steps.extend(bind_steps(layout, sources, |bind| bind.origin == BindOrigin::System));
    steps.push(Step::Proc { target: "proc".into() });
    steps.extend(after_root(plan, layout, "/dev"));
    steps.extend(bind_steps(layout, sources, |bind| bind.origin != BindOrigin::System));
    steps.extend(layout.mask_steps());
    steps.push(Step::Hostname { name: crate::layout::HOSTNAME.into() });
    steps.push(Step::EnterNetwork { egress: plan.egress() });
    steps.push(Step::Pivot);
    if layout.root.is_none() {
        steps.push(Step::ReadOnlyRoot);
    }
    steps
}

/// The root, where it is made of layers.
pub(crate) fn root_step(layout: &Layout, sources: &Sources, owner: Option<(u32, u32)>) -> Option<Step> {
    let (root, from) = layout.root.as_ref().zip(sources.root.as_ref())?;
    Some(Step::RootOverlay {
        holder: from.holder.clone(),
        lowers: root.lowers.clone(),
        layer: from.layer.clone(),
        mountpoints: root.mountpoints.clone(),
        links: root.links.clone(),
        owner,
        sealed: from.sealed.clone().map(|source| (source, root.sealed.clone())),
    })
}

/// What every root gets, wherever it comes from: private files, devices (from where they are seen), our own files.
pub(crate) fn after_root(plan: &Plan, layout: &Layout, devices: &str) -> Vec<Step> {
    let Layout { links, files, private, .. } = layout;
    let mut steps: Vec<Step> =
        private.iter().map(|directory| Step::PrivateDir { target: directory.target.to_string() }).collect();
    steps.push(Step::Dir { target: "run".into(), mode: 0o755 });
    steps.extend(device_steps(devices));
    steps.extend(links.iter().map(|(target, to)| Step::Symlink { target: target.clone(), to: to.clone() }));
    steps.extend(files.iter().map(|(target, content)| Step::File {
        target: target.clone(),
        mode: 0o644,
        content: Bytes(content.clone()),
    }));
    steps.extend(shares::steps(plan.nesting()));
    steps
}

/// The steps for some of the binds.
pub(crate) fn bind_steps(layout: &Layout, sources: &Sources, which: impl Fn(&Bind) -> bool) -> Vec<Step> {
    let chosen = layout.binds.iter().zip(&sources.binds).filter(|(bind, _)| which(bind));
    chosen.map(|(bind, source)| step(layout, sources, bind, source)).collect()
}

/// Where the mounts of a layout come from.
pub(crate) struct Sources {
    /// One for each bind.
    pub(crate) binds: Vec<Source>,
    /// One for each layer.
    pub(crate) layers: Vec<Source>,
    /// Those of the root, if it has layers.
    pub(crate) root: Option<RootSources>,
    /// What only we can open.
    pub(crate) mounts: Vec<Passed>,
}

/// Where a root of layers comes from.
pub(crate) struct RootSources {
    pub(crate) holder: Source,
    pub(crate) layer: Option<Source>,
    /// Where earlier changes are.
    pub(crate) sealed: Option<Source>,
}

impl Sources {
    /// Opens what the guest cannot open itself: as root, everything under homes and everything that was named.
    pub(crate) fn open(layout: &Layout, identity: Identity) -> Result<Sources, SandboxError> {
        Sources::open_for(layout, identity, Users::All)
    }

    /// The same, for a sandbox that has these users.
    pub(crate) fn open_for(
        layout: &Layout,
        identity: Identity,
        users: Users,
    ) -> Result<Sources, SandboxError> {
        let mut sources = Sources { binds: Vec::new(), layers: Vec::new(), root: None, mounts: Vec::new() };
        for bind in &layout.binds {
            let judged = || layout.opened.get(&bind.source);
            let source = match (identity, bind.origin) {
                (_, BindOrigin::Guard) => Source::Script(Bytes(GIT_GUARD.into())),
                (_, BindOrigin::Held) => Source::Inside(bind.target.clone()),
                (_, BindOrigin::Planted) => Source::Planted(bind.target.clone()),
                (_, BindOrigin::Made(place)) if layout.root.is_some() => Source::Planted(place.into()),
                (_, BindOrigin::Made(place)) => Source::Inside(place.into()),
                // The host's root alone can change what lies there.
                (_, BindOrigin::System) => Source::Path(bind.source.to_string_lossy().into_owned()),
                (Identity::Own { .. }, BindOrigin::Home | BindOrigin::Named) => by_identity(judged()?),
                (Identity::Range { .. }, BindOrigin::Home) => sources.pass(private_copy(judged()?)?.into()),
                (Identity::Range { .. }, BindOrigin::Named) => {
                    sources.pass(mapped_mount(judged()?, identity)?)
                }
            };
            sources.binds.push(source);
        }
        for layer in &layout.layers {
            let directory = layout.opened.get(&layer.directory)?;
            let source = match identity {
                Identity::Own { .. } => by_identity(directory),
                Identity::Range { .. } => {
                    let folder = layout.opened.get(folder_of(layout, layer)?)?;
                    sources.pass(layer_mount(layer, directory, folder, identity)?)
                }
            };
            sources.layers.push(source);
        }
        if let Some(root) = &layout.root {
            let directories = std::iter::once(&*root.holder)
                .chain(root.persistent.as_deref())
                .chain(root.sealed_holder.as_deref());
            let directories: Vec<&OpenedPath> =
                directories.map(|path| layout.opened.get(path)).collect::<Result<_, _>>()?;
            let mut opened: Vec<Source> = match identity {
                Identity::Own { .. } => directories.into_iter().map(by_identity).collect(),
                Identity::Range { .. } => {
                    let mounts = root_mounts(&directories, identity, users)?;
                    mounts.into_iter().map(|mount| sources.pass(mount)).collect()
                }
            };
            let sealed = root.sealed_holder.as_ref().and_then(|_| opened.pop());
            let layer = root.persistent.as_ref().and_then(|_| opened.pop());
            sources.root = opened.pop().map(|holder| RootSources { holder, layer, sealed });
        }
        Ok(sources)
    }

    pub(super) fn pass(&mut self, mount: Passed) -> Source {
        self.mounts.push(mount);
        Source::Passed((self.mounts.len() - 1) as u8)
    }
}

/// The folder that a layer lies over.
fn folder_of<'l>(layout: &'l Layout, layer: &Layered) -> Result<&'l Path, SandboxError> {
    let bind = layout.binds.iter().find(|bind| bind.target == layer.target);
    bind.map(|bind| &*bind.source)
        .ok_or_else(|| ErrorCode::WorkspaceFailed.error("a layer lies over nothing"))
}

/// For a guest that has to open it itself, in a mount namespace where no descriptor of ours means a mount: it opens the same
/// path, and mounts it only if it is the same file. We hold that open meanwhile, so no other file can become it.
fn by_identity(judged: &OpenedPath) -> Source {
    let FileIdentity { device, inode } = judged.identity();
    Source::Judged { path: judged.path().to_string_lossy().into_owned(), device, inode }
}

fn step(layout: &Layout, sources: &Sources, bind: &Bind, source: &Source) -> Step {
    let layers = layout.layers.iter().zip(&sources.layers);
    if bind.origin == BindOrigin::Named
        && let Some((layered, layer)) = layers.into_iter().find(|(layered, _)| layered.target == bind.target)
    {
        let Layered { target, upper, work, mountpoints, lowers, .. } = layered.clone();
        return Step::Overlay {
            target,
            folder: source.clone(),
            layer: layer.clone(),
            upper,
            work,
            mountpoints,
            lowers,
        };
    }
    let kind = match bind.origin {
        BindOrigin::Guard => NodeKind::File,
        _ if layout.opened.is_directory(&bind.source) => NodeKind::Directory,
        _ => NodeKind::File,
    };
    let access = match bind.kind {
        BindKind::ReadOnly => Access::ReadOnly,
        BindKind::ReadWrite => Access::ReadWrite,
        BindKind::Reopened => Access::Reopened,
    };
    Step::Bind { source: source.clone(), target: bind.target.clone(), kind, access }
}

/// The private filesystem: made first, over a directory (`cover`) that goes away with what is there now.
pub(crate) fn private_step(plan: &Plan, layout: &Layout, cover: &str) -> Step {
    private_step_beside(plan, layout, cover, 0)
}

/// The same, for a guest that keeps its own program there too, of so many bytes. Programs of ours are not counted as private files.
pub(crate) fn private_step_beside(plan: &Plan, layout: &Layout, cover: &str, program: u64) -> Step {
    let disk = plan.limits.disk.value.as_u64();
    let has_guard = layout.binds.iter().any(|bind| bind.origin == BindOrigin::Guard);
    let guard = if has_guard { GIT_GUARD.len() as u64 } else { 0 };
    let pages = |bytes: u64| bytes.next_multiple_of(PAGE);
    let covers = || layout.covers.iter().filter_map(|cover| cover.content.as_ref());
    let covers_bytes = covers().map(|content| pages(content.len() as u64)).sum::<u64>();
    let bytes = disk.saturating_add(pages(program)).saturating_add(pages(guard)).saturating_add(covers_bytes);
    let inodes = (disk / BYTES_AN_INODE).clamp(MIN_INODES, MAX_INODES);
    let inodes = inodes + u64::from(program > 0) + u64::from(has_guard) + covers().count() as u64;
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

/// Devices without data of any user.
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
/// Filesystems in memory count in pages, and round up to theirs.
const PAGE: u64 = 4096;
const MIN_INODES: u64 = 1024;
const MAX_INODES: u64 = 1 << 20;
