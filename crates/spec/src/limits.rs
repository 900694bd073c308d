//! What a sandbox may use. Every limit has a default; docs/limits.md is the table for people.

use crate::{ByteSize, Cpus, LimitsRequest};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What was understood: every limit with its value and where that came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// All processes of the sandbox together, its private files included.
    pub memory: Limit<ByteSize>,
    /// Processor time per second, all processes together.
    pub cpus: Limit<Cpus>,
    /// Processes and threads.
    pub pids: Limit<u32>,
    /// Open files, per process.
    pub open_files: Limit<u64>,
    /// Bytes in the private filesystem: home, temporary files, shared memory.
    pub disk: Limit<ByteSize>,
    /// How long one command may run.
    pub wall_time: Limit<Duration>,
    /// Bytes of one output stream of one command.
    pub output: Limit<ByteSize>,
    /// How long the sandbox itself may take until commands can run in it.
    pub ready: Limit<Duration>,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit<T> {
    pub value: T,
    pub origin: Origin,
}

/// Where a limit's value came from: what was asked for is enforced or refused, never dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A default: enforced as well as this machine can.
    Default,
    /// The caller asked for it.
    Requested,
}

/// What defaults depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    pub memory: ByteSize,
    pub cpus: u32,
}

impl Limits {
    /// Fills in the defaults.
    pub fn understand(requested: &LimitsRequest, machine: Machine) -> Limits {
        let half = ByteSize::bytes(machine.memory.as_u64() / 2);
        let memory = limit(requested.memory, half);
        Limits {
            memory,
            cpus: limit(requested.cpus, Cpus::whole(machine.cpus)),
            // More than the kernel can count is as many as there can be.
            pids: limit(requested.pids.map(|pids| pids.min(MAX_PIDS)), DEFAULT_PIDS),
            open_files: limit(requested.open_files, DEFAULT_OPEN_FILES),
            // Private files live in memory: never more of them than half of it.
            disk: limit(requested.disk, DEFAULT_DISK.min(ByteSize::bytes(memory.value.as_u64() / 2))),
            wall_time: limit(requested.timeout, DEFAULT_WALL_TIME),
            output: limit(requested.output, DEFAULT_OUTPUT),
            ready: limit(requested.ready, Limits::DEFAULT_READY),
        }
    }

    /// How long a command of the sandbox's own holder may run: as long as the holder asks for.
    pub fn time_for(&self, requested: Option<Duration>) -> Duration {
        requested.unwrap_or(self.wall_time.value).min(FOR_EVER)
    }

    /// How long a command of another caller may run: no longer than the sandbox was made for, if that was said.
    pub fn time_within(&self, requested: Option<Duration>) -> Duration {
        match (requested, self.wall_time.origin) {
            (Some(requested), Origin::Requested) => requested.min(self.wall_time.value).min(FOR_EVER),
            (requested, _) => self.time_for(requested),
        }
    }

    /// A thousand times what a start takes; less than a person waits before they ask what is wrong.
    pub const DEFAULT_READY: Duration = Duration::from_secs(15);
}

fn limit<T>(requested: Option<T>, default: T) -> Limit<T> {
    match requested {
        Some(value) => Limit { value, origin: Origin::Requested },
        None => Limit { value: default, origin: Origin::Default },
    }
}

/// The limit that a command ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitHit {
    /// Wall time: the command and its tree were killed.
    Timeout,
    /// Memory: the kernel killed a process of the sandbox.
    OomKilled,
    /// Processes: a fork was refused.
    PidsExhausted,
    /// Private files: a write was refused.
    DiskFull,
    /// Output: what came after was dropped.
    OutputTruncated,
}

impl LimitHit {
    /// As it stands in results.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitHit::Timeout => "timeout",
            LimitHit::OomKilled => "oom_killed",
            LimitHit::PidsExhausted => "pids_exhausted",
            LimitHit::DiskFull => "disk_full",
            LimitHit::OutputTruncated => "output_truncated",
        }
    }

    /// The limit of this name.
    pub fn named(name: &str) -> Option<LimitHit> {
        LimitHit::ALL.into_iter().find(|limit| limit.as_str() == name)
    }

    /// Every limit that a command can reach.
    pub const ALL: [LimitHit; 5] = [
        LimitHit::Timeout,
        LimitHit::OomKilled,
        LimitHit::PidsExhausted,
        LimitHit::DiskFull,
        LimitHit::OutputTruncated,
    ];
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Enough for a parallel build, too few for a fork bomb to hurt.
const DEFAULT_PIDS: u32 = 4096;
/// PID_MAX_LIMIT, linux/threads.h: a cgroup takes no larger number.
const MAX_PIDS: u32 = 4 << 20;
/// What build tools and servers expect; the machine's own hard limit may be lower.
const DEFAULT_OPEN_FILES: u64 = 65_536;
/// Caches and temporary files of a build.
const DEFAULT_DISK: ByteSize = ByteSize::mebibytes(4096);
/// Longer than any command that a person waits for.
const DEFAULT_WALL_TIME: Duration = Duration::from_secs(3600);
/// Longer than any caller waits, and still a time that can be added to another.
const FOR_EVER: Duration = Duration::from_secs(100 * 366 * 86_400);
/// A runaway printer, not a large archive.
const DEFAULT_OUTPUT: ByteSize = ByteSize::mebibytes(1024);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_remembered_as_such() {
        let machine = Machine { memory: ByteSize::mebibytes(1024), cpus: 2 };
        let spec = LimitsRequest { memory: Some(ByteSize::mebibytes(100)), ..LimitsRequest::default() };
        let limits = Limits::understand(&spec, machine);
        assert_eq!(limits.memory, Limit { value: ByteSize::mebibytes(100), origin: Origin::Requested });
        assert_eq!(limits.cpus, Limit { value: Cpus::whole(2), origin: Origin::Default });
        assert_eq!(
            limits.disk.value,
            ByteSize::mebibytes(50),
            "never more than half of the memory by default"
        );
    }

    #[test]
    fn more_processes_than_a_kernel_has_numbers_for_are_all_of_them() {
        let machine = Machine { memory: ByteSize::mebibytes(1024), cpus: 2 };
        let pids = |pids| {
            let spec = LimitsRequest { pids: Some(pids), ..LimitsRequest::default() };
            Limits::understand(&spec, machine).pids.value
        };
        assert_eq!(
            [pids(1), pids(4_194_304), pids(4_194_305), pids(u32::MAX)],
            [1, 4_194_304, 4_194_304, 4_194_304]
        );
    }

    #[test]
    fn no_command_of_others_runs_longer_than_its_sandbox_allows() {
        let machine = Machine { memory: ByteSize::mebibytes(1024), cpus: 2 };
        let second = Duration::from_secs;
        let time = |sandbox, command| {
            let spec = LimitsRequest { timeout: sandbox, ..LimitsRequest::default() };
            Limits::understand(&spec, machine).time_within(command)
        };
        assert_eq!(time(Some(second(2)), Some(second(30))), second(2));
        assert_eq!(time(Some(second(2)), Some(second(1))), second(1));
        assert_eq!(time(Some(second(2)), None), second(2));
        let long = second(2 * 3600);
        assert_eq!(time(None, Some(long)), long, "a default is no ceiling");
        assert_eq!(time(None, Some(Duration::MAX)), FOR_EVER);
        let spec = LimitsRequest { timeout: Some(second(2)), ..LimitsRequest::default() };
        assert_eq!(Limits::understand(&spec, machine).time_for(Some(long)), long);
    }
}
