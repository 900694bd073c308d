//! Which ids a user namespace has: user_namespaces(7).

use crate::{caps, proc};
use rustix::process::geteuid;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

/// Whether we are root and these ids are ours to give. Root in a rootless container is an ordinary user under another name.
pub fn are_ours(ids: Range<u32>) -> bool {
    geteuid().is_root() && MAPS.iter().all(|map| maps(map, ids.clone()))
}

/// Whether our user is the machine's root under whatever id. The map of our user namespace leads only to the namespace around it,
/// whose root may be an ordinary user; but `/proc/sys/vm` belongs to the machine's root in all of them.
pub fn is_root_outside() -> bool {
    let uid = geteuid().as_raw();
    let is_owner = fs::metadata("/proc/sys/vm").map_or(true, |found| found.uid() == uid);
    is_owner && leads_to_root(&MAPS[0], uid)
}

/// Whether we may mount: we have CAP_SYS_ADMIN, which root in most containers has not.
pub fn may_mount() -> bool {
    caps::is_effective(CAP_SYS_ADMIN)
}

fn leads_to_root(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(inside)), Some(Ok(0)), Some(Ok(1..))) => inside == u64::from(uid),
            _ => false,
        }
    })
}

/// Of users and of groups. They are written once, and this process stays in its user namespace.
static MAPS: LazyLock<[String; 2]> = LazyLock::new(|| {
    ["/proc/self/uid_map", "/proc/self/gid_map"].map(|map| proc::text(map).unwrap_or_default())
});
/// linux/capability.h
const CAP_SYS_ADMIN: u32 = 21;

/// Those of sandboxes: above what distributions and systemd hand out (docs of systemd, "Users, Groups, UIDs and GIDs"), below the
/// sign bit.
pub const SANDBOXES: Range<u32> = 0x7000_0000..0x7ff0_0000;

/// Whether a namespace has these ids: one line of its map must cover them all.
fn maps(map: &str, ids: Range<u32>) -> bool {
    let covers = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
        match (numbers.next().flatten(), numbers.next().flatten(), numbers.next().flatten()) {
            (Some(inside), Some(_), Some(length)) => {
                inside <= u64::from(ids.start) && u64::from(ids.end) <= inside + length
            }
            _ => false,
        }
    };
    map.lines().any(covers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_a_map_has_to_cover_a_range() {
        for (map, has) in [
            ("         0          0 4294967295\n", true),
            ("         0       1000          1\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("0 0 1879048192\n", false),
            ("1879048192 5 65536\n", true),
            ("1879048192 5 65535\n", false),
            ("", false),
            ("0 0\n", false),
        ] {
            let first = SANDBOXES.start;
            assert_eq!(maps(map, first..first + 0x1_0000), has, "{map}");
        }
    }

    #[test]
    fn root_is_known_by_what_it_is_outside() {
        for (map, uid, is_root) in [
            ("         0          0 4294967295\n", 0, true),
            ("         0          0 4294967295\n", 1000, false),
            ("0 1000 1\n1 100000 65536\n", 0, false),
            ("0 0 1\n", 0, true),
            ("1000 0 1\n", 1000, true),
            ("", 0, false),
        ] {
            assert_eq!(leads_to_root(map, uid), is_root, "{map} {uid}");
        }
    }
}
