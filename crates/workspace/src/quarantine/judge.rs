//! Questions about the objects in a quarantine.

use super::{HostRef, Quarantine, QuarantineError, Taken};
use belljar_git::ObjectId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};

impl Quarantine {
    /// Does everything exist that these tips need? Objects that did not come with the push have to be in a branch or tag that the
    /// sandbox may see: naming an object by its hash gives no access to it.
    pub fn check_whole(
        &self,
        taken: &Taken,
        tips: &[ObjectId],
        shown: &[ObjectId],
    ) -> Result<(), QuarantineError> {
        let shown = self.existing(shown)?;
        let question = ["rev-list", "--objects", "--no-object-names", "--stdin"];
        let finished = self.call().args(question).run_with(&revisions(tips, &shown))?;
        if finished.code != Some(0) {
            return Err(QuarantineError::pack(format!("it is not complete: {}", finished.reason())));
        }
        let needed =
            finished.stdout.split(|byte| *byte == b'\n').filter_map(|line| ObjectId::parse(line).ok());
        let borrowed = needed.filter(|id| !taken.objects.contains(id)).collect::<HashSet<_>>();
        match self.not_reached(borrowed, &shown)?.iter().next() {
            None => Ok(()),
            Some(id) => {
                Err(QuarantineError::pack(format!("object {id} did not come and is in no branch or tag")))
            }
        }
    }

    /// The commits that are in these tips and not in the host's refs, each with its parents; also checks that everything they need
    /// exists. Unlike [`Quarantine::check_whole`] this accepts host objects that are in no branch: a sandbox with its own git
    /// directory can read all of the host's objects anyway.
    pub(crate) fn new_commits(
        &self,
        taken: Option<&Taken>,
        tips: &[ObjectId],
        known: &[ObjectId],
    ) -> Result<BTreeMap<ObjectId, Vec<ObjectId>>, QuarantineError> {
        let question = ["rev-list", "--objects", "--no-object-names", "--parents", "--stdin"];
        let walk = |known: &[ObjectId]| self.call().args(question).run_with(&revisions(tips, known));
        let mut finished = walk(known)?;
        if finished.code != Some(0) {
            finished = walk(&self.existing(known)?)?;
        }
        if finished.code != Some(0) {
            return Err(QuarantineError::pack(format!("it is not complete: {}", finished.reason())));
        }
        let text = String::from_utf8_lossy(&finished.stdout);
        let mut commits = BTreeMap::new();
        let mut unclear = Vec::new();
        for line in text.lines() {
            let mut ids = line.split(' ').filter_map(|id| id.parse::<ObjectId>().ok());
            let Some(id) = ids.next() else { continue };
            let parents: Vec<ObjectId> = ids.collect();
            // A root commit looks like a tree or a blob in this output.
            if !parents.is_empty() || taken.is_some_and(|taken| taken.commits.contains(&id)) {
                commits.insert(id, parents);
            } else if taken.is_none_or(|taken| !taken.objects.contains(&id)) {
                unclear.push(id);
            }
        }
        // Root commits of an earlier import.
        if !unclear.is_empty() {
            let kinds = self.kinds(&unclear)?;
            let first = kinds.into_iter().filter(|(_, kind)| kind == "commit");
            commits.extend(first.map(|(id, _)| (id, Vec::new())));
        }
        Ok(commits)
    }

    /// The commits in the history of `from` and not in that of `without`.
    pub(crate) fn commits_without(
        &self,
        from: &[ObjectId],
        without: &[ObjectId],
    ) -> Result<Vec<ObjectId>, QuarantineError> {
        let without = self.existing(without)?;
        let list = self.call().args(["rev-list", "--stdin"]).output_with(&revisions(from, &without))?;
        let list = String::from_utf8_lossy(&list);
        Ok(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// The contents of a pack's blobs of at most `most` bytes.
    pub(crate) fn small_files(&self, taken: &Taken, most: u64) -> Result<Vec<Vec<u8>>, QuarantineError> {
        let names = taken.objects.iter().map(|id| format!("{id}\n")).collect::<String>();
        let question = ["cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", "--buffer"];
        let answers = self.call().args(question).output_with(names.as_bytes())?;
        let text = String::from_utf8_lossy(&answers).into_owned();
        let small = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (id, kind, size) = (words.next()?, words.next()?, words.next()?.parse::<u64>().ok()?);
            (kind == "blob" && size <= most).then(|| format!("{id}\n"))
        });
        let small = small.collect::<String>();
        let question = ["cat-file", "--batch=%(objectsize)", "--buffer"];
        let answers = self.call().args(question).output_with(small.as_bytes())?;
        // A sequence of `SIZE\nCONTENT\n`.
        let (mut files, mut rest) = (Vec::new(), answers.as_slice());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let size = std::str::from_utf8(&rest[..end]).ok().and_then(|size| size.parse::<usize>().ok());
            let content = size.and_then(|size| rest.get(end + 1..end + 1 + size));
            let Some(content) = content else { break };
            files.push(content.to_vec());
            rest = rest.get(end + 2 + content.len()..).unwrap_or_default();
        }
        Ok(files)
    }

    /// The changes, as raw records of `git diff-tree --stdin -z`: an input line is a commit, which is compared with its parents, or
    /// a commit and another one to compare it with.
    pub(crate) fn raw_changes(&self, lines: &str) -> Result<Vec<u8>, QuarantineError> {
        let words =
            ["diff-tree", "--stdin", "-r", "-m", "--root", "-z", "--raw", "--no-renames", "--no-abbrev"];
        Ok(self.call().args(words).output_with(lines.as_bytes())?)
    }

    /// Which of these are not reachable from shown refs. Rarely needed: a client sends all that its own walk finds, and ours finds
    /// the same.
    fn not_reached(
        &self,
        mut objects: HashSet<ObjectId>,
        shown: &[ObjectId],
    ) -> Result<HashSet<ObjectId>, QuarantineError> {
        if objects.is_empty() || shown.is_empty() {
            return Ok(objects);
        }
        let question = ["rev-list", "--objects", "--no-object-names", "--stdin"];
        let mut running = self.call().args(question).spawn()?;
        if let Some(mut stdin) = running.stdin.take() {
            let revisions = revisions(shown, &[]);
            std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &revisions));
        }
        let Some(stdout) = running.stdout.take() else { return Ok(objects) };
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(QuarantineError::file("read the objects of", &self.directory))?;
            if let Ok(id) = ObjectId::parse(&line) {
                objects.remove(&id);
            }
            if objects.is_empty() {
                break;
            }
        }
        Ok(objects)
    }

    /// Those that exist: a broken ref on the host must not affect a sandbox.
    pub(super) fn existing(&self, ids: &[ObjectId]) -> Result<Vec<ObjectId>, QuarantineError> {
        Ok(self.kinds(ids)?.into_keys().collect())
    }

    /// The kinds of these objects; missing ones are skipped.
    pub fn kinds(&self, ids: &[ObjectId]) -> Result<HashMap<ObjectId, String>, QuarantineError> {
        let names = ids.iter().map(|id| format!("{id}\n")).collect::<String>();
        let question = ["cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"];
        let answers = self.call().args(question).output_with(names.as_bytes())?;
        let text = String::from_utf8_lossy(&answers).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let kinds = lines.filter(|(_, kind)| *kind != "missing");
        Ok(kinds.filter_map(|(id, kind)| Some((id.parse().ok()?, kind.to_string()))).collect())
    }

    /// Is `old` in the history of `new`?
    pub fn follows(&self, old: &ObjectId, new: &ObjectId) -> Result<bool, QuarantineError> {
        let finished = self.call().args(["merge-base", "--is-ancestor", old.as_str(), new.as_str()]).run()?;
        match finished.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(QuarantineError::pack(finished.reason())),
        }
    }

    /// Do all new commits leave `.github/workflows` as in one of their parents? A root commit must not have it. Comparing only the
    /// two ends is not enough: a change that is undone at the end could still have been run.
    pub fn keeps_workflows(&self, new: &ObjectId, shown: &[ObjectId]) -> Result<bool, QuarantineError> {
        let shown = self.existing(shown)?;
        let list = self
            .call()
            .args(["rev-list", "--parents", "--stdin"])
            .output_with(&revisions(std::slice::from_ref(new), &shown))?;
        let text = String::from_utf8_lossy(&list).into_owned();
        let commits = text.lines().map(|line| line.split(' ').collect::<Vec<_>>()).collect::<Vec<_>>();
        let mut names = commits.iter().flatten().copied().collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        let input = names.iter().map(|name| format!("{name}:.github/workflows\n")).collect::<String>();
        let question = ["cat-file", "--batch-check=%(objectname)", "--buffer"];
        let answers = self.call().args(question).output_with(input.as_bytes())?;
        let answers = String::from_utf8_lossy(&answers).into_owned();
        let found = answers.lines().map(|line| (!line.ends_with(" missing")).then_some(line));
        let workflows = names.iter().copied().zip(found).collect::<HashMap<_, _>>();
        let of = |name: &str| workflows.get(name).copied().flatten();
        Ok(commits.iter().all(|commit| match commit[..] {
            [commit] => of(commit).is_none(),
            [commit, ref parents @ ..] => parents.iter().any(|parent| of(parent) == of(commit)),
            [] => true,
        }))
    }
}

/// The tips of the shown refs.
pub(crate) fn shown(refs: &[HostRef]) -> Vec<ObjectId> {
    let ids = refs.iter().filter(|one| one.is_shown()).map(|one| one.id.clone());
    ids.collect::<HashSet<_>>().into_iter().collect()
}

/// Input for `rev-list --stdin`.
fn revisions(from: &[ObjectId], without: &[ObjectId]) -> Vec<u8> {
    let from = from.iter().map(|id| format!("{id}\n"));
    from.chain(without.iter().map(|id| format!("^{id}\n"))).collect::<String>().into_bytes()
}
