//! Git inside: a file of config at the system's level, and in front of git the guard, a script that explains. Only where there is a
//! git to be found on PATH.

use super::etc::Etc;
use super::{Bind, BindKind, BindOrigin};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What git is told inside.
#[derive(Debug, Clone)]
pub struct GitInside {
    /// The text of a config file.
    pub config: String,
}

/// Adds it: the file to `etc`, the guard to `path` and to the result. Also gives the variables that name the file.
pub(super) fn add(
    git: &GitInside,
    etc: &mut Etc,
    path: &mut Vec<PathBuf>,
    is_program: impl Fn(&Path) -> bool,
) -> (Option<Bind>, Vec<(OsString, OsString)>) {
    if !path.iter().any(|directory| is_program(&directory.join("git"))) {
        return (None, Vec::new());
    }
    etc.files.push((super::relative(CONFIG).to_string(), git.config.clone().into_bytes()));
    let variables = vec![("GIT_CONFIG_SYSTEM".into(), CONFIG.into())];
    if !is_program(Path::new("/bin/sh")) {
        return (None, variables);
    }
    path.insert(0, PathBuf::from(PROGRAMS));
    let target = format!("{}/git", super::relative(PROGRAMS));
    let (kind, origin) = (BindKind::ReadOnly, BindOrigin::Guard);
    (Some(Bind { source: "git-guard.sh".into(), target, kind, origin }), variables)
}

/// The guard.
pub(crate) const GIT_GUARD: &str = include_str!("git-guard.sh");
const CONFIG: &str = "/etc/belljar/gitconfig";
/// Programs of ours that stand in front of the host's.
const PROGRAMS: &str = "/run/belljar/bin";

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
