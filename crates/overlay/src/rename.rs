//! Finds files that were moved: a deleted file has exactly the content of an added one.

use super::beneath::Beneath;
use super::change::Change;
use super::compare::Budget;
use super::path::RelPath;
use super::stat::{Kind, Stat};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::io::Read;

/// Merges each such pair into one change. An unreadable file, or one beyond the budget, does not count as moved. Only files whose
/// size occurs on both sides are read.
pub(super) fn find(list: &mut Vec<Change>, upper: &Beneath, host: &Beneath) {
    let mut budget = Budget::default();
    let added: Vec<usize> = of(list, |change| change.old.is_none().then_some(change.new)?);
    let sizes: HashSet<u64> = added.iter().filter_map(|index| Some(list[*index].new?.size)).collect();
    let mut gone: HashMap<[u8; 32], Vec<usize>> = HashMap::new();
    for index in of(list, |change| change.new.is_none().then_some(change.old)?) {
        if list[index].old.is_some_and(|old| sizes.contains(&old.size))
            && let Some(hash) = hash(host, &list[index].path, &mut budget)
        {
            gone.entry(hash).or_default().push(index);
        }
    }
    let sizes: HashSet<u64> =
        gone.values().flatten().filter_map(|index| Some(list[*index].old?.size)).collect();
    let mut merged = vec![false; list.len()];
    for index in added {
        let change = &list[index];
        let Some(candidates) = change
            .new
            .filter(|new| sizes.contains(&new.size))
            .and_then(|_| gone.get_mut(&hash(upper, &change.path, &mut budget)?))
        else {
            continue;
        };
        // Of many equal files, one with the same name; the search limit is arbitrary.
        let near =
            candidates.iter().rev().take(LOOK).position(|at| list[*at].path.name() == change.path.name());
        let at = candidates.len().checked_sub(1 + near.unwrap_or(0));
        let Some(from) = at.map(|at| candidates.remove(at)) else { continue };
        let (path, old) = (list[from].path.clone(), list[from].old);
        let change = &mut list[index];
        (change.from, change.old, change.content) = (Some(path), old, false);
        merged[from] = true;
    }
    let mut merged = merged.into_iter();
    list.retain(|_| merged.next() != Some(true));
}

/// The changes of non-empty files.
fn of(list: &[Change], side: impl Fn(&Change) -> Option<Stat>) -> Vec<usize> {
    let is_file = |stat: Stat| stat.kind == Kind::File && stat.size > 0;
    let chosen = |(index, change): (usize, &Change)| side(change).is_some_and(is_file).then_some(index);
    list.iter().enumerate().filter_map(chosen).collect()
}

fn hash(side: &Beneath, path: &RelPath, budget: &mut Budget) -> Option<[u8; 32]> {
    let mut file = side.file(path).ok()?;
    let mut hasher = Sha256::new();
    let mut room = vec![0; 128 * 1024];
    loop {
        match file.read(&mut room).ok()? {
            0 => return Some(hasher.finalize().into()),
            length if budget.take(length as u64) => hasher.update(&room[..length]),
            _ => return None,
        }
    }
}

const LOOK: usize = 32;
