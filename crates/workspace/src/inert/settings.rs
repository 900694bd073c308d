//! What every call of git gets, so that a repository's own config decides nothing that runs.

/// All of a call's environment, but for what it is given.
pub(super) const ENVIRONMENT: [(&str, &str); 18] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", "/nonexistent"),
    ("LC_ALL", "C"),
    // Of the user's own config nothing: it may name programs, and what we do should not depend on it.
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    // No prompt, editor, pager or ssh is started.
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("SSH_ASKPASS", "/bin/false"),
    ("GIT_EDITOR", "/bin/false"),
    ("GIT_SEQUENCE_EDITOR", "/bin/false"),
    ("GIT_PAGER", "cat"),
    ("GIT_SSH_COMMAND", "/bin/false"),
    // No transport at all: this list overrides all of `protocol.*`, and an empty list counts too.
    ("GIT_ALLOW_PROTOCOL", ""),
    // Set and empty: `core.gitProxy`, of which the first entry wins, is then not even read.
    ("GIT_PROXY_COMMAND", ""),
    // Objects are what they are called, and none is fetched because it is missing.
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// What a repository's own config cannot undo: where a key has one value, the environment's counts last.
pub(super) const SETTINGS: [(&str, &str); 28] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.sshCommand", "/bin/false"),
    ("core.askPass", "/bin/false"),
    ("core.editor", "/bin/false"),
    ("core.alternateRefsCommand", "/bin/true"),
    // A list, which an empty entry empties.
    ("credential.helper", ""),
    // Signatures are not checked, since who checks them is a program that the config names.
    ("gpg.program", "/bin/false"),
    ("gpg.ssh.program", "/bin/false"),
    ("gpg.x509.program", "/bin/false"),
    ("log.showSignature", "false"),
    ("diff.external", "/bin/false"),
    ("diff.trustExitCode", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    // Beside what was asked for, nothing.
    ("fetch.bundleURI", ""),
    ("transfer.bundleURI", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // Less than nothing would be to wait for ever for a lock that is never let go of.
    ("core.filesRefLockTimeout", "100"),
    ("core.packedRefsTimeout", "1000"),
    ("reftable.lockTimeout", "1000"),
    // A repository is one because we say so, not because a folder looks like one.
    ("safe.bareRepository", "explicit"),
    ("protocol.allow", "never"),
];

/// What every git on a leash gets beside, so that objects of an agent's choice take little memory: a megabyte of pack can hold ten
/// blobs of 500 MB that are all compared with each other.
pub(super) const LEASHED_SETTINGS: [(&str, &str); 3] = [
    // Larger blobs are read piece by piece, and compared with no others.
    ("core.bigFileThreshold", "64m"),
    // Of each thread, for the blobs that are compared with each other.
    ("pack.windowMemory", "256m"),
    ("pack.threads", "1"),
];

/// The words of a git at the other end, for `--upload-pack` and `--receive-pack`, where that is a path on this machine: git
/// starts it with a clean environment, so that it would follow the config that is there, hooks and all.
pub fn other_side(service: &str) -> String {
    let settings = SETTINGS.iter().map(|(key, value)| format!("-c {key}={value} "));
    // The caller that chose the path has vouched for its owner; when we run as root, that is often another user.
    format!("git -c safe.directory='*' {}{service}", settings.collect::<String>())
}
