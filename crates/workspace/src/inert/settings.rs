//! The settings of every git call, which keep a repository's own config from running anything.

/// A call's whole environment, except for the variables set by its caller.
pub(super) const ENVIRONMENT: [(&str, &str); 18] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", "/nonexistent"),
    ("LC_ALL", "C"),
    // None of the user's own config: it may name programs, and our results should not depend on it.
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
    // No replaced objects, and no fetching of missing ones.
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// Settings that a repository's own config cannot undo: if a key has one value, the environment's counts last.
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
    // A list, which an empty entry clears.
    ("credential.helper", ""),
    // Signatures are not checked, since the config names the program that would check them.
    ("gpg.program", "/bin/false"),
    ("gpg.ssh.program", "/bin/false"),
    ("gpg.x509.program", "/bin/false"),
    ("log.showSignature", "false"),
    ("diff.external", "/bin/false"),
    ("diff.trustExitCode", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    // Nothing besides the requested command.
    ("fetch.bundleURI", ""),
    ("transfer.bundleURI", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // A negative value would wait for ever for a lock that is never released.
    ("core.filesRefLockTimeout", "100"),
    ("core.packedRefsTimeout", "1000"),
    ("reftable.lockTimeout", "1000"),
    // Only a folder that we name is a repository, not one that looks like a bare one.
    ("safe.bareRepository", "explicit"),
    ("protocol.allow", "never"),
];

/// Additional settings of every git on a leash, so that objects of an agent's choice take little memory: a megabyte of pack can
/// hold ten blobs of 500 MB that are all compared with each other.
pub(super) const LEASHED_SETTINGS: [(&str, &str); 3] = [
    // Larger blobs are streamed, and not compared with others.
    ("core.bigFileThreshold", "64m"),
    // Per thread, for the blobs that are compared with each other.
    ("pack.windowMemory", "256m"),
    ("pack.threads", "1"),
];

/// The command of a git at the other end, for `--upload-pack` and `--receive-pack` with a path on this machine: git starts it with
/// a clean environment, so without these settings it would obey that repository's config and hooks.
pub fn other_side(service: &str) -> String {
    let settings = SETTINGS.iter().map(|(key, value)| format!("-c {key}={value} "));
    // The caller that chose the path has vouched for its owner; when we run as root, that is often another user.
    format!("git -c safe.directory='*' {}{service}", settings.collect::<String>())
}
