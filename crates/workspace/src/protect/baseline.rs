//! The state of a folder when a sandbox started in it, and the differences afterwards. Compared by content, never by a clock: a
//! message about protected paths is always true.
//!
//! The engine takes a baseline before a sandbox starts in the folder itself, even for an administrator's sandbox, where nothing is
//! protected, and compares after it has ended.

use super::executed::{self, Executed, runs_on_host};
use super::fingerprint::{Budget, Fingerprint};
use super::left::{self, Left, LeftKind, of_git_dir};
use super::names::Names;
use super::settings_table::settings_paths;
use super::survey::{Different, Survey};
use super::{MAIN_WORKTREE, git_dir, index, own};
use belljar_overlay::RelPath;
use belljar_spec::workspace::{Shield, Shielded, View};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;

/// The state of a folder.
#[derive(Debug)]
pub struct Baseline {
    view: View,
    /// Existing files that would be suspicious if the sandbox had made them: what the host has itself is no harm.
    known: BTreeMap<Left, Fingerprint>,
    /// Protected and watched paths.
    protected: BTreeMap<PathBuf, Fingerprint>,
    survey: Survey,
}

/// What the user should know before working in the folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Files that the host's programs would run or trust, and protected files that changed anyway.
    pub left: Vec<Left>,
    /// Changed files that commonly run on the host.
    pub executed: Vec<Executed>,
    /// Whether the whole folder was checked.
    pub is_whole: bool,
}

impl Findings {
    /// Whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty() && self.executed.is_empty()
    }
}

impl Baseline {
    /// Looks at the folder of a view, with all that is protected in it.
    pub fn take(view: &View) -> Baseline {
        Baseline::with(view, Survey::take(&view.folder))
    }

    /// The same for a view that `work` completes, which takes a while in a large repository: a second thread walks through the
    /// folder meanwhile.
    pub fn take_beside<T, E>(
        view: View,
        work: impl FnOnce(View) -> Result<(View, T), E>,
    ) -> Result<(Baseline, View, T), E> {
        let folder = view.folder.clone();
        thread::scope(|scope| {
            let is_large = index::is_large(&own(&view));
            let beside =
                is_large.then(|| thread::Builder::new().spawn_scoped(scope, || Survey::take(&folder)));
            let (view, done) = work(view)?;
            let survey = beside.and_then(|beside| beside.ok()?.join().ok());
            let survey = survey.unwrap_or_else(|| Survey::take(&folder));
            Ok((Baseline::with(&view, survey), view, done))
        })
    }

    fn with(view: &View, survey: Survey) -> Baseline {
        let known = left::now(view).into_iter().map(|one| {
            let now = one.fingerprint();
            (one, now)
        });
        let known = known.collect();
        let protected = protected(view);
        Baseline { known, protected, survey, view: view.clone() }
    }

    /// Looks again, and returns the differences. The sandbox has ended.
    pub fn compare(&self) -> Findings {
        let folder = &self.view.folder;
        // A directory that was not searched may contain anything.
        let is_new = |one: &Left| {
            self.known.get(one).is_none_or(|before| *before != one.fingerprint())
                || (one.what == LeftKind::TooMuch && one.path.is_dir())
        };
        let mut left: Vec<Left> = left::now(&self.view).into_iter().filter(is_new).collect();
        let is_held = |path: &RelPath| self.is_held(path);
        let Different { mut executed, left: below, is_whole } = self.survey.compare(folder, &is_held);
        let is_known = |one: &Left| left.iter().any(|known| known.path == one.path);
        let below: Vec<Left> = below.into_iter().filter(|one| !is_known(one)).collect();
        left.extend(below);
        for (path, now) in protected(&self.view) {
            if self.protected.get(&path) == Some(&now) {
                continue;
            }
            match self.kind(&path) {
                Some(what) => left.push(Left { path, what }),
                None => {
                    let path = path.strip_prefix(folder).map(Path::to_path_buf).unwrap_or(path);
                    let reason = runs_on_host(path.as_os_str().as_encoded_bytes()).unwrap_or(NAMED_BY_HOOK);
                    if executed.iter().all(|known| known.path != path) {
                        executed.push(Executed { path, reason });
                    }
                }
            }
        }
        executed.sort();
        Findings { left, executed, is_whole }
    }

    /// The kind of a change; `None` for a file that a hook only names.
    fn kind(&self, path: &Path) -> Option<LeftKind> {
        let Ok(below) = path.strip_prefix(&self.view.folder) else { return Some(LeftKind::Held) };
        let text = below.to_string_lossy();
        let is_watched =
            |shield: &Shield| shield.what == Shielded::Watched && Path::new(&shield.path) == below;
        if !self.view.shields.iter().any(is_watched) {
            return Some(LeftKind::Held);
        }
        let is_settings = settings_paths().iter().any(|known| Path::new(known.path).starts_with(&*text));
        is_settings.then_some(LeftKind::Settings)
    }

    /// Whether it is reported as protected.
    fn is_held(&self, path: &RelPath) -> bool {
        let path = crate::settings::path_of(path.as_bytes());
        let is_around =
            |shield: &&Shield| shield.what != Shielded::Anchored && path.starts_with(&shield.path);
        let is_git_dir = |shield: &Shield| {
            let config = path.join("config");
            Path::new(&shield.path) == config
        };
        self.view.shields.iter().any(|shield| is_around(&shield) || is_git_dir(shield))
    }
}

/// The present state of all protected paths.
fn protected(view: &View) -> BTreeMap<PathBuf, Fingerprint> {
    let linked = view.git.as_ref().map(|git| (&git.common, git.own.as_str(), &git.shields));
    let names = Names::of(&view.folder);
    let all = [Some((&view.folder, "", &view.shields)), linked].into_iter().flatten();
    let number = view.shields.len() + view.git.as_ref().map_or(0, |git| git.shields.len());
    let mut found = BTreeMap::new();
    for (root, own, shields) in all {
        for Shield { path, what } in shields.iter().filter(|shield| !is_of_others(&shield.path, own)) {
            if matches!(what, Shielded::Anchored | Shielded::Replaced) {
                continue;
            }
            let (place, budget) = (root.join(path), &mut Budget::shared_by(number));
            // A repository that is protected as a whole is compared without its objects.
            let is_absent = root == &view.folder && names.lack(path);
            let now = match *what == Shielded::Watched {
                _ if is_absent => Fingerprint::Nothing,
                true => executed::fingerprint(&place, budget),
                false if git_dir::is_one(&place) => of_git_dir(&place, budget),
                false => Fingerprint::of(&place, budget),
            };
            found.insert(place, now);
        }
    }
    found
}

/// Whether a path belongs to other worktrees, which may change it.
fn is_of_others(path: &str, own: &str) -> bool {
    let in_git_dir = path.strip_prefix(".git/").unwrap_or(path);
    let is_own = !own.is_empty() && path.strip_prefix(own).is_some_and(|rest| rest.starts_with('/'));
    let is_other = in_git_dir.starts_with("worktrees/") && !path.ends_with("/.git") && !is_own;
    is_other || (!own.is_empty() && MAIN_WORKTREE.contains(&path))
}

const NAMED_BY_HOOK: &str = "named by a hook of git, or by a link in the place of settings";
