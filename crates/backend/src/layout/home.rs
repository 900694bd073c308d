//! Homes. Programs under one, the directories of PATH, are seen with what they need beside them; nothing else of a home is, and
//! none as a whole.

use super::etc::rows;
use super::opened::Walker;
use super::{Bind, BindKind, BindOrigin, shared};
use std::env;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

pub(super) struct Visible<'h> {
    pub(super) binds: Vec<Bind>,
    /// The search path inside.
    pub(super) path: Vec<PathBuf>,
    /// Variables that name where a tool's programs are.
    pub(super) variables: Vec<(OsString, OsString)>,
    homes: &'h Homes,
    workspace: Option<&'h Path>,
    walker: Walker,
}

/// `workspace` is where agents work: a link there leads to nothing that is shown.
pub(super) fn visible<'h>(workspace: Option<&'h Path>, homes: &'h Homes) -> Visible<'h> {
    let path = env::var_os("PATH").unwrap_or_default();
    from(homes, env::split_paths(&path).collect(), workspace)
}

fn from<'h>(homes: &'h Homes, path: Vec<PathBuf>, workspace: Option<&'h Path>) -> Visible<'h> {
    let home = homes.own.as_deref();
    let mut visible = Visible {
        binds: Vec::new(),
        path: Vec::new(),
        variables: Vec::new(),
        homes,
        workspace,
        walker: Walker::default(),
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

impl Visible<'_> {
    /// Shows a directory where it is on the host, if it is one.
    fn add(&mut self, directory: &Path) -> bool {
        let Some(target) = directory.to_str() else { return false };
        let walked = self.walker.walk(directory);
        let is_planted = self.workspace.is_some_and(|workspace| shared::leaves(&walked, workspace));
        let source = walked.real;
        // A link may lead anywhere, to a whole home too.
        if is_planted || !source.is_dir() || self.homes.are_in(&source) {
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

/// Every home of this machine that we know of, by its real path.
pub(super) struct Homes {
    /// Ours, root's, and those of the people in /etc/passwd; and the folder in which every folder is one.
    known: Vec<PathBuf>,
    all: PathBuf,
    /// Ours, as it is named.
    own: Option<PathBuf>,
    /// Those in /etc/passwd, as they are named there.
    people: Vec<PathBuf>,
}

impl Homes {
    pub(super) fn here() -> Homes {
        Homes::with(env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()))
    }

    fn with(own: Option<PathBuf>) -> Homes {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let all = real(Path::new("/home"));
        let people = people();
        let mut named: Vec<&Path> = own.as_deref().into_iter().chain([Path::new("/root")]).collect();
        // For a user without a home, /etc/passwd may name another user's folder.
        let is_theirs = |uid: u32, home: &Path| home.metadata().is_ok_and(|found| found.uid() == uid);
        // Those below /home are all known, and asking for one may have it mounted from far away.
        let elsewhere = people.iter().filter(|(_, home)| home.parent() != Some(Path::new("/home")));
        for (uid, home) in elsewhere {
            if !named.contains(&home.as_path()) && is_theirs(*uid, home) {
                named.push(home);
            }
        }
        named.dedup();
        let known = named.into_iter().map(real).chain([all.clone()]).collect();
        Homes { known, all, own, people: people.into_iter().map(|(_, home)| home).collect() }
    }

    /// A machine with one home.
    #[cfg(test)]
    pub(super) fn of_test(home: &Path) -> Homes {
        Homes { known: Vec::new(), all: "/home".into(), own: Some(home.into()), people: Vec::new() }
    }

    /// Whether a folder, by its real path, is a home or holds one.
    pub(super) fn are_in(&self, folder: &Path) -> bool {
        self.known.iter().any(|home| home.starts_with(folder)) || folder.parent() == Some(&self.all)
    }

    /// The caller's home, root's, and those that these real paths lie in.
    pub(super) fn around<'p>(&self, real: impl IntoIterator<Item = &'p Path>) -> Vec<PathBuf> {
        let known = self.known.iter().filter(|home| **home != self.all);
        let below_all = real.into_iter().filter_map(|path| {
            let name = path.strip_prefix(&self.all).ok()?.components().next()?;
            Some(self.all.join(name))
        });
        let mut homes: Vec<PathBuf> = self.own.iter().chain(known).cloned().chain(below_all).collect();
        homes.sort();
        homes.dedup();
        homes
    }
}

/// The people in /etc/passwd, and their homes. A name that is no text hides no other.
fn people() -> Vec<(u32, PathBuf)> {
    let listed = std::fs::read("/etc/passwd").unwrap_or_default();
    let person = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let uid = fields.get(2)?.parse().ok().filter(|uid| *uid == 0 || (1000..65534).contains(uid))?;
        Some((uid, PathBuf::from(fields.get(5)?)))
    };
    let people = String::from_utf8_lossy(&listed).lines().filter_map(person).collect::<Vec<_>>();
    people.into_iter().filter(|(_, home)| home.is_absolute()).collect()
}

/// Homes that lie in what every user sees, as below /opt: hidden there. Ours, and those of the people in /etc/passwd.
pub(super) fn below_system(binds: &[Bind], homes: &Homes) -> Vec<String> {
    let system: Vec<Bind> = binds.iter().filter(|bind| bind.origin == BindOrigin::System).cloned().collect();
    let mut homes: Vec<String> = homes
        .people
        .iter()
        .chain(&homes.own)
        // Asking the kernel takes time: only for homes in unusual places.
        .filter(|home| home.components().count() > 2)
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

/// Directories of programs that every user of the host may run: visible already.
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
            let homes = Homes::with(Some(home.into()));
            let visible = from(&homes, vec![PathBuf::from(entry)], None);
            assert_eq!(visible.binds, [], "{entry}");
        }
    }

    #[test]
    fn every_users_home_is_a_home() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        for directory in ["data/ada/project", "data/bob", "root/project"] {
            std::fs::create_dir_all(place.join(directory)).unwrap();
        }
        let (all, known) = (place.join("data"), vec![place.join("root"), place.join("data")]);
        let homes = Homes { known, all, own: None, people: Vec::new() };
        for (folder, is_wide) in [
            ("", true),
            ("root", true),
            ("root/project", false),
            ("data", true),
            ("data/ada", true),
            ("data/bob", true),
            ("data/ada/project", false),
        ] {
            let folder = place.join(folder);
            let folder: PathBuf = folder.components().collect();
            assert_eq!(homes.are_in(&folder), is_wide, "{}", folder.display());
        }
    }

    #[test]
    fn root_has_a_home_for_every_caller() {
        let homes = Homes::with(Some("/home/ada".into()));
        assert!(homes.are_in(Path::new("/root")) && homes.are_in(Path::new("/")));
        assert!(!homes.are_in(Path::new("/root/project")));
        assert!(!Homes::with(Some("/root".into())).are_in(Path::new("/root/project")));
    }

    #[test]
    fn programs_under_home_are_visible_with_what_they_need() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for directory in [".cargo/bin", ".rustup/toolchains", ".ssh", ".aws"] {
            std::fs::create_dir_all(home.join(directory)).unwrap();
        }
        let homes = Homes::with(Some(home.clone()));
        let visible = from(&homes, vec![home.join(".cargo/bin"), PathBuf::from("/usr/bin")], None);
        let sources: Vec<_> = visible.binds.iter().map(|bind| bind.source.clone()).collect();
        assert_eq!(sources, [home.join(".cargo/bin"), home.join(".rustup")]);
        assert_eq!(visible.path[..2], [home.join(".cargo/bin"), PathBuf::from("/usr/bin")]);
        assert_eq!(visible.variables, [("RUSTUP_HOME".into(), home.join(".rustup").into_os_string())]);
    }
}
