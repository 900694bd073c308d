//! Layers made by hand and by the kernel, applied and interrupted.

mod applying;
mod changes;
mod faults;
mod patches;
mod storing;

use super::stat::Kind;
use super::xattrs::{self, Mark};
use super::{Applied, Commits, Held, Layer, LayerError, Layers, RelPath, Selection, beneath};
use belljar_sys::rustix::fs::{self as sys, CWD, FileType, Mode};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A folder, a state directory, and a layer between them.
struct Bench {
    root: tempfile::TempDir,
    layer: Option<Held>,
}

/// Everything below a folder: type, permissions, and content or target.
type Tree = BTreeMap<Vec<u8>, (Kind, u32, Vec<u8>)>;

impl Bench {
    /// A folder with these files, and then a layer.
    fn with(files: &[(&str, &str)]) -> Bench {
        let bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
        fs::create_dir(bench.folder()).unwrap();
        for (path, content) in files {
            bench.host(path, content);
        }
        bench.layered()
    }

    fn layered(mut self) -> Bench {
        self.layer = Some(self.layers().create(&self.folder(), &[]).unwrap());
        self
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("folder")
    }

    fn layers(&self) -> Layers {
        Layers::at(&self.root.path().join("state"))
    }

    fn layer(&self) -> &Layer {
        self.layer.as_ref().unwrap()
    }

    fn upper(&self) -> PathBuf {
        self.layer().upper.clone()
    }

    /// Writes a file of the folder.
    fn host(&self, path: impl AsRef<Path>, content: &str) {
        write(&self.folder().join(path), content);
    }

    /// Writes a file of the layer.
    fn put(&self, path: impl AsRef<Path>, content: &str) {
        write(&self.upper().join(path), content);
    }

    /// The same, marked as a copy of the folder's file.
    fn copied(&self, path: &str, content: &str) {
        self.put(path, content);
        self.mark(path, Mark::Origin, b"");
    }

    fn mark(&self, path: &str, mark: Mark, value: &[u8]) {
        xattrs::set_mark(File::open(self.upper().join(path)).unwrap(), mark, value).unwrap();
    }

    /// Deletes a file, as overlayfs does.
    fn whiteout(&self, path: &str) {
        let path = self.upper().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        sys::mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    fn opaque(&self, path: &str) {
        fs::create_dir_all(self.upper().join(path)).unwrap();
        self.mark(path, Mark::Opaque, b"y");
    }

    fn tree(&self) -> Tree {
        tree(&self.folder())
    }

    /// The end of a run.
    fn finish(&mut self) {
        self.layer.take().unwrap().finish(Commits::None).unwrap();
    }

    fn apply(&mut self, selection: &[&str]) -> Result<Applied, LayerError> {
        let held = match self.layer.take() {
            Some(held) => held,
            None => self.layers().of(&self.folder()).unwrap()[0].hold().unwrap(),
        };
        let applied = held.apply(&selected(selection))?;
        if !applied.kept {
            held.discard()?;
        }
        Ok(applied)
    }

    /// The text of each change.
    fn summary(&self) -> Vec<String> {
        let changes = self.layer().changes_with_renames().unwrap();
        let mut summary: Vec<String> = changes
            .list
            .iter()
            .map(|change| match &change.from {
                Some(from) => format!("{:?} {from} {}", change.kind(), change.path),
                None => format!("{:?} {}", change.kind(), change.path),
            })
            .collect();
        summary.extend(changes.left_out.iter().map(|out| format!("- {:?} {}", out.why, out.path)));
        summary
    }
}

fn selected(paths: &[&str]) -> Selection {
    match paths {
        [] => Selection::All,
        paths => Selection::Paths(paths.iter().map(|path| rel(path)).collect()),
    }
}

fn rel(path: &str) -> RelPath {
    RelPath::understand(Path::new(path)).unwrap()
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything below a folder.
fn tree(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(directory) = todo.pop() {
        let open = File::open(&directory).unwrap();
        for name in beneath::names(&open).unwrap() {
            let path = directory.join(OsStr::from_bytes(&name));
            let stat = beneath::stat_at(&open, &name).unwrap().unwrap();
            let content = match stat.kind {
                Kind::File => fs::read(&path).unwrap_or_else(|_| b"(unreadable)".to_vec()),
                Kind::Link => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                _ => Vec::new(),
            };
            if stat.kind == Kind::Directory {
                todo.push(path.clone());
            }
            let name = path.strip_prefix(folder).unwrap().as_os_str().as_bytes().to_vec();
            tree.insert(name, (stat.kind, stat.mode, content));
        }
    }
    tree
}

/// The content of a file in a tree.
fn content<'a>(tree: &'a Tree, path: &str) -> Option<&'a str> {
    tree.get(path.as_bytes()).map(|(_, _, content)| std::str::from_utf8(content).unwrap())
}

/// Skips the test if the kernel does not permit it.
#[expect(clippy::print_stderr, reason = "a test that did nothing says so")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

fn link(to: &str, path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(to, path).unwrap();
}
