//! A container, as the daemon is asked for it: all of it in one request. And the same as words of `docker run`, for people.

use super::container_dir::{ID_LABEL, OWNER_LABEL, container_name};
use super::stage::{GUEST, control_socket_inside};
use crate::Plan;
use crate::cgroup::Turns;
use crate::layout::{HOSTNAME, Layout};
use crate::native::user_of_container;
use belljar_docker::bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits,
};
use belljar_spec::{ErrorCode, Origin, Runtime, SandboxError, Term, hint};
use std::collections::HashMap;
use std::path::Path;

/// What a container is made of, apart from what its plan says.
pub(super) struct ContainerRequest<'w> {
    pub(super) runtime: Runtime,
    /// By a name or an id that the daemon knows.
    pub(super) image: &'w str,
    pub(super) owner: &'w str,
    /// Where the stage is, and which parts of it are shown.
    pub(super) stage: &'w Path,
    pub(super) shown: &'w [String],
}

impl ContainerRequest<'_> {
    /// The request.
    pub(super) fn body(&self, plan: &Plan, layout: &Layout) -> ContainerCreateBody {
        let text = |text: &str| Some(text.to_string());
        ContainerCreateBody {
            image: text(self.image),
            hostname: text(HOSTNAME),
            user: Some(user(plan)),
            entrypoint: Some(vec![format!("/{GUEST}")]),
            cmd: Some(vec![word(self.runtime).into(), control_socket_inside()]),
            // One heap for all threads of the guest: it is mostly asleep.
            env: Some(vec!["MALLOC_ARENA_MAX=1".into()]),
            working_dir: text("/"),
            labels: Some(self.labels(plan)),
            // What an image would have the daemon run in it, now and then.
            healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
            network_disabled: None,
            host_config: Some(self.host_config(plan, layout)),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self, plan: &Plan, layout: &Layout) -> HostConfig {
        let text = |text: &str| Some(text.to_string());
        let limits = &plan.limits;
        let memory = i64::try_from(limits.memory.value.as_u64()).unwrap_or(i64::MAX);
        let is_requested = limits.cpus.origin == Origin::Requested;
        let Turns { quota, period } = Turns::of(limits.cpus.value);
        HostConfig {
            network_mode: text("none"),
            ipc_mode: text("private"),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            // A daemon that maps users to others would show the stage's files as owned by `nobody`.
            userns_mode: text("host"),
            runtime: text(self.runtime.as_str()),
            // The guest is process 1, whatever the daemon's habit is.
            init: Some(false),
            // Of what ended by itself in gVisor, the daemon alone knows why: it is asked, and then it is removed.
            auto_remove: Some(self.runtime != Runtime::Runsc),
            readonly_rootfs: Some(true),
            privileged: Some(false),
            cap_drop: Some(vec!["ALL".into()]),
            security_opt: Some(security()),
            masked_paths: Some(masked(layout)),
            readonly_paths: Some(READ_ONLY.map(str::to_string).to_vec()),
            memory: Some(memory),
            // With swap: so none of it.
            memory_swap: Some(memory),
            pids_limit: Some(tasks(self.runtime, limits.pids.value)),
            cpu_period: is_requested.then_some(period.into()),
            cpu_quota: is_requested.then_some(quota.into()),
            ulimits: Some(ulimits(self.runtime, plan)),
            sysctls: (self.runtime == Runtime::Runc).then(sysctls),
            log_config: Some(HostConfigLogConfig { typ: text("none"), config: None }),
            mounts: Some(self.shown.iter().map(|target| self.mount(target)).collect()),
            ..HostConfig::default()
        }
    }

    /// With everything below it, and with the flags that it has on the stage: the daemon's own would undo them.
    fn mount(&self, target: &str) -> Mount {
        Mount {
            target: Some(format!("/{target}")),
            source: Some(self.stage.join(target).to_string_lossy().into_owned()),
            typ: Some(MountType::BIND),
            read_only: Some(false),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        }
    }

    fn labels(&self, plan: &Plan) -> HashMap<String, String> {
        let mut labels = HashMap::from([
            (ID_LABEL.to_string(), plan.id.to_string()),
            (OWNER_LABEL.to_string(), self.owner.to_string()),
        ]);
        if let Some(persistent) = &plan.spec().persistent {
            labels.insert("belljar.name".into(), persistent.name.clone());
            labels.insert("belljar.key".into(), persistent.key.clone());
        }
        labels
    }

    /// What `docker` would have to be told for the same container, its own name first.
    pub(super) fn words(&self, plan: &Plan, layout: &Layout) -> Vec<String> {
        let body = self.body(plan, layout);
        let host = self.host_config(plan, layout);
        let mut words: Vec<String> =
            ["docker", "run", "--detach", "--rm", "--name"].map(str::to_string).to_vec();
        words.push(container_name(&plan.id.to_string()));
        let mut say = |flag: &str, value: String| words.push(format!("--{flag}={value}"));
        let mut labels: Vec<_> = self.labels(plan).into_iter().collect();
        labels.sort();
        labels.into_iter().for_each(|(name, value)| say("label", format!("{name}={value}")));
        say("runtime", self.runtime.as_str().into());
        say("hostname", HOSTNAME.into());
        say("user", user(plan));
        say("network", "none".into());
        say("ipc", "private".into());
        say("cgroupns", "private".into());
        say("userns", "host".into());
        say("init", "false".into());
        say("read-only", "true".into());
        say("cap-drop", "ALL".into());
        for option in security() {
            // Written out it is longer than all the rest.
            say(
                "security-opt",
                if option.starts_with("seccomp=") { "seccomp=belljar.json".into() } else { option },
            );
        }
        say("memory", format!("{}b", host.memory.unwrap_or_default()));
        say("memory-swap", format!("{}b", host.memory_swap.unwrap_or_default()));
        say("pids-limit", host.pids_limit.unwrap_or_default().to_string());
        if let (Some(period), Some(quota)) = (host.cpu_period, host.cpu_quota) {
            say("cpu-period", period.to_string());
            say("cpu-quota", quota.to_string());
        }
        let mut switches: Vec<_> = host.sysctls.into_iter().flatten().collect();
        switches.sort();
        switches.into_iter().for_each(|(name, value)| say("sysctl", format!("{name}={value}")));
        for ResourcesUlimits { name, soft, hard } in ulimits(self.runtime, plan) {
            let number = |limit: Option<i64>| limit.unwrap_or(-1);
            say("ulimit", format!("{}={}:{}", name.unwrap_or_default(), number(soft), number(hard)));
        }
        say("log-driver", "none".into());
        say("no-healthcheck", "true".into());
        for target in self.shown {
            let source = self.stage.join(target);
            say(
                "mount",
                format!("type=bind,source={},target=/{target},bind-propagation=rprivate", source.display()),
            );
        }
        body.env.into_iter().flatten().for_each(|variable| say("env", variable));
        say("workdir", "/".into());
        say("entrypoint", format!("/{GUEST}"));
        words.push(self.image.to_string());
        words.extend(body.cmd.into_iter().flatten());
        words
    }
}

/// Limits that were asked for and that the daemon says it cannot hold.
pub(super) fn accept_warnings(plan: &Plan, warnings: &[String]) -> Result<(), SandboxError> {
    let limits = &plan.limits;
    let requested = [
        ("memory limit", "memory", limits.memory.origin),
        ("PIDs limit", "pids", limits.pids.origin),
        ("CPU CFS", "cpus", limits.cpus.origin),
    ];
    let lost = requested.into_iter().find(|(word, _, origin)| {
        *origin == Origin::Requested
            && warnings.iter().any(|warning| warning.contains(word) && warning.contains("discard"))
    });
    let Some((_, name, _)) = lost else { return Ok(()) };
    let message = format!("the Docker daemon cannot hold the limit on {name}: {}", warnings.join("; "));
    Err(ErrorCode::LimitUnavailable
        .error(message)
        .hint(hint!("omit the limit, or use {}", Term::Backend.to("native"))))
}

/// The daemon counts what the host sees. Of a process in gVisor that is about twenty tasks: a stand-in with a thread for each
/// thread of gVisor's kernel that has served it. That kernel and its file server need some too, and cannot live without them.
fn tasks(runtime: Runtime, pids: u32) -> i64 {
    match runtime {
        Runtime::Runc | Runtime::Kata => i64::from(pids),
        Runtime::Runsc => (256 + 20 * i64::from(pids)).min(MAX_TASKS),
    }
}

/// The argument that tells the guest what its control socket is: gVisor passes no descriptors.
fn word(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Runc | Runtime::Kata => "door",
        Runtime::Runsc => "mux",
    }
}

fn user(plan: &Plan) -> String {
    let user = user_of_container(plan.id);
    format!("{user}:{user}")
}

fn security() -> Vec<String> {
    // SELinux labels restrict which processes may read what is mounted; here that was decided before.
    vec!["no-new-privileges".into(), format!("seccomp={SECCOMP}"), "label=disable".into()]
}

/// The kernel's own defaults for a network namespace: Docker lets every process bind every port, the DNS port among them,
/// and send echo requests.
fn sysctls() -> HashMap<String, String> {
    [("net.ipv4.ip_unprivileged_port_start", "1024"), ("net.ipv4.ping_group_range", "1 0")]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into()
}

/// What is hidden of /proc: what container runtimes hide, which share a kernel with others, and what belljar hides in every backend.
fn masked(layout: &Layout) -> Vec<String> {
    let ours = layout.masks.iter().filter(|mask| mask.starts_with("proc/")).map(|mask| format!("/{mask}"));
    let mut masked: Vec<String> = MASKED.map(str::to_string).into_iter().chain(ours).collect();
    masked.sort();
    masked.dedup();
    masked
}

/// The guest limits every command, and may not raise what the daemon's habit is: only what was asked for is worth a request
/// that a daemon without powers of its own would refuse.
fn ulimits(runtime: Runtime, plan: &Plan) -> Vec<ResourcesUlimits> {
    let mut all = Vec::new();
    let files = plan.limits.open_files;
    if files.origin == Origin::Requested {
        // The guest needs some for itself.
        let limit = i64::try_from(files.value.max(FEW_FILES)).ok();
        all.push(ResourcesUlimits { name: Some("nofile".into()), soft: limit, hard: limit });
    }
    if runtime == Runtime::Runsc {
        // Commands are marked with these (belljar_sys::mark), whatever the daemon's habit is. No core file is ever written there.
        for (name, soft) in [("core", 0), ("fsize", -1), ("rss", -1)] {
            all.push(ResourcesUlimits { name: Some(name.into()), soft: Some(soft), hard: Some(-1) });
        }
    }
    all
}

const SECCOMP: &str = include_str!(concat!(env!("OUT_DIR"), "/seccomp.json"));
/// Most machines have numbers for 32768: the host keeps some.
const MAX_TASKS: i64 = 24_000;
/// What a guest can live with.
const FEW_FILES: u64 = 4096;
/// As Docker does it by itself; to name some more, all have to be named.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::trial;
    use serde_json::Value;

    fn request<'w>(shown: &'w [String]) -> ContainerRequest<'w> {
        let stage = Path::new("/s/root");
        ContainerRequest { runtime: Runtime::Runc, image: "sha256:ab", owner: "word", stage, shown }
    }

    /// The rule of a system call.
    fn rule(name: &str) -> Option<Value> {
        let profile: Value = serde_json::from_str(SECCOMP).expect("the filter is JSON");
        let rules = profile["syscalls"].as_array().expect("a list").clone();
        rules.into_iter().find(|rule| rule["names"].as_array().expect("names").contains(&name.into()))
    }

    #[test]
    fn the_daemons_filter_says_what_the_guests_table_says() {
        for (name, action) in [
            ("read", "SCMP_ACT_ALLOW"),
            ("connect", "SCMP_ACT_ALLOW"),
            ("mount", "SCMP_ACT_ERRNO"),
            ("setns", "SCMP_ACT_ERRNO"),
            ("clone3", "SCMP_ACT_ERRNO"),
        ] {
            assert_eq!(rule(name).expect(name)["action"], action, "{name}");
        }
        assert_eq!(rule("clone3").expect("there")["errnoRet"], 38);
        let namespaces = 0x7e02_0000u64;
        let clone = &rule("clone").expect("there")["args"][0];
        assert_eq!((&clone["op"], &clone["value"]), (&"SCMP_CMP_MASKED_EQ".into(), &namespaces.into()));
        // What the guest does before it confines itself.
        for name in ["seccomp", "landlock_restrict_self", "prctl", "capset"] {
            assert_eq!(rule(name).expect(name)["action"], "SCMP_ACT_ALLOW", "{name}");
        }
    }

    #[test]
    fn a_container_has_no_power_no_network_and_a_name_that_says_whose_it_is() {
        let plan = trial().expect("a plan");
        let layout = plan.layout().expect("a layout");
        let shown = ["usr".to_string(), "tmp".to_string()];
        let body = request(&shown).body(&plan, layout);
        let host = body.host_config.expect("said");
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_string()]));
        assert_eq!((host.cap_add, host.devices, host.binds), (None, None, None));
        assert_eq!(
            (host.privileged, host.readonly_rootfs, host.init),
            (Some(false), Some(true), Some(false))
        );
        assert_eq!(host.memory, host.memory_swap);
        assert_eq!(body.user, Some(user(&plan)));
        let labels = body.labels.expect("labels");
        assert_eq!((labels.len(), labels[OWNER_LABEL].as_str()), (2, "word"));
        let mounts = host.mounts.expect("mounts");
        let mounts: Vec<_> = mounts.iter().filter_map(|mount| mount.source.as_deref()).collect();
        assert_eq!(mounts, ["/s/root/usr", "/s/root/tmp"]);
    }

    #[test]
    fn the_words_say_the_same() {
        let plan = trial().expect("a plan");
        let layout = plan.layout().expect("a layout");
        let shown = ["usr".to_string()];
        let words = request(&shown).words(&plan, layout);
        for word in [
            "--network=none",
            "--cap-drop=ALL",
            &format!("--user={}", user(&plan)),
            "--read-only=true",
            "--security-opt=no-new-privileges",
        ] {
            assert!(words.iter().any(|found| found == word), "{word} in {words:?}");
        }
        assert_eq!(words.last().map(String::as_str), Some("/run/.belljar/door/knock"));
    }

    #[test]
    fn a_limit_that_the_daemon_cannot_hold_is_refused_if_it_was_asked_for() {
        let plan = trial().expect("a plan");
        let discarded =
            ["Your kernel does not support memory limit capabilities. Limitation discarded.".to_string()];
        assert_eq!(accept_warnings(&plan, &discarded), Ok(()), "a default may be lost");
    }
}
