//! What a sandbox sees of a host whose paths it shares: nothing is mounted, so everything is where it is on the host, and Landlock closes
//! what is not listed here. Home and temporary files are folders of ours, which only variables name.
//!
//! Rights are inherited downwards and cannot be taken away again, so nothing inside of a writable folder can be protected: a folder with
//! something to protect is refused.

use super::etc::{TABLE, rows};
use super::guarded::{self, Surroundings};
use super::home::{self, Homes};
use super::java;
use super::mounts::Mounts;
use super::network;
use super::opened::{OpenedPaths, moved};
use super::{Bind, BindKind, BindOrigin, Layout, Wanted, asked_environment, environment, regional, shared};
use super::{system, text, trust};
use belljar_spec::workspace::{Shielded, View, WorkspaceMode};
use belljar_spec::{Admin, ErrorCode, Hint, Nesting, Permission, SandboxError, SandboxSpec, Term, hint};
use belljar_wire::message::PathUse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Below the sandbox's private directory.
pub(crate) const HOME: &str = "home";
pub(crate) const TEMPORARY: &str = "tmp";
/// Its workspace, where no folder was named.
pub(crate) const WORK: &str = "work";
/// Files that belljar makes for it, which it can only read.
pub(crate) const OWN: &str = "belljar";

impl Layout {
    /// The layout of a sandbox among the host's own paths. `private` is a directory of belljar's, for this sandbox alone.
    pub(crate) fn confined(wanted: Wanted<'_>, private: &Path) -> Result<Layout, SandboxError> {
        let Wanted { spec, view, resolver, authority, own, git, context, .. } = wanted;
        refuse_what_takes_mounts(spec, context.is_some())?;
        let mut opened = OpenedPaths::default();
        let homes = Homes::here();
        let on_host =
            spec.workspace.as_deref().map(|path| shared::workspace(path, &homes, &mut opened)).transpose()?;
        let named = shared::named(&spec.shared, on_host.as_deref(), &homes, &mut opened)?;
        let is_bound = spec.mode == WorkspaceMode::Bind;
        let is_judged = is_bound || matches!(spec.mode, WorkspaceMode::ManagedClone { .. });
        let around = Surroundings { homes: &homes, mounts: &Mounts::here(), opened: &opened };
        guarded::refuse(on_host.as_deref().filter(|_| is_judged), &spec.mode, &named, None, around)?;
        let of_bind = on_host.as_deref().filter(|_| is_bound).into_iter();
        let of_host: Vec<&Path> = of_bind.chain(named.iter().map(|bind| &*bind.source)).collect();
        shared::refuse_docker_sockets(of_host.iter().copied(), &belljar_docker::sockets(), &opened)?;
        shared::refuse_our_own(&of_host, own, &opened)?;
        if spec.persistent.is_some() {
            let paths = spec.shared.iter().map(|shared| &*shared.path).chain(spec.workspace.as_deref());
            let found: Vec<&Path> =
                on_host.as_deref().into_iter().chain(named.iter().map(|bind| &*bind.source)).collect();
            shared::refuse_moved(paths, &found)?;
        }
        if let Some(path) = spec.protected.first() {
            let place = on_host.as_deref().unwrap_or(Path::new("")).join(path.as_str());
            return Err(cannot_be_protected(
                &place,
                hint!("do not ask for paths to be protected, or use {}", Term::Backend.to("native")),
            ));
        }
        if let (true, Some(view)) = (is_bound, view) {
            refuse_what_cannot_be_protected(view)?;
        }
        if let (true, Some(view), Some(judged)) = (is_bound, view, &on_host)
            && *judged != view.folder
        {
            return Err(moved(judged));
        }
        // Real paths already. Resolved once more they could lead elsewhere by now; the guest follows no link on the way to them.
        let workspace = match view {
            Some(view) => view.folder.clone(),
            None => on_host.clone().unwrap_or_else(|| private.join(WORK)),
        };
        let home = match &spec.home {
            Some(home) => real(home)?,
            None => private.join(HOME),
        };
        let temporary = private.join(TEMPORARY);

        let visible = home::visible(on_host.as_deref(), &homes);
        let (mut binds, links) = system::directories();
        drop(links);
        binds.extend(visible.binds);
        let of_etc = rows(TABLE).map(|columns| columns[0]).chain(MORE_OF_ETC);
        let readable = |path: PathBuf| bind(path, BindKind::ReadOnly, BindOrigin::System);
        binds.extend(
            of_etc.map(|name| Path::new("/etc").join(name)).filter(|path| path.exists()).filter_map(readable),
        );
        // No rule can be about a process's own part of it alone.
        binds.extend(readable("/proc".into()));
        binds.extend(bind(private.join(OWN), BindKind::ReadOnly, BindOrigin::Made(OWN)));
        let written = [workspace.clone(), home.clone(), temporary.clone()];
        if let Some(inside) =
            named.iter().find(|bind| written.iter().any(|path| bind.source.starts_with(path)))
        {
            let hint = hint!("omit it, or use {}", Term::Backend.to("native"));
            return Err(cannot_be_protected(&inside.source, hint));
        }
        binds.extend(named);
        binds.extend(
            written.into_iter().filter_map(|path| bind(path, BindKind::ReadWrite, BindOrigin::Named)),
        );
        // Of a managed clone that this branch alone has: nothing of it can be protected (`belljar_workspace::managed::Sharing`).
        let git_directory = view.and_then(|view| view.git.as_ref()).map(|git| git.common.clone());
        binds.extend(git_directory.and_then(|path| bind(path, BindKind::ReadWrite, BindOrigin::Named)));

        let model = spec.llm.as_ref().map(|llm| llm.port);
        let notes = network::files(spec.egress.as_ref(), resolver, model);
        let note = notes.into_iter().find(|(name, _)| name.ends_with(NOTE));
        let mut files: Vec<_> = note.map(|(_, text)| (format!("{OWN}/{NOTE}"), text)).into_iter().collect();
        let mut trust_store = None;
        let mut tools = visible.variables;
        tools.extend(regional::of_the_caller());
        if let Some(git) = git {
            files.push((format!("{OWN}/gitconfig"), git.config.clone().into_bytes()));
            tools.push(("GIT_CONFIG_SYSTEM".into(), private.join(OWN).join("gitconfig").into()));
        }
        if let Some(pem) = authority {
            files.push((format!("{OWN}/authority.pem"), pem.as_bytes().to_vec()));
            let trusted = trust::with(trust::of_host(), pem);
            files.push((format!("{OWN}/trusted.store"), java::store(&trusted)));
            files.push((format!("{OWN}/trusted.pem"), trusted));
            let place = |name: &str| private.join(OWN).join(name);
            trust_store = Some(place("trusted.store"));
            tools.extend(trust::variables_at(&place("trusted.pem"), &place("authority.pem")));
        }
        if spec.home.is_none() {
            let at_home = super::home_files();
            files.extend(at_home.map(|(name, content)| (format!("{HOME}/{name}"), content.into_bytes())));
        }
        let installed = environment::home_programs(text(&home)?);
        let path: Vec<PathBuf> = installed.chain(visible.path).collect();
        let asked: Vec<(OsString, OsString)> = asked_environment(spec);
        let places = environment::Places {
            home: &home,
            temporary: &temporary,
            path: &path,
            trust_store: trust_store.as_deref(),
        };
        let environment = environment::confined(places, &spec.user, &tools, &asked);
        let workspace = text(&workspace)?.to_string();
        Ok(Layout { binds, files, environment, workspace, opened, ..Layout::default() })
    }

    /// What the sandbox may use of the host's paths, for Landlock.
    pub(crate) fn path_uses(&self) -> Vec<(String, PathUse)> {
        let of_binds = self.binds.iter().filter_map(|bind| {
            let path_use = match bind.kind {
                BindKind::ReadOnly => PathUse::Read,
                BindKind::ReadWrite | BindKind::Reopened => PathUse::Write,
            };
            // A path that the caller named is real, and was judged; some of the system's own files are links.
            let source = match bind.origin {
                BindOrigin::Named | BindOrigin::Made(_) => bind.source.clone(),
                BindOrigin::System
                | BindOrigin::Home
                | BindOrigin::Held
                | BindOrigin::Planted
                | BindOrigin::Guard => bind.source.canonicalize().ok()?,
            };
            Some((source.to_str()?.to_string(), path_use))
        });
        let devices = DEVICES.iter().map(|path| (path.to_string(), PathUse::Device));
        let listed = LISTED.iter().map(|path| (path.to_string(), PathUse::List));
        of_binds.chain(devices).chain(listed).collect()
    }

    /// The real paths below which it may write.
    pub(crate) fn writable_on_host(&self) -> Vec<PathBuf> {
        let written = self.binds.iter().filter(|bind| bind.kind != BindKind::ReadOnly);
        written.map(|bind| bind.source.clone()).collect()
    }
}

fn bind(source: PathBuf, kind: BindKind, origin: BindOrigin) -> Option<Bind> {
    let target = super::relative(source.to_str()?).to_string();
    Some(Bind { source, target, kind, origin })
}

fn real(path: &Path) -> Result<PathBuf, SandboxError> {
    path.canonicalize().map_err(|error| {
        let message = format!("cannot find `{}`: {error}", path.display());
        ErrorCode::WorkspaceMissing.error(message).caused_by(error)
    })
}

/// What a kernel without namespaces for us cannot show.
fn refuse_what_takes_mounts(spec: &SandboxSpec, has_context: bool) -> Result<(), SandboxError> {
    let refused: [(bool, &str, Hint); 6] = [
        (
            matches!(spec.mode, WorkspaceMode::Overlay { .. }),
            "lay a layer over a folder",
            hint!("work on a branch with {}, or use {}", Term::Branch.to("NAME"), Term::Backend.to("native")),
        ),
        (
            spec.shared.iter().any(|shared| shared.permission == Permission::Write),
            "write to more folders of the host",
            hint!("omit {}, or use {}", Term::Rw, Term::Backend.to("native")),
        ),
        (
            !spec.volumes.is_empty(),
            "mount volumes",
            hint!("omit them, or use {}", Term::Backend.to("native")),
        ),
        (
            spec.admin == Admin::Root,
            "have root inside",
            hint!("omit `root`, or use {}", Term::Backend.to("native")),
        ),
        (
            spec.nesting == Nesting::Allowed,
            "let sandboxes be made inside",
            hint!("omit {}, or use {}", Term::Nested, Term::Backend.to("native")),
        ),
        (
            has_context,
            "show agent context beside a folder",
            hint!("omit {} and `[agent] context`, or use {}", Term::AgentContext, Term::Backend.to("native")),
        ),
    ];
    match refused.into_iter().find(|(is_asked, ..)| *is_asked) {
        None => Ok(()),
        Some((_, doing, hint)) => {
            let message =
                format!("the backend landlock cannot {doing}: that takes mounts, and it makes none");
            Err(ErrorCode::NotSupported.error(message).hint(hint))
        }
    }
}

/// Landlock cannot take back inside of a folder what it gave for the folder.
fn refuse_what_cannot_be_protected(view: &View) -> Result<(), SandboxError> {
    let existing = view.shields.iter().find(|shield| shield.what == Shielded::Existing);
    let is_repository = view.git.is_some() || !view.private_git.is_empty();
    let what = match (is_repository, existing) {
        (true, _) => ".git".to_string(),
        (false, Some(shield)) => shield.path.clone(),
        (false, None) => return Ok(()),
    };
    let hint = hint!(
        "work on a branch of the repository with {}, or use {} where it works ({} says why not)",
        Term::Branch.to("NAME"),
        Term::Backend.to("native"),
        Term::Capabilities
    );
    Err(cannot_be_protected(&view.folder.join(what), hint))
}

fn cannot_be_protected(path: &Path, hint: Hint) -> SandboxError {
    let message = format!(
        "`{}` has to be protected, and the backend landlock cannot protect a path inside of a folder that the sandbox writes",
        path.display()
    );
    ErrorCode::NotSupported.error(message).hint(hint)
}

/// What programs are told of their network.
const NOTE: &str = "network.txt";
/// Of the host's /etc beside what every sandbox sees. The names of users and machines are the host's own here; and what is closed is not
/// absent: these are files that programs take it for an error not to be able to read. Not `apt` and `environment`, which may hold passwords.
const MORE_OF_ETC: [&str; 32] = [
    "passwd",
    "group",
    "hosts",
    "host.conf",
    "hostname",
    "nsswitch.conf",
    "resolv.conf", // the servers in it are never asked; the search domains are seen
    "gai.conf",
    "networks",
    "wgetrc",
    "ssh/ssh_config",
    "ssh/ssh_config.d",
    "crypto-policies",
    "gnutls",
    "ca-certificates",
    "ca-certificates.conf",
    "terminfo",
    "magic",
    "mailcap",
    "login.defs",
    "shells",
    "skel",
    "bash_completion",
    "bash_completion.d",
    "python3",
    "R",
    "dpkg",
    "manpath.config",
    "vim",
    "nanorc",
    "screenrc",
    "tmux.conf",
];
/// Devices that every program may use. A terminal of its own comes as a descriptor, and by `/dev/tty`.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Directories whose names tell nothing, and which programs look through on the way.
const LISTED: [&str; 0] = [];
