//! What a sandbox sees: decided here as data, carried out by a backend.
//!
//! The `host` root is made of the host's system directories, read-only; a home, temporary files and `/run` of its
//! own; a few files of /etc; and what the caller names. Everything else does not exist inside: homes, other users,
//! sockets, services, disks.

mod environment;
mod etc;
mod git;
mod home;
mod java;
mod marker;
mod mounts;
mod nested;
mod network;
mod shared;
mod sockets;
mod system;
mod trust;
mod volumes;
mod workspace;

use belljar_spec::workspace::{View, WorkspaceMode};
use belljar_spec::{Admin, SandboxError, SandboxSpec, WorkspacePath};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The shell that an interactive command gets, as a path inside.
pub use environment::shell;
pub(crate) use etc::HOSTNAME;
/// What a home starts with.
pub use etc::home_files;
/// What git is told inside.
pub use git::GitInside;
pub(crate) use marker::Marker;
pub(crate) use workspace::{Layered, Missing};

/// What a sandbox sees.
pub(crate) struct Layout {
    /// From the host, in the order they are mounted: parents first.
    pub(crate) binds: Vec<Bind>,
    /// Those of them that have a layer over them.
    pub(crate) layers: Vec<Layered>,
    /// What has to be made in folders of the host before they are mounted.
    pub(crate) missing: Vec<Missing>,
    /// Symbolic links (place, destination).
    pub(crate) links: Vec<(String, String)>,
    /// Small files of our own (place, content).
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// Directories of the private filesystem.
    pub(crate) private: Vec<PrivateDir>,
    /// Places that are hidden if they exist.
    pub(crate) masks: Vec<String>,
    /// Where commands start, as a path inside.
    pub(crate) workspace: String,
    /// What every command's environment holds.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// A part of the host's filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) source: PathBuf,
    /// Without the leading slash.
    pub(crate) target: String,
    pub(crate) kind: BindKind,
    pub(crate) origin: BindOrigin,
}

/// What may be done through a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BindKind {
    ReadOnly,
    ReadWrite,
    /// Writing, inside of something that is read-only as a whole.
    Reopened,
}

/// Why a bind is there, which decides whose eyes see its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BindOrigin {
    /// Part of the system: what everybody on the host may read.
    System,
    /// Programs under a home, which itself may be closed to others.
    Home,
    /// Named by the caller: the sandbox's user stands for its owner.
    Named,
    /// What is seen at the target already, mounted onto itself: it stays where it is.
    Held,
    /// A file of our own, seen at this place too, without the leading slash.
    Made(&'static str),
}

/// A directory of the private filesystem.
pub(crate) struct PrivateDir {
    /// Without the leading slash.
    pub(crate) target: &'static str,
    pub(crate) mode: u32,
}

impl Layout {
    /// The layout of the `host` root.
    pub(crate) fn for_host_root(
        marker: Marker,
        spec: &SandboxSpec,
        view: Option<&View>,
        resolver: Option<IpAddr>,
        authority: Option<&str>,
        own: &[PathBuf],
        git: Option<(&GitInside, Option<&Path>)>,
    ) -> Result<Layout, SandboxError> {
        let workspace_on_host = spec.workspace.as_deref().map(shared::workspace).transpose()?;
        let named = shared::named(&spec.shared, workspace_on_host.as_deref())?;
        // A view may show a folder that belljar keeps for the sandbox. What the caller named is never one.
        let shared: Vec<&Path> = workspace_on_host
            .iter()
            .map(PathBuf::as_path)
            .chain(named.iter().map(|bind| &*bind.source))
            .collect();
        shared::refuse_our_own(&shared, own)?;
        if spec.kept.is_some() {
            let asked = spec.shared.iter().map(|shared| &*shared.path);
            shared::refuse_moved(asked.chain(spec.workspace.as_deref()), &shared)?;
            let is_shown = matches!(spec.mode, WorkspaceMode::Bind | WorkspaceMode::Overlay { .. });
            if let (Some(view), Some(workspace), true) = (view, &workspace_on_host, is_shown) {
                shared::refuse_moved([&**workspace], &[&view.folder])?;
            }
        }
        let view = view.cloned().or_else(|| workspace_on_host.clone().map(View::plain));
        let (mut binds, mut links) = system::directories();
        let mut etc = etc::files(marker.id);
        etc.files.extend(network::files(
            spec.egress.as_ref(),
            resolver,
            spec.llm.as_ref().map(|llm| llm.port),
        ));
        let trust = authority.map(|pem| trust::add(pem, &mut etc)).unwrap_or_default();
        let mut home = home::visible();
        let (guard, git) =
            git.map(|(git, kept)| git::add(git, kept, &mut etc, &mut home.path)).unwrap_or_default();
        binds.extend(etc.binds);
        links.extend(etc.links);
        links.push(("var/tmp".into(), "../tmp".into()));
        binds.extend(home.binds);
        binds.extend(guard);

        let workspace = match (&workspace_on_host, spec.workspace_path) {
            (Some(path), WorkspacePath::SameAsHost) => text(path)?.to_string(),
            _ => WORKSPACE.to_string(),
        };
        let mut private = private_directories();
        if let Some(home) = &spec.home {
            private.retain(|directory| directory.target != relative(HOME));
            binds.push(volumes::home(home, own)?);
        }
        let shown = view.map(|view| workspace::show(&view, &workspace)).transpose()?;
        match &shown {
            Some(shown) => binds.extend(shown.binds.iter().cloned()),
            None => private.push(PrivateDir { target: relative(WORKSPACE), mode: 0o755 }),
        }
        let shown = shown.unwrap_or_default();
        binds.extend(nested::everywhere(named, &binds));
        binds.extend(volumes::mounted(&spec.volumes, own, &binds)?);
        binds.extend(shown.holds(&binds)?);
        binds.extend(kernel_switches(spec.admin));
        let mut masks: Vec<String> = system::MASKS.iter().map(|(path, _)| path.to_string()).collect();
        masks.extend(home::below_system(&binds));
        masks.extend(mounts::of_the_kernel(&binds));
        masks.extend(sockets::below(&binds));

        let environment = {
            let tools = [home.variables, trust, git].concat();
            environment::inside(&home.path, spec.admin, &tools, &asked_environment(spec))
        };
        let missing = shown.missing();
        let files = [etc.files, shown.files, Vec::from_iter(marker.file(spec))].concat();
        let layers = shown.layers;
        Ok(Layout { binds, layers, missing, links, files, private, masks, workspace, environment })
    }

    /// Where there is no wall: the host's own paths, and still an environment that starts empty.
    pub(crate) fn without_root(spec: &SandboxSpec, view: Option<&View>) -> Result<Layout, SandboxError> {
        if view.is_some_and(|view| view.layer.is_some()) {
            let message = "without a wall nothing can lie over a folder";
            return Err(SandboxError::unavailable("overlay_without_wall", message)
                .hint("leave `--overlay` away, or use `--backend native`"));
        }
        if let Some(shared) = spec.shared.first() {
            let message = format!(
                "`{}` cannot be shared without a wall: everything is visible already",
                shared.path.display()
            );
            return Err(SandboxError::unavailable("share_without_wall", message)
                .hint("leave `--ro` and `--rw` away, or use `--backend native`"));
        }
        volumes::refuse_without_wall(spec)?;
        if spec.admin == Admin::Root {
            let message = "without a wall nobody can be root inside and nobody outside";
            return Err(SandboxError::unavailable("root_without_wall", message)
                .hint("leave `root` away, or use the backend `native`"));
        }
        let named = spec.workspace.as_deref().map(shared::workspace).transpose()?;
        let Some(workspace) = view.map(|view| view.folder.clone()).or(named) else {
            let message = "without a wall there is no private workspace";
            return Err(
                SandboxError::unavailable("workspace_required", message).hint("name a folder to work on")
            );
        };
        Ok(Layout {
            binds: Vec::new(),
            layers: Vec::new(),
            missing: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            private: Vec::new(),
            masks: Vec::new(),
            environment: environment::on_host(&workspace, &asked_environment(spec)),
            workspace: text(&workspace)?.to_string(),
        })
    }

    /// The absolute paths inside that may be written.
    pub(crate) fn writable(&self) -> Vec<String> {
        let private = self.private.iter().map(|dir| dir.target.to_string());
        let shared =
            self.binds.iter().filter(|bind| bind.kind != BindKind::ReadOnly).map(|bind| bind.target.clone());
        let devices = ["dev".to_string(), "proc".to_string()];
        private.chain(shared).chain(devices).map(|path| format!("/{path}")).collect()
    }
}

/// Root of a user namespace owns the switches of its network, with or without capabilities: for that root they are read-only.
fn kernel_switches(admin: Admin) -> Option<Bind> {
    let (source, target) = ("/proc/sys".into(), "proc/sys".to_string());
    let (kind, origin) = (BindKind::ReadOnly, BindOrigin::Held);
    (admin == Admin::Root).then_some(Bind { source, target, kind, origin })
}

/// Where a path of the host is seen inside, if it is: by the last bind that holds it.
fn seen_at(path: &Path, binds: &[Bind]) -> Option<String> {
    let (bind, rest) =
        binds.iter().rev().find_map(|bind| Some((bind, path.strip_prefix(&bind.source).ok()?)))?;
    Path::new(&bind.target).join(rest).to_str().map(|place| place.trim_end_matches('/').to_string())
}

fn asked_environment(spec: &SandboxSpec) -> Vec<(OsString, OsString)> {
    spec.env.iter().map(|(name, value)| (OsString::from(name.as_str()), value.clone())).collect()
}

fn private_directories() -> Vec<PrivateDir> {
    vec![
        PrivateDir { target: "tmp", mode: 0o1777 },
        PrivateDir { target: relative(HOME), mode: 0o755 },
        PrivateDir { target: "dev/shm", mode: 0o1777 },
    ]
}

/// A path without its leading slash.
fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// A path of the host that can be said to the guest.
fn text(path: &Path) -> Result<&str, SandboxError> {
    path.to_str().ok_or_else(|| {
        let message = format!("the path `{}` is not UTF-8", path.display());
        SandboxError::policy("path_not_utf8", message).hint("rename it, or share a folder above it")
    })
}

/// Where the workspace is seen inside.
pub(crate) const WORKSPACE: &str = "/workspace";
/// The sandbox user's home.
pub(crate) const HOME: &str = "/home/agent";
/// The sandbox's user.
pub(crate) const USER: &str = "agent";
/// The sandbox user's id, and that of its group.
pub(crate) const USER_ID: u32 = 1000;
/// Root's.
pub(crate) const ROOT_ID: u32 = 0;
