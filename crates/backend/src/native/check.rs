//! Whether namespaces can be made here: by making them. What the kernel says in refusal is turned into what to do.

use super::{DEVICES, launch};
use crate::container::around_us;
use crate::guest::{SetupFailure, not_ready};
use crate::layout::{Bind, BindOrigin, Layout, moved};
use crate::plan::trial;
use belljar_spec::{CommandLine, ErrorCode, Hint, SandboxError, Term, hint};
use belljar_sys::rustix::fs::statfs;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use belljar_sys::{errno, seccomp};
use std::fs;
use std::path::Path;

/// Starts a sandbox with nothing in it and ends it again: some milliseconds.
pub(super) fn check() -> Result<(), SandboxError> {
    launch::launch(&trial()?, &|| Ok(())).map(|guest| guest.stop())
}

/// Why the kernel did not make the namespaces.
pub(crate) fn refused(doing: &str, errno: Errno) -> SandboxError {
    let around = Around::us();
    let by = if around.is_filter(errno) { ", refused here by a seccomp filter" } else { "" };
    let message = format!("cannot {doing}: {errno}{by}");
    ErrorCode::BackendUnavailable.error(message).hint(remedy(errno, &around))
}

/// What to do where root has nothing to give to a sandbox.
pub(super) fn remedy_for_root() -> Hint {
    Around::us().container_remedy().unwrap_or_else(|| "run belljar as an ordinary user".into())
}

/// What to do where bubblewrap does not get its namespaces: it has the kernel's answer, and tells it in its own words.
pub(crate) fn remedy_for_bubblewrap() -> Hint {
    remedy(Errno::PERM, &Around::us())
}

/// Why the guest could not set up the sandbox. Where the kernel refuses what every sandbox consists of, it refuses the
/// backend; anything else is about one thing, and no weaker backend is the answer to that.
pub(crate) fn setup_failed(failure: SetupFailure, layout: &Layout) -> SandboxError {
    match failure {
        SetupFailure::Step(fault) => step_failed(&fault.doing, fault.errno, layout),
        SetupFailure::Late(time_limit) => not_ready(time_limit),
        SetupFailure::Silent => {
            ErrorCode::GuestGone.error("the sandbox's first process died while it was set up").hint(hint!(
                "there may be too little memory; {} tries each backend by itself",
                Term::Capabilities
            ))
        }
    }
}

fn step_failed(doing: &str, errno: i32, layout: &Layout) -> SandboxError {
    // What the guest itself objects to has no number of the kernel's.
    let Some(errno) = errno::parse(errno) else {
        return ErrorCode::StartFailed.error(format!("cannot {doing}"));
    };
    if errno == Errno::STALE {
        // It is not what was judged.
        let share = share_in(doing, layout).map(|share| share.source.as_path());
        return moved(share.unwrap_or(Path::new(&layout.workspace)));
    }
    let reason = format!(": {errno}");
    if doing.starts_with("lay ") {
        return no_overlay(doing, errno, layout);
    }
    if doing.starts_with("hold ") {
        return not_held(doing, errno);
    }
    if let Some(share) = share_in(doing, layout) {
        let message = format!("cannot mount `{}` at `/{}`{reason}", share.source.display(), share.target);
        return ErrorCode::StartFailed
            .error(message)
            .hint("omit it, or copy what is needed of it to another folder");
    }
    match errno {
        Errno::PERM | Errno::NOSYS if is_about_isolation(doing, layout) => refused(doing, errno),
        // How AppArmor says it.
        Errno::ACCESS if doing.starts_with("make ") && is_about_isolation(doing, layout) => {
            refused(doing, errno)
        }
        _ => ErrorCode::StartFailed.error(format!("cannot {doing}{reason}")),
    }
}

/// The share that a step mounts, by the guest's words for it (`describe.rs` there). Looked for before anything else: a path
/// that the caller named may contain any words.
fn share_in<'l>(doing: &str, layout: &'l Layout) -> Option<&'l Bind> {
    let mounted = doing.strip_prefix("mount ")?;
    let is_it = |bind: &&Bind| {
        let place = format!("/{}", bind.target);
        mounted == place || mounted.strip_suffix(&place).is_some_and(|rest| rest.ends_with(" at "))
    };
    let mut shares =
        layout.binds.iter().filter(|bind| matches!(bind.origin, BindOrigin::Named | BindOrigin::Home));
    shares.find(is_it)
}

/// Whether a step is part of every sandbox, whatever was asked for.
fn is_about_isolation(doing: &str, layout: &Layout) -> bool {
    let is_mount = |source: String, target: &str| doing == format!("mount {source} at /{target}");
    let mut system = layout.binds.iter().filter(|bind| bind.origin == BindOrigin::System);
    let mut private = layout.private.iter().map(|directory| &directory.target);
    ISOLATION_STEPS.contains(&doing)
        || DEVICES.iter().any(|name| doing.ends_with(&format!("/{name} at /dev/{name}")))
        || private.any(|target| doing == format!("mount /{target}"))
        || system.any(|bind| is_mount(bind.source.display().to_string(), &bind.target))
}

/// Why an overlay cannot lie over its folder. Reported for the overlay, not for the backend: a weaker backend is no remedy.
fn no_overlay(doing: &str, errno: Errno, layout: &Layout) -> SandboxError {
    let kind = |directory: &Path| statfs(directory).map(|found| found.f_type as u64);
    let stacked = layout.layers.iter().find(|layer| kind(&layer.directory) == Ok(OVERLAYFS));
    if let Some(layer) = stacked {
        let message = format!(
            "cannot {doing}: changes would go to `{}`, which lies in an overlay itself, as a container's files do",
            layer.directory.display()
        );
        return ErrorCode::NotSupported.error(message).hint(
            "keep belljar's state on a filesystem of its own, a volume or a tmpfs: set XDG_STATE_HOME",
        );
    }
    let hint = match errno {
        Errno::PERM | Errno::NODEV => {
            "an overlay in a user namespace needs a kernel from 5.11 on, with overlayfs"
        }
        _ => {
            "changes need a filesystem like ext4, xfs, btrfs or tmpfs: set XDG_STATE_HOME to a folder on one"
        }
    };
    ErrorCode::NotSupported.error(format!("cannot {doing}: {errno}")).hint(hint)
}

/// Why something that is protected cannot be: it is not what it was a moment ago, when it was looked at.
fn not_held(doing: &str, errno: Errno) -> SandboxError {
    let path = doing.trim_start_matches("hold ");
    match errno {
        Errno::LOOP => {
            let message = format!("`{path}` is protected, and it or a folder on the way to it is a link");
            ErrorCode::PathRefused.error(message).hint("put what it points to in its place")
        }
        Errno::NOENT | Errno::NOTDIR => {
            let message = format!("`{path}` is protected, and was removed just now");
            ErrorCode::ChangedMeanwhile.error(message).hint("try again")
        }
        _ => ErrorCode::StartFailed.error(format!("cannot {doing}: {errno}")),
    }
}

/// What lies around belljar, and may refuse what the kernel would give.
#[derive(Debug, Clone, Copy, Default)]
struct Around {
    /// The container's maker.
    container: Option<&'static str>,
    /// A filter refuses system calls that namespaces are made with.
    filter: bool,
    /// A profile of AppArmor's is in force.
    apparmor: bool,
}

impl Around {
    fn us() -> Around {
        let profile = fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
        let profile = profile.trim_matches(['\0', '\n']);
        Around {
            container: around_us(),
            filter: seccomp::refuses_namespaces(),
            apparmor: !profile.is_empty() && !profile.starts_with("unconfined"),
        }
    }

    /// Whether a refusal is the filter's, and not the kernel's.
    fn is_filter(&self, errno: Errno) -> bool {
        self.filter && matches!(errno, Errno::PERM | Errno::NOSYS)
    }

    /// How to start the container so that namespaces can be made in it: lines to copy with all that is needed, whatever is
    /// missing first. `tests/docker` tries each of Docker's.
    fn container_remedy(&self) -> Option<Hint> {
        let (program, unmasked) = match self.container? {
            "Kubernetes" => {
                return Some(hint!(
                    "set `runAsUser: 1000`, `seccompProfile: {type: Unconfined}` and `procMount: Unmasked` in the \
                     container's securityContext; {}",
                    without_isolation()
                ));
            }
            "a system container" => {
                return Some(hint!(
                    "allow nesting in the container (LXC: `security.nesting=true`) and run belljar as an ordinary \
                     user; {}",
                    without_isolation()
                ));
            }
            "Podman" => ("podman", "unmask=ALL"),
            _ => ("docker", "systempaths=unconfined"),
        };
        let apparmor = if self.apparmor { " --security-opt apparmor=unconfined" } else { "" };
        let options = format!("--security-opt seccomp=unconfined --security-opt {unmasked}{apparmor}");
        let lines = format!(
            "\n    {program} run --user 1000:1000 {options} IMAGE\n    \
             {program} run --cap-add SYS_ADMIN {options} --volume \"$PWD:/work\" --workdir /work IMAGE\n  "
        );
        Some(hint!(
            "start the container as an ordinary user with the first of these lines, or as root with the second:{}{}",
            lines,
            without_isolation()
        ))
    }
}

fn without_isolation() -> Hint {
    hint!(
        "or run without isolation, knowingly, with {}: commands then have the container's files, processes and network",
        Term::Backend.to("container")
    )
}

/// What to do about a refusal.
fn remedy(errno: Errno, around: &Around) -> Hint {
    remedy_by(errno, geteuid().is_root(), around, |name| {
        fs::read_to_string(Path::new("/proc/sys").join(name)).ok().map(|text| text.trim().to_string())
    })
}

/// By what is around us, and then by the switches that distributions have for this, in the order of how often they are the reason.
fn remedy_by(errno: Errno, is_root: bool, around: &Around, switch: impl Fn(&str) -> Option<String>) -> Hint {
    if around.is_filter(errno)
        && let Some(remedy) = around.container_remedy()
    {
        return remedy;
    }
    if around.is_filter(errno) {
        return "a seccomp filter around belljar refuses namespaces: start belljar without it (of a systemd service: \
                `SystemCallFilter=`, `RestrictNamespaces=`)"
            .into();
    }
    if errno == Errno::NOSYS {
        let kernel = switch("kernel/osrelease").unwrap_or_default();
        return if is_older(&kernel, NEEDED_KERNEL) {
            format!("the kernel, {kernel}, is older than 5.12: update it").into()
        } else {
            format!("the kernel, {kernel}, was built without it").into()
        };
    }
    if !is_root && around.container.is_none() {
        if switch("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
            return hint!(
                "AppArmor forbids user namespaces to ordinary users here (Ubuntu's default): \
                    `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for belljar: \
                    see {}",
                CommandLine::Help.of("backends")
            );
        }
        if switch("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
            return "user namespaces are switched off for ordinary users: \
                    `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
                .into();
        }
    }
    if switch("user/max_user_namespaces").as_deref() == Some("0") {
        return "user namespaces are switched off: `sudo sysctl -w user.max_user_namespaces=10000`".into();
    }
    if errno == Errno::NOSPC {
        return "there are as many namespaces as this machine allows: end some sandboxes, or raise \
                `user.max_user_namespaces` with sysctl"
            .into();
    }
    around.container_remedy().unwrap_or_else(|| {
        hint!(
            "a security module or a filter forbids it: `dmesg` may say which, and {} what to do",
            CommandLine::Help.of("backends")
        )
    })
}

/// Whether a release, as uname(2) says it, is older than this one. What cannot be read is not.
fn is_older(release: &str, than: (u32, u32)) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < than,
        _ => false,
    }
}

/// mount_setattr(2).
const NEEDED_KERNEL: (u32, u32) = (5, 12);

/// linux/magic.h
const OVERLAYFS: u64 = 0x794c_7630;
/// Steps that every sandbox has, in the guest's words for them; and what it says when it closes everything behind itself.
const ISOLATION_STEPS: [&str; 17] = [
    "make mounts private",
    "make a new root",
    "make the private filesystem",
    "make the network",
    "make the root read-only",
    "mount proc at /proc",
    "mount devpts at /dev/pts",
    "become the sandbox's user",
    "set the host name",
    "write /proc/sys/user/max_user_namespaces",
    "write /proc/sys/user/max_inotify_instances",
    "write /proc/sys/user/max_inotify_watches",
    "open the egress sockets of the network namespace",
    "change to the new root",
    "set no_new_privs",
    "drop capabilities",
    "install the seccomp filter",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BindKind, PrivateDir};
    use belljar_wire::message::Fault;

    fn bind(source: &str, target: &str, origin: BindOrigin) -> Bind {
        Bind { source: source.into(), target: target.into(), kind: BindKind::ReadOnly, origin }
    }

    fn code(doing: &str, errno: Errno) -> ErrorCode {
        let layout = Layout {
            binds: vec![
                bind("/usr", "usr", BindOrigin::System),
                bind("/w", "workspace", BindOrigin::Named),
                bind("/srv/x at /usr", "srv/x at /usr", BindOrigin::Named),
                bind("/home/ada/.cargo/bin", "home/ada/.cargo/bin", BindOrigin::Home),
            ],
            private: vec![PrivateDir { target: "tmp".into(), mode: 0o1777 }],
            ..Layout::default()
        };
        let fault = Fault { doing: doing.into(), errno: errno.raw_os_error() };
        setup_failed(SetupFailure::Step(fault), &layout).code
    }

    #[test]
    fn what_the_guest_itself_objects_to_is_said_as_it_is() {
        for errno in [0, -1, 70_000] {
            let fault = Fault { doing: "obey a setup of version 1".into(), errno };
            let error = setup_failed(SetupFailure::Step(fault), &Layout::default());
            assert_eq!(
                (error.code, &*error.to_string()),
                (ErrorCode::StartFailed, "cannot obey a setup of version 1")
            );
        }
    }

    #[test]
    fn a_refusal_of_what_every_sandbox_has_is_one_of_the_backend() {
        let mounts = ["mount /usr at /usr", "mount /tmp", "mount /dev/null at /dev/null"];
        let staged = ["mount /.stage/dev/tty at /dev/tty"];
        for doing in ISOLATION_STEPS.into_iter().chain(mounts).chain(staged) {
            assert_eq!(code(doing, Errno::PERM), ErrorCode::BackendUnavailable, "{doing}");
            assert_eq!(code(doing, Errno::NOSYS), ErrorCode::BackendUnavailable, "{doing}");
            assert_eq!(code(doing, Errno::NOMEM), ErrorCode::StartFailed, "{doing}");
        }
        assert_eq!(code("make a new root", Errno::ACCESS), ErrorCode::BackendUnavailable);
        assert_eq!(code("mount proc at /proc", Errno::ACCESS), ErrorCode::StartFailed);
    }

    #[test]
    fn a_refusal_of_one_thing_is_about_that_and_no_backend() {
        for (doing, expected) in [
            ("mount /w at /workspace", ErrorCode::StartFailed),
            ("mount /workspace", ErrorCode::StartFailed),
            ("mount /.stage/7 at /workspace", ErrorCode::StartFailed),
            ("mount /home/ada/.cargo/bin", ErrorCode::StartFailed),
            ("mount /srv/x at /usr at /srv/x at /usr", ErrorCode::StartFailed),
            ("mount /etc/shadow at /usr", ErrorCode::StartFailed),
            ("hide /workspace/service.sock", ErrorCode::StartFailed),
            ("hold /workspace/.git", ErrorCode::StartFailed),
            ("lay an overlay over /workspace", ErrorCode::NotSupported),
            ("make the directory /workspace/a", ErrorCode::StartFailed),
            ("make the link /var/tmp", ErrorCode::StartFailed),
            ("write /workspace/file", ErrorCode::StartFailed),
            ("execute the program", ErrorCode::StartFailed),
            ("enter its cgroup", ErrorCode::StartFailed),
            ("limit the number of processes", ErrorCode::StartFailed),
        ] {
            for errno in [Errno::PERM, Errno::NOSYS, Errno::ACCESS] {
                assert_eq!(code(doing, errno), expected, "{doing}: {errno}");
            }
        }
    }

    #[test]
    fn every_refusal_has_its_remedy() {
        type Switches<'s> = &'s [(&'s str, &'s str)];
        let apparmor = ("kernel/apparmor_restrict_unprivileged_userns", "1");
        let debian = ("kernel/unprivileged_userns_clone", "0");
        let none = ("user/max_user_namespaces", "0");
        let cases: &[(Errno, bool, Switches<'_>, &str)] = &[
            (Errno::NOSYS, false, &[("kernel/osrelease", "4.19.0"), apparmor], "4.19.0, is older than 5.12"),
            (Errno::PERM, false, &[apparmor, debian, none], "apparmor_restrict_unprivileged_userns=0"),
            (Errno::ACCESS, false, &[apparmor], "belljar help backends"),
            (Errno::PERM, false, &[debian, none], "kernel.unprivileged_userns_clone=1"),
            (Errno::NOSPC, false, &[none], "user.max_user_namespaces=10000"),
            (Errno::NOSPC, true, &[apparmor, debian, none], "user.max_user_namespaces=10000"),
            (Errno::NOSPC, false, &[("user/max_user_namespaces", "10")], "as many namespaces"),
            (Errno::PERM, true, &[apparmor, debian], "belljar help backends"),
            (Errno::NOSYS, false, &[("kernel/osrelease", "6.18.44-x")], "was built without it"),
        ];
        for (errno, is_root, switches, expected) in cases {
            let found = |name: &str| {
                switches.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
            };
            let remedy = remedy_by(*errno, *is_root, &Around::default(), found).to_string();
            assert!(remedy.contains(expected), "{errno} {switches:?}: {remedy}");
        }
    }

    #[test]
    fn in_a_container_the_remedy_is_all_that_is_needed_and_never_a_newer_kernel() {
        let found = |name: &str| (name == "kernel/osrelease").then(|| "6.18.44".to_string());
        let docker = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined";
        for (container, apparmor, expected) in [
            ("Docker", false, docker),
            ("Docker", true, "apparmor=unconfined"),
            ("Codespaces", false, docker),
            ("Podman", false, "unmask=ALL"),
            ("Kubernetes", true, "procMount: Unmasked"),
        ] {
            for (errno, filter) in [(Errno::NOSYS, true), (Errno::PERM, true), (Errno::PERM, false)] {
                let around = Around { container: Some(container), filter, apparmor };
                let remedy = remedy_by(errno, true, &around, found).to_string();
                assert!(remedy.contains(expected), "{container} {errno}: {remedy}");
                assert!(remedy.contains("`backend: container`"), "{container} {errno}: {remedy}");
                assert!(!remedy.contains("older"), "{container} {errno}: {remedy}");
            }
        }
        let around = Around { container: None, filter: true, apparmor: false };
        assert!(remedy_by(Errno::NOSYS, false, &around, found).to_string().contains("seccomp filter"));
    }
}
