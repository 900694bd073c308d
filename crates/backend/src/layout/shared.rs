//! The workspace and the paths that a caller names: what may be shared at all.

use super::home::Homes;
use super::{Bind, BindKind, BindOrigin, text};
use belljar_spec::{Permission, SandboxError, SharedPath};
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The workspace: an existing folder that is not somebody's whole world.
pub(super) fn workspace(path: &Path) -> Result<PathBuf, SandboxError> {
    let real = resolve(path, "workspace")?;
    if !real.is_dir() {
        return Err(SandboxError::policy(
            "workspace_not_a_folder",
            format!("the workspace `{}` is a file", path.display()),
        )
        .hint("give the folder that it lies in: `--workspace DIR`"));
    }
    if fs::read_dir(&real).is_err() {
        return Err(unreadable(path, "workspace"));
    }
    refuse_whole_worlds(&real, "workspace", &Homes::here())?;
    Ok(real)
}

/// A directory that is to be a sandbox's `/`, with nothing of it changed. Judged as what is shared, since all of it can be read.
pub fn root_directory(path: &Path, own: &[PathBuf]) -> Result<PathBuf, SandboxError> {
    let real = resolve(path, "root")?;
    if real == Path::new("/") {
        let message = "the host's own `/` holds everybody's files, and cannot be a sandbox's";
        return Err(SandboxError::policy("path_too_wide", message)
            .hint("`--root host` shows the host's system, without the rest"));
    }
    if !real.is_dir() || fs::read_dir(&real).is_err() {
        return Err(unreadable(path, "root"));
    }
    refuse_whole_worlds(&real, "root", &Homes::here())?;
    refuse_our_own(&[&real], own)?;
    if !["bin", "usr", "nix"].iter().any(|name| real.join(name).symlink_metadata().is_ok()) {
        let message =
            format!("the directory `{}` holds no system: neither bin nor usr is in it", path.display());
        return Err(SandboxError::policy("root_unusable", message)
            .hint("name a directory that debootstrap, `docker export` or the like has filled"));
    }
    Ok(real)
}

/// The paths that were named, parents first.
pub(super) fn named(shared: &[SharedPath], workspace: Option<&Path>) -> Result<Vec<Bind>, SandboxError> {
    let mut binds = Vec::new();
    if shared.is_empty() {
        return Ok(binds);
    }
    let homes = Homes::here();
    for SharedPath { path, permission } in shared {
        let real = resolve(path, "path")?;
        refuse_planted_links(path, &real, workspace)?;
        let found = fs::metadata(&real).map_err(|_| unreadable(path, "path"))?;
        if found.file_type().is_socket() {
            let message = format!(
                "`{}` is a socket: whoever can write to it speaks to a service of the host",
                path.display()
            );
            return Err(
                SandboxError::policy("path_is_socket", message).hint("no socket of the host can be shared")
            );
        }
        if fs::File::open(&real).is_err() {
            return Err(unreadable(path, "path"));
        }
        refuse_whole_worlds(&real, "path", &homes)?;
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

/// A sandbox that is kept has the real paths that were allowed when it was made. One that has become a link since then leads to
/// something that nobody allowed: whoever works in a folder above it can have put it there.
pub(super) fn refuse_moved<'p>(
    named: impl IntoIterator<Item = &'p Path>,
    real: &[&Path],
) -> Result<(), SandboxError> {
    let Some(moved) = named.into_iter().find(|named| !real.contains(named)) else { return Ok(()) };
    let message = format!("the path `{}` leads over a link that was not there before", moved.display());
    Err(SandboxError::policy("path_moved", message)
        .hint("put back what was there, or delete the sandbox and make it anew"))
}

/// A link in the workspace may be an agent's: what it points to was not what the caller named.
fn refuse_planted_links(path: &Path, real: &Path, workspace: Option<&Path>) -> Result<(), SandboxError> {
    let Some(workspace) = workspace else { return Ok(()) };
    let named = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    // However the workspace itself is spelled: some part of the way lies in it.
    let passes_workspace =
        named.ancestors().any(|part| part.canonicalize().is_ok_and(|part| part == workspace));
    if passes_workspace && !real.starts_with(workspace) {
        let message = format!(
            "the path `{}` leads out of the workspace by a link, to `{}`",
            path.display(),
            real.display()
        );
        return Err(SandboxError::policy("path_leaves_workspace", message)
            .hint("somebody, perhaps an agent, put the link there; name the place that it points to if that is what you want"));
    }
    Ok(())
}

fn resolve(path: &Path, what: &str) -> Result<PathBuf, SandboxError> {
    let real = path.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            SandboxError::policy("path_missing", format!("the {what} `{}` does not exist", path.display()))
                .hint("check the spelling, or make it first")
        }
        ErrorKind::PermissionDenied => unreadable(path, what),
        _ => SandboxError::policy(
            "path_unusable",
            format!("the {what} `{}` cannot be used: {error}", path.display()),
        ),
    })?;
    text(&real)?;
    Ok(real)
}

fn unreadable(path: &Path, what: &str) -> SandboxError {
    let message = format!("the {what} `{}` cannot be read by you", path.display());
    SandboxError::policy("path_unreadable", message)
        .hint("belljar gives a sandbox no more than you have yourself")
}

/// Sharing these would undo what the root is for.
fn refuse_whole_worlds(real: &Path, what: &str, homes: &Homes) -> Result<(), SandboxError> {
    if homes.are_in(real) {
        let message =
            format!("the {what} `{}` holds a whole home, with its keys and credentials", real.display());
        return Err(SandboxError::policy("path_too_wide", message)
            .hint("change to the folder of a project, or name one"));
    }
    if KERNELS_AND_SERVICES.iter().any(|system| real.starts_with(system)) {
        let message = format!("the {what} `{}` belongs to the running system", real.display());
        return Err(SandboxError::policy("path_of_system", message)
            .hint("copy what is needed of it to a folder of its own"));
    }
    Ok(())
}

/// What belljar itself keeps must not be an agent's to read or change: its records, what was trusted, and secrets.
pub(super) fn refuse_our_own(shared: &[&Path], own: &[PathBuf]) -> Result<(), SandboxError> {
    let mut known = HashMap::new();
    for named in own {
        let own = where_it_will_be(named);
        // A link on the way to it could be made to lead elsewhere.
        let ways = ways_to(named);
        let mut passes = |shared: &Path| {
            let shared = identity(shared);
            named.ancestors().any(|part| {
                shared.is_some() && *known.entry(part).or_insert_with(|| identity(part)) == shared
            })
        };
        let is_ours = |path: &&&Path| {
            let is_on_the_way = ways.iter().any(|way| way.starts_with(path));
            path.starts_with(&own) || own.starts_with(path) || is_on_the_way || passes(path)
        };
        if let Some(path) = shared.iter().find(is_ours) {
            let message =
                format!("`{}` holds what belljar keeps to itself, at `{}`", path.display(), named.display());
            return Err(SandboxError::policy("path_is_ours", message).hint(
                "share a folder below it, or keep that elsewhere: records by XDG_STATE_HOME, the file of a secret or a \
                 belljar.toml in a folder that is not shared",
            ));
        }
    }
    Ok(())
}

/// Where the links lie that lead to it, each by its real path, and where they lead, whether anything is there or not. Whoever can
/// change one of them says what it is.
fn ways_to(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let (mut links, mut real) = (Vec::new(), PathBuf::from("/"));
    let mut left: Vec<PathBuf> =
        path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect();
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            real.pop();
            continue;
        }
        let here = real.join(&part);
        match fs::read_link(&here) {
            Ok(target) if links.len() < MOST_LINKS => {
                links.push(here);
                // An absolute one begins at the root by itself.
                left.extend(target.components().rev().map(|part| PathBuf::from(part.as_os_str())));
            }
            _ => real = here,
        }
    }
    links.push(real);
    links
}

/// Whoever reaches a Docker daemon is root of its machine. Its socket is known by what it is, not by its name: a link to it, a
/// bind of it and a path over /proc lead to the same one, and so does every folder that it lies in.
pub(super) fn refuse_docker_sockets<'p>(
    shared: impl IntoIterator<Item = &'p Path>,
    sockets: &[PathBuf],
) -> Result<(), SandboxError> {
    // By the name that it has, and by the one that it really has.
    let names = sockets.iter().cloned().chain(sockets.iter().filter_map(|socket| socket.canonicalize().ok()));
    let holders = |socket: PathBuf| match socket.exists() {
        true => socket.ancestors().filter_map(identity).collect::<Vec<_>>(),
        // A daemon that starts later puts it there.
        false => Vec::from_iter(socket.parent().and_then(identity)),
    };
    let held: Vec<(u64, u64)> = names.flat_map(holders).collect();
    // One with another name, which may be anywhere on its filesystem.
    let linked: Vec<u64> = sockets
        .iter()
        .filter_map(|socket| socket.metadata().ok().filter(|found| found.nlink() > 1))
        .map(|found| found.dev())
        .collect();
    let is_here = sockets.iter().any(|socket| socket.exists());
    let mounts = if is_here { super::mounts::points() } else { Vec::new() };
    for path in shared {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let nested = mounts.iter().filter(|point| point.starts_with(&real) && **point != real);
        let mut all = std::iter::once(path).chain(nested.map(PathBuf::as_path)).filter_map(identity);
        if all.any(|(device, file)| held.contains(&(device, file)) || linked.contains(&device)) {
            let message = format!("`{}` is or holds the socket of a Docker daemon", path.display());
            return Err(SandboxError::policy("path_is_docker_socket", message).hint(
                "whoever reaches it is root here, so no sandbox is given it; share a folder without it",
            ));
        }
    }
    Ok(())
}

/// What the kernel knows a file by, however it is spelled.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Where a path leads that may not be there yet: what is there of it may be a link.
fn where_it_will_be(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|ancestor| {
        let real = ancestor.canonicalize().ok()?;
        Some(real.join(path.strip_prefix(ancestor).ok()?))
    });
    known.unwrap_or_else(|| path.to_path_buf())
}

/// As many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;
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
            refuse_our_own(&[&place.join(shared)], &[place.join(own)]).map_err(|error| error.code)
        };
        for own in ["config/file", "around/file"] {
            for shared in ["config", "dots", "dots/file", "middle"] {
                assert_eq!(refused(shared, own), Err("path_is_ours"), "{shared} {own}");
            }
            assert_eq!(refused("other", own), Ok(()));
        }
        assert_eq!(refused("later", "config/inner/file"), Err("path_is_ours"), "it can still be made there");
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
        let refuse = |path: &Path| refuse_docker_sockets([path], &known).map_err(|error| error.code);
        for path in
            ["run/inner/docker.sock", "run/inner", "run", "link", "direct", "again", "link/docker.sock", ""]
        {
            assert_eq!(refuse(&place.join(path)), Err("path_is_docker_socket"), "{path}");
        }
        let over_proc = Path::new("/proc/self/root").join(socket.strip_prefix("/").expect("absolute"));
        assert_eq!(refuse(&over_proc), Err("path_is_docker_socket"));
        let other = place.join("other");
        assert_eq!(
            refuse(&other),
            Err("path_is_docker_socket"),
            "its other name may be anywhere on its disk"
        );
        std::fs::remove_file(place.join("again")).expect("ours");
        assert_eq!(refuse(&other), Ok(()));
    }
}
