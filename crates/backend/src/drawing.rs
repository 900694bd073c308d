//! A sandbox as a backend would build it, without building it: for people who want to see it, and made by the code that builds it.

use belljar_wire::message::Setup;
use std::path::PathBuf;

/// A sandbox as it would be built.
pub struct Drawing {
    /// The program that builds it and its words, the first of which is its name; none where belljar does it itself.
    pub program: Option<(PathBuf, Vec<String>)>,
    /// The same for a person who wants to run or read it: without the descriptors that belljar would pass.
    pub command: Option<Vec<String>>,
    /// The sandbox's user, inside and outside.
    pub user: (u32, u32),
    /// What the guest is told.
    pub setup: Setup,
    /// What holds its limits.
    pub held: LimitsHeld,
}

/// What holds each limit, in a word; nothing where nothing does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsHeld {
    pub memory: Option<&'static str>,
    pub cpus: Option<&'static str>,
    pub pids: Option<&'static str>,
    pub disk: Option<&'static str>,
    /// How many files a process may have open; nothing where the host's own limit stays.
    pub open_files: Option<u64>,
}
