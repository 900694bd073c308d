//! The part of the root that is the same in every start with the same settings: its directories, links and small files, made once in
//! the state directory and mounted read-only, instead of some hundred system calls in each start.
//!
//! ```text
//! S/prepared/KEY/root  a root without mounts; KEY is the hash of all that is in it, and of the machine's present boot: what was
//!                      being written when the machine lost power is never used again
//! S/prepared/new-ID    one that is being made; renamed when it is whole
//! ```
//!
//! A sandbox holds its root by a shared lock on KEY, which is not visible inside. When another one is made, a root that no
//! sandbox holds is removed if it is old, or if there are more than [`MAX_UNHELD`]; `belljar prune` removes all of those.
//! If a root cannot be prepared, the guest makes it step by step: the sandbox is the same.

use super::Identity;
use super::steps::Sources;
use crate::Plan;
use belljar_state::{DiskUsage, create_private, disk_usage, new_id};
use belljar_sys::mount;
use belljar_sys::opened::FileIdentity;
use belljar_sys::proc;
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{
    CWD, FlockOperation, Mode, OFlags, StatVfsMountFlags, fchmod, flock, fstat, fstatvfs, mkdirat, openat,
    readlinkat, renameat, symlinkat,
};
use belljar_sys::rustix::io::{Errno, write};
use belljar_wire::message::{Access, Bytes, NodeKind, Restriction, Source, Step};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The same steps with a prepared root, if one is available; and that root, which the sandbox holds as long as it lives.
pub(super) fn apply(
    plan: &Plan,
    steps: Vec<Step>,
    identity: Identity,
    sources: &mut Sources,
) -> (Vec<Step>, Option<PreparedRoot>) {
    let Some(directory) = plan.prepared() else { return (steps, None) };
    let split = Split::of(&steps);
    match PreparedRoot::of(directory, &split.entries)
        .and_then(|root| Ok((root.source(identity, sources)?, root)))
    {
        Ok((source, root)) => (split.around(source, &root), Some(root)),
        Err(_) => (steps, None),
    }
}

/// Something in a root.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Directory { target: String },
    File { target: String, mode: u32, content: Vec<u8> },
    Link { target: String, to: String },
}

impl Entry {
    fn target(&self) -> &str {
        match self {
            Entry::Directory { target } | Entry::File { target, .. } | Entry::Link { target, .. } => target,
        }
    }
}

/// Steps, parted into what a root holds and what is done in it.
#[derive(Default)]
struct Split {
    /// Parents first.
    entries: Vec<Entry>,
    /// The script in front of git, which is executed.
    script: Option<Step>,
    own: Vec<(String, Bytes)>,
    rest: Vec<Step>,
    known: HashSet<String>,
    /// Where something is mounted.
    mounted: HashSet<String>,
    links: HashSet<String>,
    /// The system's own directories are mounted; what follows is not made read-only together with them.
    is_past_system: bool,
}

impl Split {
    fn of(steps: &[Step]) -> Split {
        let mut split = Split::default();
        for step in steps {
            split.take(step);
        }
        if !split.own.is_empty() {
            split.directory(OWN_FILES);
        }
        split
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Dir { target, .. } if self.is_free(target) => self.directory(target),
            Step::Symlink { target, to } if self.is_free(target) => self.link(target, to),
            Step::File { target, content, .. } if self.is_free(target) => match own_name(target) {
                Some(name) => {
                    self.link(target, &format!("/{OWN_FILES}/{name}"));
                    self.own.push((name.into(), content.clone()));
                }
                None => self.file(target, 0o644, &content.0),
            },
            Step::Bind { source: Source::Script(content), target, .. } if self.is_free(target) => {
                self.file(target, 0o555, &content.0);
                self.script = Some(step.clone());
            }
            Step::Bind { target, kind, .. } if self.is_free(target) => {
                match kind {
                    NodeKind::Directory => self.directory(target),
                    NodeKind::File => self.file(target, 0o644, &[]),
                }
                self.mounted.insert(target.clone());
                self.rest.push(self.restricted(step));
            }
            Step::PrivateDir { target }
            | Step::Proc { target }
            | Step::DevPts { target }
            | Step::Overlay { target, .. }
                if self.is_free(target) =>
            {
                self.is_past_system |= matches!(step, Step::Proc { .. });
                self.directory(target);
                self.mounted.insert(target.clone());
                self.rest.push(step.clone());
            }
            // It is so from the beginning.
            Step::ReadOnlyRoot => {}
            other => self.rest.push(other.clone()),
        }
    }

    /// The same bind, where a later step restricts it together with others: the system's own directories are made read-only before
    /// proc is mounted, and devices lose set-user-id bits at the end, as everything does.
    fn restricted(&self, step: &Step) -> Step {
        match step {
            Step::Bind { source: source @ Source::Path(_), target, kind, access }
                if *access == Access::Device || (*access == Access::ReadOnly && !self.is_past_system) =>
            {
                let (source, target) = (source.clone(), target.clone());
                Step::Bind { source, target, kind: *kind, access: Access::Restricted }
            }
            other => other.clone(),
        }
    }

    /// Whether the root itself decides what is at this place, and nothing that is mounted in it or that a link leads to.
    fn is_free(&self, target: &str) -> bool {
        let mut ways = Path::new(target).ancestors().filter_map(Path::to_str);
        ways.all(|way| !self.mounted.contains(way) && !self.links.contains(way))
    }

    fn directory(&mut self, target: &str) {
        for (end, _) in target.match_indices('/').chain([(target.len(), "")]) {
            if self.known.insert(target[..end].to_string()) {
                self.entries.push(Entry::Directory { target: target[..end].to_string() });
            }
        }
    }

    fn file(&mut self, target: &str, mode: u32, content: &[u8]) {
        if let Some((parent, _)) = target.rsplit_once('/') {
            self.directory(parent);
        }
        // The first one stays, as where the guest makes them.
        if self.known.insert(target.to_string()) {
            self.entries.push(Entry::File { target: target.into(), mode, content: content.to_vec() });
        }
    }

    fn link(&mut self, target: &str, to: &str) {
        if let Some((parent, _)) = target.rsplit_once('/') {
            self.directory(parent);
        }
        if self.known.insert(target.to_string()) {
            self.links.insert(target.into());
            self.entries.push(Entry::Link { target: target.into(), to: to.into() });
        }
    }

    /// The steps around this root.
    fn around(self, source: Source, root: &PreparedRoot) -> Vec<Step> {
        let is_place = |entry: &&Entry| !matches!(entry, Entry::Link { .. });
        let holds = self.entries.iter().filter(is_place).map(|entry| entry.target().to_string()).collect();
        let mut new_root = Some(Step::PreparedRoot { source, holds });
        let mut steps = Vec::with_capacity(self.rest.len() + 4);
        let own =
            (!self.own.is_empty()).then(|| Step::OwnFiles { target: OWN_FILES.into(), files: self.own });
        // Where the host executes nothing from there, the script comes from the private filesystem.
        let mut more: Vec<Step> = own.into_iter().chain(self.script.filter(|_| !root.can_execute)).collect();
        for step in self.rest {
            match step {
                Step::NewRoot => steps.extend(new_root.take()),
                // The system's own directories are mounted by now, and nothing else.
                Step::Proc { .. } => {
                    steps.push(Step::Restrict(Restriction::ReadOnly));
                    steps.push(step);
                    steps.append(&mut more);
                }
                Step::Pivot => steps.extend([Step::Restrict(Restriction::NoSetuid), step]),
                other => steps.push(other),
            }
        }
        steps
    }
}

/// The name of a file that is another one in each sandbox.
fn own_name(target: &str) -> Option<&'static str> {
    OWN.iter().find(|(own, _)| *own == target).map(|(_, name)| *name)
}

/// A root that was prepared, held.
pub(crate) struct PreparedRoot {
    /// Of the directory around it, which is not visible inside.
    _lock: OwnedFd,
    directory: OwnedFd,
    identity: FileIdentity,
    can_execute: bool,
}

impl PreparedRoot {
    fn of(directory: &Path, entries: &[Entry]) -> Result<PreparedRoot, Errno> {
        let place = directory.join(key(entries)?);
        match PreparedRoot::open(&place) {
            Err(Errno::NOENT | Errno::WOULDBLOCK) => PreparedRoot::make(directory, &place, entries),
            other => other,
        }
    }

    fn open(place: &Path) -> Result<PreparedRoot, Errno> {
        let lock = openat(CWD, place, DIRECTORY, Mode::empty())?;
        flock(&lock, FlockOperation::NonBlockingLockShared)?;
        // Not there if it was removed before it was locked.
        let directory = openat(&lock, ROOT, DIRECTORY, Mode::empty())?;
        let found = fstat(&directory)?;
        let can_execute = !fstatvfs(&directory)?.f_flag.contains(NO_EXEC);
        let identity = FileIdentity { device: found.st_dev, inode: found.st_ino };
        Ok(PreparedRoot { _lock: lock, directory, identity, can_execute })
    }

    fn make(directory: &Path, place: &Path, entries: &[Entry]) -> Result<PreparedRoot, Errno> {
        create_private(directory).map_err(kernels)?;
        let id = new_id().map_err(|_| Errno::IO)?;
        let unfinished = directory.join(format!("{UNFINISHED}{id}"));
        mkdirat(CWD, &unfinished, Mode::RWXU)?;
        mkdirat(CWD, unfinished.join(ROOT), Mode::RWXU)?;
        let made = PreparedRoot::open(&unfinished).and_then(|root| {
            fchmod(&root.directory, Mode::from_raw_mode(0o755))?;
            for entry in entries {
                root.put(entry)?;
            }
            // An empty directory there is the rest of one that was removed.
            match renameat(CWD, &unfinished, CWD, place) {
                Ok(()) => Ok(root),
                // Another start was faster.
                Err(Errno::EXIST | Errno::NOTEMPTY) => PreparedRoot::open(place),
                Err(errno) => Err(errno),
            }
        });
        if unfinished.exists() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        sweep(directory, AGE, MAX_UNHELD);
        made
    }

    fn put(&self, entry: &Entry) -> Result<(), Errno> {
        match entry {
            Entry::Directory { target } => {
                mkdirat(&self.directory, target, Mode::from_raw_mode(0o755))?;
                // Whatever our umask.
                let made = openat(&self.directory, target, DIRECTORY, Mode::empty())?;
                fchmod(made, Mode::from_raw_mode(0o755))
            }
            Entry::File { target, mode, content } => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(&self.directory, target, flags, Mode::from_raw_mode(*mode))?;
                if write(&file, content)? != content.len() {
                    return Err(Errno::NOSPC);
                }
                fchmod(file, Mode::from_raw_mode(*mode))
            }
            Entry::Link { target, to } => symlinkat(to, &self.directory, target),
        }
    }

    /// As the guest mounts it.
    fn source(&self, identity: Identity, sources: &mut Sources) -> Result<Source, Errno> {
        match identity {
            Identity::Own { .. } => {
                let path =
                    readlinkat(CWD, format!("/proc/self/fd/{}", self.directory.as_raw_fd()), Vec::new())?;
                let path = PathBuf::from(OsString::from_vec(path.into_bytes()));
                let path = path.to_str().ok_or(Errno::ILSEQ)?.to_string();
                let FileIdentity { device, inode } = self.identity;
                Ok(Source::Judged { path, device, inode })
            }
            Identity::Range { .. } => {
                let tree = mount::clone_one(&self.directory, c"")?;
                mount::make_private(&tree)?;
                Ok(sources.pass(tree.into()))
            }
        }
    }
}

/// Removes the roots that no sandbox holds; `dry_run` only counts them. What they take is given, too.
pub(crate) fn prune(directory: &Path, dry_run: bool) -> DiskUsage {
    let mut pruned = DiskUsage::default();
    for (_, place) in roots(directory) {
        let Some(held) = hold_alone(&place) else { continue };
        pruned.bytes += disk_usage(&place).bytes;
        pruned.entries += 1;
        if !dry_run {
            remove(directory, &place, &held);
        }
    }
    pruned
}

/// Removes roots that no sandbox holds: those that were made so long ago, and of the others the oldest ones until so many are left.
fn sweep(directory: &Path, age: Duration, most: usize) {
    let mut roots = roots(directory);
    roots.sort();
    let mut too_many = roots.len().saturating_sub(most);
    for (made, place) in roots {
        let is_old = made.elapsed().is_ok_and(|elapsed| elapsed >= age);
        if !is_old && too_many == 0 {
            return;
        }
        too_many = too_many.saturating_sub(1);
        if let Some(held) = hold_alone(&place) {
            remove(directory, &place, &held);
        }
    }
}

/// When each root was made, and where it is.
fn roots(directory: &Path) -> Vec<(SystemTime, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect()
}

fn hold_alone(place: &Path) -> Option<OwnedFd> {
    let held = openat(CWD, place, DIRECTORY, Mode::empty()).ok()?;
    flock(&held, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(held)
}

fn remove(directory: &Path, place: &Path, held: &OwnedFd) {
    let is_unfinished = place.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(NEW));
    if is_unfinished {
        // Its name is used once.
        let _ = fs::remove_dir_all(place);
        return;
    }
    let Ok(id) = new_id() else { return };
    // In one step, since half a root must not be found.
    let removed = directory.join(format!("{UNFINISHED}{id}"));
    let _ = renameat(held, ROOT, CWD, &removed);
    let _ = fs::remove_dir_all(&removed);
    // What is at this path may be another one by now: removed by another process and made anew before we had the lock. That one is not
    // empty.
    let _ = fs::remove_dir(place);
}

/// The name of a root with these entries.
fn key(entries: &[Entry]) -> Result<String, Errno> {
    let boot = proc::line("/proc/sys/kernel/random/boot_id").map_err(kernels)?;
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(boot.as_bytes());
    for entry in entries {
        add(entry.target().as_bytes());
        match entry {
            Entry::Directory { .. } => add(b"d"),
            Entry::File { mode, content, .. } => {
                add(format!("f{mode:o}").as_bytes());
                add(content);
            }
            Entry::Link { to, .. } => {
                add(b"l");
                add(to.as_bytes());
            }
        }
    }
    Ok(hash.finalize().iter().take(KEY_BYTES).map(|byte| format!("{byte:02x}")).collect())
}

fn kernels(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Files that are another one in each sandbox, and their names among its own.
const OWN: [(&str, &str); 2] = [("etc/machine-id", "machine-id"), (".belljar", "sandbox")];
/// Where they are.
const OWN_FILES: &str = "run/belljar/own";
const UNFINISHED: &str = "new-";
const NEW: &[u8] = UNFINISHED.as_bytes();
const ROOT: &str = "root";
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const KEY_BYTES: usize = 16;
/// A root of yesterday's settings is made again faster than a user notices.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// One is made for each configuration and workspace path: more than a person uses in a day, and a few megabytes.
const MAX_UNHELD: usize = 64;
const NO_EXEC: StatVfsMountFlags = StatVfsMountFlags::NOEXEC;

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<Step> {
        let bind = |target: &str, access: Access| Step::Bind {
            source: Source::Path(format!("/{target}")),
            target: target.into(),
            kind: NodeKind::Directory,
            access,
        };
        let file = |target: &str, content: &str| Step::File {
            target: target.into(),
            mode: 0o644,
            content: Bytes(content.as_bytes().to_vec()),
        };
        let link = |target: &str, to: &str| Step::Symlink { target: target.into(), to: to.into() };
        vec![
            Step::NewRoot,
            bind("usr", Access::ReadOnly),
            Step::Proc { target: "proc".into() },
            Step::PrivateDir { target: "home/agent".into() },
            link("bin", "usr/bin"),
            file("etc/hosts", "x"),
            file("etc/machine-id", "7"),
            file("home/agent/.bashrc", "y"),
            file("bin/tool", "z"),
            bind("usr/share/fonts", Access::ReadOnly),
            Step::Pivot,
            Step::ReadOnlyRoot,
        ]
    }

    #[test]
    fn what_lies_in_a_mount_or_behind_a_link_is_left_to_the_guest() {
        let split = Split::of(&steps());
        let targets: Vec<&str> = split.entries.iter().map(Entry::target).collect();
        let expected = [
            "usr",
            "proc",
            "home",
            "home/agent",
            "bin",
            "etc",
            "etc/hosts",
            "etc/machine-id",
            "run",
            "run/belljar",
            "run/belljar/own",
        ];
        assert_eq!(targets, expected);
        assert_eq!(split.own, [("machine-id".to_string(), Bytes(b"7".to_vec()))]);
        let left = split.rest.iter().filter(|step| match step {
            Step::File { target, .. } => target == "home/agent/.bashrc" || target == "bin/tool",
            Step::Bind { target, access, .. } => target == "usr/share/fonts" && *access == Access::ReadOnly,
            _ => false,
        });
        assert_eq!(left.count(), 3);
        assert!(!split.rest.contains(&Step::ReadOnlyRoot));
    }

    #[test]
    fn the_same_settings_have_the_same_root_and_others_another() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("prepared");
        let first = PreparedRoot::of(&directory, &Split::of(&steps()).entries).unwrap();
        let again = PreparedRoot::of(&directory, &Split::of(&steps()).entries).unwrap();
        assert_eq!(first.identity, again.identity);
        let mut other = steps();
        other.push(Step::Dir { target: "srv".into(), mode: 0o755 });
        let other = PreparedRoot::of(&directory, &Split::of(&other).entries).unwrap();
        assert_ne!(first.identity, other.identity);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "and nothing unfinished");
    }

    #[test]
    fn only_a_root_that_is_not_held_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("prepared");
        let entries = Split::of(&steps()).entries;
        let held = PreparedRoot::of(&directory, &entries).unwrap();
        sweep(&directory, Duration::ZERO, MAX_UNHELD);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        drop(held);
        sweep(&directory, Duration::ZERO, MAX_UNHELD);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        assert!(PreparedRoot::of(&directory, &entries).is_ok(), "it is made again");
    }

    #[test]
    fn the_number_of_roots_is_bounded_and_those_that_are_held_stay() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("prepared");
        let root = |number: usize| {
            let mut steps = steps();
            steps.push(Step::Dir { target: format!("srv/{number}"), mode: 0o755 });
            PreparedRoot::of(&directory, &Split::of(&steps).entries).unwrap()
        };
        let held = root(0);
        // Later ones must be younger by what a filesystem can tell.
        std::thread::sleep(Duration::from_millis(20));
        (1..6).for_each(|number| drop(root(number)));
        let count = || fs::read_dir(&directory).unwrap().count();
        sweep(&directory, AGE, 3);
        assert_eq!(count(), 4, "the newest three, and the one that is held");
        assert_eq!(prune(&directory, true).entries, 3);
        assert_eq!(count(), 4, "only counted");
        assert_eq!(prune(&directory, false).entries, 3);
        assert_eq!(count(), 1);
        drop(held);
    }

    #[test]
    fn a_root_that_was_made_anew_since_one_looked_is_not_removed() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("prepared");
        let entries = Split::of(&steps()).entries;
        drop(PreparedRoot::of(&directory, &entries).unwrap());
        let place = directory.join(key(&entries).unwrap());
        let looked = openat(CWD, &place, DIRECTORY, Mode::empty()).unwrap();
        // Another process removes it, and a start makes it anew, before we have the lock.
        sweep(&directory, Duration::ZERO, 0);
        let anew = PreparedRoot::of(&directory, &entries).unwrap();
        remove(&directory, &place, &looked);
        let again = PreparedRoot::of(&directory, &entries).unwrap();
        assert_eq!(anew.identity, again.identity);
        assert!(place.join(ROOT).join("etc/hosts").exists(), "all of it is there");
    }
}
