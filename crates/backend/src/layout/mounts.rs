//! Filesystems of the kernel that happen to be mounted inside of what is shared: a chroot's /proc shows every process of
//! the host, its /dev every device.

use super::{Bind, BindOrigin, seen_at, spelled};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What is mounted on this machine, read once.
#[derive(Default)]
pub(super) struct Mounts(String);

/// A folder or file by the filesystem that it is on, and its path there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlaceOnDevice {
    pub(super) device: String,
    pub(super) path: PathBuf,
}

impl Mounts {
    pub(super) fn here() -> Mounts {
        Mounts(listed())
    }

    #[cfg(test)]
    pub(super) fn of_test(listed: String) -> Mounts {
        Mounts(listed)
    }

    /// The places inside where filesystems of the kernel would be.
    pub(super) fn of_the_kernel(&self, binds: &[Bind]) -> Vec<String> {
        among(&self.0, binds)
    }

    /// Where a path, without links, lies in its filesystem.
    pub(super) fn place_of(&self, real: &Path) -> Option<PlaceOnDevice> {
        // Of two at one point the later one is seen.
        let around = self.all().filter(|mount| real.starts_with(&mount.point));
        let mount = around.max_by_key(|mount| mount.point.components().count())?;
        let path =
            mount.root.components().chain(real.strip_prefix(&mount.point).ok()?.components()).collect();
        Some(PlaceOnDevice { device: mount.device, path })
    }

    /// The places of everything that is mounted below a path.
    pub(super) fn below(&self, real: &Path) -> Vec<PlaceOnDevice> {
        let below = self.all().filter(|mount| mount.point.starts_with(real) && mount.point != real);
        below.map(|mount| PlaceOnDevice { device: mount.device, path: mount.root }).collect()
    }

    /// Whether the filesystem of a place is mounted more than once.
    pub(super) fn is_repeated(&self, place: &PlaceOnDevice) -> bool {
        self.all().filter(|mount| mount.device == place.device).nth(1).is_some()
    }

    fn all(&self) -> impl Iterator<Item = Mount> {
        self.0.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(2);
            let device = fields.next()?.to_string();
            let [root, point] = [fields.next()?, fields.next()?].map(|path| PathBuf::from(unescape(path)));
            Some(Mount { device, root, point })
        })
    }
}

/// One line of mountinfo.
struct Mount {
    device: String,
    /// Which folder of the filesystem is mounted.
    root: PathBuf,
    point: PathBuf,
}

fn among(listed: &str, binds: &[Bind]) -> Vec<String> {
    let mounts = listed.lines().filter_map(mount_point);
    // A bind of such a filesystem itself was meant: a processor's description, for one. What only holds a place was not.
    let is_meant =
        |bind: &Bind, point: &str| bind.origin != BindOrigin::Held && bind.source == Path::new(point);
    mounts
        .filter(|point| !Path::new(point).starts_with("/sys"))
        .filter(|point| !binds.iter().any(|bind| is_meant(bind, point)))
        .flat_map(|point| seen_at(Path::new(&point), binds))
        .filter_map(|(_, place)| spelled(place))
        .collect()
}

/// Something that is mounted below `folder`.
pub(super) fn first_below(folder: &Path) -> Option<String> {
    let below = |point: &PathBuf| point.starts_with(folder) && *point != folder;
    points().into_iter().find(below).map(|point| point.to_string_lossy().into_owned())
}

/// Where something is mounted.
pub(super) fn points() -> Vec<PathBuf> {
    listed().lines().map(|line| unescape(line.split(' ').nth(4).unwrap_or_default()).into()).collect()
}

/// proc_pid_mountinfo(5). The kernel does not say how long it is, and takes its time for each piece: one is enough nearly always.
/// A name that is no UTF-8 hides no other mount.
fn listed() -> String {
    let mut bytes = Vec::with_capacity(USUAL);
    let read = File::open("/proc/self/mountinfo").and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

/// Where a mount of such a filesystem is: proc_pid_mountinfo(5).
fn mount_point(line: &str) -> Option<String> {
    let (mount, filesystem) = line.split_once(" - ")?;
    KERNELS
        .contains(&filesystem.split(' ').next()?)
        .then(|| unescape(mount.split(' ').nth(4).unwrap_or_default()))
}

/// Spaces and the like are written as octal numbers.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(text.to_string(), |text, (escaped, plain)| text.replace(escaped, plain))
}

const USUAL: usize = 16 * 1024;
const KERNELS: [&str; 13] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "bpf",
    "configfs",
    "fusectl",
    "efivarfs",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BindKind;

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        let line = "36 35 0:5 / /srv/my\\040root/proc rw,nosuid shared:5 - proc proc rw";
        assert_eq!(mount_point(line).as_deref(), Some("/srv/my root/proc"));
        assert_eq!(mount_point("36 35 8:1 / /srv rw - ext4 /dev/sda1 rw"), None);
    }

    #[test]
    fn a_bind_mount_is_known_by_its_place_in_its_filesystem() {
        let mounts = Mounts(
            "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 8:1 /etc/cron.d /srv/a\\040b rw - ext4 /dev/sda1 rw\n\
             22 20 8:2 / /data rw - ext4 /dev/sda2 rw\n"
                .into(),
        );
        let place = |device: &str, path: &str| PlaceOnDevice { device: device.into(), path: path.into() };
        assert_eq!(mounts.place_of(Path::new("/etc/x")), Some(place("8:1", "/etc/x")));
        assert_eq!(mounts.place_of(Path::new("/srv/a b/x")), Some(place("8:1", "/etc/cron.d/x")));
        assert_eq!(mounts.below(Path::new("/srv")), [place("8:1", "/etc/cron.d")]);
        assert_eq!(mounts.below(Path::new("/srv/a b")), []);
        assert!(mounts.is_repeated(&place("8:1", "/etc")) && !mounts.is_repeated(&place("8:2", "/")));
    }

    #[test]
    fn a_filesystem_of_the_kernel_is_hidden_at_every_place_that_shows_it() {
        let bind = |source: &str, target: &str| Bind {
            source: source.into(),
            target: target.into(),
            kind: BindKind::ReadOnly,
            origin: BindOrigin::Named,
        };
        let listed = "36 35 0:5 / /srv/root/proc rw,nosuid shared:5 - proc proc rw\n\
                      37 35 8:1 / /srv/root/home rw - ext4 /dev/sda1 rw\n";
        let binds = [bind("/srv/root", "workspace"), bind("/srv", "srv")];
        assert_eq!(among(listed, &binds), ["workspace/proc", "srv/root/proc"]);
        let meant = [bind("/srv/root", "workspace"), bind("/srv/root/proc", "srv/root/proc")];
        assert_eq!(among(listed, &meant), Vec::<String>::new());
        let held = Bind { origin: BindOrigin::Held, ..bind("/srv/root/proc", "workspace/proc") };
        assert_eq!(among(listed, &[bind("/srv/root", "workspace"), held]), ["workspace/proc"]);
    }
}
