//! What a sandbox sees: decided here as data, carried out by a backend.
//!
//! The `host` root is made of the host's system directories, read-only; a home, temporary files and `/run` of its
//! own; a few files of /etc; and what the caller names. Everything else does not exist inside: homes, other users,
//! sockets, services, disks.

mod confined;
mod context;
mod environment;
mod etc;
mod git;
mod guarded;
mod hidden;
mod home;
mod java;
mod marker;
mod mounts;
mod nested;
mod network;
mod opened;
mod regional;
mod remote;
mod root;
mod sealed;
mod shared;
mod sockets;
mod system;
mod tree;
mod trust;
mod volumes;
mod workspace;

use belljar_spec::workspace::{Shield, Shielded, View, WorkspaceMode};
use belljar_spec::{Admin, AgentContext, ErrorCode, SandboxError, SandboxSpec, Term, WorkspacePath, hint};
use belljar_wire::message::{Bytes, Step};
use guarded::Surroundings;
pub(crate) use hidden::Cover;
pub use hidden::EnvFiles;
use hidden::Hidden;
use home::Homes;
use mounts::Mounts;
use std::borrow::Cow;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub(crate) use confined::{HOME, OWN as OWN_FILES, TEMPORARY, WORK};
/// What git is told of agent context.
pub use context::git_config as context_git_config;
/// The shell that an interactive command gets, as a path inside.
pub use environment::shell;
pub(crate) use etc::HOSTNAME;
/// What a home starts with.
pub use etc::home_files;
pub(crate) use git::GIT_GUARD;
/// What git is told inside.
pub use git::GitInside;
pub(crate) use marker::Marker;
pub(crate) use opened::{OpenedPaths, moved};
pub(crate) use root::RootLayer;
/// Files of earlier snapshots.
pub use sealed::SealedLayers;
/// Whether a directory can be a sandbox's `/`.
pub use shared::root_directory;
/// What a sandbox's `/` is made of.
pub use tree::{DaemonImage, RootTree};
pub(crate) use workspace::{Layered, Missing};

/// What a layout follows from.
pub(crate) struct Wanted<'p> {
    pub(crate) marker: Marker,
    pub(crate) spec: &'p SandboxSpec,
    pub(crate) view: Option<&'p View>,
    pub(crate) resolver: Option<IpAddr>,
    pub(crate) authority: Option<&'p str>,
    pub(crate) own: &'p [PathBuf],
    /// What git is told.
    pub(crate) git: Option<&'p GitInside>,
    /// What `/` is made of; without it, the host's own system.
    pub(crate) root: Option<&'p RootTree>,
    /// What agents are told beside their repository.
    pub(crate) context: Option<&'p AgentContext>,
    /// What lies below the files that it keeps.
    pub(crate) sealed: Option<&'p SealedLayers>,
    /// Makes what is shown of files of variables.
    pub(crate) env_files: Option<&'p EnvFiles>,
}

/// What a sandbox sees.
#[derive(Default)]
pub(crate) struct Layout {
    /// What `/` is made of; without it, of what follows.
    pub(crate) root: Option<RootLayer>,
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
    /// What the caller hides, or has shown with placeholders. It exists.
    pub(crate) covers: Vec<Cover>,
    /// Where commands start, as a path inside.
    pub(crate) workspace: String,
    /// What every command's environment holds.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// What is mounted of the host, open since it was judged.
    pub(crate) opened: OpenedPaths,
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

impl Bind {
    /// Where this shows a path of the host, if it does, without the leading slash.
    fn shows(&self, path: &Path) -> Option<PathBuf> {
        match self.origin {
            BindOrigin::Planted | BindOrigin::Made(_) | BindOrigin::Guard => None,
            BindOrigin::System | BindOrigin::Home | BindOrigin::Named | BindOrigin::Held => {
                let rest = path.strip_prefix(&self.source).ok()?;
                Some(Path::new(&self.target).components().chain(rest.components()).collect())
            }
        }
    }
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
    /// Part of the system: what every user of the host may read.
    System,
    /// Programs under a home, which itself may be closed to others.
    Home,
    /// Named by the caller: the sandbox's user stands for its owner.
    Named,
    /// What is seen at the target already, mounted onto itself: it stays where it is.
    Held,
    /// What we put over a root of layers at the target, and not what a process inside made of it.
    Planted,
    /// A file of our own, which is at this place, without the leading slash.
    Made(&'static str),
    /// The script in front of git.
    Guard,
}

/// A directory of the private filesystem.
pub(crate) struct PrivateDir {
    /// Without the leading slash.
    pub(crate) target: Cow<'static, str>,
    pub(crate) mode: u32,
}

/// The system that programs inside find, and what is known of it.
struct System {
    etc: etc::Etc,
    binds: Vec<Bind>,
    links: Vec<(String, String)>,
    /// The search path.
    path: Vec<PathBuf>,
    /// Variables that name where a tool's programs are, and the caller's language and time zone.
    variables: Vec<(OsString, OsString)>,
    /// Variables that it brings, below ours.
    under: Vec<(OsString, OsString)>,
    shell: Option<String>,
    /// Private directories that it needs beside the usual ones.
    private: Vec<PrivateDir>,
}

impl System {
    fn of_host(marker: &Marker, workspace: Option<&Path>, homes: &Homes) -> System {
        let (mut binds, mut links) = system::directories();
        links.push(("var/tmp".into(), "../tmp".into()));
        let mut etc = etc::files(marker);
        etc.directories.extend(binds.iter().map(|bind| (bind.source.clone(), true)));
        let home = home::visible(workspace, homes);
        binds.extend(home.binds);
        System {
            etc,
            binds,
            links,
            path: home.path,
            variables: [home.variables, regional::of_the_caller()].concat(),
            under: Vec::new(),
            shell: Some(shell().into()),
            private: Vec::new(),
        }
    }
}

impl Layout {
    /// The steps that hide things, after all that shows them.
    pub(crate) fn mask_steps(&self) -> impl Iterator<Item = Step> + '_ {
        let step = |target: &String, must_exist| Step::Mask { target: target.clone(), must_exist };
        let masks = self.masks.iter().map(move |target| step(target, false));
        masks.chain(self.covers.iter().map(move |cover| match &cover.content {
            Some(content) => Step::Cover { target: cover.target.clone(), content: Bytes(content.clone()) },
            None => step(&cover.target, true),
        }))
    }

    /// The layout of an isolated sandbox: of the host's own system, or of a root that brings its own.
    pub(crate) fn isolated(wanted: Wanted<'_>) -> Result<Layout, SandboxError> {
        let Wanted { marker, spec, view, resolver, authority, own, git, root, context, sealed, env_files } =
            wanted;
        let sealed = sealed.map(SealedLayers::real);
        let mut layers = Vec::new();
        let user_home = spec.user.home();
        let mut opened = OpenedPaths::default();
        let homes = Homes::here();
        let workspace_on_host =
            spec.workspace.as_deref().map(|path| shared::workspace(path, &homes, &mut opened)).transpose()?;
        let named = shared::named(&spec.shared, workspace_on_host.as_deref(), &homes, &mut opened)?;
        // The folder of a view was found before, from the same path, which may have led elsewhere then: what is shown is judged.
        let is_shown = matches!(spec.mode, WorkspaceMode::Bind | WorkspaceMode::Overlay { .. });
        let shown = view.map(|view| &*view.folder).filter(|_| is_shown);
        let shown = shown.filter(|shown| workspace_on_host.as_deref() != Some(*shown));
        let shown = shown.map(|folder| shared::workspace(folder, &homes, &mut opened)).transpose()?;
        let mounts = Mounts::here();
        let is_judged = is_shown || matches!(spec.mode, WorkspaceMode::ManagedClone { .. });
        let of_workspace =
            workspace_on_host.as_deref().filter(|_| is_judged).into_iter().chain(shown.as_deref());
        let shared_git = view.and_then(|view| view.git.as_ref()).map(|git| &*git.common).filter(|_| is_shown);
        if let Some(git) = shared_git {
            opened.open_source(git)?;
        }
        let around = Surroundings { homes: &homes, mounts: &mounts, opened: &opened };
        guarded::refuse(of_workspace, &spec.mode, &named, shared_git, around)?;
        // A view may show a folder that belljar keeps for the sandbox. What the caller named is never one.
        let shared: Vec<&Path> = workspace_on_host
            .iter()
            .map(PathBuf::as_path)
            .chain(named.iter().map(|bind| &*bind.source))
            .chain(shown.as_deref())
            .collect();
        let sockets = belljar_docker::sockets();
        let volumes = spec.volumes.iter().map(|volume| &*volume.source).chain(spec.home.as_deref());
        shared::refuse_docker_sockets(shared.iter().copied().chain(volumes), &sockets, &opened)?;
        shared::refuse_our_own(&shared, own, &opened)?;
        if spec.persistent.is_some() {
            let asked = spec.shared.iter().map(|shared| &*shared.path);
            shared::refuse_moved(asked.chain(spec.workspace.as_deref()), &shared)?;
            if let (Some(workspace), Some(shown)) = (&workspace_on_host, &shown) {
                shared::refuse_moved([&**workspace], &[shown])?;
            }
        }
        let mut view = view.cloned().or_else(|| workspace_on_host.clone().map(View::plain));
        let found = match &mut view {
            Some(view) => {
                let (hidden, placeholders) = (&*spec.hidden, &*spec.placeholders);
                hidden::find(view, hidden::Wanted { hidden, placeholders, env_files })?
            }
            None => Hidden::default(),
        };
        let tree = root.map(root::open).transpose()?;
        let mut system = match (root, &tree) {
            (Some(root), Some(tree)) => root::system(root, tree, &marker),
            _ => System::of_host(&marker, workspace_on_host.as_deref(), &homes),
        };
        if spec.admin != Admin::No {
            // Other sandboxes of the folder can write there, and this one may change what they may not.
            let is_shared = |entry: &PathBuf| {
                entry.canonicalize().is_ok_and(|real| shared.iter().any(|shared| real.starts_with(shared)))
            };
            system.path.retain(|entry| !is_shared(entry));
        }
        let etc = &mut system.etc;
        etc.files.extend(network::files(
            spec.egress.as_ref(),
            resolver,
            spec.llm.as_ref().map(|llm| llm.port),
        ));
        let trust = match (authority, &tree) {
            (Some(pem), Some(tree)) => root::trust(pem, tree, etc),
            (Some(pem), None) => trust::add(pem, etc),
            (None, _) => Vec::new(),
        };
        let is_program = |path: &Path| match &tree {
            Some(tree) => path.to_str().is_some_and(|path| tree.has_file(relative(path))),
            None => path.is_file(),
        };
        let (guard, git) =
            git.map(|git| git::add(git, etc, &mut system.path, is_program)).unwrap_or_default();
        if spec.admin == Admin::No {
            // Behind the guard: no path here is one of the host, where the guard looked for git.
            let place = usize::from(guard.is_some());
            let installed: Vec<PathBuf> =
                environment::home_programs(&user_home).filter(|entry| !system.path.contains(entry)).collect();
            system.path.splice(place..place, installed);
        }
        let System { etc, mut binds, mut links, path, variables, under, shell, private } = system;
        let (own_binds, in_homes) =
            binds.into_iter().partition::<Vec<_>, _>(|bind| bind.origin == BindOrigin::System);
        binds = own_binds;
        opened.know(etc.directories);
        binds.extend(etc.binds);
        links.extend(etc.links);
        binds.extend(in_homes);
        binds.extend(guard);

        let workspace = match (&workspace_on_host, spec.workspace_path) {
            (Some(path), WorkspacePath::SameAsHost) => text(path)?.to_string(),
            _ => WORKSPACE.to_string(),
        };
        let mut private: Vec<PrivateDir> =
            private.into_iter().chain(private_directories(&user_home)).collect();
        if Path::new(&workspace).starts_with("/var/tmp") {
            // What is held in the workspace is reached through no link.
            links.retain(|(path, _)| path != "var/tmp");
            private.push(PrivateDir { target: "var/tmp".into(), mode: 0o1777 });
        }
        let image = root.and_then(|root| root.image.as_ref());
        for place in image.iter().flat_map(|image| &image.volumes) {
            let is_ours = |directory: &PrivateDir| Path::new(place).starts_with(&*directory.target);
            if !private.iter().any(is_ours) && !Path::new(relative(&workspace)).starts_with(place) {
                private.push(PrivateDir { target: place.clone().into(), mode: 0o755 });
            }
        }
        if let Some(home) = &spec.home {
            private.retain(|directory| directory.target != relative(&user_home));
            let bind = volumes::home(home, &user_home, own, &mut opened)?;
            match sealed.as_ref().filter(|sealed| !sealed.home.is_empty()) {
                Some(sealed) => {
                    let (bind, layered) = sealed.over(&sealed.home, home, &bind.target, &mut opened)?;
                    binds.push(bind);
                    layers.push(layered);
                }
                None => binds.push(bind),
            }
        }
        let has_place_for_git = view.as_ref().is_some_and(has_place_for_git);
        let in_repository = view.as_ref().map(|view| found.in_repository(view)).unwrap_or_default();
        let shown = view.map(|view| workspace::show(&view, &workspace, &mut opened)).transpose()?;
        match &shown {
            Some(shown) => binds.extend(shown.binds.iter().cloned()),
            None => private.push(PrivateDir { target: relative(WORKSPACE).into(), mode: 0o755 }),
        }
        let mut shown = shown.unwrap_or_default();
        if let (WorkspaceMode::Own(folder), Some(sealed)) = (&spec.mode, &sealed)
            && !sealed.workspace.is_empty()
            && let Some(plain) = binds.iter_mut().find(|bind| bind.target == relative(&workspace))
        {
            let (bind, layered) = sealed.over(&sealed.workspace, folder, &plain.target, &mut opened)?;
            *plain = bind;
            shown.layers.push(layered);
        }
        binds.extend(nested::everywhere(named, &binds));
        binds.extend(volumes::mounted(&spec.volumes, &user_home, own, &binds, &mut opened)?);
        let kernels = mounts.of_the_kernel(&binds);
        let is_hidden = |hold: &Bind| kernels.iter().any(|place| Path::new(&hold.target).starts_with(place));
        // No process inside reaches what is hidden, and each process of the host would get a mount of its own.
        binds.extend(shown.holds(&binds)?.into_iter().filter(|hold| !is_hidden(hold)));
        binds.extend(kernel_switches(spec.admin));
        let mut masks: Vec<String> = system::MASKS.iter().map(|(path, _)| path.to_string()).collect();
        masks.extend(home::below_system(&binds, &homes));
        masks.extend(kernels);
        masks.extend(sockets::below(&binds)?);
        let covers = found.covers(&binds)?;

        let environment = {
            let mut tools = [variables, trust, git].concat();
            if has_place_for_git && under.iter().all(|(name, _)| name != "GOFLAGS") {
                tools.push(("GOFLAGS".into(), "-buildvcs=false".into()));
            }
            let asked = asked_environment(spec);
            environment::inside(&path, shell.as_deref(), (&spec.user, spec.admin), &under, &tools, &asked)
        };
        let missing = shown.missing();
        let marker = marker.file(spec);
        if let (Some((place, _)), Some(_)) = (&marker, root.filter(|root| !root.lowers.is_empty())) {
            binds.push(root::held(place));
        }
        let files = [etc.files, shown.files, Vec::from_iter(marker)].concat();
        layers.extend(shown.layers);
        let mut layout = Layout {
            root: None,
            binds,
            layers,
            missing,
            links,
            files,
            private,
            masks,
            covers,
            workspace,
            environment,
            opened,
        };
        if let Some(context) = context {
            layout.add_context(context)?;
        }
        layout.tell_git(context, &in_repository);
        // Last: every file of ours becomes part of it.
        if let (Some(root), Some(tree)) = (root, &tree) {
            let Layout { binds, private, files, links, opened, .. } = &mut layout;
            layout.root = root::layer(root, tree, binds, opened, private, files, links, sealed.as_ref())?;
        }
        let Layout { binds, opened, .. } = &mut layout;
        // Those were found by belljar itself: programs under a home.
        for bind in binds.iter().filter(|bind| matches!(bind.origin, BindOrigin::Named | BindOrigin::Home)) {
            opened.open_source(&bind.source)?;
        }
        Ok(layout)
    }

    /// Without isolation: the host's own paths, and still an environment that starts empty.
    pub(crate) fn without_root(spec: &SandboxSpec, view: Option<&View>) -> Result<Layout, SandboxError> {
        if view.is_some_and(|view| view.layer.is_some()) {
            let message = "without isolation a folder cannot have an overlay";
            return Err(ErrorCode::NotSupported.error(message).hint(hint!(
                "omit {}, or use {}",
                Term::Overlay,
                Term::Backend.to("native")
            )));
        }
        if let Some(shared) = spec.shared.first() {
            let message = format!(
                "`{}` cannot be shared without isolation: everything is visible already",
                shared.path.display()
            );
            return Err(ErrorCode::NotSupported.error(message).hint(hint!(
                "omit {} and {}, or use {}",
                Term::Ro,
                Term::Rw,
                Term::Backend.to("native")
            )));
        }
        volumes::refuse_without_isolation(spec)?;
        if spec.admin == Admin::Root {
            let message = "without isolation, root inside would be root outside";
            return Err(ErrorCode::NotSupported
                .error(message)
                .hint("omit `root`, or use the backend `native`"));
        }
        let mut opened = OpenedPaths::default();
        let homes = Homes::here();
        let named =
            spec.workspace.as_deref().map(|path| shared::workspace(path, &homes, &mut opened)).transpose()?;
        let around = Surroundings { homes: &homes, mounts: &Mounts::here(), opened: &opened };
        let is_worked_in = spec.mode == WorkspaceMode::Bind;
        guarded::refuse(named.as_deref().filter(|_| is_worked_in), &spec.mode, &[], None, around)?;
        let Some(workspace) = view.map(|view| view.folder.clone()).or(named) else {
            let message = "without isolation there is no private workspace";
            return Err(ErrorCode::NotSupported.error(message).hint("name a folder to work on"));
        };
        let environment = environment::on_host(&workspace, &asked_environment(spec));
        Ok(Layout { environment, workspace: text(&workspace)?.to_string(), ..Layout::default() })
    }

    /// The absolute paths inside that may be written. A root of layers may be as a whole: what of it stays as it is, mounts
    /// say.
    pub(crate) fn writable(&self) -> Vec<String> {
        if self.root.is_some() {
            return vec!["/".into()];
        }
        let private = self.private.iter().map(|dir| dir.target.to_string());
        let shared =
            self.binds.iter().filter(|bind| bind.kind != BindKind::ReadOnly).map(|bind| bind.target.clone());
        let devices = ["dev".to_string(), "proc".to_string()];
        private.chain(shared).chain(devices).map(|path| format!("/{path}")).collect()
    }
}

/// Whether an empty folder is seen in the place of a `.git` that is not there. Go takes it for a repository, and builds nothing when git
/// says that it is none.
fn has_place_for_git(view: &View) -> bool {
    let is_place = |shield: &Shield| shield.path == ".git" && shield.what == Shielded::MissingDirectory;
    view.shields.iter().any(is_place)
}

/// Root of a user namespace owns the switches of its network, with or without capabilities: for that root they are read-only.
fn kernel_switches(admin: Admin) -> Option<Bind> {
    let (source, target) = ("/proc/sys".into(), "proc/sys".to_string());
    let (kind, origin) = (BindKind::ReadOnly, BindOrigin::Held);
    (admin == Admin::Root).then_some(Bind { source, target, kind, origin })
}

/// Every place where a path of the host is seen inside, and the bind that shows it there. What a later bind lies over is not
/// seen: that one says what is there.
fn seen_at<'b>(path: &Path, binds: &'b [Bind]) -> Vec<(&'b Bind, PathBuf)> {
    let shown = binds.iter().enumerate().filter_map(|(index, bind)| Some((index, bind, bind.shows(path)?)));
    let is_covered =
        |index: usize, place: &Path| binds[index + 1..].iter().any(|later| place.starts_with(&later.target));
    shown
        .filter(|(index, _, place)| !is_covered(*index, place))
        .map(|(_, bind, place)| (bind, place))
        .collect()
}

/// A place inside, as the guest is told of it.
fn spelled(place: PathBuf) -> Option<String> {
    place.into_os_string().into_string().ok()
}

fn asked_environment(spec: &SandboxSpec) -> Vec<(OsString, OsString)> {
    spec.env.iter().map(|(name, value)| (OsString::from(name.as_str()), value.clone())).collect()
}

fn private_directories(home: &str) -> Vec<PrivateDir> {
    vec![
        PrivateDir { target: "tmp".into(), mode: 0o1777 },
        PrivateDir { target: relative(home).to_string().into(), mode: 0o755 },
        PrivateDir { target: "dev/shm".into(), mode: 0o1777 },
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
        ErrorCode::PathInvalid.error(message).hint("rename it, or share a folder above it")
    })
}

/// What is worth knowing of a root that cannot be looked into later: the contents of these files, and whether there are those.
pub(crate) const LOOKED_AT: [&str; 8] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    trust::BUNDLES[0],
    trust::BUNDLES[1],
    trust::BUNDLES[2],
    trust::BUNDLES[3],
];
pub(crate) const LOOKED_FOR: [&str; 8] = [
    "/bin/bash",
    "/usr/bin/bash",
    "/bin/sh",
    "/bin/zsh",
    "/usr/bin/zsh",
    "/bin/git",
    "/usr/bin/git",
    "/usr/local/bin/git",
];
/// Where the workspace is seen inside.
pub const WORKSPACE: &str = "/workspace";
/// The sandbox user's id, and that of its group.
pub(crate) const USER_ID: u32 = 1000;
/// Root's.
pub(crate) const ROOT_ID: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &str, target: &str) -> Bind {
        let (kind, origin) = (BindKind::ReadWrite, BindOrigin::Named);
        Bind { source: source.into(), target: target.into(), kind, origin }
    }

    fn places(path: &str, binds: &[Bind]) -> Vec<String> {
        seen_at(Path::new(path), binds).into_iter().map(|(_, place)| place.display().to_string()).collect()
    }

    #[test]
    fn a_path_is_seen_at_every_place_that_shows_it() {
        let binds = [bind("/opt", "opt"), bind("/opt/app", "workspace"), bind("/opt/app/x", "opt/app/x")];
        assert_eq!(places("/opt/app/s", &binds), ["opt/app/s", "workspace/s"]);
        assert_eq!(places("/opt/app", &binds), ["opt/app", "workspace"]);
        assert_eq!(places("/opt/app/x/s", &binds), ["workspace/x/s", "opt/app/x/s"]);
        assert_eq!(places("/opt/application/s", &binds), ["opt/application/s"]);
        assert_eq!(places("/srv/s", &binds), Vec::<String>::new());
    }

    #[test]
    fn what_lies_under_something_else_is_not_seen() {
        let made = Bind { origin: BindOrigin::Made("etc/belljar/file"), ..bind("/w/file", "workspace/file") };
        let binds = [bind("/w", "workspace"), bind("/other", "workspace/a"), made];
        assert_eq!(places("/w/a/s", &binds), Vec::<String>::new());
        assert_eq!(places("/w/b/s", &binds), ["workspace/b/s"]);
        assert_eq!(places("/other/s", &binds), ["workspace/a/s"]);
        assert_eq!(places("/w/file", &binds), Vec::<String>::new());
    }
}
