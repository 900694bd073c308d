//! The environment of commands: it starts empty, and holds what is listed here and what the caller names.

use super::{etc, regional};
use belljar_spec::{Admin, UserName};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

type Variables = Vec<(OsString, OsString)>;

/// In an isolated sandbox. `under` is what a root defines by itself.
pub(super) fn inside(
    path: &[PathBuf],
    shell: Option<&str>,
    (user, admin): (&UserName, Admin),
    under: &Variables,
    tools: &Variables,
    asked: &Variables,
) -> Variables {
    let home = user.home();
    let name = if admin == Admin::Root { "root" } else { user.as_str() };
    let mut ours = common(OsStr::new(&home), name, Path::new("/tmp"), shell);
    // What is installed without a root's rights belongs into the home, and stays as long as that does.
    let under = &override_with(into_home(&home), under);
    // Language and time zone are the root's to know.
    ours.retain(|(name, _)| name != "LANG" || !under.iter().any(|(known, _)| known == name));
    let mut variables = override_with(under.clone(), &ours);
    // Entries with a colon were split at it, so they can be joined again.
    variables.push(("PATH".into(), env::join_paths(path).unwrap_or_default()));
    override_with(override_with(variables, tools), asked)
}

/// Where programs are that commands install into the home: by pip and npm; by cargo; by go.
pub(super) fn home_programs(home: &str) -> impl Iterator<Item = PathBuf> {
    [".local/bin", ".cargo/bin", "go/bin"].iter().map(move |path| Path::new(home).join(path))
}

/// Variables by which package managers install into the home. A root's own come first.
fn into_home(home: &str) -> Variables {
    vec![
        // Distributions forbid `pip install` beside their own packages (PEP 668). pip itself chooses the home, since it cannot write
        // elsewhere; `PIP_USER` would do the same, and break it in virtual environments.
        ("PIP_BREAK_SYSTEM_PACKAGES".into(), "1".into()),
        ("NPM_CONFIG_PREFIX".into(), format!("{home}/.local").into()),
    ]
}

/// Without one: the host's search path, since its programs are where they are.
pub(super) fn on_host(workspace: &Path, asked: &Variables) -> Variables {
    let mut variables =
        common(workspace.as_os_str(), UserName::default().as_str(), &env::temp_dir(), Some(shell()));
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    variables.push(("PATH".into(), path));
    override_with(override_with(variables, &regional::of_the_caller()), asked)
}

/// Elsewhere, where the template knows its own programs.
pub(super) fn remote(home: &str, user: &str, asked: &Variables) -> Variables {
    let mut variables = common(OsStr::new(home), user, Path::new("/tmp"), Some("/bin/bash"));
    variables.push(("PATH".into(), REMOTE_PATH.into()));
    override_with(variables, asked)
}

/// Where a sandbox among the host's paths has its own.
pub(super) struct Places<'p> {
    pub(super) home: &'p Path,
    pub(super) temporary: &'p Path,
    /// The search path.
    pub(super) path: &'p [PathBuf],
    /// What Java trusts, if it is not the system's.
    pub(super) trust_store: Option<&'p Path>,
}

/// Among the host's paths, where only variables lead to the sandbox's own home and temporary files.
pub(super) fn confined(
    places: Places<'_>,
    user: &UserName,
    tools: &Variables,
    asked: &Variables,
) -> Variables {
    let Places { home, temporary, path, trust_store } = places;
    let mut variables = common(home.as_os_str(), user.as_str(), temporary, Some(shell()));
    variables.extend(into_home(&home.to_string_lossy()));
    for (name, below) in [
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_STATE_HOME", ".local/state"),
    ] {
        variables.push((name.into(), home.join(below).into()));
    }
    // Java asks no variable but this one, and the user database for the home.
    let mut java = format!("-Djava.io.tmpdir={} -Duser.home={}", temporary.display(), home.display());
    if let Some(store) = trust_store {
        java.push_str(&format!(" -Djavax.net.ssl.trustStore={}", store.display()));
    }
    variables.push(("JAVA_TOOL_OPTIONS".into(), java.into()));
    variables.push(("TMP".into(), temporary.into()));
    variables.push(("TEMP".into(), temporary.into()));
    // Entries with a colon were split at it, so they can be joined again.
    variables.push(("PATH".into(), env::join_paths(path).unwrap_or_default()));
    override_with(override_with(variables, tools), asked)
}

fn common(home: &OsStr, user: &str, temporary: &Path, shell: Option<&str>) -> Variables {
    let mut variables = vec![
        ("HOME".into(), home.into()),
        ("USER".into(), user.into()),
        ("LOGNAME".into(), user.into()),
        ("LANG".into(), "C.UTF-8".into()),
        ("TMPDIR".into(), temporary.into()),
        ("PS1".into(), etc::PROMPT.into()),
        // How a program can tell that it is in here.
        ("BELLJAR".into(), "1".into()),
    ];
    variables.extend(shell.map(|shell| (OsString::from("SHELL"), shell.into())));
    variables
}

fn override_with(mut variables: Variables, asked: &Variables) -> Variables {
    for (name, value) in asked {
        variables.retain(|(known, _)| known != name);
        variables.push((name.clone(), value.clone()));
    }
    variables
}

/// Debian's, with what is installed into the home before it.
const REMOTE_PATH: &str =
    "/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The caller's own shell if it is a system's, else bash, else sh.
pub fn shell() -> &'static str {
    let own = env::var("SHELL").unwrap_or_default();
    let name = Path::new(&own).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let known = [("zsh", "/usr/bin/zsh"), ("bash", "/usr/bin/bash"), ("bash", "/bin/bash")];
    let own = known.into_iter().filter(|(known, _)| *known == name).map(|(_, path)| path);
    own.chain(["/bin/bash"]).find(|path| Path::new(path).exists()).unwrap_or("/bin/sh")
}
