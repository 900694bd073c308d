//! Which names were seen lately. An agent makes up its names, as many as it likes, so only the last ones are known.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The last names. Kept as hashes, which have one size; two names with the same one are the agent's own trouble.
#[derive(Debug)]
pub(crate) struct Recent {
    limit: usize,
    order: VecDeque<u64>,
    known: HashSet<u64>,
}

impl Recent {
    /// So many of them.
    pub(crate) fn new(limit: usize) -> Recent {
        Recent { limit, order: VecDeque::new(), known: HashSet::new() }
    }

    /// Takes a name in; says whether it is new.
    pub(crate) fn insert(&mut self, name: &str) -> bool {
        let name = hash(name);
        if !self.known.insert(name) {
            return false;
        }
        self.order.push_back(name);
        if self.order.len() > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.known.contains(&hash(name))
    }
}

/// The same in every process, so that a replay gives the same log.
fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_names_are_known() {
        let mut recent = Recent::new(2);
        assert!(recent.insert("a") && recent.insert("b") && !recent.insert("a"));
        assert!(recent.insert("c"));
        assert_eq!(["a", "b", "c"].map(|name| recent.contains(name)), [false, true, true]);
        (0..1000).for_each(|number| assert!(recent.insert(&number.to_string())));
        assert_eq!((recent.order.len(), recent.known.len()), (2, 2));
    }
}
