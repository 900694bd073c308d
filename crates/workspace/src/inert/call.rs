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

/// One call of git, being put together.
pub struct Call {
    command: Command,
    words: OsString,
    settings: usize,
    limit: u64,
    /// How long it may take, where that is not the usual.
    time_limit: Option<Duration>,
    input: Option<Stdio>,
    leash: Option<Leash>,
    /// What it may open, where that is not everything.
    reach: Option<Reach>,
    /// Resource limits, beside those of the leash.
    limits: Vec<(Resource, u64)>,
    /// Whether it may be ended in the middle.
    ends: Ends,
    /// What it gets when we die.
    farewell: Farewell,
}

/// What a leash that is cut does to a call that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    WithLeash,
    ByItself,
}

/// What a call gave.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Why there is nothing.
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
    /// All that ran on the leash before has used what there is.
    #[error(
        "git was not started: this sandbox has used the {seconds} seconds of processor time that git may use for it"
    )]
    Spent { seconds: u64 },
    /// All that ran on the leash before has taken the time that there is.
    #[error("git was not started: the {seconds} seconds that git may take for this are over")]
    Late { seconds: u64 },
    /// The leash that it was to be on is cut.
    #[error("git was not started: the caller no longer waits for it")]
    Ended,
}

impl Call {
    pub(super) fn new(program: &Path, repository: Option<&Path>, leash: Option<Leash>) -> Call {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that what git starts can be ended with it, and a Ctrl-C of ours does not reach it.
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

    /// Another word.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Call {
        if !self.words.is_empty() {
            self.words.push(" ");
        }
        self.words.push(word.as_ref());
        self.command.arg(word);
        self
    }

    /// More words.
    pub fn args<W: AsRef<OsStr>>(self, words: impl IntoIterator<Item = W>) -> Call {
        words.into_iter().fold(self, Call::arg)
    }

    /// A variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Call {
        self.command.env(name, value);
        self
    }

    /// A setting that counts before the repository's own, and before those that every call has. It goes through the
    /// environment: what others on this machine can list of a process are its words.
    pub fn config(mut self, key: &str, value: impl AsRef<OsStr>) -> Call {
        self.command.env(format!("GIT_CONFIG_KEY_{}", self.settings), key);
        self.command.env(format!("GIT_CONFIG_VALUE_{}", self.settings), value);
        self.settings += 1;
        self.command.env("GIT_CONFIG_COUNT", self.settings.to_string());
        self
    }

    /// Which protocols it may speak, as git calls them: `https`, `file`; without this, none.
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

    /// It is killed when this thread ends, and not only asked to end as every call is: for what computes long without a word
    /// to us, and has nothing to put in order.
    pub fn with_thread(mut self) -> Call {
        self.farewell = Farewell::Kill;
        self
    }

    /// Once it runs, no leash ends it: it is about to change something that should not be left half done.
    pub fn to_its_end(mut self) -> Call {
        self.ends = Ends::ByItself;
        self
    }

    /// It opens nothing but what is there, and the machine's programs; also what was said before.
    pub fn reaching(mut self, reach: Reach) -> Call {
        self.reach = Some(match self.reach.take() {
            Some(before) => before.and(reach),
            None => reach,
        });
        self
    }

    /// What the kernel lets it use, from its first instruction on; of processor time also no more than is left on the leash.
    pub fn limited(mut self, limits: impl IntoIterator<Item = (Resource, u64)>) -> Call {
        self.limits.extend(limits);
        self
    }

    /// How long it may take; without this, ten minutes, or thirty where its output is streamed. A leash may leave it less.
    pub fn time_limit(mut self, time_limit: Duration) -> Call {
        self.time_limit = Some(time_limit);
        self
    }

    /// How many bytes it may print; without this, 256 MiB. Not for `spawn`.
    pub fn limit(mut self, bytes: u64) -> Call {
        self.limit = bytes;
        self
    }

    /// What it reads: the end of another's pipe, a file.
    pub fn input(mut self, input: impl Into<Stdio>) -> Call {
        self.input = Some(input.into());
        self
    }

    /// Starts it; streams are pipes, but for a given input. It ends with all that it started when its time is over, when what is
    /// returned is dropped, and when the whole process ends, however that ends; git itself also when this thread ends.
    pub fn spawn(self) -> Result<Running, GitError> {
        let time_limit = self.time_left(STREAM_TIME_LIMIT)?;
        let running = self.start()?;
        running.end_after(time_limit)?;
        Ok(running)
    }

    /// How long it may take if it is started now.
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

    /// Runs it with this input, and gives what it gave, however it ended.
    pub fn run_with(mut self, input: &[u8]) -> Result<Finished, GitError> {
        let (words, limit, time_limit) = (self.printable(), self.limit, self.time_left(DEFAULT_TIME_LIMIT)?);
        if self.input.is_none() && input.is_empty() {
            self.input = Some(Stdio::null());
        }
        let mut running = self.start()?;
        if let Some(mut stdin) = running.stdin.take() {
            let input = input.to_vec();
            // Not joined: a program that does not read its input to the end says why itself, or is ended.
            std::thread::spawn(move || stdin.write_all(&input));
        }
        running.finish(&words, limit, time_limit)
    }

    /// Runs it, and gives what it gave, however it ended.
    pub fn run(self) -> Result<Finished, GitError> {
        self.run_with(&[])
    }

    /// Runs it, and gives its output if it went well.
    pub fn output(self) -> Result<Vec<u8>, GitError> {
        self.output_with(&[])
    }

    /// Runs it with this input, and gives its output if it went well.
    pub fn output_with(self, input: &[u8]) -> Result<Vec<u8>, GitError> {
        let words = self.printable();
        let finished = self.run_with(input)?;
        match finished.code {
            Some(0) => Ok(finished.stdout),
            _ => Err(GitError::Failed { words, reason: finished.reason() }),
        }
    }

    /// The same, as text without the last line's end.
    pub fn line(self) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.output()?).trim_end_matches('\n').to_string())
    }

    /// Its words for a message: they may hold what an agent wrote.
    fn printable(&self) -> String {
        Printable::new(self.words.as_encoded_bytes()).to_string()
    }
}

impl Finished {
    /// Why it failed, in one printable line: the first thing that git calls fatal or an error, since advice may follow it;
    /// otherwise its last word.
    pub fn reason(&self) -> String {
        let text = self.stderr.trim_ascii_end();
        let lines = || text.split(|byte| matches!(byte, b'\n' | b'\r'));
        let marked = |mark: &'static [u8]| lines().find_map(move |line| line.strip_prefix(mark));
        let said = marked(b"fatal: ").or_else(|| marked(b"error: "));
        match said.or_else(|| lines().next_back()).unwrap_or_default() {
            [] => "it said nothing".to_string(),
            words => Printable::new(words).to_string(),
        }
    }
}

/// Words for every diff whose repository or worktree is not surely ours: attributes name drivers, and drivers programs.
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

/// Far more than any list of ours; what is bigger is a pack, and streamed.
const MAX_OUTPUT_BYTES: u64 = 256 << 20;
/// The largest repositories are packed in less.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(600);
/// As long as a push or a fetch may take.
const STREAM_TIME_LIMIT: Duration = Duration::from_secs(30 * 60);
