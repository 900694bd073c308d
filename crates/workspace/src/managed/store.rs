//! The two repositories of a managed clone, and how the host's commits get into them.
//!
//! `repo` is what agents write to. It is complete before any agent sees it; after that git never runs on it: new objects come as a
//! pack made elsewhere, new refs as single files. Its objects are a copy. Hard links to the host's objects would share those files
//! with the agent (it is the same user, and can change mode `r--`), and the host's objects as alternates would have to be visible
//! inside, including all that no branch refers to any more.
//!
//! `ours` is where we run git: its config is ours, and it has the host's objects as alternates.

use super::host::{HostWorktree, Tip};
use super::managed_dir::ManagedCloneDir;
use super::{ManagedCloneError, spoiled};
use crate::foreign::{Foreign, ForeignError};
use crate::inert::Git;
use belljar_state::{Survives, write_atomic};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Makes both repositories if they are missing, and brings the host's branches and tags up to date.
pub(super) fn bring_up_to_date(
    git: &Git,
    place: &ManagedCloneDir,
    host: &HostWorktree,
) -> Result<(), ManagedCloneError> {
    make_ours(git, place, host)?;
    let tips = host.tips(git)?;
    if !place.repo().join("HEAD").exists() {
        make_repo(git, place, host, &tips)?;
        return write_seen(place, &tips);
    }
    let seen = Tip::read(&fs::read(place.seen()).unwrap_or_default());
    if seen != tips {
        bring_objects(git, place, host, &tips, &seen)?;
        bring_refs(place, host, &tips, &seen)?;
        write_seen(place, &tips)?;
    }
    Ok(())
}

/// Whether the host still has one of the commits that the managed clone last saw there, or the managed clone is still empty. If
/// there was no commit yet: whether the host's git directory is older than the managed clone, since a repository that took its
/// place later is newer.
pub(super) fn is_related(
    git: &Git,
    place: &ManagedCloneDir,
    host: &HostWorktree,
) -> Result<bool, ManagedCloneError> {
    let seen = match fs::read(place.seen()) {
        Ok(seen) => Tip::read(&seen),
        Err(error) if error.kind() == ErrorKind::NotFound && !place.repo().exists() => return Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(ManagedCloneError::io(&place.seen())(error)),
    };
    if seen.is_empty() {
        let made = fs::metadata(&host.common).and_then(|found| found.created());
        let labelled = place.labelled();
        return Ok(made.is_ok_and(|made| labelled.is_some_and(|labelled| made < labelled)));
    }
    let input: String = seen.iter().take(MAX_HASHES).map(|tip| format!("{}\n", tip.hash)).collect();
    let check = git.on(&host.common).args(["cat-file", "--batch-check=%(objecttype)"]);
    let lines = check.output_with(input.as_bytes())?;
    let is_commit = |line: &[u8]| matches!(line, b"commit" | b"tag");
    Ok(lines.split(|byte| *byte == b'\n').any(is_commit))
}

fn make_ours(git: &Git, place: &ManagedCloneDir, host: &HostWorktree) -> Result<(), ManagedCloneError> {
    let ours = place.ours();
    if !ours.join("HEAD").exists() {
        let format = git.on(&host.common).args(["rev-parse", "--show-object-format"]).line()?;
        let unfinished = place.fresh("ours");
        let init = git.anywhere().args(["init", "-q", "--bare", "--template="]);
        init.arg(format!("--object-format={format}")).arg(&unfinished).output()?;
        let info = unfinished.join("objects/info");
        fs::create_dir_all(&info).map_err(ManagedCloneError::io(&info))?;
        // One path per line; an absolute path cannot be mistaken for a quoted one or a comment.
        let objects = host.common.join("objects");
        let alternates = [objects.as_os_str().as_encoded_bytes(), b"\n"].concat();
        fs::write(info.join("alternates"), alternates).map_err(ManagedCloneError::io(&info))?;
        fs::rename(&unfinished, &ours).map_err(ManagedCloneError::io(&ours))?;
    }
    // Our history ends where the host's does.
    let shallow = ours.join("shallow");
    match fs::read(host.common.join("shallow")) {
        Ok(content) => {
            write_atomic(&shallow, &content, Survives::Kill).map_err(ManagedCloneError::io(&shallow))
        }
        Err(_) => remove_file(&shallow),
    }
}

fn make_repo(
    git: &Git,
    place: &ManagedCloneDir,
    host: &HostWorktree,
    tips: &[Tip],
) -> Result<(), ManagedCloneError> {
    let unfinished = place.fresh("repo");
    let format = git.on(&place.ours()).args(["rev-parse", "--show-object-format"]).line()?;
    let init = git.anywhere().args(["init", "-q", "--bare", "--template="]);
    init.arg(format!("--object-format={format}")).arg(&unfinished).output()?;
    let write = |path: &str, content: &[u8]| {
        let path = unfinished.join(path);
        let parent = path.parent().unwrap_or(&unfinished);
        fs::create_dir_all(parent).map_err(ManagedCloneError::io(parent))?;
        fs::write(&path, content).map_err(ManagedCloneError::io(&path))
    };
    let sha256 = format == "sha256";
    write("config", config(sha256).as_bytes())?;
    // There is no worktree here, but git before 2.49 assumes one that has this branch: so it is a branch that no sandbox uses.
    write("HEAD", b"ref: refs/heads/no-branch-of-a-managed-clone\n")?;
    write("config.worktree", b"[core]\n\tbare = true\n")?;
    // The sandbox must not create these; they exist so that they can be protected by a mount.
    write("commondir", b".")?;
    write("info/attributes", b"")?;
    write("objects/info/alternates", b"")?;
    for folder in ["hooks", "worktrees"] {
        fs::create_dir_all(unfinished.join(folder)).map_err(ManagedCloneError::io(&unfinished))?;
    }
    if let Ok(shallow) = fs::read(place.ours().join("shallow")) {
        write("shallow", &shallow)?;
    }
    pack(git, place, host, tips, &[], &unfinished.join("objects/pack/pack"))?;
    // One file for all refs, however many; its header promises git that they are sorted.
    let mut lines: Vec<String> =
        tips.iter().map(|tip| format!("{} {}\n", tip.name_in_managed(), tip.hash)).collect();
    lines.sort();
    let lines = lines.iter().filter_map(|line| line.trim_end().rsplit_once(' '));
    let packed: String = lines.map(|(name, hash)| format!("{hash} {name}\n")).collect();
    write("packed-refs", format!("# pack-refs with: sorted \n{packed}").as_bytes())?;
    fs::rename(&unfinished, place.repo()).map_err(ManagedCloneError::io(&unfinished))
}

/// Packs the objects of some commits that others lack; returns the pack's name, if there are any.
fn pack(
    git: &Git,
    place: &ManagedCloneDir,
    host: &HostWorktree,
    needed: &[Tip],
    known: &[Tip],
    to: &Path,
) -> Result<Option<String>, ManagedCloneError> {
    // With a detached HEAD on the host, its commit is needed too.
    let detached = host.checkout(git)?.commit.map(|hash| hash.to_string());
    let needed = needed.iter().map(|tip| tip.hash.to_string()).chain(detached);
    // Commits that the host has dropped since cannot be walked, and need not be.
    let known: HashSet<String> = known.iter().map(|tip| tip.hash.to_string()).collect();
    let known = existing(git, place, known)?;
    let needed: HashSet<String> = needed.filter(|hash| !known.contains(hash)).collect();
    if needed.is_empty() {
        return Ok(None);
    }
    let mut input: String = needed.iter().map(|hash| format!("{hash}\n")).collect();
    input.extend(known.iter().map(|hash| format!("^{hash}\n")));
    // Existing deltas are kept; searching for more would take longer than all the rest.
    let call =
        git.on(&place.ours()).args(["pack-objects", "--revs", "-q", "--delta-base-offset", "--window=0"]);
    let name = call.arg(to).output_with(input.as_bytes())?;
    Ok(Some(String::from_utf8_lossy(&name).trim_end().to_string()))
}

fn existing(
    git: &Git,
    place: &ManagedCloneDir,
    hashes: HashSet<String>,
) -> Result<HashSet<String>, ManagedCloneError> {
    let input: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    let check = git.on(&place.ours()).args(["cat-file", "--batch-check=%(objectname) %(objecttype)"]);
    let lines = check.output_with(input.as_bytes())?;
    let lines = String::from_utf8_lossy(&lines);
    let there = lines.lines().filter(|line| !line.ends_with(" missing"));
    Ok(there.filter_map(|line| Some(line.split_once(' ')?.0.to_string())).collect())
}

fn bring_objects(
    git: &Git,
    place: &ManagedCloneDir,
    host: &HostWorktree,
    tips: &[Tip],
    seen: &[Tip],
) -> Result<(), ManagedCloneError> {
    let scratch = place.fresh("scratch");
    fs::create_dir_all(&scratch).map_err(ManagedCloneError::io(&scratch))?;
    if let Some(name) = pack(git, place, host, tips, seen, &scratch.join("pack"))? {
        let repo = Foreign::open(&place.repo()).map_err(spoiled(host))?;
        // The index comes last: git looks for indexes, and then for their packs.
        for end in ["pack", "idx"] {
            let from = scratch.join(format!("pack-{name}.{end}"));
            repo.take_file(&from, &format!("objects/pack/pack-{name}.{end}")).map_err(spoiled(host))?;
        }
    }
    Ok(())
}

fn bring_refs(
    place: &ManagedCloneDir,
    host: &HostWorktree,
    tips: &[Tip],
    seen: &[Tip],
) -> Result<(), ManagedCloneError> {
    let repo = Foreign::open(&place.repo()).map_err(spoiled(host))?;
    if let Ok(shallow) = fs::read(place.ours().join("shallow")) {
        repo.write("shallow", &shallow).map_err(spoiled(host))?;
    }
    let seen: HashSet<(&str, &str)> = seen.iter().map(|tip| (tip.name.as_str(), tip.hash.as_str())).collect();
    for tip in tips.iter().filter(|tip| !seen.contains(&(tip.name.as_str(), tip.hash.as_str()))) {
        match repo.write(&tip.name_in_managed(), format!("{}\n", tip.hash).as_bytes()) {
            // A sandbox is writing this ref, or made another file of that name: it can fetch the host's ref itself.
            Ok(()) | Err(ForeignError::Spoiled { .. } | ForeignError::Io { .. }) => {}
            Err(error) => return Err(spoiled(host)(error)),
        }
    }
    Ok(())
}

fn write_seen(place: &ManagedCloneDir, tips: &[Tip]) -> Result<(), ManagedCloneError> {
    let lines: String = tips.iter().map(|tip| format!("{} {}\n", tip.hash, tip.name)).collect();
    let path = place.seen();
    write_atomic(&path, lines.as_bytes(), Survives::Kill).map_err(ManagedCloneError::io(&path))
}

/// The config of a managed clone: the same for all branches, so that it never changes while a sandbox works there; settings of a
/// branch are in its worktree's config.
fn config(sha256: bool) -> String {
    let format = if sha256 { "\tobjectFormat = sha256\n" } else { "" };
    format!(
        "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tlogAllRefUpdates = true\n\
         [extensions]\n{format}\tworktreeConfig = true\n\
         [remote \"host\"]\n\turl = {HOST_URL}\n\tfetch = +refs/heads/*:refs/remotes/host/*\n\
         [remote]\n\tpushDefault = host\n\
         [push]\n\tdefault = current\n\
         # Tracking would be written here, where nothing can be written: without it, making a branch works.\n\
         [branch]\n\tautoSetupMerge = false\n\
         # Worktrees of other branches look gone from inside.\n\
         [gc]\n\tworktreePruneExpire = never\n"
    )
}

pub(super) fn remove(directory: &Path) -> Result<(), ManagedCloneError> {
    belljar_sys::remove_tree::remove(directory).map_err(ManagedCloneError::io(directory))
}

fn remove_file(path: &Path) -> Result<(), ManagedCloneError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(ManagedCloneError::io(path)(error)),
        _ => Ok(()),
    }
}

/// One is enough; old branches may be gone.
const MAX_HASHES: usize = 10_000;
/// The relay's address inside the sandbox.
const HOST_URL: &str = "git://127.0.0.1:9418/repo";
