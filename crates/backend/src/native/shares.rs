//! Numbers that the kernel counts for a user over all of that user's sandboxes and programs: a sandbox gets a share of each, so that
//! none can use them up for the others. Written into the sandbox's own user namespace, where nothing inside may raise them.

use belljar_spec::Nesting;
use belljar_sys::proc;
use belljar_wire::message::Step;

/// The steps that write them.
pub(super) fn steps(nesting: Nesting) -> Vec<Step> {
    let write = |file: &str, value: u64| Step::Write {
        target: format!("proc/sys/user/{file}"),
        content: value.to_string(),
    };
    let watching = WATCHING.iter().map(|(file, everywhere)| {
        // Below the first user namespace the limit of the whole machine is told elsewhere.
        let ours = limit(&format!("/proc/sys/user/{file}")).min(limit(everywhere));
        write(file, share(ours))
    });
    let namespaces = NAMESPACES.iter().map(|file| match nesting {
        Nesting::Allowed => write(file, share(limit(&format!("/proc/sys/user/{file}"))).min(MAX_NAMESPACES)),
        Nesting::Denied => write(file, 0),
    });
    // Without user namespaces nothing inside may make any: one is enough as a second lock beside the seccomp filter.
    let locked = match nesting {
        Nesting::Allowed => NAMESPACES.len(),
        Nesting::Denied => 1,
    };
    watching.chain(namespaces.take(locked)).collect()
}

/// What one sandbox gets of so many.
fn share(all: u64) -> u64 {
    (all / 4).max(FEWEST.min(all))
}

fn limit(file: &str) -> u64 {
    proc::line(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u64::from(u32::MAX >> 1))
}

/// namespaces(7), inotify(7): the limit of a user namespace, and where the machine's is told.
const WATCHING: [(&str, &str); 2] = [
    ("max_inotify_instances", "/proc/sys/fs/inotify/max_user_instances"),
    ("max_inotify_watches", "/proc/sys/fs/inotify/max_user_watches"),
];
/// The one that all others need first.
const NAMESPACES: [&str; 8] = [
    "max_user_namespaces",
    "max_mnt_namespaces",
    "max_pid_namespaces",
    "max_net_namespaces",
    "max_ipc_namespaces",
    "max_uts_namespaces",
    "max_cgroup_namespaces",
    "max_time_namespaces",
];
/// A browser makes some dozens.
const MAX_NAMESPACES: u64 = 1024;
/// Fewer are of no use to any program.
const FEWEST: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_most_of_it_to_others() {
        for (all, expected) in [(128, 32), (8192, 2048), (64, 16), (20, 16), (3, 3), (0, 0)] {
            assert_eq!(share(all), expected, "{all}");
        }
    }

    #[test]
    fn namespaces_are_none_or_few() {
        let names = |nesting: Nesting| {
            let steps = steps(nesting).into_iter();
            let written = steps.filter_map(|step| match step {
                Step::Write { target, content } => Some((target, content)),
                _ => None,
            });
            written.filter(|(target, _)| target.ends_with("_namespaces")).collect::<Vec<_>>()
        };
        let first = "proc/sys/user/max_user_namespaces".to_string();
        assert_eq!(names(Nesting::Denied), [(first, "0".to_string())]);
        let allowed = names(Nesting::Allowed);
        assert_eq!(allowed.len(), NAMESPACES.len());
        assert!(allowed.iter().all(|(_, value)| value.parse::<u64>().unwrap() <= MAX_NAMESPACES));
    }
}
