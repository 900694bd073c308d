//! The node that runs an agent: the first on PATH that is new enough.

use super::Adapter;
use super::find::{on_path, package, read_some};
use belljar_spec::{ErrorCode, SandboxError};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The folder that has it, to be searched first inside.
pub(super) fn find(adapter: &Adapter, path: &OsStr, oldest: (u32, u32)) -> Result<PathBuf, SandboxError> {
    let (major, minor) = oldest;
    let (mut older, mut unknown) = (None, None);
    for place in on_path(path, "node") {
        match version(&place) {
            Some(version) if version >= oldest => return Ok(folder(&place)),
            Some(version) => older = older.or(Some((place, version))),
            None => unknown = unknown.or(Some(place)),
        }
    }
    // A distribution's own says nowhere which it is. If it is too old, the agent says so.
    if let Some(place) = unknown {
        return Ok(folder(&place));
    }
    let needed = if minor == 0 { major.to_string() } else { format!("{major}.{minor}") };
    let message = match older {
        Some((place, (major, minor))) => format!(
            "{} needs node {needed} or newer, and `{}` is {major}.{minor}",
            adapter.title,
            place.display()
        ),
        None => format!("{} needs node {needed} or newer, and there is no `node` on PATH", adapter.title),
    };
    Err(ErrorCode::ProgramMissing
        .error(message)
        .hint("`npm install -g node@24`, or https://nodejs.org; its folder goes into PATH"))
}

/// Where the executable itself is, so that no link has to be followed inside.
fn folder(place: &Path) -> PathBuf {
    let real = place.canonicalize().unwrap_or_default();
    let named = if real.file_name() == Some(OsStr::new("node")) { &real } else { place };
    named.parent().unwrap_or(Path::new("/")).to_path_buf()
}

/// Which it is, by what lies beside it: the manifest of its package, or the header that every release has. A `node` on PATH is
/// not run to be asked: the folder may be one that an agent has written to.
fn version(node: &Path) -> Option<(u32, u32)> {
    let real = node.canonicalize().ok()?;
    let packaged = package(&real, "node").and_then(|package| package.version);
    let header = || {
        let header = real.parent()?.parent()?.join("include/node/node_version.h");
        String::from_utf8(read_some(&header, HEADER)?).ok()
    };
    match packaged {
        Some(version) => {
            let mut numbers = version.split('.');
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        }
        None => {
            let header = header()?;
            let number = |name: &str| {
                let line =
                    header.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name))?;
                line.trim().parse().ok()
            };
            Some((number("NODE_MAJOR_VERSION ")?, number("NODE_MINOR_VERSION ")?))
        }
    }
}

/// Far more than it has.
const HEADER: u64 = 64 * 1024;
