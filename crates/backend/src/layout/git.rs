//! Git inside: a file of config at the system's level, and in front of git the guard, which is the guest's own program under
//! another name. Only where there is a git to be found on PATH.

use super::etc::Etc;
use super::{Bind, BindKind, BindOrigin};
use crate::embedded;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What git is told inside.
#[derive(Debug, Clone)]
pub struct GitInside {
    /// The text of a config file.
    pub config: String,
}

/// Adds it: the file to `etc`, the guard to `path` and to the result. Also gives the variables that name the file. `kept` is
/// where the guest's program is kept; without it there is no guard, which explains and protects nothing.
pub(super) fn add(
    git: &GitInside,
    kept: Option<&Path>,
    etc: &mut Etc,
    path: &mut Vec<PathBuf>,
    is_program: impl Fn(&Path) -> bool,
) -> (Option<Bind>, Vec<(OsString, OsString)>) {
    if !path.iter().any(|directory| is_program(&directory.join("git"))) {
        return (None, Vec::new());
    }
    etc.files.push((super::relative(CONFIG).to_string(), git.config.clone().into_bytes()));
    let guard = kept.and_then(embedded::kept_file).map(|source| {
        path.insert(0, PathBuf::from(PROGRAMS));
        let target = format!("{}/git", super::relative(PROGRAMS));
        // As a program under a home is: nobody but us can reach it, and everybody inside may run it.
        Bind { source, target, kind: BindKind::ReadOnly, origin: BindOrigin::Home }
    });
    (guard, vec![("GIT_CONFIG_SYSTEM".into(), CONFIG.into())])
}

const CONFIG: &str = "/etc/belljar/gitconfig";
/// Programs of ours that stand in front of the host's.
const PROGRAMS: &str = "/run/belljar/bin";
