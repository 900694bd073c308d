//! The workspace and the paths that a caller names: what may be shared at all.

use super::home::Homes;
use super::opened::{MAX_LINKS, OpenedPaths, Walked, Walker, identity, moved, walk};
use super::{Bind, BindKind, BindOrigin, text};
use belljar_spec::{ErrorCode, Permission, SandboxError, SharedPath, Term, hint};
use belljar_sys::opened::{FileIdentity, OpenedPath};
use belljar_sys::rustix::fs::FileType;
use belljar_sys::rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The workspace: an existing folder that is neither a whole home nor part of the running system.
pub(super) fn workspace(
    path: &Path,
    homes: &Homes,
    opened: &mut OpenedPaths,
) -> Result<PathBuf, SandboxError> {
    let Walked { real, .. } = resolve(path, "workspace", opened)?;
    let folder = opened.get(&real)?;
    if !folder.is_directory() {
        return Err(ErrorCode::WorkspaceMissing
            .error(format!("the workspace `{}` is a file", path.display()))
            .hint(hint!("give the folder that it lies in: {}", Term::Folder.to("DIR"))));
    }
    if folder.for_reading().is_err() {
        return Err(unreadable(path, "workspace"));
    }
    refuse_whole_worlds(&real, "workspace", homes)?;
    Ok(real)
}

/// A directory that is to be a sandbox's `/`, with nothing of it changed. Judged as what is shared, since all of it can be read.
pub fn root_directory(path: &Path, own: &[PathBuf]) -> Result<PathBuf, SandboxError> {
    let mut opened = OpenedPaths::default();
    let Walked { real, .. } = resolve(path, "root", &mut opened)?;
    if real == Path::new("/") {
        let message = "the host's own `/` holds everybody's files, and cannot be a sandbox's";
        return Err(ErrorCode::PathRefused
            .error(message)
            .hint(hint!("{} shows the host's system, without the rest", Term::Rootfs.to("host"))));
    }
    let directory = opened.get(&real)?;
    if !directory.is_directory() || directory.for_reading().is_err() {
        return Err(unreadable(path, "root"));
    }
    refuse_whole_worlds(&real, "root", &Homes::here())?;
    refuse_our_own(&[&real], own, &opened)?;
    let inside = opened.look_through(&real);
    if !["bin", "usr", "nix"].iter().any(|name| inside.join(name).symlink_metadata().is_ok()) {
        let message =
            format!("the directory `{}` holds no system: neither bin nor usr is in it", path.display());
        return Err(ErrorCode::ImageRefused
            .error(message)
            .hint("name a directory that debootstrap, `docker export` or the like has filled"));
    }
    Ok(real)
}

/// The paths that were named, parents first.
pub(super) fn named(
    shared: &[SharedPath],
    workspace: Option<&Path>,
    homes: &Homes,
    opened: &mut OpenedPaths,
) -> Result<Vec<Bind>, SandboxError> {
    let mut binds = Vec::new();
    for SharedPath { path, permission } in shared {
        let walked = resolve(path, "path", opened)?;
        refuse_planted_links(path, &walked, workspace)?;
        let real = walked.real;
        let found = opened.get(&real)?;
        if found.kind() == FileType::Socket {
            let message = format!(
                "`{}` is a socket: a process that can write to it talks to a service of the host",
                path.display()
            );
            return Err(ErrorCode::PathRefused.error(message).hint("no socket of the host can be shared"));
        }
        if found.for_reading().is_err() {
            return Err(unreadable(path, "path"));
        }
        refuse_whole_worlds(&real, "path", homes)?;
        let kind = match permission {
            Permission::Read => BindKind::ReadOnly,
            Permission::Write => BindKind::ReadWrite,
        };
        let target = super::relative(text(&real)?).to_string();
        binds.push(Bind { source: real, target, kind, origin: BindOrigin::Named });
    }
    binds.sort_by(|a, b| a.target.cmp(&b.target));
    binds.dedup_by(|later, earlier| later.target == earlier.target && later.kind == earlier.kind);
    Ok(binds)
}

/// A persistent sandbox has the real paths that were allowed when it was made. One that has become a link since then leads
/// to something that no user allowed: a process that works in a folder above it can have put the link there.
pub(super) fn refuse_moved<'p>(
    named: impl IntoIterator<Item = &'p Path>,
    real: &[&Path],
) -> Result<(), SandboxError> {
    let Some(moved) = named.into_iter().find(|named| !real.contains(named)) else { return Ok(()) };
    let message = format!("the path `{}` leads over a link that was not there before", moved.display());
    Err(ErrorCode::PathMoved
        .error(message)
        .hint("put back what was there, or delete the sandbox and make it anew"))
}

/// A link in the workspace may be an agent's: what it points to was not what the caller named. However the way into the
/// workspace is spelled, one that leads out of it again is a link that lies in it.
fn refuse_planted_links(path: &Path, walked: &Walked, workspace: Option<&Path>) -> Result<(), SandboxError> {
    let Some(workspace) = workspace else { return Ok(()) };
    if leaves(walked, workspace) {
        let message = format!(
            "the path `{}` leads out of the workspace by a link, to `{}`",
            path.display(),
            walked.real.display()
        );
        return Err(ErrorCode::PathRefused.error(message).hint(
            "a user or an agent may have put the link there; name its target if that is what you want",
        ));
    }
    Ok(())
}

/// Whether a link in `folder` leads out of it.
pub(super) fn leaves(walked: &Walked, folder: &Path) -> bool {
    !walked.real.starts_with(folder) && walked.links.iter().any(|link| link.starts_with(folder))
}

/// Where a path leads, and opens what is there: that is what is judged from here on.
fn resolve(path: &Path, what: &str, opened: &mut OpenedPaths) -> Result<Walked, SandboxError> {
    let walked = walk(path);
    let found =
        if path.as_os_str().is_empty() { Err(Errno::NOENT) } else { opened.open(&walked.real).map(drop) };
    found.map_err(|errno| match errno {
        Errno::NOENT => ErrorCode::PathInvalid
            .error(format!("the {what} `{}` does not exist", path.display()))
            .hint("check the spelling, or make it first"),
        Errno::ACCESS => unreadable(path, what),
        Errno::LOOP | Errno::STALE if walked.links.len() < MAX_LINKS => moved(path),
        _ => ErrorCode::PathInvalid.error(format!("the {what} `{}` cannot be used: {errno}", path.display())),
    })?;
    text(&walked.real)?;
    Ok(walked)
}

fn unreadable(path: &Path, what: &str) -> SandboxError {
    let message = format!("the {what} `{}` cannot be read by you", path.display());
    ErrorCode::PathInvalid.error(message).hint("belljar gives a sandbox no more than you have yourself")
}

/// Sharing these would undo what the root is for.
fn refuse_whole_worlds(real: &Path, what: &str, homes: &Homes) -> Result<(), SandboxError> {
    if homes.are_in(real) {
        let message =
            format!("the {what} `{}` holds a whole home, with its keys and credentials", real.display());
        return Err(ErrorCode::PathRefused
            .error(message)
            .hint("change to the folder of a project, or name one"));
    }
    if KERNELS_AND_SERVICES.iter().any(|system| real.starts_with(system)) {
        let message = format!("the {what} `{}` belongs to the running system", real.display());
        return Err(ErrorCode::PathRefused
            .error(message)
            .hint("copy what is needed of it to a folder of its own"));
    }
    Ok(())
}

/// What belljar itself keeps must not be an agent's to read or change: its records, what was trusted, and secrets.
pub(super) fn refuse_our_own(
    shared: &[&Path],
    own: &[PathBuf],
    opened: &OpenedPaths,
) -> Result<(), SandboxError> {
    let mut known: HashMap<PathBuf, Option<FileIdentity>> = HashMap::new();
    let mut identity =
        |path: &Path| *known.entry(path.to_path_buf()).or_insert_with(|| super::opened::identity(path));
    let mut walker = Walker::default();
    // The same folder may be mounted at a second place.
    let holders: Vec<Vec<FileIdentity>> =
        shared.iter().map(|path| opened.get(path).map(OpenedPath::holders).unwrap_or_default()).collect();
    for named in own {
        // A link on the way to it could be made to lead elsewhere.
        let Walked { real: own, mut links } = walker.walk(named);
        links.push(own.clone());
        let itself = identity(&own);
        let mut passes = |shared: &Path| {
            let shared = opened.identity(shared);
            shared.is_some() && named.ancestors().any(|part| identity(part) == shared)
        };
        let is_ours = |(path, holders): &(&&Path, &Vec<FileIdentity>)| {
            let is_on_the_way = links.iter().any(|way| way.starts_with(path));
            let lies_in_it = itself.is_some_and(|own| holders.contains(&own));
            path.starts_with(&own) || own.starts_with(path) || lies_in_it || is_on_the_way || passes(path)
        };
        if let Some((path, _)) = shared.iter().zip(&holders).find(is_ours) {
            let message =
                format!("`{}` holds what belljar keeps to itself, at `{}`", path.display(), named.display());
            return Err(ErrorCode::PathRefused.error(message).hint(
                "share a folder below it, or keep that elsewhere: records by XDG_STATE_HOME, the file of a secret or a \
                 belljar.toml in a folder that is not shared",
            ));
        }
    }
    Ok(())
}

/// A process that reaches a Docker daemon is root of its machine. The daemon's socket is known by what it is, not by its
/// name: a link to it, a bind of it and a path over /proc lead to the same one, and so does every folder that it lies in.
pub(super) fn refuse_docker_sockets<'p>(
    shared: impl IntoIterator<Item = &'p Path>,
    sockets: &[PathBuf],
    opened: &OpenedPaths,
) -> Result<(), SandboxError> {
    let sockets: HashSet<&Path> = sockets.iter().map(PathBuf::as_path).collect();
    let (mut held, mut linked) = (Vec::new(), Vec::new());
    let mut is_here = false;
    for socket in sockets {
        let Ok(found) = socket.metadata() else {
            // A daemon that starts later puts it there.
            held.extend(socket.parent().and_then(identity));
            continue;
        };
        is_here = true;
        // By the name that it has, and by the one that it really has.
        let real = socket.canonicalize().ok();
        let names = std::iter::once(socket).chain(real.as_deref());
        held.extend(names.flat_map(Path::ancestors).filter_map(identity));
        // One with another name, which may be anywhere on its filesystem.
        linked.extend((found.nlink() > 1).then(|| found.dev()));
    }
    let mounts = if is_here { super::mounts::points() } else { Vec::new() };
    for path in shared {
        let real = is_here.then(|| path.canonicalize().ok()).flatten().unwrap_or_else(|| path.to_path_buf());
        let nested = mounts.iter().filter(|point| point.starts_with(&real) && **point != real);
        let mut all = opened.identity(path).into_iter().chain(nested.filter_map(|point| identity(point)));
        if all.any(|file| held.contains(&file) || linked.contains(&file.device)) {
            let message = format!("`{}` is or holds the socket of a Docker daemon", path.display());
            return Err(ErrorCode::PathRefused.error(message).hint(
                "a process that reaches it becomes root here, so no sandbox gets it; share a folder without it",
            ));
        }
    }
    Ok(())
}

/// Devices, kernel switches, and the sockets of services.
const KERNELS_AND_SERVICES: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/var/run"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_leads_to_ours_is_not_shared_either() {
        let place = tempfile::tempdir().expect("a folder");
        let place = place.path().canonicalize().expect("real");
        for folder in ["config/inner", "dots", "middle", "later", "other"] {
            std::fs::create_dir_all(place.join(folder)).expect("folders");
        }
        std::fs::write(place.join("dots/file"), "").expect("a file");
        symlink("../dots/file", place.join("middle/link")).expect("a link");
        symlink(place.join("middle/link"), place.join("config/file")).expect("a link");
        symlink("../../later/file", place.join("config/inner/file")).expect("a link");
        symlink("config", place.join("around")).expect("a link");
        let refused = |shared: &str, own: &str| {
            let (shared, mut opened) = (place.join(shared), OpenedPaths::default());
            opened.open(&shared).expect("there");
            refuse_our_own(&[&shared], &[place.join(own)], &opened).map_err(|error| error.code)
        };
        for own in ["config/file", "around/file"] {
            for shared in ["config", "dots", "dots/file", "middle"] {
                assert_eq!(refused(shared, own), Err(ErrorCode::PathRefused), "{shared} {own}");
            }
            assert_eq!(refused("other", own), Ok(()));
        }
        assert_eq!(
            refused("later", "config/inner/file"),
            Err(ErrorCode::PathRefused),
            "it can still be made there"
        );
    }

    #[test]
    fn the_socket_of_a_daemon_is_refused_however_it_is_spelled() {
        let place = tempfile::tempdir().expect("a folder");
        let place = place.path().canonicalize().expect("real");
        let folder = place.join("run/inner");
        std::fs::create_dir_all(&folder).expect("folders");
        let socket = folder.join("docker.sock");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        symlink(&folder, place.join("link")).expect("a link");
        symlink(&socket, place.join("direct")).expect("a link");
        std::fs::hard_link(&socket, place.join("again")).expect("another name");
        std::fs::create_dir(place.join("other")).expect("a folder");
        let known = [place.join("direct"), place.join("nowhere.sock")];
        let refuse = |path: &Path| {
            refuse_docker_sockets([path], &known, &OpenedPaths::default()).map_err(|error| error.code)
        };
        for path in
            ["run/inner/docker.sock", "run/inner", "run", "link", "direct", "again", "link/docker.sock", ""]
        {
            assert_eq!(refuse(&place.join(path)), Err(ErrorCode::PathRefused), "{path}");
        }
        let over_proc = Path::new("/proc/self/root").join(socket.strip_prefix("/").expect("absolute"));
        assert_eq!(refuse(&over_proc), Err(ErrorCode::PathRefused));
        let other = place.join("other");
        assert_eq!(refuse(&other), Err(ErrorCode::PathRefused), "its other name may be anywhere on its disk");
        std::fs::remove_file(place.join("again")).expect("ours");
        assert_eq!(refuse(&other), Ok(()));
    }
}
