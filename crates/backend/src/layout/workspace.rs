//! The workspace as it is shown: a folder, or an overlay over it; a git directory that lies elsewhere; and what of them no
//! process inside may change, wherever it is seen.
//!
//! What is shielded is mounted onto itself: it can be neither renamed nor removed nor replaced, and what is read-only is so
//! for every process inside. The same holds for every folder on the way to it. A mount needs a place: for what is missing a
//! mount point is made, in a layer of its own below an overlay, in the folder itself otherwise (`crate::mountpoints`).

use super::opened::{OpenedPaths, walk};
use super::{Bind, BindKind, BindOrigin, mounts, relative, text};
use belljar_spec::workspace::{DotGit, Layer, LinkedGit, PrivateGitView, Shield, Shielded, View};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::rustix::fs::{Access, AtFlags, CWD, accessat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use belljar_wire::message::{Bytes, Mountpoint, MountpointKind};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder that is seen with a layer over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layered {
    /// The place of the bind that it belongs to.
    pub(crate) target: String,
    /// Holds the two directories.
    pub(crate) directory: PathBuf,
    pub(crate) upper: String,
    pub(crate) work: String,
    pub(crate) mountpoints: Vec<Mountpoint>,
    /// Named from the folder, topmost first: what lies below instead of the folder itself.
    pub(crate) lowers: Vec<String>,
}

/// What has to be made in a folder of the host before its mounts, and is removed with the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) root: PathBuf,
    pub(crate) mountpoints: Vec<Mountpoint>,
    /// All that is shielded in it.
    pub(crate) shields: Vec<String>,
}

/// What a view adds to a layout.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) binds: Vec<Bind>,
    pub(super) layers: Vec<Layered>,
    /// Folders with shields in them, and where they are seen: the workspace, and its git directory.
    shielded: Vec<Root>,
    /// Files of our own, and the binds that put them in their place.
    pub(super) files: Vec<(String, Vec<u8>)>,
    covers: Vec<Bind>,
}

#[derive(Debug)]
struct Root {
    folder: PathBuf,
    target: String,
    is_layered: bool,
    shields: Vec<Held>,
}

/// A shield, as it is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    path: String,
    kind: BindKind,
    /// What is made for it where nothing is.
    mountpoint: Option<MountpointKind>,
}

/// A view, seen at `workspace`.
pub(super) fn show(view: &View, workspace: &str, opened: &mut OpenedPaths) -> Result<Shown, SandboxError> {
    let mut shown = Shown::default();
    let target = relative(workspace).to_string();
    let layer = view.layer.as_ref().map(|layer| layered(layer, &view.folder, &target, opened)).transpose()?;
    shown.root(&view.folder, target, layer, &view.shields, opened)?;
    if let Some(git) = &view.git {
        if view.layer.is_some() {
            let message =
                "a layer leaves the host's git directory as it is: the sandbox needs one of its own";
            return Err(ErrorCode::WorkspaceFailed.error(message));
        }
        shown.git(git, &view.folder, workspace, opened)?;
    }
    for git in &view.private_git {
        shown.private_git(git, &view.folder, workspace, opened)?;
    }
    Ok(shown)
}

impl Shown {
    fn root(
        &mut self,
        folder: &Path,
        target: String,
        layer: Option<Layered>,
        shields: &[Shield],
        opened: &mut OpenedPaths,
    ) -> Result<(), SandboxError> {
        text(folder)?;
        let through = opened.open_source(folder)?.by_descriptor();
        self.binds.push(Bind {
            source: folder.to_path_buf(),
            target: target.clone(),
            kind: BindKind::ReadWrite,
            origin: BindOrigin::Named,
        });
        let is_layered = layer.is_some();
        let shields = carried_out(&through, is_layered, shields);
        self.layers.extend(layer.map(|layer| Layered { mountpoints: mountpoints(&shields), ..layer }));
        self.shielded.push(Root { folder: folder.to_path_buf(), target, is_layered, shields });
        Ok(())
    }

    /// The git directory, and the files by which it and the folder find each other, with the paths that they have inside.
    fn git(
        &mut self,
        git: &LinkedGit,
        folder: &Path,
        workspace: &str,
        opened: &mut OpenedPaths,
    ) -> Result<(), SandboxError> {
        self.root(&git.common, GIT.into(), None, &git.shields, opened)?;
        let own = if git.own.is_empty() { format!("/{GIT}") } else { format!("/{GIT}/{}", git.own) };
        let dot_git = format!("{}/.git", relative(workspace));
        self.cover(folder.join(".git"), dot_git, DOT_GIT, format!("gitdir: {own}\n"));
        if !git.own.is_empty() {
            let back = format!("{}/gitdir", git.own);
            let place = format!("{GIT}/{back}");
            self.cover(git.common.join(&back), place, GIT_BACK, format!("{workspace}/.git\n"));
        }
        Ok(())
    }

    /// A git directory of the sandbox's own in the place of the host's, and the objects that it borrows. The host's is read-only
    /// wherever else it is seen.
    fn private_git(
        &mut self,
        git: &PrivateGitView,
        folder: &Path,
        workspace: &str,
        opened: &mut OpenedPaths,
    ) -> Result<(), SandboxError> {
        let dot_git = format!("{}/{}", relative(workspace), git.dot_git);
        let target = match &git.kind {
            DotGit::Directory => dot_git,
            DotGit::File { inside, common, .. } => {
                let (parent, name) = (common.parent(), common.file_name().and_then(|name| name.to_str()));
                if let (Some(parent), Some(name)) = (parent, name) {
                    opened.open_source(parent)?;
                    let held = Held { path: name.into(), kind: BindKind::ReadOnly, mountpoint: None };
                    let root = Root {
                        folder: parent.to_path_buf(),
                        target: String::new(),
                        is_layered: false,
                        shields: vec![held],
                    };
                    self.shielded.push(root);
                }
                self.cover(folder.join(&git.dot_git), dot_git, DOT_GIT, format!("gitdir: {inside}\n"));
                relative(inside).to_string()
            }
        };
        let bind = |source: &Path, target: &str, kind: BindKind| Bind {
            source: source.to_path_buf(),
            target: relative(target).to_string(),
            kind,
            origin: BindOrigin::Named,
        };
        self.covers.push(bind(&git.directory, &target, BindKind::ReadWrite));
        for file in &git.covered {
            let target = format!("{}/{}", relative(workspace), file.path);
            self.covers.push(bind(&file.source, &target, BindKind::ReadOnly));
        }
        for borrowed in &git.borrowed {
            self.covers.push(bind(&borrowed.source, &borrowed.inside, BindKind::ReadOnly));
            if borrowed.borrows {
                let list = format!("{}/info/alternates", relative(&borrowed.inside));
                self.cover(borrowed.source.join("info/alternates"), list, NO_ALTERNATES, String::new());
            }
        }
        Ok(())
    }

    /// Shows a file of our own in another's place.
    fn cover(&mut self, source: PathBuf, target: String, file: &'static str, content: String) {
        if self.files.iter().all(|(known, _)| known != file) {
            self.files.push((file.into(), content.into_bytes()));
        }
        self.covers.push(Bind { source, target, kind: BindKind::ReadOnly, origin: BindOrigin::Made(file) });
    }

    /// The mounts that hold what is shielded, wherever `binds` show it. They come after all others.
    pub(super) fn holds(&self, binds: &[Bind]) -> Result<Vec<Bind>, SandboxError> {
        let mut holds: Vec<Bind> = Vec::new();
        for root in &self.shielded {
            for bind in binds.iter().filter(|bind| bind.kind == BindKind::ReadWrite) {
                root.judge(bind)?;
                for hold in root.shields.iter().filter_map(|shield| root.hold(shield, bind)) {
                    if hold.kind == BindKind::Reopened && is_shared_for_reading(&hold.source, binds) {
                        continue;
                    }
                    // A bind's own place is held already.
                    if bind.target != hold.target && holds.iter().all(|known| known.target != hold.target) {
                        holds.push(hold);
                    }
                }
            }
        }
        let is_covered = |hold: &Bind| self.covers.iter().any(|cover| cover.target == hold.target);
        holds.retain(|hold| !is_covered(hold));
        holds.extend(self.covers.iter().cloned());
        Ok(holds)
    }

    /// What has to be made in folders of the host.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let roots = self.shielded.iter().filter(|root| !root.is_layered);
        let missing = roots.map(|root| Missing {
            root: root.folder.clone(),
            mountpoints: mountpoints(&root.shields),
            shields: root.shields.iter().map(|shield| shield.path.clone()).collect(),
        });
        missing.collect()
    }
}

impl Root {
    /// Whether what is shielded can be held where `bind` shows it.
    fn judge(&self, bind: &Bind) -> Result<(), SandboxError> {
        if bind.origin != BindOrigin::Named || bind.source == self.folder && bind.target == self.target {
            return Ok(());
        }
        if self.is_layered && self.folder.starts_with(&bind.source) {
            let message = format!(
                "`{}` is shared for writing, and with it `{}`, which is to stay untouched below its layer",
                bind.source.display(),
                self.folder.display()
            );
            return Err(ErrorCode::RequestConflict.error(message).hint(hint!(
                "share it with {}, or omit {}",
                Term::Ro,
                Term::Overlay
            )));
        }
        for shield in &self.shields {
            let path = self.folder.join(&shield.path);
            let is_part = shield.kind == BindKind::ReadOnly && bind.source.starts_with(&path);
            // The mount point is in the layers, not in the folder itself.
            let has_no_place =
                self.is_layered && shield.mountpoint.is_some() && path.starts_with(&bind.source);
            if is_part || has_no_place {
                let message = format!(
                    "`{}` is shared for writing, and `{}` is protected",
                    bind.source.display(),
                    path.display()
                );
                return Err(ErrorCode::PathRefused
                    .error(message)
                    .hint(hint!("share it with {}, or share another folder", Term::Ro)));
            }
        }
        Ok(())
    }

    /// The mount that holds a shield where `bind` shows it, if it does.
    fn hold(&self, shield: &Held, bind: &Bind) -> Option<Bind> {
        let source = self.folder.join(&shield.path);
        let rest = source.strip_prefix(&bind.source).ok()?;
        let target = Path::new(&bind.target).join(rest).to_str()?.trim_end_matches('/').to_string();
        Some(Bind { source, target, kind: shield.kind, origin: BindOrigin::Held })
    }
}

/// The shields, and every folder on the way to one of them, which must stay where it is; parents first.
fn carried_out(folder: &Path, is_layered: bool, shields: &[Shield]) -> Vec<Held> {
    let anchor = |path: &str| {
        let is_gone = fs::symlink_metadata(folder.join(path))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        let mountpoint = is_gone.then_some(MountpointKind::Directory);
        Held { path: path.into(), kind: BindKind::ReadWrite, mountpoint }
    };
    let mut all: Vec<Held> = Vec::new();
    for Shield { path, what } in shields.iter().filter(|shield| shield.what != Shielded::Watched) {
        let is_read_only = is_read_only(&all, path);
        let held = match what {
            Shielded::Anchored if is_read_only => {
                Held { path: path.clone(), kind: BindKind::Reopened, mountpoint: None }
            }
            // What is read-only as a whole needs nothing more; neither does what no process inside can make.
            _ if is_read_only => continue,
            Shielded::Watched => continue,
            Shielded::MissingDirectory | Shielded::MissingFile(_)
                if !is_layered && cannot_be_made(folder, path) =>
            {
                continue;
            }
            Shielded::Anchored => anchor(path),
            Shielded::Existing | Shielded::Replaced => read_only(path, None),
            Shielded::MissingDirectory => read_only(path, Some(MountpointKind::Directory)),
            Shielded::MissingFile(content) => {
                read_only(path, Some(MountpointKind::File(Bytes(content.as_bytes().to_vec()))))
            }
        };
        for (end, _) in path.match_indices('/') {
            let parent = &path[..end];
            if all.iter().all(|known| known.path != parent) && !self::is_read_only(&all, parent) {
                all.push(anchor(parent));
            }
        }
        match all.iter_mut().find(|known| known.path == *path) {
            Some(known) => *known = held,
            None => all.push(held),
        }
    }
    all
}

/// Whether something that is missing stays so without us: its place is in a folder that we cannot write to, and so no
/// process inside can, since none has more rights than we have. An owner could give themselves the right.
pub(super) fn cannot_be_made(folder: &Path, path: &str) -> bool {
    let place = folder.join(path);
    let Some(parent) = place.ancestors().skip(1).find(|parent| parent.exists()) else { return false };
    match accessat(CWD, parent, Access::WRITE_OK, AtFlags::EACCESS) {
        Err(Errno::ROFS) => true,
        Err(Errno::ACCESS) => fs::metadata(parent).is_ok_and(|found| found.uid() != geteuid().as_raw()),
        _ => false,
    }
}

/// Whether the caller said that nothing here may be changed.
fn is_shared_for_reading(path: &Path, binds: &[Bind]) -> bool {
    let said = |bind: &&Bind| bind.kind == BindKind::ReadOnly && bind.origin == BindOrigin::Named;
    binds.iter().filter(said).any(|bind| path.starts_with(&bind.source))
}

fn read_only(path: &str, mountpoint: Option<MountpointKind>) -> Held {
    Held { path: path.into(), kind: BindKind::ReadOnly, mountpoint }
}

/// Whether something around a path makes it read-only. The last one counts: it lies on top.
fn is_read_only(shields: &[Held], path: &str) -> bool {
    let around =
        shields.iter().rev().find(|known| Path::new(path).starts_with(&known.path) && path != known.path);
    around.is_some_and(|known| known.kind == BindKind::ReadOnly)
}

fn mountpoints(shields: &[Held]) -> Vec<Mountpoint> {
    let mountpoint =
        |shield: &Held| Some(Mountpoint { path: shield.path.clone(), kind: shield.mountpoint.clone()? });
    shields.iter().filter_map(mountpoint).collect()
}

/// A layer that the guest can mount: the kernel wants both of its directories below one mount, and its own list of options
/// has commas and colons in it.
fn layered(
    layer: &Layer,
    folder: &Path,
    target: &str,
    opened: &mut OpenedPaths,
) -> Result<Layered, SandboxError> {
    let unusable = |what: &str| {
        let message = format!("the layer `{}` cannot be used: {what}", layer.upper.display());
        ErrorCode::WorkspaceFailed.error(message)
    };
    let directory = layer.upper.parent().filter(|parent| layer.work.parent() == Some(parent));
    let directory = directory.ok_or_else(|| unusable("its two directories lie apart"))?;
    text(directory)?;
    let name = |path: &Path| {
        let name =
            path.file_name().and_then(|name| name.to_str()).filter(|name| !name.contains([',', ':', '\\']));
        name.map(str::to_string).ok_or_else(|| unusable("of its name"))
    };
    if let Some(mounted) = mounts::first_below(folder) {
        let message = format!(
            "`{mounted}` is mounted inside of `{}`: an overlay shows one filesystem",
            folder.display()
        );
        return Err(ErrorCode::NotSupported
            .error(message)
            .hint(hint!("unmount it, work on a folder without it, or omit {}", Term::Overlay)));
    }
    let (upper, work) = (name(&layer.upper)?, name(&layer.work)?);
    // Belljar's own; a link on the way to it is the host's.
    let directory = walk(directory).real;
    opened.open_source(&directory)?;
    Ok(Layered { target: target.into(), directory, upper, work, mountpoints: Vec::new(), lowers: Vec::new() })
}

/// Where a git directory that lies elsewhere is seen, without the leading slash.
const GIT: &str = "run/belljar/git";
/// The file that names it, and the one in it that names the workspace. In a root that may be written to, this directory may not.
const DOT_GIT: &str = "etc/belljar/dot-git";
const GIT_BACK: &str = "etc/belljar/gitdir";
/// An empty list of object directories.
const NO_ALTERNATES: &str = "etc/belljar/no-alternates";
#[cfg(test)]
mod tests {
    use super::*;

    fn show(view: &View, workspace: &str) -> Result<Shown, SandboxError> {
        super::show(view, workspace, &mut OpenedPaths::default())
    }

    fn shield(path: &str, what: Shielded) -> Shield {
        Shield { path: path.into(), what }
    }

    fn targets(holds: &[Bind]) -> Vec<(&str, BindKind)> {
        holds.iter().map(|hold| (hold.target.as_str(), hold.kind)).collect()
    }

    fn rw(source: &Path, target: &str) -> Bind {
        let (kind, origin) = (BindKind::ReadWrite, BindOrigin::Named);
        Bind { source: source.into(), target: target.into(), kind, origin }
    }

    #[test]
    fn what_is_on_the_way_to_a_shield_is_anchored() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("a")).expect("a folder");
        let shields = [shield("a/b/c", Shielded::MissingFile(".")), shield("h", Shielded::MissingDirectory)];
        let view = View { shields: shields.to_vec(), ..View::plain(folder.path().into()) };
        let shown = show(&view, "/workspace").expect("shown");
        let holds = shown.holds(&shown.binds).expect("held");
        assert_eq!(
            targets(&holds),
            [
                ("workspace/a", BindKind::ReadWrite),
                ("workspace/a/b", BindKind::ReadWrite),
                ("workspace/a/b/c", BindKind::ReadOnly),
                ("workspace/h", BindKind::ReadOnly),
            ]
        );
        let missing = shown.missing();
        let mountpoints: Vec<_> =
            missing[0].mountpoints.iter().map(|mountpoint| mountpoint.path.as_str()).collect();
        assert_eq!(mountpoints, ["a/b", "a/b/c", "h"]);
    }

    #[test]
    fn what_is_anchored_in_something_read_only_can_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("trees/own")).expect("a folder");
        let shields = vec![
            shield("trees", Shielded::Existing),
            shield("trees/own", Shielded::Anchored),
            shield("trees/own/gitdir", Shielded::Existing),
            shield("trees/other/gitdir", Shielded::Existing),
        ];
        let view = View { shields, ..View::plain(folder.path().into()) };
        let shown = show(&view, "/w").expect("shown");
        let expected = [
            ("w/trees", BindKind::ReadOnly),
            ("w/trees/own", BindKind::Reopened),
            ("w/trees/own/gitdir", BindKind::ReadOnly),
        ];
        assert_eq!(targets(&shown.holds(&shown.binds).expect("held")), expected);
        let mut read = rw(folder.path(), "r");
        read.kind = BindKind::ReadOnly;
        let holds = shown.holds(&[shown.binds.clone(), vec![read]].concat()).expect("held");
        assert!(holds.iter().all(|hold| hold.kind != BindKind::Reopened), "the caller said no");
    }

    #[test]
    fn a_shield_holds_wherever_the_folder_is_seen() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("f");
        fs::create_dir_all(folder.join(".git/hooks")).expect("a folder");
        let shields = vec![shield(".git", Shielded::Anchored), shield(".git/hooks", Shielded::Existing)];
        let view = View { shields, ..View::plain(folder.clone()) };
        let shown = show(&view, "/workspace").expect("shown");
        let with = |more: Bind| shown.holds(&[shown.binds.clone(), vec![more]].concat());
        let own = [("workspace/.git", BindKind::ReadWrite), ("workspace/.git/hooks", BindKind::ReadOnly)];
        for (share, seen) in [
            (
                rw(place.path(), "p"),
                vec![("p/f/.git", BindKind::ReadWrite), ("p/f/.git/hooks", BindKind::ReadOnly)],
            ),
            (rw(&folder, "q"), vec![("q/.git", BindKind::ReadWrite), ("q/.git/hooks", BindKind::ReadOnly)]),
            (rw(&folder.join(".git"), "g"), vec![("g/hooks", BindKind::ReadOnly)]),
            (rw(Path::new("/elsewhere"), "e"), vec![]),
        ] {
            let holds = with(share.clone()).expect("held");
            assert_eq!(targets(&holds), [own.to_vec(), seen].concat(), "{share:?}");
        }
        for source in [folder.join(".git/hooks"), folder.join(".git/hooks/pre-commit")] {
            let refused = with(rw(&source, "h")).expect_err("refused");
            assert_eq!(refused.code, ErrorCode::PathRefused, "{source:?}");
        }
    }
}
