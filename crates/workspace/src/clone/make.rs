//! Cloning: the host does it, before there is a sandbox.

use super::address::{Address, Protocol, Service};
use super::clone_dir::{CloneDir, Label};
use super::{CloneError, Cloned};
use crate::inert::{Git, GitError};
use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use belljar_spec::git::BranchName;
use belljar_spec::workspace::CloneSpec;
use belljar_state::{Lock, remove_whole};
use belljar_vault::Secret;
use std::fs;
use std::path::Path;

/// Clones for a sandbox. If that fails, nothing of it is left, and no sandbox runs: work in a folder that should have been a
/// repository could not be collected.
pub fn make(
    state: &Path,
    id: SandboxId,
    spec: &CloneSpec,
    token: Option<Secret>,
) -> Result<Cloned, CloneError> {
    let git = Git::find()?;
    let address = Address::understand(&spec.url, token)?;
    let own: Option<BranchName> = format!("belljar/{id}").parse().ok();
    let branch = spec.branch.clone().or(own).expect("sixteen digits are a branch's name");
    let place = CloneDir::new(state, id);
    if let Some(label) = place.label()? {
        if let Some(reason) = label.failed {
            // An earlier version let a sandbox work there; its files exist nowhere else.
            if !place.is_untouched() {
                let reason = Printable::from(reason.as_str());
                return Err(CloneError::Worked { url: label.url, reason, folder: place.work() });
            }
            super::remove(state, id)?;
        } else if label.url != address.url {
            let url = Printable::from(address.url.as_str());
            return Err(CloneError::Address {
                url,
                why: "another repository was cloned here, and is worked on",
            });
        } else {
            // It was made before, and may hold work.
            let hold = place.hold()?;
            let branch = label.branch().map_err(|reason| place.damaged(reason))?;
            return Ok(cloned(&place, branch, label, hold));
        }
    }
    let mut label = Label::new(&address.url, &branch);
    let (begun, hold) = place.begin()?;
    let maker = Maker { git: &git, place: &begun, address: &address, spec, branch: &branch };
    let made = maker.make(&mut label).and_then(|()| begun.write_label(&label));
    if let Err(error) = made.and_then(|()| place.finish(&begun)) {
        // Leftovers are swept when the next clone is made.
        let _ = remove_whole(&begun.root);
        return Err(match error {
            CloneError::Git(GitError::Missing | GitError::Start(_))
            | CloneError::NoCommits(_)
            | CloneError::Io { .. } => error,
            error => {
                // The arguments of the call are ours, and longer than a message may be.
                let reason = match &error {
                    CloneError::Git(GitError::Failed { reason, .. }) => reason.clone(),
                    error => error.to_string(),
                };
                let reason = Printable::from(address.scrub(&reason).as_str());
                CloneError::Failed { url: address.url, reason }
            }
        });
    }
    Ok(cloned(&place, branch, label, hold))
}

fn cloned(place: &CloneDir, branch: BranchName, label: Label, hold: Lock) -> Cloned {
    Cloned { folder: place.work(), repository: place.ours(), branch, url: label.url, hold }
}

struct Maker<'a> {
    git: &'a Git,
    place: &'a CloneDir,
    address: &'a Address,
    spec: &'a CloneSpec,
    branch: &'a BranchName,
}

impl Maker<'_> {
    fn make(&self, label: &mut Label) -> Result<(), CloneError> {
        fs::create_dir(self.place.work()).map_err(CloneError::io(&self.place.root))?;
        self.fetch(label)?;
        self.lay_out(label)
    }

    /// Gets the remote's commits into `ours`: its branches as `origin`'s, and with a depth only the one to start from.
    fn fetch(&self, label: &mut Label) -> Result<(), CloneError> {
        let ours = self.place.ours();
        let full = self.branch.full();
        let ask = self.git.anywhere().args(["ls-remote", "--symref"]);
        let ask = self.address.reach(ask, Service::Upload).arg("--");
        let answer = ask.args([&self.address.url, "HEAD", &full]).output()?;
        let remote = Remote::read(&answer, &full);
        label.default = remote.default.as_ref().map(BranchName::to_string);
        let format = if remote.hash_length == 64 { "sha256" } else { "sha1" };
        let init = self.git.anywhere().args(["init", "-q", "--bare", "--template="]);
        init.arg(format!("--object-format={format}")).arg(&ours).output()?;
        let start = if remote.has_branch { Some(self.branch) } else { remote.default.as_ref() };
        let Some(start) = start else { return Err(CloneError::NoCommits(self.address.url.clone())) };
        let fetch = self.git.on(&ours).args(["fetch", "-q", "--no-write-fetch-head", "--no-auto-gc"]);
        let fetch = match self.spec.depth {
            Some(depth) => fetch.arg(format!("--depth={depth}")).arg("--no-tags"),
            None => fetch,
        };
        let fetch = self.address.reach(fetch, Service::Upload).args(["--", &self.address.url]);
        let one = start.as_str();
        let fetch = match self.spec.depth {
            Some(_) => fetch.arg(format!("+refs/heads/{one}:refs/remotes/origin/{one}")),
            None => fetch.args(["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"]),
        };
        fetch.output()?;
        let base = self
            .git
            .on(&ours)
            .args(["rev-parse", &format!("refs/remotes/origin/{one}^{{commit}}")])
            .line()?;
        // So that a push from inside has a branch to update.
        self.git.on(&ours).args(["update-ref", &full, &base]).output()?;
        label.base = Some(base);
        Ok(())
    }

    /// The folder: a separate repository, whose objects are a copy. No sandbox has written to it yet.
    fn lay_out(&self, label: &Label) -> Result<(), CloneError> {
        let (ours, work) = (self.place.ours(), self.place.work());
        let there = work.join(".git");
        let format = self.git.on(&ours).args(["rev-parse", "--show-object-format"]).line()?;
        let init = self.git.anywhere().args(["init", "-q", "--template="]);
        init.arg(format!("--object-format={format}")).arg(&work).output()?;
        copy_objects(&ours.join("objects"), &there.join("objects"))?;
        let write = |path: &str, content: &[u8]| {
            let path = there.join(path);
            let parent = path.parent().unwrap_or(&there);
            fs::create_dir_all(parent).map_err(CloneError::io(parent))?;
            fs::write(&path, content).map_err(CloneError::io(&path))
        };
        write("config", self.config(&format).as_bytes())?;
        write("HEAD", format!("ref: {}\n", self.branch.full()).as_bytes())?;
        // The sandbox must not create these; they exist so that they can be protected by a mount.
        write("commondir", b".")?;
        write("config.worktree", b"")?;
        write("info/attributes", b"")?;
        write("objects/info/alternates", b"")?;
        for folder in [there.join("hooks"), work.join(".husky"), work.join(".belljar")] {
            fs::create_dir_all(&folder).map_err(CloneError::io(&folder))?;
        }
        if let Ok(shallow) = fs::read(ours.join("shallow")) {
            write("shallow", &shallow)?;
        }
        let refs = self.git.on(&ours).args(["for-each-ref", "--format=%(objectname) %(refname)"]).output()?;
        write("packed-refs", &[b"# pack-refs with: sorted \n", refs.as_slice()].concat())?;
        if let Some(base) = &label.base {
            let files =
                self.git.on(&ours).env("GIT_INDEX_FILE", there.join("index")).env("GIT_WORK_TREE", &work);
            let files = files.in_directory(&work).config("checkout.workers", "0");
            files.args(["read-tree", "--reset", "-u", base]).output()?;
        }
        Ok(())
    }

    fn config(&self, format: &str) -> String {
        let (version, extensions) = match format {
            "sha256" => (1, "[extensions]\n\tobjectFormat = sha256\n"),
            _ => (0, ""),
        };
        let branch = self.branch.as_str().replace('"', "\\\"");
        // The sandbox must not learn the path on this machine that it was cloned from.
        let origin = match self.address.protocol {
            Protocol::File => String::new(),
            _ => format!(
                "[remote \"origin\"]\n\turl = \"{}\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
                self.address.url.replace('\\', "\\\\").replace('"', "\\\"")
            ),
        };
        format!(
            "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n\tlogAllRefUpdates = true\n\
             {extensions}{origin}\
             [remote \"host\"]\n\turl = git://127.0.0.1:9418/repo\n\tfetch = +refs/heads/*:refs/remotes/host/*\n\
             [remote]\n\tpushDefault = host\n\
             [branch \"{branch}\"]\n\tremote = host\n\tmerge = refs/heads/{branch}\n\
             [push]\n\tdefault = current\n\
             # Tracking would be written here, where nothing can be written: without it, making a branch works.\n\
             [branch]\n\tautoSetupMerge = false\n"
        )
    }
}

/// A remote's answer to `ls-remote`.
struct Remote {
    default: Option<BranchName>,
    has_branch: bool,
    hash_length: usize,
}

impl Remote {
    /// Lines `ref: refs/heads/main<TAB>HEAD`, and one `HASH<TAB>NAME` per ref.
    fn read(answer: &[u8], full: &str) -> Remote {
        let answer = String::from_utf8_lossy(answer);
        let mut remote = Remote { default: None, has_branch: false, hash_length: 40 };
        for (value, name) in answer.lines().filter_map(|line| line.split_once('\t')) {
            match value.strip_prefix("ref: ") {
                Some(target) if name == "HEAD" => remote.default = BranchName::of_ref(target),
                Some(_) => {}
                None => {
                    remote.has_branch |= name == full;
                    remote.hash_length = value.len();
                }
            }
        }
        remote
    }
}

/// Copies, not hard links: the sandbox could write to a shared file.
fn copy_objects(from: &Path, to: &Path) -> Result<(), CloneError> {
    for entry in fs::read_dir(from).map_err(CloneError::io(from))? {
        let entry = entry.map_err(CloneError::io(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(CloneError::io(&source))?.is_dir() {
            fs::create_dir_all(&target).map_err(CloneError::io(&target))?;
            copy_objects(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(CloneError::io(&source))?;
        }
    }
    Ok(())
}
