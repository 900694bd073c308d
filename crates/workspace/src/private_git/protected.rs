//! Protected paths in commits that a sandbox made.
//!
//! The files in the folder are read-only inside, but a commit can hold anything: the host's git writes it into the folder when the
//! user checks it out or restores it. So a commit that changes such a path is reported.

use crate::raw_diff::{Change, Part, parts};
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;
use belljar_spec::workspace::ProtectedPath;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Notes for the user on commits that change protected paths, from the raw records of `git diff-tree --stdin -z`.
pub(super) fn note(
    raw: &[u8],
    commits: &BTreeMap<ObjectId, Vec<ObjectId>>,
    protected: &[ProtectedPath],
) -> Option<String> {
    let changed = changed(raw, commits, protected);
    let shown: Vec<String> =
        changed.iter().take(MAX_NAMED).map(|path| format!("`{}`", Printable::new(path))).collect();
    let more = match changed.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message =
        "commits of the sandbox change protected paths, whose files in your folder are as they were";
    let advice = "read these before you restore or check them out";
    (!shown.is_empty()).then(|| format!("{message}; {advice}: {}{more}", shown.join(", ")))
}

/// The paths in which a new commit differs from all its parents: changes that a merge took from one of them are not its own.
fn changed(
    raw: &[u8],
    commits: &BTreeMap<ObjectId, Vec<ObjectId>>,
    protected: &[ProtectedPath],
) -> BTreeSet<Vec<u8>> {
    let mut compared: HashMap<ObjectId, usize> = HashMap::new();
    let mut found: HashMap<(ObjectId, Vec<u8>), usize> = HashMap::new();
    let mut commit = None;
    for part in parts(raw) {
        match part {
            Part::Commit(id) => {
                commit = ObjectId::parse(id).ok().filter(|commit| commits.contains_key(commit));
                commit.iter().for_each(|commit| *compared.entry(commit.clone()).or_default() += 1);
            }
            Part::Change(Change { path, .. }) => {
                if let Some(commit) = commit.as_ref().filter(|_| is_below(path, protected)) {
                    *found.entry((commit.clone(), path.to_vec())).or_default() += 1;
                }
            }
        }
    }
    let is_own = |commit: &ObjectId, times: usize| times >= compared[commit].max(commits[commit].len());
    found
        .into_iter()
        .filter(|((commit, _), times)| is_own(commit, *times))
        .map(|((_, path), _)| path)
        .collect()
}

fn is_below(path: &[u8], protected: &[ProtectedPath]) -> bool {
    protected.iter().any(|one| {
        let rest = path.strip_prefix(one.as_str().as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// Further paths are only counted.
const MAX_NAMED: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: &str) -> ObjectId {
        digit.repeat(40).parse().unwrap()
    }

    #[test]
    fn a_commit_is_named_by_what_it_changes_and_a_merge_by_what_no_parent_has() {
        let record = |path: &str| format!(":100644 100644 {} {} M\0{path}\0", id("a"), id("b"));
        let protected = [".husky".parse().unwrap(), ".vscode/tasks.json".parse().unwrap()];
        let commits =
            BTreeMap::from([(id("1"), vec![id("9")]), (id("2"), vec![id("1"), id("8")]), (id("3"), vec![])]);
        // A merge that took `.husky/x` from its second parent, which is not compared here because nothing else differs from it.
        let raw = format!(
            "{}\0{}{}{}\0{}{}{}\0{}{}\0{}",
            id("1"),
            record("src/a"),
            record(".huskyx"),
            id("2"),
            record(".husky/x"),
            record(".husky/evil"),
            id("2"),
            record(".husky/evil"),
            id("7"),
            record(".husky/of-the-user"),
        );
        let found = changed(raw.as_bytes(), &commits, &protected);
        assert_eq!(found, BTreeSet::from([b".husky/evil".to_vec()]));
        let raw = format!("{}\0{}", id("3"), record(".vscode/tasks.json"));
        let note = note(raw.as_bytes(), &commits, &protected).unwrap();
        assert!(note.ends_with("`.vscode/tasks.json`"), "{note}");
        assert_eq!(super::note(b"", &commits, &protected), None);
    }
}
