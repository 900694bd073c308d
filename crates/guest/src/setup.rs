//! Carries out the steps of a setup, in order.
//!
//! All that comes from the host's filesystem is opened first, while it is still visible; then the new root covers a
//! directory of the old one. In directories that this setup made itself, paths are used as they are. Everywhere else the
//! kernel resolves targets beneath the new root, so a link that some earlier agent left in a workspace leads nowhere else;
//! and nothing is created there: a mount point that is missing in a workspace is an error, and is not made.

mod describe;

use crate::egress::{self, Network, Opened};
use crate::stream::fault;
use belljar_sys::launch::{Identity, act_as, become_user};
use belljar_sys::mount::{self, Attributes, MountFlags, Reach, UnmountFlags};
use belljar_sys::net;
use belljar_sys::opened::{FileIdentity, open_same};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, mkdirat, openat, openat2,
    statat, symlinkat, unlinkat,
};
use belljar_sys::rustix::io::{Errno, write};
use belljar_sys::rustix::process::{fchdir, getpid, set_child_subreaper, umask};
use belljar_sys::rustix::system::sethostname;
use belljar_wire::message::{
    Access, Bytes, Fault, Mountpoint, MountpointKind, NodeKind, Restriction, Source, Step,
};
use describe::describe;
use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Carries out `steps`; `passed` are the mounts that came with them. Gives the egress sockets, if there are any.
pub(crate) fn carry_out(
    steps: &[Step],
    passed: Vec<OwnedFd>,
    network: Option<Network>,
) -> Result<Option<Opened>, Fault> {
    // Modes are meant as they are written; commands get the usual mask back.
    umask(Mode::empty());
    let sources = open_sources(steps, passed)?;
    let mut building = Building::in_present_root(sources, network).map_err(|errno| fault("open /", errno))?;
    for step in steps {
        building.carry_out(step).map_err(|errno| fault(describe(step), errno))?;
    }
    if building.network.is_some() {
        // Whether it was entered at all has not been asked.
        return Err(fault("enter a network that no step is about", Errno::INVAL));
    }
    umask(Mode::from_raw_mode(0o022));
    Ok(building.egress)
}

/// The mounts of the host that steps need, in the order of the steps.
fn open_sources(steps: &[Step], passed: Vec<OwnedFd>) -> Result<VecDeque<OwnedFd>, Fault> {
    let has_root_of_its_own =
        |step: &Step| matches!(step, Step::NewRoot | Step::PreparedRoot { .. } | Step::RootOverlay { .. });
    if steps.iter().any(has_root_of_its_own) {
        let root = open_root().and_then(mount::make_private);
        root.map_err(|errno| fault("make mounts private", errno))?;
    }
    let mut passed: Vec<Option<OwnedFd>> = passed.into_iter().map(Some).collect();
    let mut sources = VecDeque::new();
    // A copy of a mount that others share would carry what is mounted on it to them.
    let is_staged = steps.iter().any(|step| matches!(step, Step::Stage { .. }));
    let alone = |tree: OwnedFd| {
        if is_staged {
            mount::make_private(&tree)?;
        }
        Ok(tree)
    };
    for step in steps {
        for source in sources_of(step) {
            let opened = match source {
                // Bound by its path when its turn comes.
                Source::Path(path) if is_bound_by_path(step) && !is_covered(path) => continue,
                Source::Path(path) => {
                    c_string(path).and_then(|path| mount::clone_tree(CWD, &path)).and_then(alone)
                }
                Source::Judged { path, device, inode } => {
                    let identity = FileIdentity { device: *device, inode: *inode };
                    let opened = open_same(Path::new(path), identity);
                    opened.and_then(|opened| mount::clone_tree(opened, c"")).and_then(alone)
                }
                Source::Passed(index) => {
                    passed.get_mut(usize::from(*index)).and_then(Option::take).ok_or(Errno::BADF)
                }
                // Not there yet.
                Source::Inside(_) | Source::Planted(_) | Source::OwnProgram | Source::Script(_) => continue,
            };
            sources.push_back(opened.map_err(|errno| fault(describe(step), errno))?);
        }
    }
    Ok(sources)
}

fn sources_of(step: &Step) -> Vec<&Source> {
    match step {
        Step::Bind { source, .. } | Step::PreparedRoot { source, .. } => vec![source],
        Step::Overlay { folder, layer, .. } => vec![folder, layer],
        Step::RootOverlay { holder, layer, sealed, .. } => {
            let sealed = sealed.iter().map(|(source, _)| source);
            std::iter::once(holder).chain(layer).chain(sealed).collect()
        }
        Step::JoinNetwork => vec![&Source::Passed(0)],
        _ => Vec::new(),
    }
}

/// Whether one call of mount(2) does it: the place was prepared, and what may be done there is decided for many mounts at once.
fn is_bound_by_path(step: &Step) -> bool {
    matches!(step, Step::Bind { access: Access::Restricted, .. })
}

/// Whether the new root hides what is there until it is the root.
fn is_covered(path: &str) -> bool {
    COVERED.iter().any(|cover| Path::new(path).starts_with(cover)) && !Path::new(path).starts_with("/usr")
}

struct Building {
    /// The root that targets are in: the present one, until there is a new one.
    root: OwnedFd,
    /// Directories that this setup made and nothing was mounted on.
    own: HashSet<String>,
    /// Filesystems that this setup made.
    devices: Vec<u64>,
    sources: VecDeque<OwnedFd>,
    private: VecDeque<OwnedFd>,
    /// The private filesystem, which is seen nowhere as a whole.
    out_of_sight: Option<OwnedFd>,
    /// What lies over a root's own layers, in the private filesystem.
    planted: Option<OwnedFd>,
    network: Option<Network>,
    egress: Option<Opened>,
    /// The new root is a place of the host's.
    is_staged: bool,
    /// The present directory is the new root.
    is_at_root: bool,
    /// The new root has a proc filesystem that this setup mounted.
    has_proc: bool,
    /// Files that are shown in the place of others.
    covers: usize,
}

impl Building {
    fn in_present_root(sources: VecDeque<OwnedFd>, network: Option<Network>) -> Result<Building, Errno> {
        let root = open_root()?;
        let devices = vec![fstat(&root)?.st_dev];
        Ok(Building {
            root,
            own: HashSet::from([String::new()]),
            devices,
            sources,
            private: VecDeque::new(),
            out_of_sight: None,
            planted: None,
            network,
            egress: None,
            is_staged: false,
            is_at_root: false,
            has_proc: false,
            covers: 0,
        })
    }

    fn carry_out(&mut self, step: &Step) -> Result<(), Errno> {
        match step {
            Step::NewRoot => self.new_root(),
            Step::PreparedRoot { holds, .. } => self.prepared_root(holds),
            Step::Restrict(restriction) => {
                let attributes = match restriction {
                    Restriction::ReadOnly => attributes(Access::ReadOnly),
                    Restriction::NoSetuid => Attributes::NO_SUID,
                };
                mount::set_attributes(&self.root, attributes, Reach::Below)
            }
            Step::OwnFiles { target, files } => self.own_files(target, files),
            Step::Dir { target, mode } => self.directory(target, *mode),
            Step::File { target, mode, content } => self.file(target, *mode, &content.0),
            Step::Symlink { target, to } => {
                let parent = self.parent(target)?;
                symlinkat(to, parent.as_ref().unwrap_or(&self.root), within(&parent, target))
            }
            Step::Private { cover, bytes, inodes, modes } => self.private(cover, *bytes, *inodes, modes),
            Step::PrivateDir { target } => {
                let tree = self.private.pop_front().ok_or(Errno::BADF)?;
                self.put(tree, target, NodeKind::Directory)?;
                // As empty as what it lies on.
                if self.own.contains(parent_of(target)) {
                    self.own.insert(target.clone());
                }
                Ok(())
            }
            Step::Bind { source: Source::Inside(place), target, access, .. } => {
                self.bind_inside(&self.root, place, target, *access)
            }
            Step::Bind { source: Source::Planted(place), target, access, .. } => {
                self.bind_inside(self.planted.as_ref().ok_or(Errno::BADF)?, place, target, *access)
            }
            Step::Bind { source: Source::OwnProgram, target, kind, access } => {
                let mut own = File::open("/proc/self/exe").map_err(kernels)?;
                let program = self.program(PROGRAM, &mut own)?;
                self.mount(program, target, *kind, *access)
            }
            Step::Bind { source: Source::Script(script), target, kind, access } => {
                let program = self.program(SCRIPT, &mut &script.0[..])?;
                self.mount(program, target, *kind, *access)
            }
            Step::Bind { source: Source::Path(path), target, access: Access::Restricted, .. }
                if !is_covered(path) =>
            {
                // Below a prepared root only, where no link is on the way.
                if !self.own.remove(target) {
                    return Err(Errno::NOENT);
                }
                self.go_to_root()?;
                mount::bind(path.as_str(), target.as_str())
            }
            Step::Bind { target, kind, access, .. } => {
                let tree = self.sources.pop_front().ok_or(Errno::BADF)?;
                self.mount(tree, target, *kind, *access)
            }
            Step::Unmount { target } => {
                self.is_at_root = false;
                fchdir(self.find(target)?)?;
                mount::unmount(".", UnmountFlags::DETACH)
            }
            Step::RemoveDir { target } => unlinkat(&self.root, target, AtFlags::REMOVEDIR),
            Step::Proc { target } => {
                self.mount_at(target, "proc", MountFlags::NODEV | MountFlags::NOEXEC, c"")?;
                self.has_proc = target == "proc";
                Ok(())
            }
            Step::DevPts { target } => {
                // The machine has some thousands for all sandboxes together.
                let options = c"newinstance,ptmxmode=0666,mode=620,max=256";
                self.mount_at(target, "devpts", MountFlags::NOEXEC, options)
            }
            Step::Mask { target, must_exist } => self.mask(target, *must_exist),
            Step::Cover { target, content } => self.show_instead(target, &content.0),
            Step::Pivot => self.pivot(),
            Step::ReadOnlyRoot => {
                let attributes = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV);
                mount::set_attributes(&self.root, attributes, Reach::One)
            }
            Step::Hostname { name } => sethostname(name.as_bytes()),
            Step::BecomeUser { uid, gid } => become_user(Identity { uid: *uid, gid: *gid }),
            Step::EnterNetwork { egress } => {
                self.egress = self.network.take().ok_or(Errno::BADF)?.finish(egress.as_ref())?;
                Ok(())
            }
            Step::OpenEgress(egress) => {
                self.egress = Some(egress::open(egress)?);
                Ok(())
            }
            Step::RelayEgress(egress) => {
                self.egress = Some(egress::open_without_powers(egress)?);
                Ok(())
            }
            Step::Write { target, content } => match self.open(target, OFlags::WRONLY) {
                Ok(file) => write(file, content.as_bytes()).map(drop),
                Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            },
            Step::Subreaper => set_child_subreaper(Some(getpid())),
            Step::Overlay { target, upper, work, mountpoints, lowers, .. } => {
                self.overlay(target, upper, work, mountpoints, lowers)
            }
            Step::RootOverlay { lowers, layer, mountpoints, links, owner, sealed, .. } => {
                let over = Over { mountpoints, links, owner: *owner };
                let sealed = sealed.as_ref().map(|(_, sealed)| &**sealed);
                self.root_overlay(lowers, layer.is_some(), sealed, &over)
            }
            Step::Stage { place } => {
                self.is_staged = true;
                self.new_root_at(place)
            }
            Step::Uncover { cover } => {
                self.out_of_sight = None;
                mount::unmount(cover.as_str(), UnmountFlags::DETACH)
            }
            Step::ActAs { uid, gid } => act_as(Identity { uid: *uid, gid: *gid }),
            Step::JoinNetwork => {
                let namespace = self.sources.pop_front().ok_or(Errno::BADF)?;
                net::enter_namespace(namespace)?;
                egress::make_usable()
            }
            // Said, not done.
            Step::NetworkIsReady { .. } => Ok(()),
        }
    }

    /// Covers a directory that every Linux has. What lay below it was opened before.
    fn new_root(&mut self) -> Result<(), Errno> {
        self.new_root_at(covered()?)
    }

    /// The same with what was prepared instead of an empty directory.
    fn prepared_root(&mut self, holds: &[String]) -> Result<(), Errno> {
        let tree = self.sources.pop_front().ok_or(Errno::BADF)?;
        mount::attach_at(&tree, CWD, &c_string(covered()?)?)?;
        self.root = tree;
        self.own.extend(holds.iter().cloned());
        Ok(())
    }

    /// What only this sandbox has, in a directory of the private filesystem that it cannot write to.
    fn own_files(&mut self, target: &str, files: &[(String, Bytes)]) -> Result<(), Errno> {
        let private = self.out_of_sight.as_ref().ok_or(Errno::BADF)?;
        let directory = make_directory(private, OWN)?;
        for (name, content) in files {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            write(openat(&directory, name, flags, Mode::from_raw_mode(0o644))?, &content.0)?;
        }
        self.mount(mount::clone_tree(&directory, c"")?, target, NodeKind::Directory, Access::ReadOnly)
    }

    fn go_to_root(&mut self) -> Result<(), Errno> {
        if !self.is_at_root {
            fchdir(&self.root)?;
            self.is_at_root = true;
        }
        Ok(())
    }

    fn new_root_at(&mut self, place: &str) -> Result<(), Errno> {
        self.root = self.cover(place, c"mode=755,size=16m")?;
        self.devices.push(fstat(&self.root)?.st_dev);
        Ok(())
    }

    /// Covers a directory with an empty tmpfs, and opens it.
    fn cover(&self, place: &str, options: &CStr) -> Result<OwnedFd, Errno> {
        mount::mount("belljar", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)?;
        let root = openat(CWD, place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        if self.is_staged {
            mount::make_private(&root)?;
        }
        Ok(root)
    }

    /// Mounts the private filesystem where it will be out of sight, and takes its directories from there.
    fn private(&mut self, cover: &str, bytes: u64, inodes: u64, modes: &[u32]) -> Result<(), Errno> {
        let root = self.cover(cover, &c_string(&format!("mode=755,size={bytes},nr_inodes={inodes}"))?)?;
        self.devices.push(fstat(&root)?.st_dev);
        for (index, mode) in modes.iter().enumerate() {
            let name = c_string(&index.to_string())?;
            mkdirat(&root, name.as_c_str(), Mode::from_raw_mode(*mode))?;
            self.private.push_back(mount::clone_tree(&root, &name)?);
        }
        self.out_of_sight = Some(root);
        Ok(())
    }

    /// A program as a file of the private filesystem, out of sight: the guest's own, which only runs from memory, cannot be
    /// mounted, and a file with a name on the host could have been replaced by now.
    fn program(&self, name: &CStr, content: &mut dyn Read) -> Result<OwnedFd, Errno> {
        let private = self.out_of_sight.as_ref().ok_or(Errno::BADF)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(private, name, flags, Mode::from_raw_mode(0o555))?;
        io::copy(content, &mut File::from(file)).map_err(kernels)?;
        mount::clone_tree(private, name)
    }

    fn mount(&mut self, tree: OwnedFd, target: &str, kind: NodeKind, access: Access) -> Result<(), Errno> {
        mount::set_attributes(&tree, attributes(access), Reach::Below)?;
        self.put(tree, target, kind)
    }

    /// Mounts what is at `place` of `from` onto `target`, which is there. No link on either way: what a workspace holds may be
    /// an agent's work.
    fn bind_inside(&self, from: &OwnedFd, place: &str, target: &str, access: Access) -> Result<(), Errno> {
        let source = straight(from, place)?;
        let tree = mount::clone_tree(&source, c"")?;
        mount::set_attributes(&tree, attributes(access), Reach::Below)?;
        if access == Access::Reopened {
            mount::make_writable(&tree)?;
        }
        if std::ptr::eq(from, &raw const self.root) && place == target {
            return mount::attach(tree, source);
        }
        mount::attach(tree, straight(&self.root, target)?)
    }

    /// Mounts an overlay. Its directories need names while that is done: they get them in the private filesystem, out of
    /// sight, and lose them again.
    fn overlay(
        &mut self,
        target: &str,
        upper: &str,
        work: &str,
        mountpoints: &[Mountpoint],
        lowers: &[String],
    ) -> Result<(), Errno> {
        let (folder, layer) = (self.sources.pop_front(), self.sources.pop_front());
        let private = self.out_of_sight.as_ref().ok_or(Errno::BADF)?;
        let stage = make_directory(private, &format!("overlay of {}", target.replace('/', " ")))?;
        for (name, tree) in [(FOLDER, folder), (LAYER, layer)] {
            mount::attach(tree.ok_or(Errno::BADF)?, make_directory(&stage, name)?)?;
        }
        let mut below = stack(&stage, FOLDER, lowers, 0)?;
        let mounted = below.clone();
        if below.is_empty() {
            below.push(FOLDER.to_string());
        }
        if !mountpoints.is_empty() {
            plant(&make_directory(&stage, MOUNTPOINTS)?, mountpoints)?;
            below.push(MOUNTPOINTS.to_string());
        }
        self.is_at_root = false;
        fchdir(&stage)?;
        let [lower, upper, work] = [below.join(":"), format!("{LAYER}/{upper}"), format!("{LAYER}/{work}")]
            .map(|path| c_string(&path));
        let tree = mount::overlay(&lower?, &upper?, &work?)?;
        for name in mounted.iter().map(String::as_str).chain([FOLDER, LAYER]) {
            // The overlay has mounts of its own of them.
            mount::unmount(name, UnmountFlags::DETACH)?;
        }
        mount::set_attributes(&tree, attributes(Access::ReadWrite), Reach::Below)?;
        self.put(tree, target, NodeKind::Directory)
    }

    /// Mounts layers and makes them the new root. As an overlay's, their directories have names only meanwhile; short ones, since
    /// all of them have to fit into one word for the kernel.
    fn root_overlay(
        &mut self,
        lowers: &[String],
        has_layer: bool,
        sealed: Option<&[String]>,
        over: &Over<'_>,
    ) -> Result<(), Errno> {
        let holder = self.sources.pop_front().ok_or(Errno::BADF)?;
        let layer = if has_layer { Some(self.sources.pop_front().ok_or(Errno::BADF)?) } else { None };
        let sealed = match sealed {
            Some(sealed) => Some((self.sources.pop_front().ok_or(Errno::BADF)?, sealed)),
            None => None,
        };
        let private = self.out_of_sight.as_ref().ok_or(Errno::BADF)?;
        let stage = make_directory(private, "root of layers")?;
        mount::attach(holder, make_directory(&stage, HOLDER)?)?;
        let planted = make_directory(&stage, MOUNTPOINTS)?;
        over.plant(&planted)?;
        let layer_directory = make_directory(&stage, LAYER)?;
        let is_kept = layer.is_some();
        match layer {
            Some(layer) => mount::attach(layer, &layer_directory)?,
            None => {
                over.own(&make_directory(&layer_directory, UPPER)?)?;
                make_directory(&layer_directory, WORK)?;
            }
        }
        // Earlier changes lie over what we plant, as the present ones do.
        let mut names = Vec::new();
        let is_sealed = sealed.is_some();
        if let Some((tree, sealed)) = sealed {
            mount::attach(tree, make_directory(&stage, SEALED)?)?;
            names = stack(&stage, SEALED, sealed, 0)?;
        }
        let below = stack(&stage, HOLDER, lowers, names.len())?;
        let mounted: Vec<String> = names.iter().chain(&below).cloned().collect();
        names.push(MOUNTPOINTS.to_string());
        names.extend(below);
        self.is_at_root = false;
        fchdir(&stage)?;
        let [lower, upper, work] = [names.join(":"), format!("{LAYER}/{UPPER}"), format!("{LAYER}/{WORK}")]
            .map(|path| c_string(&path));
        let tree = mount::overlay(&lower?, &upper?, &work?)?;
        let holders = [HOLDER].into_iter().chain(is_sealed.then_some(SEALED)).chain(is_kept.then_some(LAYER));
        for name in mounted.iter().map(String::as_str).chain(holders) {
            mount::unmount(name, UnmountFlags::DETACH)?;
        }
        mount::set_attributes(&tree, attributes(Access::ReadWrite), Reach::Below)?;
        let place = make_directory(private, "root")?;
        mount::attach(tree, &place)?;
        self.root =
            openat(private, "root", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        self.planted = Some(planted);
        self.own.clear();
        self.devices.push(fstat(&self.root)?.st_dev);
        Ok(())
    }

    /// Attaches a mount at `target`, which is made if it lies in a directory of ours.
    fn put(&mut self, tree: OwnedFd, target: &str, kind: NodeKind) -> Result<(), Errno> {
        match kind {
            NodeKind::Directory => self.directory(target, 0o755)?,
            NodeKind::File => self.file(target, 0o644, &[])?,
        }
        let is_ours = self.own.remove(target) || self.own.contains(parent_of(target));
        if is_ours {
            mount::attach_at(tree, &self.root, &c_string(target)?)
        } else {
            mount::attach(tree, self.find(target)?)
        }
    }

    /// Mounts a filesystem onto the directory `target`. mount(2) takes a path: the one that no link can divert is
    /// `.`.
    fn mount_at(&mut self, target: &str, what: &str, flags: MountFlags, options: &CStr) -> Result<(), Errno> {
        self.directory(target, 0o755)?;
        if self.own.remove(target) {
            self.go_to_root()?;
            return mount::mount("belljar", target, what, flags | MountFlags::NOSUID, options);
        }
        self.is_at_root = false;
        fchdir(self.open(target, OFlags::PATH | OFlags::DIRECTORY)?)?;
        mount::mount("belljar", ".", what, flags | MountFlags::NOSUID, options)
    }

    /// Hides a file or directory of our own proc filesystem, where every name is the kernel's and none is a link. What it is, is asked
    /// first: after a mount that fails the kernel waits until all processors have let go of it.
    fn mask_in_proc(&mut self, target: &str) -> Result<(), Errno> {
        self.go_to_root()?;
        let masked = match statat(CWD, target, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
                mount::mount("belljar", target, "tmpfs", MASK_FLAGS, MASK)
            }
            Ok(_) => mount::bind("dev/null", target),
            Err(errno) => Err(errno),
        };
        match masked {
            Err(Errno::NOENT | Errno::ACCESS) => Ok(()),
            other => other,
        }
    }

    fn mask(&mut self, target: &str, must_exist: bool) -> Result<(), Errno> {
        if self.has_proc && Path::new(target).parent() == Some(Path::new("proc")) {
            return self.mask_in_proc(target);
        }
        let place = match self.find(target) {
            // Not there, or in a place that no process inside can reach: as hidden as it can be.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) if !must_exist => return Ok(()),
            other => other?,
        };
        if FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Directory {
            self.own.remove(target);
            self.is_at_root = false;
            fchdir(place)?;
            return mount::mount("belljar", ".", "tmpfs", MASK_FLAGS, MASK);
        }
        mount::attach(mount::clone_tree(&self.root, c"dev/null")?, place)
    }

    /// Mounts a file of the private filesystem, out of sight, over one that is there. Empty ones are all the same.
    fn show_instead(&mut self, target: &str, content: &[u8]) -> Result<(), Errno> {
        let place = self.find(target)?;
        let private = self.out_of_sight.as_ref().ok_or(Errno::BADF)?;
        let name = match content.is_empty() {
            true => EMPTY.to_string(),
            false => {
                self.covers += 1;
                format!("cover {}", self.covers)
            }
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(private, &name, flags, Mode::from_raw_mode(0o444)) {
            Err(Errno::EXIST) if content.is_empty() => {}
            opened => drop(io::copy(&mut &*content, &mut File::from(opened?)).map_err(kernels)?),
        }
        let tree = mount::clone_tree(private, &c_string(&name)?)?;
        mount::set_attributes(&tree, attributes(Access::ReadOnly), Reach::Below)?;
        mount::attach(tree, place)
    }

    fn pivot(&mut self) -> Result<(), Errno> {
        self.is_at_root = false;
        fchdir(&self.root)?;
        mount::pivot_root(".", ".")?;
        // The old root now lies on top of the new one; with it goes the host's whole filesystem.
        mount::unmount(".", UnmountFlags::DETACH)?;
        self.root = open_root()?;
        fchdir(&self.root)
    }

    fn open(&self, target: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, target, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    fn find(&self, target: &str) -> Result<OwnedFd, Errno> {
        self.open(target, OFlags::PATH)
    }

    /// Makes sure that `target` is a directory.
    fn directory(&mut self, target: &str, mode: u32) -> Result<(), Errno> {
        if self.own.contains(target) {
            return Ok(());
        }
        let parent = self.parent(target)?;
        match mkdirat(
            parent.as_ref().unwrap_or(&self.root),
            within(&parent, target),
            Mode::from_raw_mode(mode),
        ) {
            Ok(()) => {
                if parent.is_none() {
                    self.own.insert(target.to_string());
                }
                Ok(())
            }
            Err(Errno::EXIST) => self.open(target, OFlags::PATH | OFlags::DIRECTORY).map(drop),
            Err(errno) => Err(errno),
        }
    }

    /// Makes sure that `target` is a file; an existing one is left as it is.
    fn file(&mut self, target: &str, mode: u32, content: &[u8]) -> Result<(), Errno> {
        if self.own.contains(target) {
            return Ok(());
        }
        let parent = self.parent(target)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let within = within(&parent, target);
        match openat(parent.as_ref().unwrap_or(&self.root), within, flags, Mode::from_raw_mode(mode)) {
            Ok(_) if content.is_empty() => Ok(()),
            Ok(file) => write(&file, content).map(drop),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Where `target` may be created: `None` for a directory of ours, which is made where it is missing; else the
    /// opened parent. One that is not on a filesystem of this setup only counts if `target` is there already, and
    /// then nothing will be created.
    fn parent(&mut self, target: &str) -> Result<Option<OwnedFd>, Errno> {
        let parent = parent_of(target);
        if self.own.contains(parent) {
            return Ok(None);
        }
        if !parent.is_empty() && self.directory(parent, 0o755).is_err() {
            return Err(Errno::NOENT);
        }
        if self.own.contains(parent) {
            return Ok(None);
        }
        let parent = if parent.is_empty() { "." } else { parent };
        let opened = self.open(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let ours = self.devices.contains(&fstat(&opened)?.st_dev);
        if ours || self.find(target).is_ok() { Ok(Some(opened)) } else { Err(Errno::NOENT) }
    }
}

/// Mounts directories of `holder`, which is mounted in the stage, under short names: those of all layers have to fit into one word for the
/// kernel. `taken` names are in use.
fn stack(stage: &OwnedFd, holder: &str, layers: &[String], taken: usize) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        let name = short_name(taken + index);
        let place = format!("{holder}/{layer}");
        let layer = straight(stage, place.trim_end_matches('/'))?;
        mount::attach(mount::clone_tree(layer, c"")?, make_directory(stage, &name)?)?;
        names.push(name);
    }
    Ok(names)
}

/// What is at a path below `root`, over no link.
fn straight(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn kernels(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn attributes(access: Access) -> Attributes {
    match access {
        Access::ReadOnly => Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEV),
        Access::ReadWrite | Access::Reopened => Attributes::NO_SUID.and(Attributes::NO_DEV),
        Access::Device | Access::Restricted => Attributes::NO_SUID,
    }
}

/// Makes a directory and opens it.
fn make_directory(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    openat(parent, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Makes mount points, with their parent directories, in a directory that no other process knows.
fn plant(directory: &OwnedFd, mountpoints: &[Mountpoint]) -> Result<(), Errno> {
    let make = |path: &str| make_if_missing(directory, path);
    for Mountpoint { path, kind } in mountpoints {
        for (end, _) in path.match_indices('/') {
            make(&path[..end])?;
        }
        match kind {
            MountpointKind::Directory => make(path)?,
            MountpointKind::File(content) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                write(openat(directory, path, flags, Mode::from_raw_mode(0o644))?, &content.0)?;
            }
        }
    }
    Ok(())
}

/// What lies over a root's own layers.
struct Over<'s> {
    mountpoints: &'s [Mountpoint],
    links: &'s [(String, String)],
    owner: Option<(u32, u32)>,
}

impl Over<'_> {
    fn plant(&self, directory: &OwnedFd) -> Result<(), Errno> {
        plant(directory, self.mountpoints)?;
        let mut made: Vec<&str> =
            self.mountpoints.iter().map(|mountpoint| mountpoint.path.as_str()).collect();
        for (place, to) in self.links {
            for (end, _) in place.match_indices('/') {
                make_if_missing(directory, &place[..end])?;
            }
            symlinkat(to, directory, place)?;
            made.push(place);
        }
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        // With what lies on the way to them.
        let parts =
            made.iter().flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]).chain([*path]));
        for part in parts.collect::<HashSet<&str>>() {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            chownat(directory, part, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn own(&self, directory: &OwnedFd) -> Result<(), Errno> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        chownat(directory, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
    }
}

fn make_if_missing(directory: &OwnedFd, path: &str) -> Result<(), Errno> {
    match mkdirat(directory, path, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// One letter, or two.
fn short_name(index: usize) -> String {
    let letter = |index: usize| char::from(LETTERS[index % LETTERS.len()]);
    match index / LETTERS.len() {
        0 => letter(index).to_string(),
        more => format!("{}{}", letter(more - 1), letter(index)),
    }
}

/// How `target` is called from its opened parent, or from the root.
fn within<'t>(parent: &Option<OwnedFd>, target: &'t str) -> &'t str {
    match parent {
        Some(_) => target.rsplit_once('/').map_or(target, |(_, name)| name),
        None => target,
    }
}

fn parent_of(target: &str) -> &str {
    target.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn open_root() -> Result<OwnedFd, Errno> {
    openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::INVAL)
}

/// A directory that every Linux has, for the new root to lie on until it is the root.
fn covered() -> Result<&'static str, Errno> {
    COVERED.into_iter().find(|path| Path::new(path).is_dir()).ok_or(Errno::NOENT)
}

const COVERED: [&str; 4] = ["/tmp", "/run", "/mnt", "/usr"];
/// An empty directory that holds nothing and has room for nothing.
const MASK: &CStr = c"mode=555,size=4k,nr_inodes=1";
const MASK_FLAGS: MountFlags = MountFlags::NODEV.union(MountFlags::NOSUID).union(MountFlags::RDONLY);
/// Names of an overlay's directories, while it is mounted.
const FOLDER: &str = "folder";
const LAYER: &str = "layer";
const MOUNTPOINTS: &str = "stubs";
const HOLDER: &str = "holder";
const SEALED: &str = "sealed";
const UPPER: &str = "upper";
const WORK: &str = "work";
/// The name of our own program in the private filesystem; its directories have numbers.
const PROGRAM: &CStr = c"program";
const SCRIPT: &CStr = c"script";
/// The file that is shown in the place of hidden ones.
const EMPTY: &str = "empty";
const OWN: &str = "own";
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
