//! One call of git.

use super::leash::Leash;
use super::pack_limits::MAX_DATA_BYTES;
use super::reach::Reach;
use super::running::Running;
use super::settings::{ENVIRONMENT, LEASHED_SETTINGS, SETTINGS};
use belljar_spec::egress::Printable;
use belljar_sys::before_exec;
use belljar_sys::orphan::{self, Farewell};
use belljar_sys::rustix::process::Resource;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// One call of git, under construction.
pub struct Call {
    command: Command,
    words: OsString,
    settings: usize,
    limit: u64,
    /// Its time limit, if it is not the default.
    time_limit: Option<Duration>,
    input: Option<Stdio>,
    leash: Option<Leash>,
    /// The directories it may open; `None`: all.
    reach: Option<Reach>,
    /// Resource limits, in addition to those of the leash.
    limits: Vec<(Resource, u64)>,
    /// Whether a cut leash may end it half done.
    ends: Ends,
    /// The signal it gets when we die.
    farewell: Farewell,
}

/// The effect of a cut leash on a running call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    WithLeash,
    ByItself,
}

/// The result of a call.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("there is no git on this machine")]
    Missing,
    #[error("cannot start git: {0}")]
    Start(#[source] std::io::Error),
    #[error("`git {words}` failed: {reason}")]
    Failed { words: String, reason: String },
    #[error("`git {words}` was not done after {seconds} seconds and was ended")]
    TooSlow { words: String, seconds: u64 },
    #[error("`git {words}` printed more than {limit} bytes and was ended")]
    TooMuch { words: String, limit: u64 },
    /// Earlier calls on the leash have used up the processor time.
    #[error(
        "git was not started: this sandbox has used the {seconds} seconds of processor time that git may use for it"
    )]
    Spent { seconds: u64 },
    /// Earlier calls on the leash have used up the time limit.
    #[error("git was not started: the {seconds} seconds that git may take for this are over")]
    Late { seconds: u64 },
    /// The leash has been cut.
    #[error("git was not started: the caller no longer waits for it")]
    Ended,
}

impl Call {
    pub(super) fn new(program: &Path, repository: Option<&Path>, leash: Option<Leash>) -> Call {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process group of its own, so that its children can be ended with it, and a Ctrl-C to us does not reach it.
        command.current_dir("/").process_group(0);
        command.envs(ENVIRONMENT.iter().copied());
        if let Some(repository) = repository {
            command.env("GIT_DIR", repository);
        }
        let call = Call {
            command,
            words: OsString::new(),
            settings: 0,
            limit: MAX_OUTPUT_BYTES,
            time_limit: None,
            input: None,
            leash,
            reach: None,
            limits: Vec::new(),
            ends: Ends::WithLeash,
            farewell: Farewell::Terminate,
        };
        SETTINGS.iter().fold(call, |call, (key, value)| call.config(key, value))
    }

    /// Adds an argument.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Call {
        if !self.words.is_empty() {
            self.words.push(" ");
        }
        self.words.push(word.as_ref());
        self.command.arg(word);
        self
    }

    /// Adds arguments.
    pub fn args<W: AsRef<OsStr>>(self, words: impl IntoIterator<Item = W>) -> Call {
        words.into_iter().fold(self, Call::arg)
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Call {
        self.command.env(name, value);
        self
    }

    /// A setting that overrides the repository's own, and those that every call has. It is passed in the environment, since other
    /// users can list a process's arguments.
    pub fn config(mut self, key: &str, value: impl AsRef<OsStr>) -> Call {
        self.command.env(format!("GIT_CONFIG_KEY_{}", self.settings), key);
        self.command.env(format!("GIT_CONFIG_VALUE_{}", self.settings), value);
        self.settings += 1;
        self.command.env("GIT_CONFIG_COUNT", self.settings.to_string());
        self
    }

    /// The protocols it may use, by git's names: `https`, `file`; without this, none.
    pub fn allow_protocols(self, names: &[&str]) -> Call {
        self.env("GIT_ALLOW_PROTOCOL", names.join(":"))
    }

    /// Runs git as this user: for root, when it writes into another user's repository.
    pub fn as_user(mut self, user: u32, group: u32) -> Call {
        self.command.uid(user).gid(group);
        self
    }

    /// Its working directory. If that has no repository, git does not search the parents for one.
    pub fn in_directory(mut self, directory: &Path) -> Call {
        self.command.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap_or(directory));
        self.command.current_dir(directory);
        self
    }

    /// It is killed when this thread ends, instead of being asked to end: for a git that computes for long without output, and has
    /// nothing to clean up.
    pub fn with_thread(mut self) -> Call {
        self.farewell = Farewell::Kill;
        self
    }

    /// Once it runs, no leash ends it: it makes a change that should not be left half done.
    pub fn to_its_end(mut self) -> Call {
        self.ends = Ends::ByItself;
        self
    }

    /// Restricts it to these directories and the machine's programs, in addition to those set before.
    pub fn reaching(mut self, reach: Reach) -> Call {
        self.reach = Some(match self.reach.take() {
            Some(before) => before.and(reach),
            None => reach,
        });
        self
    }

    /// Its resource limits, set before it runs; its processor time is also limited to what is left on the leash.
    pub fn limited(mut self, limits: impl IntoIterator<Item = (Resource, u64)>) -> Call {
        self.limits.extend(limits);
        self
    }

    /// Its time limit; without this, ten minutes, or thirty if its output is streamed. A leash may leave it less.
    pub fn time_limit(mut self, time_limit: Duration) -> Call {
        self.time_limit = Some(time_limit);
        self
    }

    /// How many bytes it may print; without this, 256 MiB. Not for `spawn`.
    pub fn limit(mut self, bytes: u64) -> Call {
        self.limit = bytes;
        self
    }

    /// Its standard input: the end of another's pipe, a file.
    pub fn input(mut self, input: impl Into<Stdio>) -> Call {
        self.input = Some(input.into());
        self
    }

    /// Starts it; its streams are pipes, except for a given input. It ends with all its children when its time is over, when the
    /// returned value is dropped, and when our process ends in any way; git itself also when this thread ends.
    pub fn spawn(self) -> Result<Running, GitError> {
        let time_limit = self.time_left(STREAM_TIME_LIMIT)?;
        let running = self.start()?;
        running.end_after(time_limit)?;
        Ok(running)
    }

    /// Its time limit if it is started now.
    fn time_left(&self, usual: Duration) -> Result<Duration, GitError> {
        let most = self.time_limit.unwrap_or(usual);
        let left = self.leash.as_ref().map_or(Ok(None), Leash::time_left)?;
        Ok(left.map_or(most, |left| left.min(most)))
    }

    fn start(mut self) -> Result<Running, GitError> {
        self.command.stdin(self.input.take().unwrap_or_else(Stdio::piped));
        if self.leash.as_ref().is_some_and(Leash::is_cut) {
            return Err(GitError::Ended);
        }
        if let (Some(leash), Ends::WithLeash) = (&self.leash, self.ends) {
            leash.refuse_if_spent()?;
            if let Some(entry) = leash.cgroup() {
                before_exec::enter_cgroup(&mut self.command, entry);
            }
            let seconds = leash.seconds_left().map(|left| (Resource::Cpu, left));
            self.limits = at_most(self.limits, seconds.into_iter().chain([(Resource::Data, MAX_DATA_BYTES)]));
            self = LEASHED_SETTINGS.iter().fold(self, |call, (key, value)| call.config(key, value));
        }
        before_exec::set_limits(&mut self.command, self.limits);
        if let Some(reach) = &self.reach
            && let Some(ruleset) =
                reach.ruleset(Path::new(self.command.get_program())).map_err(GitError::Start)?
        {
            before_exec::confine(&mut self.command, Arc::new(ruleset));
        }
        orphan::end_with_thread(&mut self.command, self.farewell);
        let lifeline =
            orphan::end_group_with_us(&mut self.command, self.farewell).map_err(GitError::Start)?;
        let mut running = Running::new(self.command.spawn().map_err(GitError::Start)?, lifeline);
        if let (Some(leash), Ends::WithLeash) = (&self.leash, self.ends) {
            running.tie(leash)?;
        }
        Ok(running)
    }

    /// Runs it with this input, and returns its result, however it ended.
    pub fn run_with(mut self, input: &[u8]) -> Result<Finished, GitError> {
        let (words, limit, time_limit) = (self.printable(), self.limit, self.time_left(DEFAULT_TIME_LIMIT)?);
        if self.input.is_none() && input.is_empty() {
            self.input = Some(Stdio::null());
        }
        let mut running = self.start()?;
        if let Some(mut stdin) = running.stdin.take() {
            let input = input.to_vec();
            // Not joined: a program that does not read its input to the end reports why itself, or is killed.
            std::thread::spawn(move || stdin.write_all(&input));
        }
        running.finish(&words, limit, time_limit)
    }

    /// Runs it, and returns its result, however it ended.
    pub fn run(self) -> Result<Finished, GitError> {
        self.run_with(&[])
    }

    /// Runs it, and returns its output on success.
    pub fn output(self) -> Result<Vec<u8>, GitError> {
        self.output_with(&[])
    }

    /// Runs it with this input, and returns its output on success.
    pub fn output_with(self, input: &[u8]) -> Result<Vec<u8>, GitError> {
        let words = self.printable();
        let finished = self.run_with(input)?;
        match finished.code {
            Some(0) => Ok(finished.stdout),
            _ => Err(GitError::Failed { words, reason: finished.reason() }),
        }
    }

    /// The same, as text without the final newline.
    pub fn line(self) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.output()?).trim_end_matches('\n').to_string())
    }

    /// Its arguments, escaped for a message: they may contain text from an agent.
    fn printable(&self) -> String {
        Printable::new(self.words.as_encoded_bytes()).to_string()
    }
}

impl Finished {
    /// Why it failed, in one printable line: the first line that git marks as fatal or an error, since advice may follow; otherwise
    /// its last line.
    pub fn reason(&self) -> String {
        let text = self.stderr.trim_ascii_end();
        let lines = || text.split(|byte| matches!(byte, b'\n' | b'\r'));
        let marked = |mark: &'static [u8]| lines().find_map(move |line| line.strip_prefix(mark));
        let message = marked(b"fatal: ").or_else(|| marked(b"error: "));
        match message.or_else(|| lines().next_back()).unwrap_or_default() {
            [] => "it said nothing".to_string(),
            words => Printable::new(words).to_string(),
        }
    }
}

/// Arguments for every diff whose repository or worktree may not be ours: attributes name drivers, and drivers name programs.
pub const PLAIN_DIFF: [&str; 4] = ["--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"];

/// These limits, none of them above these others.
fn at_most(
    mut limits: Vec<(Resource, u64)>,
    others: impl IntoIterator<Item = (Resource, u64)>,
) -> Vec<(Resource, u64)> {
    for (resource, most) in others {
        match limits.iter_mut().find(|(limited, _)| *limited == resource) {
            Some((_, value)) => *value = most.min(*value),
            None => limits.push((resource, most)),
        }
    }
    limits
}

/// Far more than any of our lists; larger output is a pack, and streamed.
const MAX_OUTPUT_BYTES: u64 = 256 << 20;
/// The largest repositories are packed in less time.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(600);
/// As long as a push or a fetch may take.
const STREAM_TIME_LIMIT: Duration = Duration::from_secs(30 * 60);
