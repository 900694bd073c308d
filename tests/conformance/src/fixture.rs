//! A sandbox with a workspace of its own, both gone when it is dropped.

use crate::service::{service, workspace_with};
use crate::{shared, shares_folders};
use belljar_engine::{Engine, ExecResult, Sandbox};
use belljar_gateway::FetchError;
use belljar_spec::{BackendChoice, BackendName, Command, Reason, SandboxError, SandboxSpec};
use std::error::Error;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A sandbox and the folder it works on.
pub struct SandboxFixture {
    /// Until it is taken apart.
    parts: Option<Parts>,
    /// Whether it has all the defaults, and another check may have it next.
    is_plain: bool,
}

/// See [`SandboxFixture`].
pub(crate) struct Parts {
    // Dropped in this order.
    pub(crate) sandbox: Sandbox,
    pub(crate) folder: TempDir,
    /// Where the workspace is, if not in the folder.
    pub(crate) elsewhere: Option<PathBuf>,
}

impl SandboxFixture {
    /// With all the defaults. In a test of several checks it may be the sandbox of the check before.
    pub async fn new(backend: BackendName) -> SandboxFixture {
        if let Some(parts) = shared::take() {
            return SandboxFixture { parts: Some(parts), is_plain: true };
        }
        let mut fixture = SandboxFixture::with(backend, |_| {}).await;
        fixture.is_plain = true;
        fixture
    }

    /// With some of its specification changed.
    pub async fn with(backend: BackendName, change: impl FnOnce(&mut SandboxSpec)) -> SandboxFixture {
        match SandboxFixture::try_with(backend, change).await {
            Ok(fixture) => fixture,
            Err(error) => panic!("no sandbox: {error} ({})", error.code),
        }
    }

    /// The same, where it may be refused.
    pub async fn try_with(
        backend: BackendName,
        change: impl FnOnce(&mut SandboxSpec),
    ) -> Result<SandboxFixture, SandboxError> {
        SandboxFixture::made_by(&Engine::new(), backend, change).await
    }

    /// The same, by an engine of the test's own.
    pub async fn made_by(
        engine: &Engine,
        backend: BackendName,
        change: impl FnOnce(&mut SandboxSpec),
    ) -> Result<SandboxFixture, SandboxError> {
        let folder = TempDir::new().expect("there is room for a workspace");
        let mut spec = SandboxSpec { workspace: Some(folder.path().into()), ..spec(backend) };
        if !shares_folders(backend) {
            spec.workspace = None;
        }
        change(&mut spec);
        let engine = match service() {
            Some(service) => &engine.clone().with_service(service),
            None => engine,
        };
        let sandbox = engine.create(spec).await?;
        let elsewhere =
            if shares_folders(backend) { None } else { Some(workspace_of(&sandbox, folder.path()).await) };
        Ok(SandboxFixture { parts: Some(Parts { sandbox, folder, elsewhere }), is_plain: false })
    }

    /// The sandbox, to be dropped by itself; the workspace stays until the second value goes.
    pub fn into_parts(mut self) -> (Sandbox, TempDir) {
        let parts = self.parts.take().expect(WHOLE);
        (parts.sandbox, parts.folder)
    }

    fn folder(&self) -> &Path {
        let parts = self.parts.as_ref().expect(WHOLE);
        parts.elsewhere.as_deref().unwrap_or(parts.folder.path())
    }

    /// The workspace, on the host.
    pub fn on_host(&self) -> &Path {
        self.folder()
    }

    /// Something in the workspace, on the host.
    pub fn host(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Something in the workspace, as an absolute path inside.
    pub fn inside(&self, name: &str) -> String {
        format!("{}/{name}", self.workspace())
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: &Command) -> ExecResult {
        match self.exec(command).await {
            Ok(result) => result,
            Err(error) => panic!("{:?}: {error} ({})", command.argv(), error.code),
        }
    }

    /// Runs a shell script to its end.
    pub async fn sh(&self, script: &str) -> ExecResult {
        self.run(&sh(script)).await
    }

    /// What a shell script wrote, without the end of its last line; it must succeed.
    pub async fn answer(&self, script: &str) -> String {
        let result = self.sh(script).await;
        assert_eq!(result.exit_code, Some(0), "{script}: {}", text(&result.stderr));
        text(&result.stdout).trim_end_matches('\n').to_string()
    }
}

impl Deref for SandboxFixture {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.parts.as_ref().expect(WHOLE).sandbox
    }
}

impl Drop for SandboxFixture {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take().filter(|_| self.is_plain) {
            shared::give_back(parts);
        }
    }
}

/// Where the workspace of a sandbox elsewhere is on this machine: it gets a file that no other has.
async fn workspace_of(sandbox: &Sandbox, unique: &Path) -> PathBuf {
    let name = unique.file_name().expect("a folder has a name").to_string_lossy().into_owned();
    sandbox.write_file(&name, b"").await.expect("a file can be written");
    let found = workspace_with(&name).expect("the service keeps its workspaces here");
    sandbox.remove(&name, false).await.expect("a file can be removed");
    found
}

/// A specification with nothing but its backend.
pub fn spec(backend: BackendName) -> SandboxSpec {
    SandboxSpec { backend: BackendChoice::Named(backend), ..SandboxSpec::default() }
}

/// Whether the sandbox has a root and private files of its own.
pub fn is_isolated(backend: BackendName) -> bool {
    match backend {
        BackendName::Native | BackendName::Bwrap | BackendName::Docker(_) => true,
        // The service isolates as `native` does: it is belljar's own.
        BackendName::E2b => true,
        BackendName::Landlock | BackendName::Container | BackendName::Host => false,
    }
}

/// A command that may take long enough for any machine, and not for ever.
pub fn command<const N: usize>(argv: [&str; N]) -> Command {
    let mut command = Command::new(argv).expect("the command has words");
    command.timeout = Some(Duration::from_secs(60));
    command
}

/// A shell script.
pub fn sh(script: &str) -> Command {
    command(["sh", "-c", script])
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Everything in a folder belongs to who owns the folder, as it does where people work.
pub fn as_owner(folder: &Path) {
    let owner = std::fs::metadata(folder).expect("a folder");
    use std::os::unix::fs::MetadataExt;
    let (user, group) = (owner.uid(), owner.gid());
    if crate::is_root() {
        let done = std::process::Command::new("chown")
            .arg("-R")
            .arg(format!("{user}:{group}"))
            .arg(folder)
            .status()
            .expect("chown");
        assert!(done.success());
    }
}

/// Why the egress policy refused a fetch, if it did.
pub fn refused_for(error: &SandboxError) -> Option<Reason> {
    match error.source()?.downcast_ref()? {
        FetchError::Refused(refusal) => Some(refusal.reason),
        FetchError::Invalid(_) | FetchError::Failed(_) => None,
    }
}

/// A place is taken apart by value only.
const WHOLE: &str = "a place has its sandbox";
