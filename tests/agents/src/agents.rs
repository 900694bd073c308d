//! The agents that are tested, and where they are.

use belljar_tests_hosts::Api;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// In whose words an agent speaks to its model, where it is not told which.
pub fn words(agent: &str) -> Api {
    match agent {
        "codex" => Api::Responses,
        "gemini" => Api::Gemini,
        _ => Api::Anthropic,
    }
}

/// Makes a test of each function for each agent behind it: `the_task_is_done::codex`.
#[macro_export]
macro_rules! for_agents {
    ($($test:ident: $($agent:ident)*;)*) => {
        $(mod $test {
            $(#[test]
            fn $agent() {
                $crate::with(stringify!($agent), super::$test);
            })*
        })*
    };
}

/// Runs a test if its agent is here. Says so if it is not; in CI that is a failure.
pub fn with(agent: &str, test: fn(&str)) {
    if belljar_tests_hosts::have([folder().join("bin").join(agent).to_str().unwrap_or(agent)]) {
        test(agent);
    }
}

/// Where programs are looked for: first where the agents are, with the node that runs some of them.
pub(crate) fn path() -> OsString {
    let usual = env::var_os("PATH").unwrap_or_default();
    let all = [folder().join("bin")].into_iter().chain(env::split_paths(&usual));
    env::join_paths(all).expect("folders of PATH have no colons")
}

fn folder() -> PathBuf {
    match env::var_os("BELLJAR_TEST_AGENTS").filter(|folder| !folder.is_empty()) {
        Some(folder) => folder.into(),
        None if belljar_sys::rustix::process::geteuid().is_root() => "/var/cache/belljar-agents".into(),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/belljar-agents"),
    }
}
