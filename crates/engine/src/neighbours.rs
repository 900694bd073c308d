//! Sandboxes that live at the same time and share a folder that one of them can write to. Through a socket in it one can hand the other
//! an open connection (SCM_RIGHTS), also where the other only sees the folder, which no filter of system calls can look into: what either may reach, both may reach. It cannot be
//! prevented on a kernel whose Landlock does not know unix sockets by path, so it is recorded by both, and said.
//!
//! ```text
//! S/neighbours/ID        one file for each sandbox, locked while it lives: its folders and its egress
//! S/neighbours/ID.met    who came while it lived, a line each: written by those, recorded by it when it ends
//! ```
//!
//! A repository that another sandbox can write to is no place to start one in: git of the host would work there while an agent changes
//! it ([`writer`]).
//!
//! Another user has another S: sandboxes of two users do not know of each other. Called by the engine.

use belljar_audit::Event;
use belljar_gateway::Recorder;
use belljar_spec::egress::{EgressPolicy, Mode};
use belljar_spec::llm::ModelGlob;
use belljar_spec::secret::CredentialBinding;
use belljar_spec::workspace::{DotGit, PrivateGitView, Shielded, View, WorkspaceMode};
use belljar_spec::{Admin, ErrorCode, Permission, SandboxError, SandboxId, SandboxSpec};
use belljar_state::{Lock, create_private, is_written_to, lock_open_file};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// One sandbox among those of its user. Dropped, it is no longer there.
pub(crate) struct Neighbours {
    warning: Option<String>,
    /// None where it shares no folder, or could not be noted.
    present: Option<Present>,
}

/// The file of a sandbox that lives.
struct Present {
    directory: PathBuf,
    id: SandboxId,
    recorder: Arc<Recorder>,
    /// Its lock says that the sandbox lives.
    _file: File,
}

/// What a sandbox says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Presence {
    /// What it can write to.
    folders: Vec<PathBuf>,
    /// What it sees and cannot write to. Not said by earlier versions of belljar.
    #[serde(default)]
    seen: Vec<PathBuf>,
    /// What it cannot write to in its workspace; not said by an administrator's, and by earlier versions of belljar.
    #[serde(default)]
    read_only: Option<Vec<PathBuf>>,
    /// Git directories of the host that git works in for it.
    #[serde(default)]
    repositories: Vec<PathBuf>,
    egress: String,
}

impl Presence {
    fn of(spec: &SandboxSpec, view: Option<&View>, served: Option<&Path>, egress: String) -> Presence {
        let repositories = view.into_iter().flat_map(repositories).chain(served.map(Path::to_path_buf));
        Presence {
            folders: folders(spec),
            seen: seen(spec),
            // An administrator is the user, who may change anything at any time.
            read_only: (spec.admin == Admin::No).then(|| view.map(read_only).unwrap_or_default()),
            repositories: repositories.collect(),
            egress,
        }
    }

    /// Whether it has nothing that another sandbox could have too.
    fn is_alone(&self) -> bool {
        self.folders.is_empty() && self.seen.is_empty() && self.repositories.is_empty()
    }

    /// The first folder that both have and one of them can write to.
    fn shared<'p>(&'p self, other: &'p Presence) -> Option<&'p Path> {
        let first = |ours: &'p [PathBuf], theirs: &[PathBuf]| ours.iter().find(|one| meets(one, theirs));
        first(&self.folders, &other.folders)
            .or_else(|| first(&self.folders, &other.seen))
            .or_else(|| first(&self.seen, &other.folders))
            .map(PathBuf::as_path)
    }

    fn can_write(&self, path: &Path) -> bool {
        let Some(read_only) = &self.read_only else { return false };
        let is_whole = lies_in(path, &self.folders) && !lies_in(path, read_only);
        is_whole || self.folders.iter().any(|folder| is_part_of_git_directory(folder, path))
    }

    /// A repository of one of the two that the other can write to.
    fn contested<'p>(&'p self, other: &'p Presence) -> Option<&'p Path> {
        let of = |one: &'p Presence, by: &Presence| one.repositories.iter().find(|path| by.can_write(path));
        of(self, other).or_else(|| of(other, self)).map(PathBuf::as_path)
    }
}

/// A line about a sandbox that came.
#[derive(Debug, Serialize, Deserialize)]
struct Met {
    id: String,
    folder: PathBuf,
    egress_differs: bool,
}

impl Neighbours {
    /// Says that this sandbox lives, and records who lives beside it. Where that cannot be, its warning says so: others that come to
    /// the folder will not know of it. `served` is the git directory that it fetches from and pushes to as `host`. Fails where one of them
    /// can write to a repository that git works in for the other.
    pub(crate) fn join(
        state: &Path,
        id: SandboxId,
        spec: &SandboxSpec,
        view: Option<&View>,
        served: Option<&Path>,
        policy: Option<&EgressPolicy>,
        recorder: &Arc<Recorder>,
    ) -> Result<Neighbours, SandboxError> {
        let presence = Presence::of(spec, view, served, egress(policy, spec));
        if presence.is_alone() {
            return Ok(Neighbours { warning: None, present: None });
        }
        let directory = state.join("neighbours");
        match Present::enter(directory.clone(), id, &presence, recorder) {
            Ok((_, Beside { contested: Some((id, path)), .. })) => Err(contested(&id, &path)),
            Ok((present, Beside { differing, .. })) => {
                let warning = (!differing.is_empty()).then(|| {
                    format!(
                        "sandbox {} has a folder of this one and may reach other hosts, models or secrets: each can hand the \
                         other its connections",
                        differing.join(", ")
                    )
                });
                Ok(Neighbours { warning, present: Some(present) })
            }
            Err(error) => {
                let warning = format!(
                    "sandboxes that share a folder with this one will not be told of it: `{}`: {error}",
                    directory.display()
                );
                Ok(Neighbours { warning: Some(warning), present: None })
            }
        }
    }

    /// Records who came so far. Must happen before the record ends; the sandbox is still there for others.
    pub(crate) fn record(&self) {
        self.present.iter().for_each(Present::record_met);
    }

    /// What a person should know before anything runs.
    pub(crate) fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

impl Present {
    /// Records who came since the last time.
    fn record_met(&self) {
        let _turn = Lock::wait_directory(&self.directory);
        let (_, met) = paths(&self.directory, &self.id.to_string());
        for line in fs::read_to_string(&met).unwrap_or_default().lines() {
            if let Ok(met) = serde_json::from_str(line) {
                record(&self.recorder, &met);
            }
        }
        let _ = fs::remove_file(met);
    }

    fn enter(
        directory: PathBuf,
        id: SandboxId,
        presence: &Presence,
        recorder: &Arc<Recorder>,
    ) -> io::Result<(Present, Beside)> {
        create_private(&directory)?;
        // No other sandbox comes or goes until it is dropped.
        let turn = Lock::wait_directory(&directory)?;
        let path = directory.join(id.to_string());
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        if !lock_open_file(&file, Duration::ZERO)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file.write_all(&serde_json::to_vec(presence)?)?;
        let mut beside = Beside::default();
        for other in names(&directory)?.into_iter().filter(|name| *name != id.to_string()) {
            let Some(there) = living(&directory, &other) else { continue };
            if let Some(path) = presence.contested(&there) {
                beside.contested = Some((other.clone(), path.to_path_buf()));
            }
            let Some(folder) = presence.shared(&there) else { continue };
            let folder = folder.to_path_buf();
            let met = Met { id: id.to_string(), folder, egress_differs: there.egress != presence.egress };
            tell(&directory, &other, &met)?;
            if met.egress_differs {
                beside.differing.push(other.clone());
            }
            record(recorder, &Met { id: other, ..met });
        }
        drop(turn);
        Ok((Present { directory, id, recorder: Arc::clone(recorder), _file: file }, beside))
    }
}

/// Who lives beside a sandbox that came.
#[derive(Debug, Default)]
struct Beside {
    /// Those that may reach something else.
    differing: Vec<String>,
    /// One of them, and a repository that one of the two can write to while git works in it for the other.
    contested: Option<(String, PathBuf)>,
}

/// Git of the host would work in a repository while an agent changes it.
pub(crate) fn contested(id: &str, repository: &Path) -> SandboxError {
    let message = format!(
        "sandbox {id} is running in or around `{}`, and one of the two could change that repository while git works in it for the other",
        repository.display()
    );
    ErrorCode::NotSupported.error(message).hint("end that sandbox first")
}

impl Drop for Present {
    fn drop(&mut self) {
        self.record_met();
        let _turn = Lock::wait_directory(&self.directory);
        let (file, met) = paths(&self.directory, &self.id.to_string());
        let _ = fs::remove_file(met);
        let _ = fs::remove_file(file);
    }
}

/// Fails, before anything of a sandbox runs, where it or one that lives can write to a repository that git works in for the other.
/// Of two that start at the same moment one fails when it [joins](Neighbours::join).
pub(crate) fn refuse_contested(
    state: &Path,
    spec: &SandboxSpec,
    view: Option<&View>,
    served: Option<&Path>,
) -> Result<(), SandboxError> {
    let presence = Presence::of(spec, view, served, String::new());
    let directory = state.join("neighbours");
    if presence.is_alone() {
        return Ok(());
    }
    let Ok(_turn) = Lock::wait_directory(&directory) else { return Ok(()) };
    for id in names(&directory).unwrap_or_default() {
        if let Some(there) = living(&directory, &id)
            && let Some(path) = presence.contested(&there)
        {
            return Err(contested(&id, path));
        }
    }
    Ok(())
}

/// A sandbox that lives and can write to this path, by its name.
pub(crate) fn writer(state: &Path, path: &Path) -> Option<String> {
    let directory = state.join("neighbours");
    let _turn = Lock::wait_directory(&directory).ok()?;
    let writes = |id: &String| living(&directory, id).is_some_and(|there| there.can_write(path));
    names(&directory).ok()?.into_iter().find(writes)
}

fn record(recorder: &Recorder, met: &Met) {
    let folder = met.folder.to_string_lossy().as_ref().into();
    let with = met.id.as_str().into();
    // A record that takes no more lines lets no connection out either.
    let _ = recorder.write(&Event::FolderShared { folder, with, egress_differs: met.egress_differs });
}

/// The sandboxes that have a file.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| !name.ends_with(".met")).collect())
}

/// What a sandbox says of itself, if it lives; one that does not is forgotten.
fn living(directory: &Path, id: &str) -> Option<Presence> {
    let (file, met) = paths(directory, id);
    let opened = File::open(&file).ok()?;
    if is_written_to(&opened) {
        return serde_json::from_slice(&fs::read(&file).ok()?).ok();
    }
    let _ = fs::remove_file(met);
    let _ = fs::remove_file(file);
    None
}

fn tell(directory: &Path, id: &str, met: &Met) -> io::Result<()> {
    let (_, path) = paths(directory, id);
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("{}\n", serde_json::to_string(met)?).as_bytes())
}

fn paths(directory: &Path, id: &str) -> (PathBuf, PathBuf) {
    (directory.join(id), directory.join(format!("{id}.met")))
}

/// Whether a path is below one of these folders, also by another path of the same folder: a bind mount.
fn lies_in(path: &Path, folders: &[PathBuf]) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let above: Vec<_> = path.ancestors().filter_map(identity).collect();
    folders.iter().any(|folder| {
        path.starts_with(folder) || identity(folder).is_some_and(|identity| above.contains(&identity))
    })
}

/// Whether this is a part of a git directory that git works with. A bare repository may have worktrees in it beside those.
fn is_part_of_git_directory(path: &Path, git_directory: &Path) -> bool {
    let first = path.strip_prefix(git_directory).ok().and_then(|below| below.components().next());
    first.is_some_and(|first| PARTS.iter().any(|part| first.as_os_str() == *part) || path.is_file())
}

/// Directories of a git directory: gitrepository-layout(5).
const PARTS: [&str; 9] =
    ["hooks", "info", "lfs", "logs", "modules", "objects", "refs", "reftable", "worktrees"];

/// Whether a folder lies in, or holds, one of these.
fn meets(one: &Path, theirs: &[PathBuf]) -> bool {
    lies_in(one, theirs) || theirs.iter().any(|two| lies_in(two, &[one.to_path_buf()]))
}

/// What a sandbox can write to and another one could too.
fn folders(spec: &SandboxSpec) -> Vec<PathBuf> {
    let workspace = spec.workspace.iter().filter(|_| spec.mode == WorkspaceMode::Bind);
    let shared = spec.shared.iter().filter(|shared| shared.permission == Permission::Write);
    let all = workspace
        .chain(shared.map(|shared| &shared.path))
        .chain(spec.volumes.iter().map(|volume| &volume.source))
        .chain(&spec.home);
    real(all)
}

/// What a sandbox sees and cannot write to, where another one could put a socket. A socket below an overlay cannot be connected to.
fn seen(spec: &SandboxSpec) -> Vec<PathBuf> {
    let shared = spec.shared.iter().filter(|shared| shared.permission != Permission::Write);
    real(shared.map(|shared| &shared.path))
}

fn real<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Vec<PathBuf> {
    paths.filter_map(|path| fs::canonicalize(path).ok()).collect()
}

/// Git directories of the host behind those of the sandbox's own.
fn repositories(view: &View) -> Vec<PathBuf> {
    let of = |git: &PrivateGitView| match &git.kind {
        DotGit::Directory => vec![view.folder.join(&git.dot_git)],
        DotGit::File { own, common, .. } => vec![own.clone(), common.clone()],
    };
    view.private_git.iter().flat_map(of).collect()
}

/// What no process inside can write to in the workspace.
fn read_only(view: &View) -> Vec<PathBuf> {
    let is_held = |what: &Shielded| matches!(what, Shielded::Existing | Shielded::Replaced);
    let held = view.shields.iter().filter(|shield| is_held(&shield.what));
    // Its own repositories are held wherever they lie, also in the workspace under another name than `.git`.
    held.map(|shield| view.folder.join(&shield.path)).chain(repositories(view)).collect()
}

/// All that says what can be reached and with which secrets, so that two that say the same are the same text.
fn egress(policy: Option<&EgressPolicy>, spec: &SandboxSpec) -> String {
    let llm = spec.llm.as_ref().map(|route| {
        let key = route.key.as_ref().map(ToString::to_string).unwrap_or_default();
        let models = route.models.iter().map(|list| list.iter().map(ModelGlob::as_str).collect::<Vec<_>>());
        format!(
            "{} key {key} models {:?} budget {}",
            route.upstream,
            models.collect::<Vec<_>>(),
            route.budget
        )
    });
    let mut credentials: Vec<String> = spec
        .credentials
        .iter()
        .map(|credential| {
            let place =
                |place: &CredentialBinding| format!("{}:{} {}", place.host, place.ports, place.requests);
            let bindings: Vec<String> = credential.bindings.iter().map(place).collect();
            format!("{} at {}", credential.source, bindings.join(" "))
        })
        .collect();
    credentials.sort();
    let github = spec.github.as_ref().map(|grant| format!("{grant:?}"));
    format!("{} llm {llm:?} credentials {credentials:?} github {github:?}", hosts(policy))
}

fn hosts(policy: Option<&EgressPolicy>) -> String {
    let Some(policy) = policy.filter(|policy| policy.mode != Mode::None) else { return "none".into() };
    let sorted = |rules: &[belljar_spec::egress::Rule]| {
        let mut texts: Vec<String> = rules.iter().map(|rule| rule.to_string()).collect();
        texts.sort();
        texts.join(" ")
    };
    let private: Vec<String> = policy.private.iter().map(|range| range.to_string()).collect();
    let (allow, deny, inspect) = (sorted(&policy.allow), sorted(&policy.deny), policy.inspect);
    format!("{:?} allow {allow} deny {deny} private {} inspect {inspect}", policy.mode, private.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_audit::Log;
    use belljar_spec::SharedPath;
    use belljar_spec::egress::{PortRange, RequestFilter};
    use belljar_spec::llm::LlmRoute;
    use belljar_spec::secret::{Bodies, Credential, CredentialLocation, Inject, SecretSource};
    use belljar_spec::workspace::Shield;

    struct Sandbox {
        log: PathBuf,
        neighbours: Option<Neighbours>,
        recorder: Arc<Recorder>,
    }

    fn sandbox(state: &Path, number: u8, folder: &Path, allow: &str) -> Sandbox {
        let spec = SandboxSpec { workspace: Some(folder.into()), ..SandboxSpec::default() };
        sandbox_of(state, number, folder, spec, allow)
    }

    fn sandbox_of(state: &Path, number: u8, folder: &Path, spec: SandboxSpec, allow: &str) -> Sandbox {
        let id = SandboxId::from_random([number; 8]);
        let log = Log::create(&state.join("audit"), id).unwrap();
        let path = log.path().to_path_buf();
        let recorder = Arc::new(Recorder::new(Some(log)));
        let policy = EgressPolicy::strict().allow(allow.parse().unwrap());
        let held = Shield { path: "held/.git".to_string(), what: Shielded::Existing };
        let view = View { shields: vec![held], ..View::plain(fs::canonicalize(folder).unwrap()) };
        let neighbours = Neighbours::join(state, id, &spec, Some(&view), None, Some(&policy), &recorder);
        let neighbours = Some(neighbours.unwrap());
        Sandbox { log: path, neighbours, recorder }
    }

    impl Sandbox {
        fn warning(&self) -> Option<String> {
            self.neighbours.as_ref().and_then(Neighbours::warning)
        }

        fn end(mut self) -> String {
            self.neighbours = None;
            self.recorder.end();
            fs::read_to_string(&self.log).unwrap()
        }
    }

    #[test]
    fn sandboxes_that_can_hand_each_other_connections_are_recorded_by_both() {
        let place = tempfile::tempdir().unwrap();
        let (state, folder) = (place.path().join("state"), place.path().join("work"));
        fs::create_dir_all(folder.join("below")).unwrap();
        let first = sandbox(&state, 1, &folder, "a.example");
        assert_eq!(first.warning(), None);
        let second = sandbox(&state, 2, &folder.join("below"), "b.example");
        assert!(second.warning().unwrap().contains("0101010101010101"), "{:?}", second.warning());
        let elsewhere = sandbox(&state, 3, place.path().join("state").as_path(), "c.example");
        assert_eq!(elsewhere.warning(), None);
        let same = sandbox(&state, 4, &folder, "a.example");
        assert!(!same.warning().unwrap().contains("0101010101010101"), "only of another policy");
        let texts = [first.end(), second.end(), elsewhere.end(), same.end()];
        let met = |text: &str, id: &str, differs: bool| {
            text.contains(&format!(r#""with":"{id}","egress_differs":{differs}"#))
        };
        assert!(met(&texts[0], "0202020202020202", true) && met(&texts[0], "0404040404040404", false));
        assert!(met(&texts[1], "0101010101010101", true));
        assert!(!texts[2].contains("folder_shared"), "{}", texts[2]);
        assert!(met(&texts[3], "0101010101010101", false));
        assert_eq!(fs::read_dir(state.join("neighbours")).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_folder_that_one_of_them_only_sees_is_shared_too() {
        let place = tempfile::tempdir().unwrap();
        let (state, folder) = (place.path().join("state"), place.path().join("work"));
        fs::create_dir_all(&folder).unwrap();
        let shown = SharedPath { path: folder.clone(), permission: Permission::Read };
        let spec = SandboxSpec { shared: vec![shown], ..SandboxSpec::default() };
        let first = sandbox_of(&state, 1, &folder, spec.clone(), "a.example");
        let second = sandbox_of(&state, 2, &folder, spec, "b.example");
        assert_eq!(second.warning(), None, "none of them can put a socket there");
        let writer = sandbox(&state, 3, &folder, "c.example");
        let warning = writer.warning().unwrap();
        assert!(warning.contains("0101010101010101") && warning.contains("0202020202020202"), "{warning}");
        assert!(first.end().contains(r#""with":"0303030303030303","egress_differs":true"#));
    }

    #[test]
    fn a_sandbox_is_known_to_write_where_nothing_is_held() {
        let place = tempfile::tempdir().unwrap();
        let (state, folder) = (place.path().join("state"), place.path().join("work"));
        fs::create_dir_all(&folder).unwrap();
        let folder = fs::canonicalize(folder).unwrap();
        let [made, held] = ["made/.git", "held/.git/modules/x"].map(|path| folder.join(path));
        assert_eq!(writer(&state, &made), None);
        let sandbox = sandbox(&state, 1, &folder, "a.example");
        assert_eq!(writer(&state, &made).as_deref(), Some("0101010101010101"));
        assert_eq!(writer(&state, &held), None);
        assert_eq!(writer(&state, &folder.with_file_name("workers")), None);
        sandbox.end();
        assert_eq!(writer(&state, &made), None);
        // A part of a git directory is enough; a worktree that lies in a bare one is none.
        for (id, name, is_part) in [(2, "refs/heads", true), (3, "main", false)] {
            let part = made.join(name);
            fs::create_dir_all(&part).unwrap();
            let sandbox = self::sandbox(&state, id, &part, "a.example");
            assert_eq!(writer(&state, &made).is_some(), is_part, "{name}");
            sandbox.end();
        }
    }

    #[test]
    fn a_model_and_a_secret_are_something_to_hand_over_too() {
        let spec = SandboxSpec::default();
        let with_model = |url: &str, budget: &str| {
            let mut route = LlmRoute::to(url.parse().unwrap());
            route.budget = budget.parse().unwrap();
            SandboxSpec { llm: Some(route), ..spec.clone() }
        };
        let secret = |name: &str| {
            let credential = Credential {
                name: name.parse().unwrap(),
                source: SecretSource::Stored(format!("secret:{name}").parse().unwrap()),
                bindings: vec![CredentialBinding {
                    host: "=x.example.com".parse().unwrap(),
                    ports: PortRange::only(443).unwrap(),
                    requests: RequestFilter::ANY,
                    locations: vec![CredentialLocation::Bearer],
                    inject: Inject::Placeholder,
                }],
                variables: Vec::new(),
                bodies: Bodies::Watched,
            };
            SandboxSpec { credentials: vec![credential], ..spec.clone() }
        };
        let url = "https://api.example.com";
        let all = [
            spec.clone(),
            with_model(url, "calls=5"),
            with_model(url, "calls=6"),
            with_model("https://b.example.com", "calls=5"),
            secret("a"),
            secret("b"),
        ];
        let keys: Vec<String> = all.iter().map(|spec| egress(None, spec)).collect();
        for (number, one) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == one), Some(number), "{one}");
        }
        assert_eq!(egress(None, &secret("a")), keys[4]);
    }

    #[test]
    fn a_sandbox_that_cannot_be_noted_says_so() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("neighbours"), "in the way").unwrap();
        let unnoted = sandbox(place.path(), 6, place.path(), "a.example");
        assert!(unnoted.warning().unwrap().contains("will not be told of it"));
    }

    #[test]
    fn a_sandbox_that_was_killed_is_no_neighbour() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("neighbours");
        fs::create_dir(&directory).unwrap();
        let folders = vec![fs::canonicalize(place.path()).unwrap()];
        let presence = Presence {
            folders,
            seen: Vec::new(),
            read_only: None,
            repositories: Vec::new(),
            egress: "x".into(),
        };
        fs::write(directory.join("0909090909090909"), serde_json::to_vec(&presence).unwrap()).unwrap();
        let after = sandbox(place.path(), 5, place.path(), "a.example");
        assert_eq!(after.warning(), None);
        assert!(!after.end().contains("folder_shared"));
    }
}
