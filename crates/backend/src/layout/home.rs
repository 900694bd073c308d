//! Programs under a home: the directories of PATH, and what they need next door. Nothing else of a home exists.

use super::etc::rows;
use super::{Bind, BindKind, BindOrigin};
use std::env;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

pub(super) struct Visible {
    pub(super) binds: Vec<Bind>,
    /// The search path inside.
    pub(super) path: Vec<PathBuf>,
    /// Variables that name where a tool's programs are.
    pub(super) variables: Vec<(OsString, OsString)>,
    home: Option<PathBuf>,
}

pub(super) fn visible() -> Visible {
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let path = env::var_os("PATH").unwrap_or_default();
    from(home.as_deref(), env::split_paths(&path).collect())
}

fn from(home: Option<&Path>, path: Vec<PathBuf>) -> Visible {
    let mut visible = Visible {
        binds: Vec::new(),
        path: Vec::new(),
        variables: Vec::new(),
        home: home.map(Path::to_path_buf),
    };
    for entry in path {
        let plain = entry.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !plain || !entry.is_absolute() || visible.path.contains(&entry) {
            continue;
        }
        if SYSTEM.iter().any(|system| entry.starts_with(system)) {
            visible.path.push(entry);
        } else if let Some(below) = below_a_home(&entry, home)
            && visible.add(&entry)
        {
            visible.path.push(entry.clone());
            visible.add_neighbours(&entry, below);
        }
    }
    for entry in USUAL.iter().map(PathBuf::from) {
        if !visible.path.contains(&entry) {
            visible.path.push(entry);
        }
    }
    visible
}

impl Visible {
    /// Shows a directory where it is on the host, if it is one.
    fn add(&mut self, directory: &Path) -> bool {
        let (Ok(source), Some(target)) = (directory.canonicalize(), directory.to_str()) else { return false };
        // A link may lead anywhere, to a whole home too.
        if !source.is_dir() || is_wide(&source, self.home.as_deref()) {
            return false;
        }
        let target = super::relative(target).to_string();
        if self.binds.iter().any(|bind| Path::new(&target).starts_with(&bind.target)) {
            return true;
        }
        // A directory that holds ones we have takes their place.
        self.binds.retain(|bind| !Path::new(&bind.target).starts_with(&target));
        self.binds.push(Bind { source, target, kind: BindKind::ReadOnly, origin: BindOrigin::Home });
        true
    }

    fn add_neighbours(&mut self, entry: &Path, below: &Path) {
        let home = entry.ancestors().nth(below.components().count()).unwrap_or(Path::new("/")).to_path_buf();
        for row in rows(TOOLCHAINS) {
            let [trigger, neighbour, variable, ..] = row[..] else { continue };
            let neighbour = home.join(neighbour);
            if below.starts_with(trigger) && self.add(&neighbour) && variable != "-" {
                let variable = (OsString::from(variable), neighbour.into_os_string());
                if !self.variables.contains(&variable) {
                    self.variables.push(variable);
                }
            }
        }
    }
}

/// Whether a folder is a home, or holds one.
fn is_wide(folder: &Path, home: Option<&Path>) -> bool {
    let home = home.and_then(|home| home.canonicalize().ok());
    home.is_some_and(|home| home.starts_with(folder))
        || Path::new("/root").starts_with(folder)
        || folder.parent() == Some(Path::new("/home"))
}

/// Homes that lie in what everybody sees, as below /opt: hidden there. Ours, and those of the people in /etc/passwd.
pub(super) fn below_system(binds: &[Bind]) -> Vec<String> {
    let people = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let theirs = people.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_person =
            fields.get(2)?.parse::<u32>().is_ok_and(|uid| uid == 0 || (1000..65534).contains(&uid));
        is_person.then(|| PathBuf::from(fields.get(5).copied().unwrap_or_default()))
    });
    let own = env::var_os("HOME").map(PathBuf::from);
    let system: Vec<Bind> = binds.iter().filter(|bind| bind.origin == BindOrigin::System).cloned().collect();
    let mut homes: Vec<String> = theirs
        .chain(own)
        // Asking the kernel takes time: only for homes in unusual places.
        .filter(|home| home.is_absolute() && home.components().count() > 2)
        .filter(|home| !home.starts_with("/home") && !home.starts_with("/root"))
        .filter_map(|home| home.canonicalize().ok())
        .flat_map(|home| super::seen_at(&home, &system))
        .filter_map(|(_, place)| super::spelled(place))
        .collect();
    homes.sort();
    homes.dedup();
    homes
}

/// The part of `path` below a home, never the home itself.
fn below_a_home<'p>(path: &'p Path, home: Option<&Path>) -> Option<&'p Path> {
    let below =
        match home.filter(|home| *home != Path::new("/")).and_then(|home| path.strip_prefix(home).ok()) {
            Some(below) => below,
            None => path.strip_prefix("/root").ok().or_else(|| {
                let below = path.strip_prefix("/home").ok()?;
                below.strip_prefix(below.components().next()?).ok()
            })?,
        };
    (below.components().count() > 0).then_some(below)
}

/// Where programs are that everybody on the host may run: visible already.
const SYSTEM: [&str; 7] =
    ["/usr", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store", "/run/current-system"];
/// What is searched in any case.
pub(super) const USUAL: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const TOOLCHAINS: &str = include_str!("toolchains.table");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_never_visible_as_a_whole() {
        let home = Path::new("/home/ann");
        for entry in
            ["/home/ann", "/home/ann/", "/home", "/root", "/home/bob", "/", "bin", "/home/ann/../bob/bin"]
        {
            let visible = from(Some(home), vec![PathBuf::from(entry)]);
            assert_eq!(visible.binds, [], "{entry}");
        }
    }

    #[test]
    fn programs_under_home_are_visible_with_what_they_need() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for directory in [".cargo/bin", ".rustup/toolchains", ".ssh", ".aws"] {
            std::fs::create_dir_all(home.join(directory)).unwrap();
        }
        let visible = from(Some(&home), vec![home.join(".cargo/bin"), PathBuf::from("/usr/bin")]);
        let sources: Vec<_> = visible.binds.iter().map(|bind| bind.source.clone()).collect();
        assert_eq!(sources, [home.join(".cargo/bin"), home.join(".rustup")]);
        assert_eq!(visible.path[..2], [home.join(".cargo/bin"), PathBuf::from("/usr/bin")]);
        assert_eq!(visible.variables, [("RUSTUP_HOME".into(), home.join(".rustup").into_os_string())]);
    }
}
