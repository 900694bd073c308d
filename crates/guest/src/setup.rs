//! Carries out the steps of a setup, in order.
//!
//! All that comes from the host's filesystem is opened first, while it is still in sight; then the new root
//! covers a directory of the old one. Targets are resolved beneath the new root by the kernel, so a link that
//! some earlier agent left in a workspace leads nowhere else, and nothing is ever created outside the new root's
//! own filesystems: a mount point that is missing in a workspace is an error, not a stub.

use crate::stream::fault;
use belljar_sys::mount::{self, Attributes, MountFlags, Reach, UnmountFlags};
use belljar_sys::net;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, symlinkat,
    unlinkat,
};
use belljar_sys::rustix::io::{Errno, write};
use belljar_sys::rustix::process::{fchdir, getpid, set_child_subreaper};
use belljar_sys::rustix::system::sethostname;
use belljar_wire::message::{Access, Fault, NodeKind, Source, Step};
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::path::Path;

/// Carries out `steps`; `passed` are the mounts that came with them.
pub(crate) fn carry_out(steps: &[Step], passed: Vec<OwnedFd>) -> Result<(), Fault> {
    let sources = open_sources(steps, passed)?;
    let mut building = Building::in_current_root(sources).map_err(|errno| fault("open /", errno))?;
    for step in steps {
        building.carry_out(step).map_err(|errno| fault(describe(step), errno))?;
    }
    Ok(())
}

/// Every bind's mount, in the order of the steps.
fn open_sources(steps: &[Step], passed: Vec<OwnedFd>) -> Result<VecDeque<OwnedFd>, Fault> {
    if steps.contains(&Step::NewRoot) {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        root.and_then(mount::make_private).map_err(|errno| fault("make mounts private", errno))?;
    }
    let mut passed: Vec<Option<OwnedFd>> = passed.into_iter().map(Some).collect();
    let mut sources = VecDeque::new();
    for step in steps {
        let Step::Bind { source, .. } = step else { continue };
        let opened = match source {
            Source::Path(path) => CString::new(path.as_str())
                .map_err(|_| Errno::INVAL)
                .and_then(|path| mount::clone_tree(CWD, &path)),
            Source::Passed(index) => {
                passed.get_mut(usize::from(*index)).and_then(Option::take).ok_or(Errno::BADF)
            }
        };
        sources.push_back(opened.map_err(|errno| fault(describe(step), errno))?);
    }
    Ok(sources)
}

struct Building {
    /// The root that targets are in: the present one, until there is a new one.
    root: OwnedFd,
    /// The filesystems that this setup made.
    own: Vec<u64>,
    sources: VecDeque<OwnedFd>,
}

impl Building {
    fn in_current_root(sources: VecDeque<OwnedFd>) -> Result<Building, Errno> {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let own = vec![fstat(&root)?.st_dev];
        Ok(Building { root, own, sources })
    }

    fn carry_out(&mut self, step: &Step) -> Result<(), Errno> {
        match step {
            Step::NewRoot => self.new_root(),
            Step::Dir { target, mode } => self.directory(target, *mode).map(drop),
            Step::File { target, mode, content } => self.file(target, *mode, content).map(drop),
            Step::Symlink { target, to } => {
                let (parent, name) = self.parent(target)?;
                symlinkat(to, parent, name)
            }
            Step::Tmpfs { target, bytes, inodes } => self.tmpfs(target, *bytes, *inodes),
            Step::Bind { target, kind, access, .. } => self.bind(target, *kind, *access),
            Step::Share { from, target } => {
                let from = self.find(from)?;
                let onto = self.directory(target, 0o755)?;
                mount::attach(mount::clone_tree(from, c"")?, onto)
            }
            Step::Unmount { target } => {
                fchdir(self.find(target)?)?;
                mount::unmount(".", UnmountFlags::DETACH)?;
                let (parent, name) = self.parent(target)?;
                unlinkat(parent, name, AtFlags::REMOVEDIR)
            }
            Step::Proc { target } => {
                self.mount_at(target, "proc", MountFlags::NODEV | MountFlags::NOEXEC, c"")
            }
            Step::DevPts { target } => {
                let options = c"newinstance,ptmxmode=0666,mode=620";
                self.mount_at(target, "devpts", MountFlags::NOEXEC, options)
            }
            Step::Mask { target } => self.mask(target),
            Step::Pivot => self.pivot(),
            Step::ReadOnlyRoot => {
                let attributes = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV);
                mount::set_attributes(&self.root, attributes, Reach::One)
            }
            Step::Hostname { name } => sethostname(name.as_bytes()),
            Step::LoopbackUp => net::loopback_up(),
            Step::Write { target, content } => match self.open(target, OFlags::WRONLY) {
                Ok(file) => write(file, content.as_bytes()).map(drop),
                Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            },
            Step::Subreaper => set_child_subreaper(Some(getpid())),
        }
    }

    /// Covers a directory that every Linux has. What lay below it was opened before.
    fn new_root(&mut self) -> Result<(), Errno> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let covered = ["/tmp", "/run", "/mnt", "/usr"];
        let place = covered.into_iter().find(|path| Path::new(path).is_dir()).ok_or(Errno::NOENT)?;
        mount::mount("belljar", place, "tmpfs", flags, c"mode=755,size=16m")?;
        let root = openat(CWD, place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        self.own = vec![fstat(&root)?.st_dev];
        self.root = root;
        Ok(())
    }

    fn tmpfs(&mut self, target: &str, bytes: u64, inodes: u64) -> Result<(), Errno> {
        let options = format!("mode=755,size={bytes},nr_inodes={inodes}");
        let options = CString::new(options).map_err(|_| Errno::INVAL)?;
        self.mount_at(target, "tmpfs", MountFlags::NODEV, &options)?;
        self.own.push(fstat(self.find(target)?)?.st_dev);
        Ok(())
    }

    fn bind(&mut self, target: &str, kind: NodeKind, access: Access) -> Result<(), Errno> {
        let tree = self.sources.pop_front().ok_or(Errno::BADF)?;
        let attributes = match access {
            Access::ReadOnly => Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV),
            Access::ReadWrite => Attributes::NO_SUID.and(Attributes::NO_DEV),
            Access::Device => Attributes::NO_SUID,
        };
        mount::set_attributes(&tree, attributes, Reach::Below)?;
        let onto = match kind {
            NodeKind::Directory => self.directory(target, 0o755)?,
            NodeKind::File => self.file(target, 0o644, &[])?,
        };
        mount::attach(tree, onto)
    }

    fn mask(&self, target: &str) -> Result<(), Errno> {
        let place = match self.find(target) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        if FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Directory {
            let flags = MountFlags::NODEV | MountFlags::RDONLY;
            return self.mount_at(target, "tmpfs", flags, c"mode=555,size=4k,nr_inodes=1");
        }
        mount::attach(mount::clone_tree(self.find("dev/null")?, c"")?, place)
    }

    fn pivot(&mut self) -> Result<(), Errno> {
        fchdir(&self.root)?;
        mount::pivot_root(".", ".")?;
        // The old root now lies on top of the new one; with it goes the host's whole filesystem.
        mount::unmount(".", UnmountFlags::DETACH)?;
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        fchdir(&root)?;
        self.root = root;
        Ok(())
    }

    fn open(&self, target: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, target, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    fn find(&self, target: &str) -> Result<OwnedFd, Errno> {
        self.open(target, OFlags::PATH)
    }

    /// The directory `target`, made with its parents where it is missing.
    fn directory(&self, target: &str, mode: u32) -> Result<OwnedFd, Errno> {
        match self.open(target, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (parent, name) = self.parent(target)?;
        mkdirat(&parent, name, Mode::from_raw_mode(mode))?;
        // Exactly this mode, whatever the mask of who started us.
        let made = openat(&parent, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        Ok(made)
    }

    /// The file `target`; an existing one is left as it is.
    fn file(&self, target: &str, mode: u32, content: &[u8]) -> Result<OwnedFd, Errno> {
        match self.find(target) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (parent, name) = self.parent(target)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::from_raw_mode(mode))?;
        if !content.is_empty() {
            write(&file, content)?;
        }
        Ok(file)
    }

    /// Where `target` is to be created: only ever on filesystems that this setup made.
    fn parent<'t>(&self, target: &'t str) -> Result<(OwnedFd, &'t str), Errno> {
        let (parent, name) = target.rsplit_once('/').unwrap_or((".", target));
        let parent = self.directory(parent, 0o755)?;
        if self.own.contains(&fstat(&parent)?.st_dev) { Ok((parent, name)) } else { Err(Errno::NOENT) }
    }

    /// Mounts onto the directory `target`. mount(2) takes a path: the one that no link can divert is `.`.
    fn mount_at(&self, target: &str, what: &str, flags: MountFlags, options: &CStr) -> Result<(), Errno> {
        fchdir(self.directory(target, 0o755)?)?;
        mount::mount("belljar", ".", what, flags | MountFlags::NOSUID, options)
    }
}

/// What a step does, for the message when it fails.
fn describe(step: &Step) -> String {
    match step {
        Step::NewRoot => "make a new root".into(),
        Step::Dir { target, .. } => format!("make the directory /{target}"),
        Step::File { target, .. } => format!("write /{target}"),
        Step::Symlink { target, .. } => format!("make the link /{target}"),
        Step::Tmpfs { target, .. } => format!("mount a private filesystem at /{target}"),
        Step::Bind { source: Source::Path(path), target, .. } => format!("mount {path} at /{target}"),
        Step::Bind { target, .. } => format!("mount /{target}"),
        Step::Share { target, .. } => format!("mount /{target}"),
        Step::Unmount { target } => format!("unmount /{target}"),
        Step::Proc { target } => format!("mount proc at /{target}"),
        Step::DevPts { target } => format!("mount devpts at /{target}"),
        Step::Mask { target } => format!("hide /{target}"),
        Step::Pivot => "change to the new root".into(),
        Step::ReadOnlyRoot => "make the root read-only".into(),
        Step::Hostname { .. } => "set the host name".into(),
        Step::LoopbackUp => "bring the loopback interface up".into(),
        Step::Write { target, .. } => format!("write /{target}"),
        Step::Subreaper => "become the reaper".into(),
    }
}
