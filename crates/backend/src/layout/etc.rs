//! The sandbox's /etc: a list of the host's harmless files, and our own for everything that names users or machines.

use super::{Bind, BindKind, BindOrigin, Marker};
use belljar_spec::SandboxId;
use belljar_sys::rustix::buffer::spare_capacity;
use belljar_sys::rustix::fs::{CWD, Mode, OFlags, openat};
use belljar_sys::rustix::io::read;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};

#[derive(Default)]
pub(super) struct Etc {
    pub(super) binds: Vec<Bind>,
    pub(super) links: Vec<(String, String)>,
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// Which sources of binds are directories, as far as it was asked.
    pub(super) directories: HashMap<PathBuf, bool>,
}

pub(super) fn files(marker: &Marker) -> Etc {
    let mut etc = Etc { files: own_files(marker), ..Etc::default() };
    let host = entries("/etc");
    for name in rows(TABLE).map(|columns| columns[0]) {
        let source = Path::new("/etc").join(name);
        let first = name.split('/').next().unwrap_or(name);
        match host.get(OsStr::new(first)) {
            None => {}
            Some(kind) if first == name => etc.take_known(&source, format!("etc/{name}"), *kind),
            Some(_) => etc.take(&source, format!("etc/{name}")),
        }
    }
    etc
}

/// What a directory holds, with kinds: one look instead of one for each name.
fn entries(directory: &str) -> HashMap<OsString, FileType> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?))).collect()
}

impl Etc {
    /// Shows what is there on the host, if something is.
    pub(super) fn take(&mut self, source: &Path, target: String) {
        if let Ok(found) = fs::symlink_metadata(source) {
            self.take_known(source, target, found.file_type());
        }
    }

    fn take_known(&mut self, source: &Path, target: String, kind: FileType) {
        if kind.is_symlink() {
            if let Some(to) = fs::read_link(source).ok().and_then(|to| to.to_str().map(str::to_string)) {
                self.links.push((target, to));
            }
        } else if kind.is_file()
            && let Some(content) = small(source)
        {
            // A copy costs less than a mount.
            self.files.push((target, content));
        } else if kind.is_dir() || kind.is_file() {
            self.directories.insert(source.to_path_buf(), kind.is_dir());
            let (kind, origin) = (BindKind::ReadOnly, BindOrigin::System);
            self.binds.push(Bind { source: source.to_path_buf(), target, kind, origin });
        }
    }
}

/// The content of a file that is not too large to be copied.
fn small(file: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(CWD, file, flags, Mode::empty()).ok()?;
    let mut content = Vec::with_capacity(COPIED + 1);
    // A regular file gives all that there is room for at once.
    let length = read(&file, spare_capacity(&mut content)).ok()?;
    (length <= COPIED).then_some(content)
}

fn own_files(marker: &Marker) -> Vec<(String, Vec<u8>)> {
    // Some programs look for the shell here, and not in SHELL.
    let shell = super::environment::shell();
    let (user, name, home) = (marker.user_id(), &marker.user, marker.user.home());
    let users = [
        (
            "etc/passwd",
            format!(
                "root:x:0:0:root:/root:/bin/sh\n\
                 {name}:x:{user}:{user}:{name}:{home}:{shell}\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
            ),
        ),
        ("etc/group", format!("root:x:0:\n{name}:x:{user}:\nnogroup:x:65534:\n")),
    ];
    let files = users.into_iter().chain(about_host(marker.id)).chain(about_names());
    let home = super::relative(&home);
    let at_home = home_files().map(|(name, content)| (format!("{home}/{name}"), content.into_bytes()));
    files.map(|(name, content)| (name.to_string(), content.into_bytes())).chain(at_home).collect()
}

/// What the sandbox itself is called.
pub(super) fn about_host(id: SandboxId) -> [(&'static str, String); 3] {
    [
        ("etc/hostname", format!("{HOSTNAME}\n")),
        ("etc/hosts", format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {HOSTNAME}\n")),
        ("etc/machine-id", format!("{id}{id}\n")),
    ]
}

/// How names are looked up.
pub(super) fn about_names() -> [(&'static str, String); 2] {
    [
        // Without it glibc takes the first line of hosts that fits, and localhost has no IPv6.
        ("etc/host.conf", "multi on\n".to_string()),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_string()),
    ]
}

/// What a home starts with. The prompt says where you are, after whatever the system's own file says.
pub fn home_files() -> [(&'static str, String); 2] {
    [(".bashrc", format!("PS1='{PROMPT}'\n")), (".zshrc", "PROMPT='(belljar) %~ %# '\n".to_string())]
}

/// The rows of a table: columns between `|`, `#` for comments.
pub(super) fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('|').map(str::trim).collect())
}

/// What a shell says before each command.
pub(super) const PROMPT: &str = r"(belljar) \w \$ ";
/// The sandbox's host name.
pub(crate) const HOSTNAME: &str = "belljar";
/// Files up to this size are copied.
const COPIED: usize = 8 * 1024;
pub(super) const TABLE: &str = include_str!("etc.table");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_reason_and_none_a_secret() {
        let secret = [
            "shadow",
            "gshadow",
            "sudoers",
            "ssh",
            "ssl/private",
            "krb5.keytab",
            "machine-id",
            "gitconfig",
            "ssl",
            "pki",
        ];
        for row in rows(TABLE) {
            assert_eq!(row.len(), 2, "{row:?}");
            assert!(!row[1].is_empty(), "{row:?}");
            assert!(!secret.contains(&row[0]), "{row:?}");
            assert!(!row[0].starts_with('/') && !row[0].contains(".."), "{row:?}");
        }
    }
}
