//! A plan: everything that a backend needs to build one sandbox, decided beforehand.

use crate::cgroup::Cgroup;
use crate::drawing::LimitsHeld;
use crate::e2b::Remote;
use crate::landlock;
use crate::layout::{
    Bind, BindKind, DaemonImage, EnvFiles, GitInside, Layout, Marker, RootTree, SealedLayers, Wanted,
};
use belljar_spec::workspace::View;
use belljar_spec::{
    Admin, AgentContext, BackendName, ByteSize, ErrorCode, Limits, LimitsRequest, Machine, Nesting, Origin,
    Runtime, SandboxError, SandboxId, SandboxSpec, Term, hint,
};
use belljar_sys::ids;
use belljar_sys::rustix::process::{Resource, getrlimit};
use belljar_wire::message::{Confinement, EgressSetup, Landlock, Privileges, Supervision, Syscalls};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One sandbox, decided. What it sees is decided when it is first asked for, which lets a backend start its guest
/// meanwhile.
pub struct Plan {
    pub(crate) id: SandboxId,
    pub(crate) limits: Limits,
    spec: SandboxSpec,
    view: Option<View>,
    isolation: Isolation,
    backend: Option<BackendName>,
    first: Option<FirstRequest>,
    egress_sockets: Option<EgressSockets>,
    authority: Option<String>,
    own: Vec<PathBuf>,
    git: Option<GitInside>,
    mountpoints: Option<PathBuf>,
    context: Option<AgentContext>,
    env_files: Option<EnvFiles>,
    root: Option<RootTree>,
    containers: Option<PathBuf>,
    prepared: Option<PathBuf>,
    private: Option<PathBuf>,
    sealed: Option<SealedLayers>,
    remote: Option<Remote>,
    layout: OnceLock<Result<Layout, SandboxError>>,
}

/// Makes a request, as bytes for a stream, from the environment and the workspace.
pub type FirstRequest = Box<dyn Fn(&[(OsString, OsString)], &str) -> Vec<u8> + Send + Sync>;

/// A sandbox's egress.
pub struct EgressSockets {
    /// The sockets that the guest makes and hands over.
    pub egress: EgressSetup,
    /// Where names are asked, inside; nowhere if there is nothing but routes.
    pub resolver: Option<IpAddr>,
}

/// A part of the host that a sandbox sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub source: PathBuf,
    /// Inside.
    pub target: String,
    pub writable: bool,
}

/// Whether there is something between the sandbox and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A root of its own.
    Own,
    /// The host's own paths and network, of which rules of the kernel leave a part.
    Confined,
    /// That of a service elsewhere, which no gateway of ours and no folder of the host is in.
    Remote,
    /// None: the host's own paths.
    Absent,
}

impl Isolation {
    /// Whether there is one here that can hold a policy.
    pub fn holds(self) -> bool {
        match self {
            Isolation::Own | Isolation::Confined => true,
            Isolation::Remote | Isolation::Absent => false,
        }
    }
}

impl Plan {
    /// A plan for this sandbox.
    pub fn new(id: SandboxId, spec: SandboxSpec, limits: Limits, isolation: Isolation) -> Plan {
        Plan {
            id,
            limits,
            spec,
            view: None,
            isolation,
            backend: None,
            first: None,
            egress_sockets: None,
            authority: None,
            own: Vec::new(),
            git: None,
            mountpoints: None,
            context: None,
            env_files: None,
            root: None,
            containers: None,
            prepared: None,
            private: None,
            sealed: None,
            remote: None,
            layout: OnceLock::new(),
        }
    }

    /// The same, with a request that is sent right behind the setup, so that neither side waits in between. It is made from
    /// the environment and the workspace.
    pub fn with_first(mut self, request: FirstRequest) -> Plan {
        self.first = Some(request);
        self
    }

    /// The same, with its workspace shown like this, instead of the plain folder that the specification names.
    pub fn with_workspace(mut self, view: View) -> Plan {
        self.view = Some(view);
        self
    }

    /// The same, with the backend of this name, which the marker inside names.
    pub fn behind(mut self, backend: BackendName) -> Plan {
        self.backend = Some(backend);
        self
    }

    /// The same, with egress.
    pub fn with_egress(mut self, egress_sockets: EgressSockets) -> Plan {
        self.egress_sockets = Some(egress_sockets);
        self
    }

    /// The same, with an authority of its own that programs inside trust; its certificate is PEM.
    pub fn with_authority(mut self, certificate: String) -> Plan {
        self.authority = Some(certificate);
        self
    }

    /// The same, with places that belong to belljar and can be no part of what a sandbox sees.
    pub fn keeping(mut self, own: Vec<PathBuf>) -> Plan {
        self.own = own;
        self
    }

    /// The same, with what git is told inside, and a guard in front of it.
    pub fn with_git(mut self, git: GitInside) -> Plan {
        self.git = Some(git);
        self
    }

    /// The same, with this seen by agents in its workspace.
    pub fn with_context(mut self, context: AgentContext) -> Plan {
        self.context = Some(context);
        self
    }

    /// The same, with files of variables shown as this makes them.
    pub fn with_env_files(mut self, env_files: EnvFiles) -> Plan {
        self.env_files = Some(env_files);
        self
    }

    /// The same, with a directory for notes of what is made in folders of the host, and removed again.
    pub fn with_mountpoints(mut self, directory: PathBuf) -> Plan {
        self.mountpoints = Some(directory);
        self
    }

    /// The same, with a root that brings its own system, instead of the host's.
    pub fn with_root(mut self, root: RootTree) -> Plan {
        self.root = Some(root);
        self
    }

    /// The same, with a directory for what containers are made of while they start.
    pub fn with_containers(mut self, directory: PathBuf) -> Plan {
        self.containers = Some(directory);
        self
    }

    /// The same, with files of earlier snapshots below those that it keeps.
    pub fn over_layers(mut self, sealed: SealedLayers) -> Plan {
        self.sealed = Some(sealed).filter(|sealed| !sealed.is_empty());
        self
    }

    /// The same, with a directory for roots that many sandboxes have in common.
    pub fn with_prepared(mut self, directory: PathBuf) -> Plan {
        self.prepared = Some(directory);
        self
    }

    /// The same, with a directory for what belongs to one sandbox among the host's paths.
    pub fn with_private(mut self, directory: PathBuf) -> Plan {
        self.private = Some(directory);
        self
    }

    /// The same, made by a service elsewhere.
    pub fn made_by(mut self, remote: Remote) -> Plan {
        self.remote = Some(remote);
        self
    }

    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Where that is for this one.
    pub(crate) fn private(&self) -> PathBuf {
        match &self.private {
            // By its real path: no link on the way is followed later.
            Some(directory) => landlock::place(&real_as_far_as_it_exists(directory), self.id),
            // Of a sandbox that only tries out the backend. No other user can foresee the name, or make something of that name ours.
            None => real_as_far_as_it_exists(&std::env::temp_dir()).join(format!("{TRIAL}{}", self.id)),
        }
    }

    /// Where prepared roots are, for a sandbox that can have one: not one that brings its own system, nor one with a CA of its own, whose
    /// files are another sandbox's in nothing.
    pub(crate) fn prepared(&self) -> Option<&Path> {
        self.prepared.as_deref().filter(|_| self.root.is_none() && self.authority.is_none())
    }

    pub(crate) fn containers(&self) -> Option<&Path> {
        self.containers.as_deref()
    }

    /// The daemon's image that is its root, if one is.
    pub(crate) fn image(&self) -> Option<&DaemonImage> {
        self.root.as_ref()?.image.as_ref()
    }

    /// Whether it is for a container that runs on the host's own kernel.
    pub(crate) fn is_for_runc(&self) -> bool {
        self.backend == Some(BackendName::Docker(Runtime::Runc))
    }

    pub(crate) fn spec(&self) -> &SandboxSpec {
        &self.spec
    }

    pub(crate) fn mountpoints(&self) -> Option<&Path> {
        self.mountpoints.as_deref()
    }

    /// Whether there is something between the sandbox and the host.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Whether it has one.
    pub fn has_egress(&self) -> bool {
        self.egress_sockets.is_some()
    }

    pub(crate) fn egress(&self) -> Option<EgressSetup> {
        self.egress_sockets.as_ref().map(|egress_sockets| egress_sockets.egress.clone())
    }

    pub(crate) fn first_request(&self, layout: &Layout) -> Option<Vec<u8>> {
        self.first.as_ref().map(|request| request(&layout.environment, &layout.workspace))
    }

    /// Where commands start, inside.
    pub fn workspace(&self) -> Result<&str, SandboxError> {
        Ok(&self.layout()?.workspace)
    }

    /// What is seen of the host, in the order in which it is mounted.
    pub fn seen(&self) -> Result<Vec<Seen>, SandboxError> {
        let seen = |bind: &Bind| Seen {
            source: bind.source.clone(),
            target: format!("/{}", bind.target),
            writable: bind.kind != BindKind::ReadOnly,
        };
        Ok(self.layout()?.binds.iter().map(seen).collect())
    }

    /// The environment that every command starts with.
    pub fn environment(&self) -> Result<&[(OsString, OsString)], SandboxError> {
        Ok(&self.layout()?.environment)
    }

    pub(crate) fn admin(&self) -> Admin {
        self.spec.admin
    }

    pub(crate) fn nesting(&self) -> Nesting {
        self.spec.nesting
    }

    /// What the sandbox sees, or why it cannot.
    pub(crate) fn layout(&self) -> Result<&Layout, SandboxError> {
        let decide = || match self.isolation {
            Isolation::Own | Isolation::Confined => {
                let resolver =
                    self.egress_sockets.as_ref().and_then(|egress_sockets| egress_sockets.resolver);
                let git = self.git.as_ref();
                let (view, authority) = (self.view.as_ref(), self.authority.as_deref());
                let user = self.spec.user.clone();
                let marker = Marker { id: self.id, backend: self.backend, user };
                let (spec, own, root) = (&self.spec, &*self.own, self.root.as_ref());
                let (context, env_files) = (self.context.as_ref(), self.env_files.as_ref());
                let sealed = self.sealed.as_ref();
                let wanted = Wanted {
                    marker,
                    spec,
                    view,
                    resolver,
                    authority,
                    own,
                    git,
                    root,
                    context,
                    sealed,
                    env_files,
                };
                match self.isolation {
                    Isolation::Confined => Layout::confined(wanted, &self.private()),
                    Isolation::Own | Isolation::Remote | Isolation::Absent => Layout::isolated(wanted),
                }
            }
            Isolation::Remote => Layout::remote(&self.spec, self.context.as_ref()),
            Isolation::Absent if self.context.is_some() => Err(context_needs_isolation()),
            Isolation::Absent => Layout::without_root(&self.spec, self.view.as_ref()),
        };
        self.layout.get_or_init(decide).as_ref().map_err(Clone::clone)
    }

    /// The same for commands among the host's paths, with Landlock up to this version.
    pub(crate) fn supervised(
        &self,
        layout: &Layout,
        enforcement: &Enforcement,
        landlock_abi: u32,
    ) -> Confinement {
        Confinement {
            rlimits: enforcement.rlimits(&self.limits),
            privileges: Privileges::Dropped,
            syscalls: Syscalls::Default,
            landlock: None,
            supervision: Some(Supervision { landlock_abi, paths: layout.path_uses() }),
        }
    }

    pub(crate) fn confinement(&self, layout: &Layout, enforcement: &Enforcement) -> Confinement {
        let (syscalls, writable) = match self.spec.nesting {
            Nesting::Denied => (Syscalls::Default, Some(layout.writable())),
            // Landlock refuses every mount, which is what nesting is for.
            Nesting::Allowed => (Syscalls::Nested, None),
        };
        Confinement {
            rlimits: enforcement.rlimits(&self.limits),
            privileges: match (&layout.root, self.spec.admin) {
                // A root of its own is there to be changed.
                (Some(_), Admin::Root) => Privileges::Maintainer,
                _ => Privileges::Dropped,
            },
            syscalls,
            landlock: Some(Landlock { writable }),
            supervision: None,
        }
    }
}

/// A path whose last parts may be made later.
fn real_as_far_as_it_exists(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(parent), Some(name)) => real_as_far_as_it_exists(parent).join(name),
        (Err(_), ..) => path.to_path_buf(),
    }
}

fn context_needs_isolation() -> SandboxError {
    let message = "without isolation agent context could only be shown by changing the folder itself";
    ErrorCode::NotSupported.error(message).hint(hint!(
        "omit {} and `[agent] context`, or use {}",
        Term::AgentContext,
        Term::Backend.to("native")
    ))
}

/// A sandbox with nothing in it, for trying out a backend.
pub(crate) fn trial() -> Result<Plan, SandboxError> {
    let machine = Machine { memory: ByteSize::mebibytes(256), cpus: 1 };
    let limits = Limits::understand(&LimitsRequest::default(), machine);
    Ok(Plan::new(belljar_state::new_id()?, SandboxSpec::default(), limits, Isolation::Own))
}

/// The same among the host's paths.
pub(crate) fn trial_among_hosts_paths() -> Result<Plan, SandboxError> {
    let Plan { id, limits, .. } = trial()?;
    Ok(Plan::new(id, SandboxSpec::default(), limits, Isolation::Confined))
}

/// The same without isolation, among temporary files.
pub(crate) fn trial_without_isolation() -> Result<Plan, SandboxError> {
    let Plan { id, limits, .. } = trial()?;
    let view = View::plain(std::env::temp_dir());
    Ok(Plan::new(id, SandboxSpec::default(), limits, Isolation::Absent).with_workspace(view))
}

/// What enforces which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Enforcement {
    /// A cgroup holds memory.
    pub(crate) memory_by_cgroup: bool,
    /// A cgroup holds processes.
    pub(crate) pids_by_cgroup: bool,
    /// A cgroup holds processor time.
    pub(crate) cpus_by_cgroup: bool,
    /// A user namespace of its own makes RLIMIT_NPROC count only this sandbox.
    pub(crate) own_user_namespace: bool,
    /// Its processes can be limited one by one.
    pub(crate) limits_processes: bool,
    /// Private files have a filesystem of their own.
    pub(crate) own_filesystem: bool,
    /// The sandbox's user is the caller's, whose other programs are counted together with it.
    pub(crate) shares_user: bool,
}

impl Enforcement {
    /// Makes the plan's cgroup, where one can be made, and says what enforces each limit. Refuses a plan with a limit that
    /// nothing enforces.
    pub(crate) fn begin(plan: &Plan) -> Result<(Option<Cgroup>, Enforcement), SandboxError> {
        let cgroup = Cgroup::create(plan.id, &plan.limits)?;
        let held = cgroup.as_ref().map(Cgroup::held).unwrap_or_default();
        let enforcement = Enforcement {
            memory_by_cgroup: held.memory,
            pids_by_cgroup: held.pids,
            cpus_by_cgroup: held.cpus,
            own_user_namespace: plan.isolation == Isolation::Own,
            limits_processes: plan.isolation.holds(),
            own_filesystem: plan.isolation == Isolation::Own,
            shares_user: !ids::are_ours(ids::SANDBOXES),
        };
        enforcement.accept(&plan.limits)?;
        Ok((cgroup, enforcement))
    }

    /// A container holds all of them.
    pub(crate) fn of_container(plan: &Plan) -> Result<Enforcement, SandboxError> {
        let enforcement = Enforcement {
            memory_by_cgroup: true,
            pids_by_cgroup: true,
            cpus_by_cgroup: true,
            own_user_namespace: false,
            limits_processes: false,
            own_filesystem: true,
            shares_user: false,
        };
        enforcement.accept(&plan.limits)?;
        Ok(enforcement)
    }

    /// Refuses what was asked for and cannot be held.
    fn accept(&self, limits: &Limits) -> Result<(), SandboxError> {
        let asked = |origin: Origin| origin == Origin::Requested;
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if asked(limits.open_files.origin) && limits.open_files.value > most {
            let message =
                format!("a process may have at most {most} open files here, not {}", limits.open_files.value);
            return Err(ErrorCode::LimitUnavailable
                .error(message)
                .hint("ask for less, or raise the hard limit that belljar is started with (`ulimit -Hn`)"));
        }
        if asked(limits.memory.origin) && limits.memory.value < LEAST_MEMORY {
            let message = format!(
                "a sandbox takes {LEAST_MEMORY} of memory for itself at least, and {} is the limit",
                limits.memory.value
            );
            return Err(ErrorCode::LimitUnavailable
                .error(message)
                .hint(hint!("ask for more, as in {}: a number alone means bytes", Term::Memory.to("2g"))));
        }
        if asked(limits.disk.origin) && limits.disk.value < LEAST_DISK {
            let message = format!(
                "a sandbox takes {LEAST_DISK} of private files for itself at least, and {} is the limit",
                limits.disk.value
            );
            return Err(ErrorCode::LimitUnavailable
                .error(message)
                .hint(hint!("ask for more, as in {}: a number alone means bytes", Term::Disk.to("1g"))));
        }
        let refused = [
            ("memory", asked(limits.memory.origin) && !self.memory_by_cgroup),
            ("cpus", asked(limits.cpus.origin) && !self.cpus_by_cgroup),
            ("pids", asked(limits.pids.origin) && !self.pids_by_cgroup && !self.own_user_namespace),
            ("disk", asked(limits.disk.origin) && !self.own_filesystem),
        ];
        let refused: Vec<&str> =
            refused.into_iter().filter(|(_, refused)| *refused).map(|(name, _)| name).collect();
        if refused.is_empty() {
            return Ok(());
        }
        let names = refused.join(" and ");
        if refused == ["disk"] {
            let message =
                "the limit on disk cannot be enforced without isolation: there are no private files";
            return Err(ErrorCode::LimitUnavailable
                .error(message)
                .hint(hint!("omit the limit, or use {}", Term::Backend.to("native"))));
        }
        let message =
            format!("the limit on {names} cannot be enforced here: no cgroup is delegated to belljar");
        Err(ErrorCode::LimitUnavailable.error(message).hint(crate::cgroup::delegation_hint()))
    }

    /// What is left for resource limits to do.
    fn rlimits(&self, limits: &Limits) -> Vec<(u32, u64)> {
        let mut rlimits = vec![(RLIMIT_CORE, NO_CORE), (RLIMIT_NOFILE, self.open_files(limits))];
        if self.own_user_namespace {
            // Counted for the user who made the namespace, too, whichever user that is.
            rlimits.push((RLIMIT_SIGPENDING, share_of(Resource::Sigpending).min(MAX_SIGNALS)));
            rlimits.push((RLIMIT_MSGQUEUE, share_of(Resource::Msgqueue).min(MAX_QUEUED)));
        }
        if !self.pids_by_cgroup && self.own_user_namespace {
            rlimits.push((RLIMIT_NPROC, limits.pids.value.into()));
        }
        if !self.memory_by_cgroup && self.limits_processes {
            // Per process, so less than what was meant; but one process cannot take the whole machine.
            rlimits.push((RLIMIT_DATA, limits.memory.value.as_u64()));
        }
        rlimits
    }

    /// What holds each limit, for people.
    pub(crate) fn report(&self, limits: &Limits) -> LimitsHeld {
        let by_cgroup = |held: bool| held.then_some("cgroup");
        // A container's own limits are the daemon's business; without isolation the guest sets what was asked for.
        let is_isolated = self.own_filesystem;
        LimitsHeld {
            memory: by_cgroup(self.memory_by_cgroup).or(self.limits_processes.then_some("each process")),
            cpus: by_cgroup(self.cpus_by_cgroup),
            pids: by_cgroup(self.pids_by_cgroup).or(self.own_user_namespace.then_some("user namespace")),
            disk: is_isolated.then_some("filesystem"),
            open_files: (is_isolated
                || self.limits_processes
                || limits.open_files.origin == Origin::Requested)
                .then(|| self.open_files(limits)),
        }
    }

    /// How many files a process may have open. It is also how many descriptors the user may have in flight between processes, all
    /// sandboxes and programs together (unix(7), ETOOMANYREFS): fewer where that user is not the sandbox's own.
    pub(crate) fn open_files(&self, limits: &Limits) -> u64 {
        match limits.open_files.origin {
            Origin::Default if self.shares_user => limits.open_files.value.min(FILES_OF_SHARED_USER),
            Origin::Default | Origin::Requested => limits.open_files.value,
        }
    }
}

/// A quarter of what belljar itself may have.
fn share_of(resource: Resource) -> u64 {
    getrlimit(resource).current.map_or(u64::MAX, |ours| ours / 4)
}

/// Among the temporary files: how private directories of sandboxes that only try out a backend begin.
pub(crate) const TRIAL: &str = "belljar-trial-";
/// With less the guest does not live to say a word; with next to nothing the kernel also kills us, whose memory it shares for a
/// moment while it is made.
const LEAST_MEMORY: ByteSize = ByteSize::mebibytes(1);

/// The files of a home that belljar makes fit in a quarter of it.
const LEAST_DISK: ByteSize = ByteSize::bytes(64 << 10);
// asm-generic/resource.h
const RLIMIT_DATA: u32 = 2;
const RLIMIT_CORE: u32 = 4;
/// With 0 the kernel still starts the host's handler of crashes, as root; with 1 it does not: core(5), fs/coredump.c.
const NO_CORE: u64 = 1;
const RLIMIT_NPROC: u32 = 6;
pub(crate) const RLIMIT_NOFILE: u32 = 7;
const RLIMIT_SIGPENDING: u32 = 11;
const RLIMIT_MSGQUEUE: u32 = 12;
/// What the kernel itself lets an ordinary user have (INR_OPEN_MAX): programs are made for it.
const FILES_OF_SHARED_USER: u64 = 4096;
/// Timers count as well.
const MAX_SIGNALS: u64 = 8192;
/// Bytes: a quarter of the kernel's default.
const MAX_QUEUED: u64 = 819_200 / 4;
