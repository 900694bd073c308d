//! Sockets of the host that lie in what a sandbox sees. Mounting a folder read-only does not keep anybody from
//! connecting to a socket in it, so each one is hidden. The kernel lists the sockets that are bound; nothing is
//! searched for.

use super::{Bind, seen_at};
use std::fs;
use std::path::Path;

/// The places inside where the host's sockets would be, without their leading slash.
pub(super) fn below(binds: &[Bind]) -> Vec<String> {
    let Ok(listed) = fs::read_to_string("/proc/net/unix") else { return Vec::new() };
    let mut places: Vec<String> =
        bound(&listed).filter_map(|socket| seen_at(Path::new(socket), binds)).collect();
    places.sort();
    places.dedup();
    places
}

/// The absolute paths in the kernel's list: what follows seven columns. Abstract names begin with `@` there.
fn bound(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().skip(1).filter_map(|line| {
        let mut rest = line.trim_start();
        for _ in 0..7 {
            rest = rest.split_once(' ')?.1.trim_start();
        }
        rest.starts_with('/').then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BindKind, BindOrigin};

    #[test]
    fn sockets_in_shared_folders_are_found() {
        let listed = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                      0000: 00000002 00000000 00010000 0001 01 16163 /run/docker.sock\n\
                      0000: 00000003 00000000 00000000 0001 03 16288\n\
                      0000: 00000002 00000000 00010000 0001 01 1 @abstract /not/one\n\
                      0000: 00000002 00000000 00010000 0001 01 22 /srv/app/tmp/with space.sock\n";
        let bind = |source: &str, target: &str| Bind {
            source: source.into(),
            target: target.into(),
            kind: BindKind::ReadWrite,
            origin: BindOrigin::Named,
        };
        let binds = [bind("/usr", "usr"), bind("/srv/app", "workspace")];
        let places: Vec<_> = bound(listed).filter_map(|socket| seen_at(Path::new(socket), &binds)).collect();
        assert_eq!(places, ["workspace/tmp/with space.sock"]);
    }
}
