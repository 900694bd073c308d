//! Files and folders of the workspace that the caller hides, and files of variables that are shown with placeholders. Each is found
//! before the start, and covered wherever a mount shows it: a file by an empty one or by its placeholders, a folder by an empty one.
//! Links and other names of a file are followed to the file itself. A search that does not come to its end means that there is no
//! sandbox.

use super::{Bind, seen_at, spelled};
use belljar_spec::workspace::{HidePattern, Layer, Shield, Shielded, View};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{Mode, OFlags, ResolveFlags, getxattr, open, openat2};
use belljar_sys::rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes the content that is shown of a file of variables, from its path in the workspace and its content on the host.
pub type EnvFiles = Arc<dyn Fn(&str, Vec<u8>) -> Result<Vec<u8>, SandboxError> + Send + Sync>;

/// What is covered, by its path in the workspace's folder on the host.
#[derive(Default)]
pub(super) struct Hidden {
    covered: BTreeMap<PathBuf, What>,
}

/// What is mounted over a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// An empty folder over a folder, a device over a file: git adds neither.
    Mask,
    /// A file with this content over a file.
    File(Vec<u8>),
}

/// A cover, and its place inside without the leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) target: String,
    /// That of the file that is shown; nothing is, if there is none.
    pub(crate) content: Option<Vec<u8>>,
}

/// What the caller wants covered.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'w> {
    pub(super) hidden: &'w [HidePattern],
    pub(super) placeholders: &'w [HidePattern],
    pub(super) env_files: Option<&'w EnvFiles>,
}

/// Finds what these patterns mean in the workspace. The folders around it then stay where they are: moved, it would be seen under another
/// name by the next sandbox, which looks for it anew. In an overlay a folder that is moved is copied, without what is hidden.
pub(super) fn find(view: &mut View, wanted: Wanted<'_>) -> Result<Hidden, SandboxError> {
    let mut covered = BTreeMap::new();
    for (path, entry) in found(view, wanted.hidden)? {
        let is_file = !entry.is_directory && !is_in_nested_repository(view, &path);
        covered.insert(path, if is_file { What::File(Vec::new()) } else { What::Mask });
    }
    let mut left = MAX_ENV_FILES_BYTES;
    let is_hidden = |covered: &BTreeMap<PathBuf, What>, path: &Path| {
        path.ancestors().any(|outer| covered.contains_key(outer))
    };
    for (path, entry) in found(view, wanted.placeholders)? {
        if is_hidden(&covered, &path) {
            continue;
        }
        let shown = path.strip_prefix(&view.folder).unwrap_or(&path).display().to_string();
        let what = match entry.is_closed {
            true => What::Mask,
            false => What::File(entry.with_placeholders(&shown, wanted.env_files, &mut left)?),
        };
        covered.insert(path, what);
    }
    let mut missing = Vec::new();
    for (path, entry) in untracked(view, wanted.placeholders)? {
        let shown = path.strip_prefix(&view.folder).unwrap_or(&path).to_path_buf();
        let text = shown.to_str().ok_or_else(|| not_text(&shown.display().to_string()))?;
        let names: Vec<&str> = text.split('/').collect();
        let is_hidden_there =
            |pattern: &HidePattern| (1..=names.len()).any(|length| pattern.matches(&names[..length]));
        if is_hidden(&covered, &path) || wanted.hidden.iter().any(is_hidden_there) {
            continue;
        }
        let content = entry.with_placeholders(text, wanted.env_files, &mut left)?;
        missing.push(text.to_string());
        covered.insert(path, What::File(content));
    }
    let around = covered.keys().filter(|_| view.layer.is_none());
    let around = around.filter_map(|path| path.strip_prefix(&view.folder).ok()?.parent());
    let around: BTreeSet<PathBuf> = around
        .flat_map(|folder| {
            folder.ancestors().filter(|folder| *folder != Path::new("")).map(Path::to_path_buf)
        })
        .collect();
    // A set of paths has parents before what is in them.
    for folder in around {
        let path = folder.to_str().ok_or_else(|| not_text(&folder.display().to_string()))?.to_string();
        if view.shields.iter().all(|shield| shield.path != path) {
            view.shields.push(Shield { path, what: Shielded::Anchored });
        }
    }
    // A mount needs a place.
    view.shields.extend(missing.into_iter().map(|path| Shield { path, what: Shielded::MissingFile("") }));
    Ok(Hidden { covered })
}

/// What these patterns mean, by its path in the workspace's folder.
fn found(view: &View, patterns: &[HidePattern]) -> Result<BTreeMap<PathBuf, Found>, SandboxError> {
    if patterns.is_empty() {
        return Ok(BTreeMap::new());
    }
    let elsewhere = shown_from_elsewhere(view);
    let folder = &*view.folder;
    let mut search = Search::new(patterns, &elsewhere, folder, folder);
    search.folder(folder, &mut Vec::new())?;
    let mut several_names = std::mem::take(&mut search.several_names);
    let mut all = std::mem::take(&mut search.found);
    if let Some(layer) = &view.layer {
        all.retain(|path, _| path.strip_prefix(folder).is_ok_and(|below| !is_removed(layer, below)));
        // A file in an overlay's upper directory is seen at the same path in the folder.
        let mut search = Search::new(patterns, &elsewhere, &layer.upper, folder);
        search.folder(&layer.upper, &mut Vec::new())?;
        several_names.extend(search.several_names);
        all.extend(search.found);
    }
    // A file has the same content under each of its names.
    if !several_names.is_empty() {
        let mut search = Search::new(patterns, &elsewhere, folder, folder);
        search.several_names = several_names;
        search.found = all;
        search.names_of(folder)?;
        all = search.found;
    }
    Ok(all)
}

/// Files of variables that git does not track, and that so are not in this worktree: in the host's folder at the same paths.
fn untracked(view: &View, patterns: &[HidePattern]) -> Result<BTreeMap<PathBuf, Found>, SandboxError> {
    let Some(host) = view.host_folder.as_deref().filter(|_| !patterns.is_empty()) else {
        return Ok(BTreeMap::new());
    };
    let elsewhere = [".git".to_string()];
    let mut search = Search::new(patterns, &elsewhere, host, &view.folder);
    search.folder(host, &mut Vec::new())?;
    let is_shown = |path: &PathBuf, entry: &Found| entry.is_file && fs::symlink_metadata(path).is_err();
    search.found.retain(|path, entry| is_shown(path, entry));
    Ok(search.found)
}

/// Git directories in whose place another one is seen, relative to the folder.
fn shown_from_elsewhere(view: &View) -> Vec<String> {
    let linked = view.git.iter().map(|_| ".git".to_string());
    view.private_git.iter().map(|git| git.dot_git.clone()).chain(linked).collect()
}

/// Whether a layer has removed what the folder below it has at this path, or has something else there or around it.
fn is_removed(layer: &Layer, below: &Path) -> bool {
    let folders = below.ancestors().filter(|path| *path != Path::new(""));
    folders.enumerate().any(|(depth, path)| {
        let upper = layer.upper.join(path);
        match fs::symlink_metadata(&upper) {
            Err(_) => false,
            // What is there itself is found in the layer, too.
            Ok(found) if depth == 0 => found.file_type().is_char_device() && found.rdev() == 0,
            Ok(found) => !found.is_dir() || is_opaque(&upper),
        }
    })
}

/// The mark of a folder in a layer through which nothing below is seen: the kernel's Documentation/filesystems/overlayfs.rst.
fn is_opaque(folder: &Path) -> bool {
    let has = |name: &str| getxattr(folder, name, &mut [0u8; 8][..]).is_ok();
    has("trusted.overlay.opaque") || has("user.overlay.opaque")
}

/// Git in it is not told of covers: its configuration is that of the workspace's own repository.
fn is_in_nested_repository(view: &View, path: &Path) -> bool {
    let around = path.ancestors().skip(1).take_while(|folder| *folder != view.folder);
    around.into_iter().any(|folder| fs::symlink_metadata(folder.join(".git")).is_ok())
}

impl Hidden {
    /// The covers, by the paths inside at which mounts show what they are for.
    pub(super) fn covers(&self, binds: &[Bind]) -> Result<Vec<Cover>, SandboxError> {
        let mut covers = BTreeMap::new();
        for (path, what) in &self.covered {
            for (_, place) in seen_at(path, binds) {
                let shown = place.display().to_string();
                covers.insert(spelled(place).ok_or_else(|| not_text(&shown))?, what);
            }
        }
        // What is in a hidden folder is hidden with it.
        let is_within = |place: &str| {
            Path::new(place)
                .ancestors()
                .skip(1)
                .filter_map(Path::to_str)
                .any(|outer| covers.contains_key(outer))
        };
        let outermost = covers.iter().filter(|(place, _)| !is_within(place));
        let cover = |(target, what): (&String, &&What)| {
            let content = match what {
                What::Mask => None,
                What::File(content) => Some(content.clone()),
            };
            Cover { target: target.clone(), content }
        };
        Ok(outermost.map(cover).collect())
    }

    /// The files that are covered in the workspace's own repository, from its top.
    pub(super) fn in_repository(&self, view: &View) -> Vec<String> {
        let files = self.covered.iter().filter(|(_, what)| matches!(what, What::File(_)));
        let own = files.filter(|(path, _)| !is_in_nested_repository(view, path));
        own.filter_map(|(path, _)| path.strip_prefix(&view.folder).ok()?.to_str().map(String::from)).collect()
    }
}

/// Something that a pattern means.
#[derive(Debug)]
struct Found {
    /// The folder that was searched, and where it lies in that.
    root: PathBuf,
    below: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    is_directory: bool,
    is_file: bool,
    /// A folder that cannot be searched.
    is_closed: bool,
}

impl Found {
    fn new(root: &Path, path: &Path, entry: &Metadata) -> Found {
        Found {
            root: root.to_path_buf(),
            below: path.strip_prefix(root).unwrap_or(path).to_path_buf(),
            identity: (entry.dev(), entry.ino()),
            is_directory: entry.is_dir(),
            is_file: entry.is_file(),
            is_closed: false,
        }
    }

    /// The same file as it is shown. The one that was found is read, over no link, and at most `left` bytes of it.
    fn with_placeholders(
        &self,
        shown: &str,
        env_files: Option<&EnvFiles>,
        left: &mut u64,
    ) -> Result<Vec<u8>, SandboxError> {
        let hide = || hint!("hide it with {}, which counts more", Term::Hide.to(shown));
        let refused = |why: &str| {
            let message = format!("`{shown}` cannot be shown with placeholders: {why}");
            ErrorCode::PathRefused.error(message).hint(hide())
        };
        if !self.is_file {
            return Err(refused(if self.is_directory { "it is a folder" } else { "it is not a plain file" }));
        }
        let failed = |error: io::Error| refused(&error.to_string());
        let file = File::from(self.open().map_err(|errno| failed(errno.into()))?);
        let found = file.metadata().map_err(failed)?;
        if (found.dev(), found.ino()) != self.identity {
            return Err(refused("it was replaced while it was being opened"));
        }
        // What a growing list leaves behind is not cleared.
        let mut content = Vec::with_capacity(found.len().min(MAX_ENV_FILE_BYTES) as usize + 1);
        // It may grow meanwhile.
        let most = MAX_ENV_FILE_BYTES.min(*left);
        file.take(most + 1).read_to_end(&mut content).map_err(failed)?;
        let length = content.len() as u64;
        if length > MAX_ENV_FILE_BYTES {
            return Err(refused(&format!("it has more than {MAX_ENV_FILE_BYTES} bytes")));
        }
        *left = left.checked_sub(length).ok_or_else(|| {
            refused(&format!("together with others it has more than {MAX_ENV_FILES_BYTES} bytes"))
        })?;
        let env_files = env_files.ok_or_else(|| refused("nothing makes placeholders here"))?;
        env_files(shown, content)
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let root = open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat2(&root, &self.below, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
    }
}

struct Search<'p> {
    patterns: &'p [HidePattern],
    elsewhere: &'p [String],
    /// The folder that is searched.
    root: &'p Path,
    /// What the names in it begin at.
    top: &'p Path,
    left: usize,
    found: BTreeMap<PathBuf, Found>,
    /// Files that have more names than the one that was found: device and inode.
    several_names: BTreeSet<(u64, u64)>,
}

impl<'p> Search<'p> {
    fn new(
        patterns: &'p [HidePattern],
        elsewhere: &'p [String],
        root: &'p Path,
        top: &'p Path,
    ) -> Search<'p> {
        let (found, several_names) = (BTreeMap::new(), BTreeSet::new());
        Search { patterns, elsewhere, root, top, left: MAX_ENTRIES, found, several_names }
    }

    /// Everything in a folder that a pattern means; `names` lead to it from the root.
    fn folder(&mut self, folder: &Path, names: &mut Vec<String>) -> Result<(), SandboxError> {
        let Some(entries) = self.entries(folder)? else {
            // Its owner inside could give themselves the right to read it.
            let entry = fs::symlink_metadata(folder).map_err(|error| unreadable(folder, &error))?;
            let closed = Found { is_closed: true, ..Found::new(self.root, folder, &entry) };
            self.found.insert(self.top.join(names.join("/")), closed);
            return Ok(());
        };
        for (path, name, entry) in entries {
            names.push(name);
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            if self.patterns.iter().any(|pattern| pattern.matches(&all)) {
                // A link itself says nothing, and to cover it would cover what it leads to inside. A layer's device says that
                // something was removed.
                let is_whiteout = entry.file_type().is_char_device() && entry.rdev() == 0;
                if !entry.is_symlink() && !is_whiteout {
                    self.note(self.top.join(all.join("/")), &path, &entry);
                }
                self.hide(&path, &entry)?;
            } else if entry.is_dir() && !self.elsewhere.contains(&all.join("/")) {
                self.folder(&path, names)?;
            }
            names.pop();
        }
        Ok(())
    }

    /// Notes what is seen at a path, unless it is there already. Returns whether it was not.
    fn note(&mut self, seen: PathBuf, path: &Path, entry: &Metadata) -> bool {
        let is_new = !self.found.contains_key(&seen);
        self.found.entry(seen).or_insert_with(|| Found::new(self.root, path, entry));
        is_new
    }

    /// Notes other names of a file, of the files in a folder, and of what a link leads to in the workspace. A link that leads out of it
    /// covers nothing there: an agent may have made it.
    fn hide(&mut self, path: &Path, entry: &Metadata) -> Result<(), SandboxError> {
        if entry.is_dir() {
            for (path, _, entry) in self.entries(path)?.unwrap_or_default() {
                self.hide(&path, &entry)?;
            }
        } else if entry.is_symlink()
            && let Ok(target) = path.canonicalize()
            && target != self.top
            && target.starts_with(self.top)
            && let Ok(entry) = fs::symlink_metadata(&target)
            && self.note(target.clone(), &target, &entry)
        {
            self.hide(&target, &entry)?;
        }
        if entry.is_file() && entry.nlink() > 1 {
            self.several_names.insert((entry.dev(), entry.ino()));
        }
        Ok(())
    }

    /// The other names of files that are covered.
    fn names_of(&mut self, folder: &Path) -> Result<(), SandboxError> {
        for (path, _, entry) in self.entries(folder)?.unwrap_or_default() {
            if entry.is_dir() {
                if !self.found.contains_key(&path) {
                    self.names_of(&path)?;
                }
            } else if entry.is_file() && self.several_names.contains(&(entry.dev(), entry.ino())) {
                self.note(path.clone(), &path, &entry);
            }
        }
        Ok(())
    }

    /// What is in a folder; `None` if it may not be read.
    fn entries(&mut self, folder: &Path) -> Result<Option<Vec<Entry>>, SandboxError> {
        let failed = |error: io::Error| unreadable(folder, &error);
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            other => other.map_err(failed)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            self.left = self.left.checked_sub(1).ok_or_else(|| too_much(folder))?;
            let metadata = match entry.metadata() {
                // It can be listed and not entered.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
                // It was removed a moment ago.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(failed)?,
            };
            // A name that is not UTF-8 is compared after a lossy conversion.
            all.push((entry.path(), entry.file_name().to_string_lossy().into_owned(), metadata));
        }
        Ok(Some(all))
    }
}

type Entry = (PathBuf, String, Metadata);

fn unreadable(folder: &Path, error: &io::Error) -> SandboxError {
    let message = format!("cannot look for what has to be hidden in `{}`: {error}", folder.display());
    ErrorCode::PathRefused.error(message).hint("start again, or hide the folder")
}

fn too_much(folder: &Path) -> SandboxError {
    let message = format!(
        "the workspace has more than {MAX_ENTRIES} files, so not all that has to be hidden can be found (the search ended in `{}`)",
        folder.display()
    );
    ErrorCode::NotSupported.error(message).hint("work on a folder further down")
}

fn not_text(shown: &str) -> SandboxError {
    let message = format!("`/{shown}` has to be hidden, and its name is not valid UTF-8");
    ErrorCode::PathInvalid.error(message).hint("rename it, or hide the folder that it is in")
}

/// Of one file of variables, and of all together, which are held in memory.
const MAX_ENV_FILE_BYTES: u64 = 64 << 10;
const MAX_ENV_FILES_BYTES: u64 = 1 << 20;
/// More take seconds at each start.
const MAX_ENTRIES: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BindKind, BindOrigin};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_is_covered_under_every_name_that_a_mount_shows() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let write = |path: &str| {
            fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
            fs::write(folder.join(path), "x").unwrap();
        };
        ["web/.env", "keys/a", "plain", "real.txt", "x/.git/.env", "deep/er/.env.d/f"]
            .into_iter()
            .for_each(write);
        fs::hard_link(folder.join("web/.env"), folder.join("second")).unwrap();
        symlink("real.txt", folder.join("linked.pem")).unwrap();
        let bind = |source: &Path, target: &str| Bind {
            source: source.into(),
            target: target.into(),
            kind: BindKind::ReadWrite,
            origin: BindOrigin::Named,
        };
        let binds = [bind(&folder, "workspace"), bind(&folder.join("web"), "srv/web")];
        let hide = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
            let mut view = View::plain(folder.clone());
            let wanted = Wanted { hidden: &patterns, placeholders: &[], env_files: None };
            let covers = find(&mut view, wanted).unwrap().covers(&binds).unwrap();
            let places = covers.into_iter().map(|cover| cover.target).collect::<Vec<_>>();
            let held = view.shields.into_iter().map(|shield| shield.path).collect::<Vec<_>>();
            (places.join(" "), held.join(" "))
        };
        let said = |places: &str, held: &str| (places.to_string(), held.to_string());
        let places = "srv/web/.env workspace/second workspace/web/.env workspace/x/.git/.env";
        assert_eq!(hide(&[".env"]), said(places, "web x x/.git"));
        // A file in a hidden folder has the same content under a name outside of it; a link leads to the file.
        fs::hard_link(folder.join("keys/a"), folder.join("copy")).unwrap();
        let places = "workspace/copy workspace/keys workspace/real.txt";
        assert_eq!(hide(&["keys", "*.pem"]), said(places, ""));
        assert_eq!(hide(&[".env.d"]), said("workspace/deep/er/.env.d", "deep deep/er"));
        // One that leads out of the workspace, or to all of it, hides nothing there.
        symlink("..", folder.join("out")).unwrap();
        symlink(".", folder.join("all")).unwrap();
        assert_eq!(hide(&["out", "all"]), said("", ""));
        assert_eq!(hide(&["/.env", "absent"]), said("", ""));
    }

    #[test]
    fn a_folder_that_may_not_be_read_is_hidden_as_a_whole() {
        if belljar_sys::rustix::process::geteuid().is_root() {
            return; // Root may read everything.
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        for mode in [0o000, 0o111, 0o444] {
            fs::create_dir(folder.join("web")).unwrap();
            fs::write(folder.join("web/.env"), "x").unwrap();
            fs::set_permissions(folder.join("web"), fs::Permissions::from_mode(mode)).unwrap();
            let patterns = [".env".parse().unwrap()];
            for (hidden, placeholders) in [(&patterns[..], &[][..]), (&[], &patterns)] {
                let wanted = Wanted { hidden, placeholders, env_files: None };
                let found = find(&mut View::plain(folder.clone()), wanted).unwrap();
                assert_eq!(found.covered.get(&folder.join("web")), Some(&What::Mask), "{mode:o}");
            }
            fs::set_permissions(folder.join("web"), fs::Permissions::from_mode(0o700)).unwrap();
            fs::remove_dir_all(folder.join("web")).unwrap();
        }
    }

    #[test]
    fn a_file_with_placeholders_is_read_once_and_only_if_it_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let shouted: EnvFiles = Arc::new(|path, content| {
            let text = String::from_utf8(content).unwrap();
            Ok(format!("{path}: {}", text.to_uppercase()).into_bytes())
        });
        let binds = [Bind {
            source: folder.clone(),
            target: "workspace".into(),
            kind: BindKind::ReadWrite,
            origin: BindOrigin::Named,
        }];
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let covers = |hidden: &[&str], placeholders: &[&str]| {
            let (hidden, placeholders) = (patterns(hidden), patterns(placeholders));
            let wanted = Wanted { hidden: &hidden, placeholders: &placeholders, env_files: Some(&shouted) };
            find(&mut View::plain(folder.clone()), wanted)?.covers(&binds)
        };
        let shown = |covers: Vec<Cover>| {
            let text = |content: Vec<u8>| String::from_utf8(content).unwrap();
            covers.into_iter().map(|cover| (cover.target, cover.content.map(text))).collect::<Vec<_>>()
        };
        fs::create_dir(folder.join("web")).unwrap();
        fs::write(folder.join("web/.env"), "a").unwrap();
        fs::write(folder.join("real"), "b").unwrap();
        symlink("real", folder.join(".env")).unwrap();
        fs::hard_link(folder.join("web/.env"), folder.join("second")).unwrap();
        let file = |place: &str, content: &str| (format!("workspace/{place}"), Some(content.to_string()));
        let all = [file("real", "real: B"), file("second", "second: A"), file("web/.env", "web/.env: A")];
        assert_eq!(shown(covers(&[], &[".env"]).unwrap()), all);
        // What is hidden stays hidden.
        let hidden = [file("real", "real: B"), file("second", ""), file("web/.env", "")];
        assert_eq!(shown(covers(&["web/.env"], &[".env"]).unwrap()), hidden);
        assert_eq!(shown(covers(&["web"], &["web/.env"]).unwrap())[1], ("workspace/web".to_string(), None));
        for (name, make) in [
            ("folder.x", (|path| fs::create_dir(path)) as fn(&Path) -> io::Result<()>),
            ("large.x", |path| fs::write(path, vec![b'a'; 1 + (64 << 10)])),
            ("socket.x", |path| std::os::unix::net::UnixListener::bind(path).map(drop)),
        ] {
            make(&folder.join(name)).unwrap();
            let refused = covers(&[], &[name]).unwrap_err();
            assert_eq!(refused.code, ErrorCode::PathRefused, "{name}: {refused}");
        }
        // One that is replaced between the search and the reading.
        let entry = fs::symlink_metadata(folder.join("web/.env")).unwrap();
        let found = Found::new(&folder, &folder.join("web/.env"), &entry);
        fs::write(folder.join("other"), "c").unwrap();
        fs::rename(folder.join("other"), folder.join("web/.env")).unwrap();
        assert!(found.with_placeholders(".env", Some(&shouted), &mut 9).is_err());
        fs::remove_file(folder.join("web/.env")).unwrap();
        symlink("../real", folder.join("web/.env")).unwrap();
        assert!(found.with_placeholders(".env", Some(&shouted), &mut 9).is_err());
    }
}
