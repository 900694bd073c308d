//! Where an agent is on this machine, and what of the machine it needs to run. Agents come as packages of npm, in whatever
//! folder the user chose for those, or as one executable; how it was installed cannot be known. Nothing of them is run.

use super::{Adapter, Found, node};
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Looks for an agent in the folders of a search path.
pub fn find(adapter: &Adapter, path: &OsStr) -> Result<Found, SandboxError> {
    let mut first_fault = None;
    for place in on_path(path, adapter.program) {
        match understand(adapter, &place) {
            Ok(mut found) => {
                if let Some(oldest) = adapter.node {
                    let node = node::find(adapter, path, oldest)?;
                    found.needs.push(node.clone());
                    found.path.push(node);
                }
                found.needs.retain(|need| !is_seen(need));
                within_each_other(&mut found.needs);
                return Ok(found);
            }
            // There may be a better one behind a launcher.
            Err(fault) => first_fault = first_fault.or(Some(fault)),
        }
    }
    Err(first_fault.unwrap_or_else(|| {
        let message = format!("{} is not here: there is no `{}` on PATH", adapter.title, adapter.program);
        ErrorCode::ProgramMissing.error(message).hint(format!("`{}`", adapter.install()))
    }))
}

/// Every executable of that name. Only what begins at the root counts: a folder that depends on where one stands may be one
/// that an agent has written to.
pub(super) fn on_path<'p>(path: &'p OsStr, program: &'p str) -> impl Iterator<Item = PathBuf> + 'p {
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(move |folder| folder.join(program))
        .filter(|place| {
            fs::metadata(place).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}

/// Whether every sandbox sees it: the system's folders.
pub(super) fn is_seen(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

fn understand(adapter: &Adapter, place: &Path) -> Result<Found, SandboxError> {
    let real = place.canonicalize().unwrap_or_else(|_| place.to_path_buf());
    match package(&real, adapter.package) {
        Some(package) => {
            let program = match adapter.node {
                Some(_) => Some(real),
                // A package comes without its program if npm was told to omit parts, or to run no scripts.
                None => Some(real).filter(|real| is_elf(real)).or_else(|| package.native(adapter)),
            };
            let program = program.ok_or_else(|| incomplete(adapter, &package.root))?;
            let needs = vec![outermost(&package.root)];
            Ok(Found { program, needs, path: Vec::new(), version: package.version })
        }
        None => alone(adapter, place, real),
    }
}

/// An executable without a package: of that name, or with its version for a name, as Claude Code installs itself.
fn alone(adapter: &Adapter, place: &Path, real: PathBuf) -> Result<Found, SandboxError> {
    let name = real.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_version = name.starts_with(|first: char| first.is_ascii_digit());
    if adapter.node.is_some() || !is_elf(&real) || !(is_version || name == adapter.program) {
        let message = format!(
            "`{}` is no {} that belljar understands: it is neither in the package {} nor a program by itself",
            place.display(),
            adapter.title,
            adapter.package
        );
        let hint = format!("launchers of version managers are not followed; `{}`", adapter.install());
        return Err(ErrorCode::ProgramMissing.error(message).hint(hint));
    }
    let version = is_version.then(|| name.to_string());
    let beside = adapter.beside.iter().map(|name| real.with_file_name(name)).filter(|file| file.is_file());
    let needs = std::iter::once(real.clone()).chain(beside).collect();
    Ok(Found { program: real, needs, path: Vec::new(), version })
}

fn incomplete(adapter: &Adapter, root: &Path) -> SandboxError {
    let message = format!("{} in `{}` is there without its program", adapter.title, root.display());
    ErrorCode::ProgramMissing.error(message).hint(format!(
        "install it with its optional parts and scripts: `{} --include=optional --ignore-scripts=false`",
        adapter.install()
    ))
}

/// A package of npm.
pub(super) struct Package {
    root: PathBuf,
    pub(super) version: Option<String>,
}

/// The package of that name that a file is in.
pub(super) fn package(file: &Path, name: &str) -> Option<Package> {
    file.ancestors().skip(1).find_map(|root| {
        let text = read_some(&root.join("package.json"), MANIFEST)?;
        let manifest: Value = serde_json::from_slice(&text).ok()?;
        (manifest["name"] == name).then(|| Package {
            root: root.to_path_buf(),
            version: manifest["version"].as_str().map(str::to_string),
        })
    })
}

impl Package {
    /// The program itself: npm puts it below the package, or next to it.
    fn native(&self, adapter: &Adapter) -> Option<PathBuf> {
        let cpu = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        let next = self.root.ancestors().skip(1).find(|folder| folder.ends_with("node_modules"));
        let folders = [Some(self.root.join("node_modules")), next.map(Path::to_path_buf)];
        let places = adapter.native.iter().flat_map(|native| {
            let native = native.replace("CPU", cpu).replace("ARCH", std::env::consts::ARCH);
            folders.iter().flatten().map(move |folder| folder.join(&native))
        });
        // Where packages are links, the program is behind one.
        places.filter_map(|place| place.canonicalize().ok()).find(|place| is_elf(place))
    }
}

/// The folder with all that a package may need: node looks for packages in every folder above, and they may be links to
/// others among them.
fn outermost(root: &Path) -> PathBuf {
    let folders = root.ancestors().filter(|folder| folder.ends_with("node_modules"));
    folders.last().unwrap_or(root).to_path_buf()
}

/// Leaves out what is below something else.
fn within_each_other(needs: &mut Vec<PathBuf>) {
    needs.sort();
    needs.dedup_by(|later, earlier| later.starts_with(earlier));
}

fn is_elf(file: &Path) -> bool {
    read_some(file, 4).is_some_and(|start| start == b"\x7fELF")
}

pub(super) fn read_some(file: &Path, limit: u64) -> Option<Vec<u8>> {
    // A pipe might never end.
    fs::metadata(file).ok().filter(|found| found.is_file())?;
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// As the layout of a sandbox has them.
const SYSTEM: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
];
/// More than any package says of itself.
const MANIFEST: u64 = 1 << 20;

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
