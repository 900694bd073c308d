//! A root of layers: an image, the golden root, a directory. It brings its own system; from us it gets the same places and the
//! same words as the `host` root, over its own. Nothing of it is changed: what we add lies in a layer between it and the
//! sandbox's changes, and so do the places for mounts.

use super::etc::Etc;
use super::opened::OpenedPaths;
use super::sealed::SealedLayers;
use super::tree::{RootTree, Tree};
use super::{Bind, BindKind, BindOrigin, Marker, PrivateDir, System, java, trust};
use belljar_spec::{ErrorCode, SandboxError, UserName};
use belljar_wire::message::{Bytes, Mountpoint, MountpointKind};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What has to be mounted as `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootLayer {
    /// A directory that all of the lower ones lie in, or that is the only one.
    pub(crate) holder: PathBuf,
    /// Relative to it, topmost first; empty is the directory itself.
    pub(crate) lowers: Vec<String>,
    /// Where changes are kept, if they are.
    pub(crate) persistent: Option<PathBuf>,
    /// What lies over the lower ones.
    pub(crate) mountpoints: Vec<Mountpoint>,
    /// Links that do (place, destination).
    pub(crate) links: Vec<(String, String)>,
    /// A directory that earlier changes lie in, and its directories that lie over each other, topmost first: above all others, below the
    /// present changes.
    pub(crate) sealed_holder: Option<PathBuf>,
    pub(crate) sealed: Vec<String>,
}

/// The layers of a root, opened to look into.
pub(super) fn open(root: &RootTree) -> Result<Tree<'_>, SandboxError> {
    Tree::open(root).map_err(|(path, errno)| {
        let message = format!("the root's directory `{}` cannot be opened: {errno}", path.display());
        ErrorCode::ImageFailed.error(message)
    })
}

/// The system that a root brings, with our files.
pub(super) fn system(root: &RootTree, tree: &Tree<'_>, marker: &Marker) -> System {
    let path = path_of(root);
    let shell = shell(tree);
    let files = own_files(tree, marker, shell.as_deref().unwrap_or("/bin/sh"));
    let mut binds = Vec::new();
    if Path::new(PROCESSORS).is_dir() {
        let (kind, origin) = (BindKind::ReadOnly, BindOrigin::Home);
        binds.push(Bind {
            source: PROCESSORS.into(),
            target: super::relative(PROCESSORS).into(),
            kind,
            origin,
        });
    }
    if !root.lowers.is_empty() {
        // Root inside could change them otherwise, and the change would still be there at the next start.
        binds.extend(HELD.map(held));
    }
    System {
        etc: Etc { files, ..Etc::default() },
        binds,
        links: Vec::new(),
        path,
        variables: Vec::new(),
        under: root.environment.iter().filter(|(name, _)| name != "PATH").cloned().collect(),
        shell,
        private: vec![PrivateDir { target: "dev".into(), mode: 0o755 }],
    }
}

/// What is seen as we put it there, and cannot be changed.
pub(super) fn held(place: &str) -> Bind {
    let (kind, origin) = (BindKind::ReadOnly, BindOrigin::Planted);
    Bind { source: format!("/{place}").into(), target: place.into(), kind, origin }
}

/// Puts the sandbox's authority into every store that the root has, and says which variables name them.
pub(super) fn trust(authority: &str, tree: &Tree<'_>, etc: &mut Etc) -> Vec<(OsString, OsString)> {
    let stores: Vec<(String, Vec<u8>)> =
        trust::BUNDLES.iter().filter_map(|store| tree.read(super::relative(store))).collect();
    let known = match stores.first() {
        Some((_, known)) => known.clone(),
        // An image without trusted CAs: it gets those of the host.
        None => trust::of_host(),
    };
    let all = trust::with(known, authority);
    let mut places: Vec<String> = stores.into_iter().map(|(place, _)| place).collect();
    if places.is_empty() {
        places = trust::BUNDLES[..3].iter().map(|store| super::relative(store).to_string()).collect();
    }
    places.dedup();
    for place in places {
        // A link, which a program that renews its store puts a file in the place of.
        etc.links.push((place, format!("/{TRUSTED}")));
    }
    // What those programs read, so that it is among the rest afterwards.
    let anchors = [
        ("usr/local/share/ca-certificates", "belljar.crt"),
        ("etc/pki/ca-trust/source/anchors", "belljar.pem"),
    ];
    for (directory, name) in anchors.into_iter().filter(|(directory, _)| tree.has_directory(directory)) {
        etc.files.push((format!("{directory}/{name}"), authority.as_bytes().to_vec()));
    }
    for store in trust::JAVA.iter().filter_map(|store| tree.read(super::relative(store))) {
        etc.files.push((store.0, java::store(&all)));
    }
    etc.files.push((trust::OWN.into(), authority.as_bytes().to_vec()));
    etc.files.push((TRUSTED.into(), all));
    trust::variables(&format!("/{TRUSTED}"))
}

#[expect(clippy::too_many_arguments, reason = "each is a part of the layout that the root may take over")]
/// What has to be mounted, once everything else is known. Files and links that lie in the root itself become part of it.
pub(super) fn layer(
    root: &RootTree,
    tree: &Tree<'_>,
    binds: &[Bind],
    opened: &mut OpenedPaths,
    private: &[PrivateDir],
    files: &mut Vec<(String, Vec<u8>)>,
    links: &mut Vec<(String, String)>,
    sealed: Option<&SealedLayers>,
) -> Result<Option<RootLayer>, SandboxError> {
    if root.lowers.is_empty() {
        return Ok(None);
    }
    let is_private = |target: &str| private.iter().any(|directory| is_below(target, &directory.target));
    let is_covered = |target: &str| {
        is_private(target)
            || binds.iter().any(|bind| {
                !matches!(bind.origin, BindOrigin::Held | BindOrigin::Planted)
                    && is_below(target, &bind.target)
            })
    };
    let mut mountpoints = Vec::new();
    let mut add =
        |path: &str, kind: MountpointKind| mountpoints.push(Mountpoint { path: tree.place(path), kind });
    for place in ["proc", "sys", "run"] {
        add(place, MountpointKind::Directory);
    }
    for directory in private.iter().filter(|directory| !is_private(&directory.target)) {
        add(&directory.target, MountpointKind::Directory);
    }
    for bind in binds {
        match bind.origin {
            BindOrigin::Held | BindOrigin::Planted | BindOrigin::Made(_) => {}
            _ if is_covered(&bind.target) => {}
            BindOrigin::System | BindOrigin::Home | BindOrigin::Named
                if opened.is_directory(&bind.source) =>
            {
                add(&bind.target, MountpointKind::Directory);
            }
            BindOrigin::System | BindOrigin::Home | BindOrigin::Named | BindOrigin::Guard => {
                add(&bind.target, MountpointKind::File(Bytes(Vec::new())));
            }
        }
    }
    let (ours, theirs) = std::mem::take(files).into_iter().partition(|(place, _)| !is_covered(place));
    *files = theirs;
    let ours: Vec<(String, Vec<u8>)> = ours;
    for (place, content) in ours {
        add(&place, MountpointKind::File(Bytes(content)));
    }
    let (holder, lowers) = hold(&root.lowers)?;
    let links = std::mem::take(links).into_iter().map(|(place, to)| (tree.place(&place), to)).collect();
    let sealed = sealed.filter(|sealed| !sealed.root.is_empty());
    let (sealed_holder, sealed) = sealed.map(|sealed| (sealed.holder.clone(), sealed.root.clone())).unzip();
    let sealed = sealed.unwrap_or_default();
    if lowers.len() + sealed.len() > MAX_LOWERS {
        let message = format!(
            "the root has {} layers and {} snapshots lie over it: {MAX_LOWERS} can lie over each other",
            lowers.len(),
            sealed.len()
        );
        return Err(ErrorCode::ImageFailed.error(message).hint("remove snapshots that are not needed"));
    }
    for directory in std::iter::once(&holder).chain(&root.persistent).chain(&sealed_holder) {
        opened.open_source(directory)?;
    }
    let persistent = root.persistent.clone();
    Ok(Some(RootLayer { holder, lowers, persistent, mountpoints, links, sealed_holder, sealed }))
}

/// The directory that all of them lie in, and how they are called from there.
fn hold(lowers: &[PathBuf]) -> Result<(PathBuf, Vec<String>), SandboxError> {
    let unusable = |why: &str| ErrorCode::ImageFailed.error(format!("the root cannot be mounted: {why}"));
    if lowers.len() > MAX_LOWERS {
        return Err(unusable(&format!(
            "it has {} layers, and {MAX_LOWERS} can lie over each other",
            lowers.len()
        ))
        .hint("make an image with fewer layers: `docker build --squash`, or fewer steps"));
    }
    let first = lowers.first().ok_or_else(|| unusable("it has no layers"))?;
    let holder = first
        .ancestors()
        .find(|holder| lowers.iter().all(|lower| lower.starts_with(holder)))
        .ok_or_else(|| unusable("its layers have no directory in common"))?;
    super::text(holder)?;
    let name = |lower: &PathBuf| {
        let name = lower.strip_prefix(holder).ok().and_then(Path::to_str);
        name.map(str::to_string).ok_or_else(|| unusable("the path of a layer is not UTF-8"))
    };
    Ok((holder.to_path_buf(), lowers.iter().map(name).collect::<Result<_, _>>()?))
}

fn is_below(path: &str, directory: &str) -> bool {
    Path::new(path).starts_with(directory) && path != directory
}

fn path_of(root: &RootTree) -> Vec<PathBuf> {
    let said = root.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    let mut path: Vec<PathBuf> =
        said.iter().flat_map(std::env::split_paths).filter(|entry| entry.is_absolute()).take(PATHS).collect();
    for usual in super::home::USUAL.iter().map(PathBuf::from) {
        if !path.contains(&usual) {
            path.push(usual);
        }
    }
    path
}

/// The caller's own shell if the root has it, else bash, else sh; none where there is none.
fn shell(tree: &Tree<'_>) -> Option<String> {
    let own = std::env::var("SHELL").unwrap_or_default();
    let name = Path::new(&own).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let known = [("zsh", "/usr/bin/zsh"), ("zsh", "/bin/zsh")];
    let own = known.into_iter().filter(|(known, _)| *known == name).map(|(_, path)| path);
    own.chain(["/bin/bash", "/usr/bin/bash", "/bin/sh"])
        .find(|path| tree.has_file(super::relative(path)))
        .map(str::to_string)
}

fn own_files(tree: &Tree<'_>, marker: &Marker, shell: &str) -> Vec<(String, Vec<u8>)> {
    let text = |path: &str| {
        tree.read(path).map(|(_, content)| String::from_utf8_lossy(&content).into_owned()).unwrap_or_default()
    };
    let mut files = vec![
        ("etc/passwd".to_string(), passwd(&text("etc/passwd"), shell, &marker.user, marker.user_id())),
        ("etc/group".to_string(), group(&text("etc/group"), &marker.user, marker.user_id())),
    ];
    for (name, content) in super::etc::about_host(marker.id) {
        files.push((name.to_string(), content));
    }
    // Those say how names are looked up: a root that has them means what it says.
    for (name, content) in super::etc::about_names() {
        if !tree.has_file(name) {
            files.push((name.to_string(), content));
        }
    }
    let home = marker.user.home();
    let home = super::relative(&home);
    files.extend(super::etc::home_files().map(|(name, content)| (format!("{home}/{name}"), content)));
    files.into_iter().map(|(name, content)| (name, content.into_bytes())).collect()
}

/// The root's users, and ours before them: a user with the same number there is a different one here.
fn passwd(theirs: &str, shell: &str, name: &UserName, user: u32) -> String {
    let mut text = format!("{name}:x:{user}:{user}:{name}:{}:{shell}\n", name.home());
    if !theirs.lines().any(|line| line.starts_with("root:")) {
        text.push_str("root:x:0:0:root:/root:/bin/sh\n");
    }
    text + &others(theirs, name)
}

fn group(theirs: &str, name: &UserName, user: u32) -> String {
    let mut text = format!("{name}:x:{user}:\n");
    if !theirs.lines().any(|line| line.starts_with("root:")) {
        text.push_str("root:x:0:\n");
    }
    text + &others(theirs, name)
}

fn others(theirs: &str, name: &UserName) -> String {
    let is_ours = |line: &&str| line.split(':').next() == Some(name.as_str());
    theirs.lines().filter(|line| !line.is_empty() && !is_ours(line)).map(|line| format!("{line}\n")).collect()
}

const PROCESSORS: &str = "/sys/devices/system/cpu";
/// All CAs that programs inside trust, without the leading slash.
const TRUSTED: &str = "etc/belljar/trusted.pem";
/// Directories of an image's PATH that count: each is looked into.
const PATHS: usize = 64;
/// What no process inside may change.
const HELD: [&str; 2] = ["etc/belljar", "etc/resolv.conf"];
/// Their names, of one or two letters, have to fit into one word of 256 bytes for the kernel (fsconfig(2)).
const MAX_LOWERS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_user_is_first_and_no_other_is_lost() {
        let theirs =
            "root:x:0:0:root:/root:/bin/ash\nnode:x:1000:1000::/home/node:/bin/sh\nagent:x:7:7::/:/bin/sh\n";
        let text = passwd(theirs, "/bin/sh", &UserName::default(), 1000);
        let names: Vec<&str> = text.lines().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(names, ["agent", "root", "node"]);
        assert!(passwd("", "/bin/sh", &UserName::default(), 1000).contains("root:x:0:0:"));
    }

    #[test]
    fn layers_are_named_from_what_holds_them() {
        let held = |paths: &[&str]| hold(&paths.iter().map(PathBuf::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(held(&["/s/l/b/fs", "/s/l/a/fs"]), ("/s/l".into(), vec!["b/fs".into(), "a/fs".into()]));
        assert_eq!(held(&["/srv/root"]), ("/srv/root".into(), vec![String::new()]));
        assert!(hold(&vec![PathBuf::from("/a"); 101]).is_err());
    }
}
