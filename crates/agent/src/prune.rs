//! Records of runs that ended long ago are removed. A run whose log is being written is never touched, however old it is.

use crate::read::{ReadError, Run, list};
use belljar_state::{DiskUsage, disk_usage, remove_whole};
use std::path::Path;
use std::time::SystemTime;

/// Removes the records of runs whose logs were last written to before a moment, and homes of agents that were last used before; `dry_run` only counts them. Gives how many runs, and
/// what they took.
pub fn prune(state: &Path, before: SystemTime, dry_run: bool) -> Result<DiskUsage, ReadError> {
    let mut pruned = DiskUsage::default();
    for run in list(state)? {
        if !is_old(&run, before) || run.is_live() {
            continue;
        }
        let usage = disk_usage(&run.directory);
        if !dry_run {
            let gone = remove_whole(&run.directory);
            gone.map_err(|source| ReadError::Directory { path: run.directory.clone(), source })?;
        }
        pruned.bytes += usage.bytes;
        pruned.entries += 1;
    }
    let homes = crate::home::prune(state, before, dry_run)
        .map_err(|source| ReadError::Directory { path: state.join("agents"), source })?;
    pruned.bytes += homes.bytes;
    pruned.entries += homes.entries;
    Ok(pruned)
}

fn is_old(run: &Run, before: SystemTime) -> bool {
    let written = run.log.metadata().and_then(|found| found.modified());
    written.is_ok_and(|written| written < before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::runs;
    use std::fs::{self, File};
    use std::time::Duration;

    #[test]
    fn old_runs_go_and_those_that_are_young_or_written_to_stay() {
        let state = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let make = |id: &str, age: u64| {
            let directory = runs(state.path()).join(id);
            fs::create_dir_all(&directory).unwrap();
            let log = File::create(directory.join("log.jsonl")).unwrap();
            log.set_modified(now - Duration::from_secs(age)).unwrap();
            log
        };
        make("00000000000000aa", 7200);
        make("00000000000000bb", 60);
        let live = make("00000000000000cc", 7200);
        assert!(belljar_state::lock_open_file(&live, Duration::ZERO).unwrap());
        let before = now - Duration::from_secs(3600);
        assert_eq!(prune(state.path(), before, true).unwrap().entries, 1);
        assert!(runs(state.path()).join("00000000000000aa").exists(), "only counted");
        assert_eq!(prune(state.path(), before, false).unwrap().entries, 1);
        let mut left: Vec<_> =
            fs::read_dir(runs(state.path())).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["00000000000000bb", "00000000000000cc"]);
    }
}
