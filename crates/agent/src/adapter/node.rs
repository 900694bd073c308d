//! The node that runs an agent: the first on PATH that is new enough.

use super::{Adapter, find::on_path};
use belljar_spec::SandboxError;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The folder that has it, to be searched first inside.
pub(super) fn find(adapter: &Adapter, path: &OsStr, oldest: (u32, u32)) -> Result<PathBuf, SandboxError> {
    let (major, minor) = oldest;
    let mut older = None;
    for place in on_path(path, "node") {
        match version(&place) {
            Some(version) if version >= oldest => return Ok(folder(&place)),
            Some(version) => older = older.or(Some((place, version))),
            None => {}
        }
    }
    let needed = if minor == 0 { major.to_string() } else { format!("{major}.{minor}") };
    let message = match older {
        Some((place, (major, minor))) => format!(
            "{} needs node {needed} or newer, and `{}` is {major}.{minor}",
            adapter.title,
            place.display()
        ),
        None => format!(
            "{} needs node {needed} or newer, and there is no `node` on PATH that runs",
            adapter.title
        ),
    };
    Err(SandboxError::unavailable("agent_needs_node", message)
        .hint("`npm install -g node@24`, or https://nodejs.org; its folder goes into PATH"))
}

/// Where the executable itself is, so that no link has to be followed inside.
fn folder(place: &Path) -> PathBuf {
    let real = place.canonicalize().unwrap_or_default();
    let named = if real.file_name() == Some(OsStr::new("node")) { &real } else { place };
    named.parent().unwrap_or(Path::new("/")).to_path_buf()
}

/// What it says of itself; nothing if it does not say so soon.
fn version(node: &Path) -> Option<(u32, u32)> {
    let mut asked = Command::new(node)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + PATIENCE;
    while asked.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            let _ = asked.kill();
            let _ = asked.wait();
            return None;
        }
        sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    asked.stdout.take()?.take(64).read_to_string(&mut said).ok()?;
    let mut numbers = said.trim().strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// It takes a twentieth of a second; on a machine with much to do, a hundred times that.
const PATIENCE: Duration = Duration::from_secs(5);
