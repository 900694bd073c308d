//! The host's system directories, and what is hidden of the sandbox's own.

use super::{Bind, BindKind, BindOrigin};
use std::fs;
use std::path::PathBuf;

/// System directories as they are, links as links.
pub(super) fn directories() -> (Vec<Bind>, Vec<(String, String)>) {
    let mut binds = Vec::new();
    let mut links = Vec::new();
    for (name, _) in DIRECTORIES {
        let source = PathBuf::from("/").join(name);
        let Ok(found) = fs::symlink_metadata(&source) else { continue };
        if found.is_symlink() {
            if let Some(to) = fs::read_link(&source).ok().and_then(|to| to.to_str().map(str::to_string)) {
                links.push((name.to_string(), to));
            }
        } else if found.is_dir() {
            let (kind, origin) = (BindKind::ReadOnly, BindOrigin::System);
            binds.push(Bind { source, target: name.to_string(), kind, origin });
        }
    }
    (binds, links)
}

/// What a sandbox sees of the host's `/`, with the reason.
const DIRECTORIES: [(&str, &str); 12] = [
    ("usr", "programs and libraries"),
    ("bin", "programs; a link into usr on most systems"),
    ("sbin", "programs; a link into usr on most systems"),
    ("lib", "libraries; a link into usr on most systems"),
    ("lib32", "libraries of other widths"),
    ("lib64", "the dynamic loader's fixed place"),
    ("libx32", "libraries of other widths"),
    ("opt", "programs that came as a whole"),
    ("nix/store", "programs on NixOS: all of them"),
    ("gnu/store", "programs on Guix: all of them"),
    ("run/current-system", "NixOS: the link to the present system"),
    ("sys/devices/system/cpu", "how many processors there are, and of what kind"),
];

/// What is hidden of the sandbox's own /proc, with the reason. What the kernel closes to all users but root (kcore,
/// timer_list, sysrq-trigger and the like) is closed already: no process in a sandbox is the host's root.
pub(super) const MASKS: [(&str, &str); 7] = [
    ("proc/acpi", "the machine's power management"),
    ("proc/asound", "the machine's sound devices"),
    ("proc/cmdline", "how the host was started: its disks, and whatever its administrator said there"),
    ("proc/interrupts", "timing of the host's devices, and so of its users' keystrokes"),
    ("proc/key-users", "the host's keyrings"),
    ("proc/keys", "the host's keyrings"),
    ("proc/scsi", "the machine's disks"),
];
