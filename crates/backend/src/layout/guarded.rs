//! Folders of the system and of a person that no sandbox writes to by accident: `/etc`, `/usr`, `~/.ssh` and the like.
//!
//! This module owns the list and the decision, for the workspace and for every path that is shared for writing; the layout of every
//! backend asks it, so that no way in goes round it. A folder is known by its device and inode, and by its place in its filesystem
//! where one is mounted at several places: a link or a bind mount is no way in either. Single files on the list (`~/.bashrc`) are
//! judged the same way.

use super::home::Homes;
use super::mounts::{Mounts, PlaceOnDevice};
use super::opened::{OpenedPaths, identity};
use super::{Bind, BindKind};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::opened::{FileIdentity, OpenedPath};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use Content::{Programs, Secrets};
use Extent::{AndBelow, Itself};

/// What is known of the machine when paths are judged.
pub(super) struct Surroundings<'s> {
    pub(super) homes: &'s Homes,
    pub(super) mounts: &'s Mounts,
    pub(super) opened: &'s OpenedPaths,
}

/// Refuses a workspace, named paths that may be written and a `git` directory that is shared, where they are guarded, lie in a
/// guarded folder, or contain one. All of them are open.
pub(super) fn refuse<'p>(
    workspaces: impl IntoIterator<Item = &'p Path>,
    mode: &WorkspaceMode,
    named: &'p [Bind],
    git: Option<&'p Path>,
    surroundings: Surroundings<'_>,
) -> Result<(), SandboxError> {
    let used = match mode {
        // Of a repository whose branch is worked on the sandbox sees the files that were committed.
        WorkspaceMode::Overlay { .. } | WorkspaceMode::ManagedClone { .. } => Use::LayeredWorkspace,
        WorkspaceMode::Bind | WorkspaceMode::Own(_) | WorkspaceMode::Clone(_) => Use::WrittenWorkspace,
    };
    let workspaces = workspaces.into_iter().map(|path| (path, used));
    let written = named.iter().filter(|bind| bind.kind != BindKind::ReadOnly).map(|bind| &*bind.source);
    let written = written.chain(git).map(|path| (path, Use::WrittenPath));
    let paths: Vec<(&Path, Use)> = workspaces.chain(written).collect();
    if paths.is_empty() {
        return Ok(());
    }
    let Surroundings { homes, mounts, opened } = surroundings;
    let guarded = Guarded { folders: folders(homes, paths.iter().map(|(path, _)| *path)), mounts };
    paths.into_iter().try_for_each(|(path, used)| guarded.judge(path, used, opened))
}

/// How a sandbox uses a folder of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// As its workspace, which it writes to.
    WrittenWorkspace,
    /// As its workspace, with a layer over it that takes all changes.
    LayeredWorkspace,
    /// As another path that it may write to.
    WrittenPath,
}

/// What is guarded on this machine, for this caller.
struct Guarded<'m> {
    folders: Vec<Folder>,
    mounts: &'m Mounts,
}

struct Folder {
    path: PathBuf,
    content: Content,
    extent: Extent,
    /// What is there now, if anything is.
    found: Option<Found>,
}

/// What lies in a guarded folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// What this machine or its owner runs: harmless to read, and a layer keeps changes away from it.
    Programs,
    /// Keys, credentials and configuration: not for an agent to read either.
    Secrets,
}

/// Which folders an entry means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// This folder, and what contains it.
    Itself,
    /// Also everything in it.
    AndBelow,
}

/// How a folder meets a guarded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Same,
    LiesIn,
    Contains,
}

/// The homes that the paths lie in are guarded like the caller's own.
fn folders<'p>(homes: &Homes, real: impl Iterator<Item = &'p Path>) -> Vec<Folder> {
    let mut ways = Ways::default();
    let system = SYSTEM.iter().map(|(path, content, extent)| (PathBuf::from(path), *content, *extent));
    let homes = homes.around(real);
    let in_homes = homes.iter().flat_map(|home| {
        IN_HOMES.iter().map(|(path, content)| (home.join(path), *content, Extent::AndBelow))
    });
    let listed = system.chain(in_homes);
    listed.map(|(path, content, extent)| Folder { found: ways.find(&path), path, content, extent }).collect()
}

impl Guarded<'_> {
    fn judge(&self, real: &Path, used: Use, opened: &OpenedPaths) -> Result<(), SandboxError> {
        let met = self.by_identity(opened.get(real)?);
        match met.or_else(|| self.by_mount(real)) {
            Some((folder, relation))
                if used != Use::LayeredWorkspace || folder.content == Content::Secrets =>
            {
                Err(refusal(real, used, folder, relation))
            }
            _ => Ok(()),
        }
    }

    fn by_identity(&self, opened: &OpenedPath) -> Option<(&Folder, Relation)> {
        let (itself, holders) = (opened.identity(), opened.holders());
        let excepted = OPEN_BELOW.iter().filter_map(|path| identity(Path::new(path)));
        let excepted: Vec<FileIdentity> = excepted.collect();
        // The nearest folder that says something about it counts.
        let nearest = holders.iter().position(|holder| *holder != itself && excepted.contains(holder));
        let holders = &holders[..nearest.unwrap_or(holders.len())];
        let mut known: HashMap<&Path, Option<FileIdentity>> = HashMap::new();
        let mut of = |path| *known.entry(path).or_insert_with(|| identity(path));
        self.folders.iter().find_map(|folder| {
            let relation = match &folder.found {
                Some(guarded) if guarded.identity == itself => Some(Relation::Same),
                Some(guarded) if folder.extent == Extent::AndBelow && holders.contains(&guarded.identity) => {
                    Some(Relation::LiesIn)
                }
                found => {
                    // A link may lead to it from elsewhere, as those of settings that are kept together in a repository.
                    let real = found.as_ref().map(|found| &found.real).filter(|real| **real != folder.path);
                    let mut around = folder.path.ancestors().skip(1);
                    let is_around = around.any(|above| of(above) == Some(itself));
                    let mut around_real = real.into_iter().flat_map(|real| real.ancestors().skip(1));
                    let contains = is_around || around_real.any(|above| identity(above) == Some(itself));
                    contains.then_some(Relation::Contains)
                }
            };
            Some((folder, relation?))
        })
    }

    /// A part of a guarded folder that is mounted elsewhere, there or below, has other folders around it.
    fn by_mount(&self, real: &Path) -> Option<(&Folder, Relation)> {
        let itself = self.mounts.place_of(real).into_iter().map(|place| (place, false));
        let below = self.mounts.below(real).into_iter().map(|place| (place, true));
        let places = itself.chain(below).filter(|(place, _)| self.mounts.is_repeated(place));
        let places: Vec<(PlaceOnDevice, bool)> = places.collect();
        if places.is_empty() {
            return None;
        }
        self.folders.iter().find_map(|folder| {
            let real = &folder.found.as_ref()?.real;
            let itself = self.mounts.place_of(real)?;
            // What is mounted in a guarded folder is a part of it, wherever that lies.
            let within = match folder.extent {
                AndBelow => self.mounts.below(real),
                Itself => Vec::new(),
            };
            let relation = std::iter::once(itself).chain(within).find_map(|guarded| {
                places.iter().find_map(|(place, is_below)| {
                    let relation = self.relation(place, &guarded, folder.extent)?;
                    Some(if *is_below { Relation::Contains } else { relation })
                })
            });
            Some((folder, relation?))
        })
    }

    fn relation(&self, place: &PlaceOnDevice, guarded: &PlaceOnDevice, extent: Extent) -> Option<Relation> {
        if place.device != guarded.device {
            return None;
        }
        if place.path == guarded.path {
            return Some(Relation::Same);
        }
        if guarded.path.starts_with(&place.path) {
            return Some(Relation::Contains);
        }
        let mut open = OPEN_BELOW.iter().filter_map(|path| self.mounts.place_of(Path::new(path)));
        let is_open = open.any(|open| place.path.starts_with(&open.path) && place.path != open.path);
        let lies_in = extent == Extent::AndBelow && place.path.starts_with(&guarded.path) && !is_open;
        lies_in.then_some(Relation::LiesIn)
    }
}

/// What is at a guarded path.
struct Found {
    identity: FileIdentity,
    /// Its path without links.
    real: PathBuf,
}

/// The ways to guarded paths. Many lie in the same few folders, and few are links: the way to a folder is followed once, and of a path in
/// it one look tells what it is.
#[derive(Default)]
struct Ways(HashMap<PathBuf, Option<PathBuf>>);

impl Ways {
    fn find(&mut self, path: &Path) -> Option<Found> {
        let parent = path.parent()?;
        if !self.0.contains_key(parent) {
            self.0.insert(parent.to_path_buf(), parent.canonicalize().ok());
        }
        let mut real = self.0.get(parent)?.as_ref()?.join(path.file_name()?);
        let mut found = real.symlink_metadata().ok()?;
        if found.is_symlink() {
            real = real.canonicalize().ok()?;
            found = real.symlink_metadata().ok()?;
        }
        Some(Found { identity: FileIdentity { device: found.dev(), inode: found.ino() }, real })
    }
}

fn refusal(real: &Path, used: Use, folder: &Folder, relation: Relation) -> SandboxError {
    let what = match used {
        Use::WrittenWorkspace | Use::LayeredWorkspace => "workspace",
        Use::WrittenPath => "path",
    };
    let (shown, guarded) = (real.display(), folder.path.display());
    let place = match relation {
        Relation::Same if folder.path == real => String::new(),
        Relation::Same => format!(" is `{guarded}`, which"),
        Relation::LiesIn => format!(" lies in `{guarded}`, which"),
        Relation::Contains => format!(" contains `{guarded}`, which"),
    };
    let why = match folder.content {
        Content::Programs => "holds programs, or files that this machine relies on: no sandbox writes there",
        Content::Secrets => "holds keys or configuration: no sandbox works there",
    };
    let hint = match (used, folder.content) {
        (Use::WrittenWorkspace, Content::Programs) => hint!(
            "change to the folder of a project, or name one with {}; {} keeps all changes in a layer that you look at first",
            Term::Folder.to("DIR"),
            Term::Overlay
        ),
        (Use::WrittenWorkspace | Use::LayeredWorkspace, _) => hint!(
            "change to the folder of a project, or name one with {}; {} shows a single file or folder read-only",
            Term::Folder.to("DIR"),
            Term::Ro.to("PATH")
        ),
        (Use::WrittenPath, _) => {
            hint!(
                "{} shows it read-only; copy what has to be changed to a folder of a project",
                Term::Ro.to(&shown)
            )
        }
    };
    let message = format!("the {what} `{shown}`{place} {why}");
    ErrorCode::PathRefused.error(message).hint(hint)
}

/// Of the system: file-hierarchy(7). `/var/lib` and `/var` are refused since they contain some of these, but not what services and
/// CI keep below (`/var/lib/jenkins/workspace`, `/var/www`).
const SYSTEM: &[(&str, Content, Extent)] = &[
    ("/etc", Secrets, AndBelow),
    ("/usr", Programs, AndBelow),
    ("/bin", Programs, AndBelow),
    ("/sbin", Programs, AndBelow),
    ("/lib", Programs, AndBelow),
    ("/lib32", Programs, AndBelow),
    ("/lib64", Programs, AndBelow),
    ("/libx32", Programs, AndBelow),
    ("/boot", Programs, AndBelow),
    ("/efi", Programs, AndBelow),
    ("/opt", Programs, Itself),
    ("/nix/store", Programs, AndBelow),
    ("/gnu/store", Programs, AndBelow),
    ("/root", Secrets, Itself),
    ("/home", Secrets, Itself),
    ("/var/spool", Secrets, AndBelow),
    ("/var/mail", Secrets, AndBelow),
    ("/var/log", Programs, AndBelow),
    ("/var/lib/apt", Programs, AndBelow),
    ("/var/lib/containerd", Secrets, AndBelow),
    ("/var/lib/containers", Secrets, AndBelow),
    ("/var/lib/docker", Secrets, AndBelow),
    ("/var/lib/dpkg", Programs, AndBelow),
    ("/var/lib/kubelet", Secrets, AndBelow),
    ("/var/lib/pacman", Programs, AndBelow),
    ("/var/lib/rpm", Programs, AndBelow),
    ("/var/lib/systemd", Secrets, AndBelow),
];

/// What lies below these is source code that people work on, also in containers, whatever lies around.
const OPEN_BELOW: [&str; 2] = ["/usr/src", "/usr/local/src"];

/// In a home.
const IN_HOMES: &[(&str, Content)] = &[
    (".ssh", Secrets),
    (".gnupg", Secrets),
    (".aws", Secrets),
    (".azure", Secrets),
    (".config", Secrets),
    (".docker", Secrets),
    (".kube", Secrets),
    (".password-store", Secrets),
    (".pki", Secrets),
    (".local/share/keyrings", Secrets),
    (".mozilla", Secrets),
    (".thunderbird", Secrets),
    (".claude", Secrets),
    (".codex", Secrets),
    (".gemini", Secrets),
    (".git-credentials", Secrets),
    (".netrc", Secrets),
    (".npmrc", Secrets),
    (".pypirc", Secrets),
    (".bash_login", Programs),
    (".bash_logout", Programs),
    (".bash_profile", Programs),
    (".bashrc", Programs),
    (".gitconfig", Programs),
    (".profile", Programs),
    (".zlogin", Programs),
    (".zprofile", Programs),
    (".zshenv", Programs),
    (".zshrc", Programs),
    (".cargo/bin", Programs),
    (".emacs.d", Programs),
    (".asdf", Programs),
    (".bun/bin", Programs),
    (".deno/bin", Programs),
    (".gradle", Programs),
    (".local/bin", Programs),
    (".local/lib", Programs),
    (".npm-global", Programs),
    (".nvm", Programs),
    (".pyenv", Programs),
    (".sdkman", Programs),
    (".volta", Programs),
    ("go/bin", Programs),
    (".local/share/systemd", Programs),
    (".oh-my-zsh", Programs),
    (".rustup", Programs),
    (".vim", Programs),
    (".vscode", Programs),
    (".vscode-server", Programs),
    ("bin", Programs),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(path: &Path, mode: &WorkspaceMode, homes: &Homes, mounts: &Mounts) -> Result<(), String> {
        let real = path.canonicalize().unwrap();
        let mut opened = OpenedPaths::default();
        opened.open(&real).unwrap();
        let surroundings = Surroundings { homes, mounts, opened: &opened };
        refuse([&*real], mode, &[], None, surroundings).map_err(|error| error.message)
    }

    #[test]
    fn folders_of_the_system_are_not_written_however_they_are_spelled() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let (homes, mounts) = (Homes::here(), Mounts::default());
        for (path, expected) in [
            (Path::new("/etc"), Err("the workspace `/etc` holds")),
            (Path::new("/usr/share"), Err("the workspace `/usr/share` lies in `/usr`")),
            (Path::new("/usr/src"), Err("the workspace `/usr/src` lies in `/usr`")),
            (Path::new("/var"), Err("the workspace `/var` contains")),
            (Path::new("/var/lib"), Err("the workspace `/var/lib` contains")),
            (Path::new("/var/log"), Err("the workspace `/var/log` holds")),
            (Path::new("/"), Err("the workspace `/` contains")),
            (Path::new("/opt"), Err("the workspace `/opt` holds")),
            (&link, Err("the workspace `/etc` holds")),
            (Path::new("/proc/self/root/etc"), Err("the workspace `/etc` holds")),
            (place.path(), Ok(())),
        ] {
            let judged = judged(path, &WorkspaceMode::Bind, &homes, &mounts);
            match (&judged, expected) {
                (Ok(()), Ok(())) => {}
                (Err(message), Err(start)) => assert!(message.starts_with(start), "{message}"),
                _ => panic!("{}: {judged:?}", path.display()),
            }
        }
    }

    #[test]
    fn a_layer_is_enough_for_programs_and_not_for_keys() {
        let (homes, mounts) = (Homes::here(), Mounts::default());
        let overlay = WorkspaceMode::Overlay { layer: None };
        assert_eq!(judged(Path::new("/usr/share"), &overlay, &homes, &mounts), Ok(()));
        assert!(judged(Path::new("/etc"), &overlay, &homes, &mounts).is_err());
    }

    #[test]
    fn what_is_guarded_in_a_home_is_so_in_the_home_of_another_too() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        for folder in ["ann/.ssh/keys", "ann/.config/nvim", "ann/.cargo/bin", "ann/project/.config"] {
            std::fs::create_dir_all(place.join(folder)).unwrap();
        }
        let homes = Homes::of_test(&place.join("ann"));
        let mounts = Mounts::default();
        for (folder, refused) in [
            ("ann/.ssh", true),
            ("ann/.ssh/keys", true),
            ("ann/.config/nvim", true),
            ("ann/.cargo", true),
            ("ann", true),
            ("", true),
            ("ann/project", false),
            ("ann/project/.config", false),
        ] {
            let judged = judged(&place.join(folder), &WorkspaceMode::Bind, &homes, &mounts);
            assert_eq!(judged.is_err(), refused, "{folder}: {judged:?}");
        }
    }

    #[test]
    fn a_part_of_a_guarded_folder_that_is_mounted_elsewhere_is_known_by_its_place() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(place.join("outer/inner")).unwrap();
        let line = |root: &str, point: &str| format!("20 1 8:1 {root} {point} rw - ext4 /dev/sda1 rw\n");
        let inner = place.join("outer/inner");
        let homes = Homes::here();
        for (root, refused) in [("/etc/cron.d", true), ("/usr/src/kernel", false), ("/srv/data", false)] {
            let listed = line("/", "/") + &line(root, inner.to_str().unwrap());
            let mounts = Mounts::of_test(listed);
            for folder in ["outer/inner", "outer"] {
                let judged = judged(&place.join(folder), &WorkspaceMode::Bind, &homes, &mounts);
                assert_eq!(judged.is_err(), refused, "{root} {folder}: {judged:?}");
            }
        }
    }

    #[test]
    fn settings_that_links_lead_to_are_guarded_where_they_lie() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().canonicalize().unwrap().join("ann");
        for folder in ["dot/ssh", "dot/shell", "project"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        std::fs::write(home.join("dot/shell/bashrc"), "").unwrap();
        std::os::unix::fs::symlink("dot/ssh", home.join(".ssh")).unwrap();
        std::os::unix::fs::symlink("dot/shell/bashrc", home.join(".bashrc")).unwrap();
        let homes = Homes::of_test(&home);
        for (folder, refused) in [("dot", true), ("dot/ssh", true), ("dot/shell", true), ("project", false)] {
            let judged = judged(&home.join(folder), &WorkspaceMode::Bind, &homes, &Mounts::default());
            assert_eq!(judged.is_err(), refused, "{folder}: {judged:?}");
        }
    }

    #[test]
    fn the_folder_that_is_mounted_in_a_guarded_one_is_guarded() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(place.join("persist/etc")).unwrap();
        let line = |root: &str, point: &str| format!("20 1 8:1 {root} {point} rw - ext4 /dev/sda1 rw\n");
        let root = place.join("persist/etc");
        let homes = Homes::here();
        for (point, refused) in [("/etc/cron.d", true), ("/srv/x", false)] {
            let mounts = Mounts::of_test(line("/", "/") + &line(root.to_str().unwrap(), point));
            for folder in ["persist/etc", "persist"] {
                let judged = judged(&place.join(folder), &WorkspaceMode::Bind, &homes, &mounts);
                assert_eq!(judged.is_err(), refused, "{point} {folder}: {judged:?}");
            }
        }
    }

    #[test]
    fn of_a_repository_of_keys_no_branch_is_worked_on() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().canonicalize().unwrap().join("ann");
        std::fs::create_dir_all(home.join(".password-store")).unwrap();
        let homes = Homes::of_test(&home);
        let branch = WorkspaceMode::ManagedClone { branch: "fix".parse().ok() };
        let judged = judged(&home.join(".password-store"), &branch, &homes, &Mounts::default());
        assert!(judged.is_err());
    }
}
