//! A host's repository and a sandbox's git directory for the same folder.

use super::super::{HostGit, ImportMode, ImportReport, Importer, Inflow, Synced};
use crate::foreign::Foreign;
use crate::inert::Git;
use crate::quarantine::{HostRepository, QuarantineError};
use belljar_spec::git::RefPolicy;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(super) struct Pair {
    _guard: Option<tempfile::TempDir>,
    pub(super) place: PathBuf,
    pub(super) host: HostGit,
    pub(super) synced: Synced,
    pub(super) policy: RefPolicy,
    pub(super) mode: ImportMode,
}

pub(super) const ID: &str = "0123456789abcdef";

impl Pair {
    /// A repository with one commit on `main`, and a sandbox's directory for it.
    pub(super) fn new() -> Pair {
        Pair::of(&["-b", "main"], |folder| {
            commit(folder, "README", "first\n");
        })
    }

    /// A repository with other options: arguments for `git init`, and a function to prepare it.
    pub(super) fn of(init: &[&str], make: impl FnOnce(&Path)) -> Pair {
        let guard = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(guard.path()).unwrap();
        let folder = place.join("host");
        fs::create_dir(&folder).unwrap();
        git(&folder, &[], &[&["init", "-q"], init].concat());
        make(&folder);
        let own = folder.join(".git");
        let host = HostGit { top: folder, common: own.clone(), own };
        Pair { _guard: Some(guard), ..Pair::at(&place, host) }
    }

    /// A sandbox's directory beside a repository.
    pub(super) fn at(place: &Path, host: HostGit) -> Pair {
        fs::create_dir(place.join("state")).unwrap();
        let pair = Pair {
            _guard: None,
            place: place.to_path_buf(),
            host,
            synced: Synced {
                head: String::new(),
                refs: BTreeMap::new(),
                before: BTreeMap::new(),
                put: BTreeMap::new(),
                set_aside: BTreeMap::new(),
            },
            policy: RefPolicy::only(vec!["*".parse().unwrap()]),
            mode: ImportMode::Bind,
        };
        pair.with_private()
    }

    /// As the setup of a sandbox makes it: refs, HEAD and index copied, objects borrowed.
    fn with_private(mut self) -> Pair {
        let private = self.private();
        for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
            fs::create_dir_all(private.join(folder)).unwrap();
        }
        let objects = self.host.common.join("objects");
        fs::write(private.join("objects/info/alternates"), format!("{}\n", objects.display())).unwrap();
        let mut config = "[core]\nrepositoryformatversion = 0\nlogAllRefUpdates = true\n".to_string();
        if self.user(&["rev-parse", "--show-object-format"]) == "sha256" {
            config = config.replace("= 0", "= 1") + "[extensions]\nobjectFormat = sha256\n";
        }
        fs::write(private.join("config"), config).unwrap();
        let refs =
            self.user(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags"]);
        fs::write(private.join("packed-refs"), refs.clone() + if refs.is_empty() { "" } else { "\n" })
            .unwrap();
        let head = match run(&self.host.top, &[], &["symbolic-ref", "-q", "HEAD"]) {
            output if output.status.success() => format!("ref: {}", text(&output.stdout)),
            _ => self.user(&["rev-parse", "HEAD"]),
        };
        fs::write(private.join("HEAD"), format!("{head}\n")).unwrap();
        for name in ["index", "shallow"] {
            let from = if name == "index" { &self.host.own } else { &self.host.common };
            if from.join(name).exists() {
                let (from, to) = (from.join(name), private.join(name));
                assert!(Command::new("cp").arg("-p").args([from, to]).status().unwrap().success());
            }
        }
        self.synced.head = head;
        let lines = refs.lines().filter_map(|line| line.split_once(' '));
        self.synced.refs = lines.map(|(id, name)| (name.to_string(), id.parse().unwrap())).collect();
        self
    }

    pub(super) fn private(&self) -> PathBuf {
        self.place.join("private")
    }

    /// git inside, on the same files.
    pub(super) fn agent(&self, words: &[&str]) -> String {
        git(&self.host.top, &self.inside(), words)
    }

    pub(super) fn agent_may_fail(&self, words: &[&str]) -> Output {
        run(&self.host.top, &self.inside(), words)
    }

    fn inside(&self) -> [(&'static str, PathBuf); 2] {
        [("GIT_DIR", self.private()), ("GIT_WORK_TREE", self.host.top.clone())]
    }

    /// git on the host.
    pub(super) fn user(&self, words: &[&str]) -> String {
        git(&self.host.top, &[], words)
    }

    pub(super) fn write(&self, name: &str, content: &str) {
        write(&self.host.top, name, content);
    }

    /// A commit inside.
    pub(super) fn agent_commits(&self, name: &str, content: &str) -> String {
        self.write(name, content);
        self.agent(&["add", name]);
        self.agent(&["commit", "-q", "-m", name]);
        self.agent(&["rev-parse", "HEAD"])
    }

    /// A commit on the host.
    pub(super) fn user_commits(&self, name: &str, content: &str) -> String {
        commit(&self.host.top, name, content)
    }

    pub(super) fn import(&mut self) -> ImportReport {
        self.try_import().unwrap()
    }

    pub(super) fn try_import(&mut self) -> Result<ImportReport, QuarantineError> {
        self.with_importer(|importer, synced| importer.import(synced))
    }

    /// Carries the host's changes into the sandbox.
    pub(super) fn carry_in(&mut self) -> Vec<String> {
        let into = Foreign::open(&self.private()).unwrap();
        let scratch = self.place.join("index.copy");
        Inflow { host: &self.host, into: &into, scratch: &scratch, leash: None }
            .carry_in(&mut self.synced)
            .unwrap()
    }

    pub(super) fn finish(&mut self) -> ImportReport {
        self.with_importer(|importer, synced| importer.finish(synced)).unwrap()
    }

    pub(super) fn repository(&self) -> HostRepository {
        HostRepository::open(&Git::find().unwrap(), &self.host.own).unwrap()
    }

    fn with_importer<T>(&mut self, call: impl FnOnce(&Importer<'_>, &mut Synced) -> T) -> T {
        let from = Foreign::open(&self.private()).unwrap();
        let importer = Importer {
            host: &self.host,
            repository: &self.repository(),
            from: &from,
            id: ID,
            state: &self.place.join("state"),
            policy: &self.policy,
            mode: self.mode,
            protected: &[],
            leash: None,
        };
        call(&importer, &mut self.synced)
    }

    /// `git status` on the host says what it would say if the agent had worked there: the same as inside.
    pub(super) fn assert_same_status(&self) {
        let words = ["status", "--porcelain=v2", "--branch", "--untracked-files=all"];
        assert_eq!(self.user(&words), self.agent(&words));
        self.user(&["fsck", "--strict", "--no-dangling"]);
    }

    /// The commit of a host ref; empty if it does not exist.
    pub(super) fn at_host(&self, name: &str) -> String {
        text(&run(&self.host.top, &[], &["rev-parse", "-q", "--verify", name]).stdout)
    }
}

/// The names that were set aside, as `REF: NAME`, and why.
pub(super) fn aside(report: &ImportReport) -> Vec<(String, String)> {
    let name = |kept: &Option<String>| kept.as_ref().map_or("-", String::as_str).replace(ID, "ID");
    let one = |one: &super::super::SetAside| {
        (format!("{}: {}", one.reference, name(&one.kept_as)), one.reason.clone())
    };
    report.set_aside.iter().map(one).collect()
}

pub(super) fn write(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub(super) fn commit(folder: &Path, name: &str, content: &str) -> String {
    write(folder, name, content);
    git(folder, &[], &["add", name]);
    git(folder, &[], &["commit", "-q", "-m", name]);
    git(folder, &[], &["rev-parse", "HEAD"])
}

pub(super) fn git(folder: &Path, variables: &[(&str, PathBuf)], words: &[&str]) -> String {
    let output = run(folder, variables, words);
    assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    text(&output.stdout)
}

fn run(folder: &Path, variables: &[(&str, PathBuf)], words: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.args(words).current_dir(folder).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    for (name, value) in [
        ("HOME", "/nonexistent"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@b"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@b"),
        ("GIT_EDITOR", "true"),
    ] {
        command.env(name, value);
    }
    command.envs(variables.iter().map(|(name, value)| (name, value))).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_string()
}
