//! A look into a root that is made of layers, before it is mounted. What lies in them is a stranger's work: no link of it is
//! followed by the kernel, and none leads out of the tree.

use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fgetxattr, fstat, openat, openat2, readlinkat,
};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a sandbox's `/` is made of, where that is not the host's own system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootTree {
    /// Directories that lie over each other, topmost first, each by its real path: no link is followed on the way to it.
    /// None: another program mounts the root, as for a container.
    pub lowers: Vec<PathBuf>,
    /// A directory with room for what is changed, `upper` and `work` in it; a real path as well. `None`: changes are
    /// private files, and are removed with the sandbox.
    pub persistent: Option<PathBuf>,
    /// What the root says of the environment. Ours comes over it.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// What is known of its files where there are no directories to look into: paths without their leading slash.
    pub known: Vec<(String, Vec<u8>)>,
    /// A daemon's image, which it mounts itself.
    pub image: Option<DaemonImage>,
}

/// An image that a Docker daemon has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonImage {
    /// What never means another one: `sha256:` and 64 digits.
    pub id: String,
    /// Places that it wants to be written to, without their leading slash.
    pub volumes: Vec<String>,
}

/// The layers, opened.
pub(super) struct Tree<'t> {
    layers: Vec<OwnedFd>,
    known: &'t [(String, Vec<u8>)],
}

/// What a name stands for.
enum Entry {
    /// As it is in each layer that shows something of it, topmost first.
    Directory(Vec<OwnedFd>),
    Link(PathBuf),
    File(OwnedFd),
    /// A device, a socket: nothing to look into.
    Other,
}

impl<'t> Tree<'t> {
    pub(super) fn open(root: &'t RootTree) -> Result<Tree<'t>, (PathBuf, Errno)> {
        let open = |path: &PathBuf| {
            openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS)
                .map_err(|errno| (path.clone(), errno))
        };
        Ok(Tree { layers: root.lowers.iter().map(open).collect::<Result<_, _>>()?, known: &root.known })
    }

    /// Whether there is a file, over whichever links.
    pub(super) fn has_file(&self, path: &str) -> bool {
        self.is_known(path) || matches!(self.resolve(path), Some((_, Entry::File(_))))
    }

    /// Whether there is a directory.
    pub(super) fn has_directory(&self, path: &str) -> bool {
        matches!(self.resolve(path), Some((_, Entry::Directory(_))))
    }

    /// What a file holds, and where it really is, if there is one of a size that makes sense.
    pub(super) fn read(&self, path: &str) -> Option<(String, Vec<u8>)> {
        if let Some((_, content)) = self.known.iter().find(|(known, _)| known == path) {
            return Some((path.to_string(), content.clone()));
        }
        let (place, Entry::File(file)) = self.resolve(path)? else { return None };
        let mut content = Vec::new();
        File::from(file).take(LARGEST + 1).read_to_end(&mut content).ok()?;
        (content.len() as u64 <= LARGEST).then_some((place, content))
    }

    /// Where something at `path` will really be: directories on the way may be links.
    pub(super) fn place(&self, path: &str) -> String {
        let Some((parent, name)) = path.rsplit_once('/') else { return path.to_string() };
        match self.resolve(parent) {
            Some((place, Entry::Directory(_))) => {
                format!("{place}/{name}").trim_start_matches('/').to_string()
            }
            // Not there yet, as a whole or in part.
            _ => format!("{}/{name}", self.place(parent)),
        }
    }

    fn is_known(&self, path: &str) -> bool {
        self.known.iter().any(|(known, _)| known == path)
    }

    /// Follows links inside the tree.
    fn resolve(&self, path: &str) -> Option<(String, Entry)> {
        let mut ahead: Vec<String> = parts(Path::new(path))?;
        ahead.reverse();
        let mut behind: Vec<String> = Vec::new();
        // The directories on the way, the root first.
        let mut opened: Vec<Vec<OwnedFd>> = vec![self.root()?];
        let (mut links, mut steps) = (LINKS, STEPS);
        loop {
            let here = opened.last()?;
            let Some(name) = ahead.pop() else {
                return Some((behind.join("/"), Entry::Directory(opened.pop()?)));
            };
            // Forty links of four thousand bytes can lead back and forth for long.
            steps = steps.checked_sub(1)?;
            if name == ".." {
                if behind.pop().is_some() {
                    opened.pop();
                }
                continue;
            }
            match entry(here, &name)? {
                Entry::Directory(below) => {
                    behind.push(name);
                    opened.push(below);
                    // Each level holds a descriptor for every layer.
                    if opened.len() > DEEPEST {
                        return None;
                    }
                }
                Entry::Link(to) => {
                    links = links.checked_sub(1)?;
                    if to.is_absolute() {
                        behind.clear();
                        opened.truncate(1);
                    }
                    ahead.extend(parts(&to)?.into_iter().rev());
                }
                found if ahead.is_empty() => {
                    behind.push(name);
                    return Some((behind.join("/"), found));
                }
                Entry::File(_) | Entry::Other => return None,
            }
        }
    }

    fn root(&self) -> Option<Vec<OwnedFd>> {
        let open = |layer: &OwnedFd| openat(layer, ".", DIRECTORY, Mode::empty());
        self.layers.iter().map(open).collect::<Result<_, _>>().ok()
    }
}

/// What a name stands for in a directory: Documentation/filesystems/overlayfs.rst.
fn entry(directory: &[OwnedFd], name: &str) -> Option<Entry> {
    let mut merged = Vec::new();
    for layer in directory {
        let found =
            match openat(layer, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Ok(found) => found,
                Err(Errno::NOENT) => continue,
                Err(_) => break,
            };
        let about = fstat(&found).ok()?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory => {
                let Ok(opened) = openat(layer, name, DIRECTORY, Mode::empty()) else { break };
                let mut mark = [0; 4];
                // Another mark than `y` says something else.
                let is_opaque = fgetxattr(&opened, OPAQUE, &mut mark) == Ok(1) && mark[0] == b'y';
                merged.push(opened);
                if is_opaque {
                    break;
                }
            }
            // A file hides what lies below it, and so does the mark of one that was removed.
            _ if !merged.is_empty() => break,
            FileType::CharacterDevice if about.st_rdev == 0 => return None,
            FileType::Symlink => {
                let to = readlinkat(layer, name, Vec::new()).ok()?;
                return Some(Entry::Link(PathBuf::from(to.into_string().ok()?)));
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = openat(layer, name, flags, Mode::empty()).ok()?;
                // The other way to say that a file was removed.
                let is_removed = about.st_size == 0 && fgetxattr(&file, WHITEOUT, &mut [0; 4]).is_ok();
                return (!is_removed).then_some(Entry::File(file));
            }
            _ => return Some(Entry::Other),
        }
    }
    (!merged.is_empty()).then_some(Entry::Directory(merged))
}

fn parts(path: &Path) -> Option<Vec<String>> {
    let parts = path.to_str()?.split('/').filter(|part| !part.is_empty() && *part != ".");
    Some(parts.map(str::to_string).collect())
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Of an overlay in a user namespace.
const OPAQUE: &str = "user.overlay.opaque";
const WHITEOUT: &str = "user.overlay.whiteout";
/// As many as the kernel follows.
const LINKS: u32 = 40;
/// Names that are looked up for one path, with those of all links on its way.
const STEPS: u32 = 4096;
/// What belljar looks for lies nowhere near so deep. 32 levels of 100 layers are 3200 descriptors.
const DEEPEST: usize = 32;
/// Of a file that is read whole: a bundle of certificates has a quarter of it.
const LARGEST: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_an_image_lead_nowhere_else() {
        let place = tempfile::tempdir().unwrap();
        let (top, base) = (place.path().join("top"), place.path().join("base"));
        for directory in ["top/etc", "base/etc/ssl", "base/usr/bin"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        fs::write(place.path().join("outside"), "secret").unwrap();
        fs::write(base.join("usr/bin/git"), "#!").unwrap();
        fs::write(base.join("etc/passwd"), "below").unwrap();
        fs::write(top.join("etc/passwd"), "above").unwrap();
        symlink("usr/bin", base.join("bin")).unwrap();
        symlink("../../../../../outside", base.join("etc/ssl/out")).unwrap();
        symlink(place.path().join("outside"), base.join("etc/ssl/absolute")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        symlink("/etc/passwd", base.join("etc/ssl/in")).unwrap();
        let root = RootTree { lowers: vec![top, base], ..RootTree::default() };
        let tree = Tree::open(&root).unwrap();
        assert!(tree.has_file("bin/git") && tree.has_file("usr/bin/git") && tree.has_directory("bin"));
        assert_eq!(tree.read("etc/passwd"), Some(("etc/passwd".into(), b"above".to_vec())));
        assert_eq!(tree.read("etc/ssl/in"), Some(("etc/passwd".into(), b"above".to_vec())));
        for path in
            ["etc/ssl/out", "etc/ssl/absolute", "loop", "../outside", "etc/../../outside", "missing", ""]
        {
            assert_eq!(tree.read(path), None, "{path}");
        }
        assert_eq!(tree.place("bin/tool"), "usr/bin/tool");
        assert_eq!(tree.place("bin/new/deep/tool"), "usr/bin/new/deep/tool");
        assert_eq!(tree.place("workspace"), "workspace");
        assert_eq!(tree.place("new/workspace"), "new/workspace");
    }

    #[test]
    fn links_that_lead_back_and_forth_come_to_an_end() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().join("base");
        fs::create_dir_all(base.join("d")).unwrap();
        fs::write(base.join("file"), "x").unwrap();
        // Short of the kernel's bound on links and on their length.
        let back_and_forth = "d/../".repeat(800);
        symlink(format!("{back_and_forth}file"), base.join("0")).unwrap();
        for number in 1..30 {
            symlink(format!("{back_and_forth}{}", number - 1), base.join(number.to_string())).unwrap();
        }
        fs::create_dir_all(base.join(["deep"; 40].join("/"))).unwrap();
        let root = RootTree { lowers: vec![base], ..RootTree::default() };
        let tree = Tree::open(&root).unwrap();
        assert!(tree.has_file("0"), "one of them is no more than strange");
        assert!(!tree.has_file("29"));
        assert!(tree.has_directory(&["deep"; 20].join("/")) && !tree.has_directory(&["deep"; 40].join("/")));
    }

    #[test]
    fn what_a_layer_removed_is_not_there() {
        use belljar_sys::rustix::fs::{XattrFlags, fsetxattr, makedev, mknodat};
        let place = tempfile::tempdir().unwrap();
        let (top, base) = (place.path().join("top"), place.path().join("base"));
        for directory in ["top/etc", "top/lib", "base/etc", "base/lib"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        fs::write(base.join("etc/gone"), "x").unwrap();
        fs::write(base.join("lib/gone"), "x").unwrap();
        let opaque = File::open(top.join("lib")).unwrap();
        fsetxattr(&opaque, OPAQUE, b"y", XattrFlags::empty()).unwrap();
        let whiteout = top.join("etc/gone");
        mknodat(CWD, &whiteout, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)).unwrap();
        let root = RootTree { lowers: vec![top, base], ..RootTree::default() };
        let tree = Tree::open(&root).unwrap();
        assert!(!tree.has_file("etc/gone") && !tree.has_file("lib/gone"));
    }
}
