//! Which ids a user namespace has: user_namespaces(7).

use rustix::process::geteuid;
use std::fs;
use std::ops::Range;

/// Whether we are root and these ids are ours to give. Root in a rootless container is an ordinary user under another name.
pub fn are_ours(ids: Range<u32>) -> bool {
    let has = |map: &str| fs::read_to_string(map).is_ok_and(|map| maps(&map, ids.clone()));
    geteuid().is_root() && has("/proc/self/uid_map") && has("/proc/self/gid_map")
}

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
}
