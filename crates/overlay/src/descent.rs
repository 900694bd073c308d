//! Directories opened one from another while a tree is walked: the sandbox decides how deep a tree is, and opening each directory
//! from the top would cost its depth every time.

use super::beneath::{self, Beneath};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The directories beneath one, for a walk that only reads. The last opened ones stay open: a bounded number of descriptors,
/// regardless of the tree's depth.
#[derive(Debug)]
pub(super) struct Descent<'a> {
    top: &'a Beneath,
    opened: VecDeque<(Vec<u8>, Rc<OwnedFd>)>,
}

impl<'a> Descent<'a> {
    pub(super) fn new(top: &'a Beneath) -> Descent<'a> {
        Descent { top, opened: VecDeque::new() }
    }

    /// A directory (empty for the top), opened for reading.
    pub(super) fn directory(&mut self, path: &[u8]) -> io::Result<Rc<OwnedFd>> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path),
        };
        let known = self.opened.iter().position(|(known, _)| known == parent).filter(|_| !path.is_empty());
        let opened = match known.and_then(|place| self.opened.remove(place)) {
            Some(parent) => {
                let opened = beneath::directory_at(&parent.1, name);
                self.keep(parent);
                opened?
            }
            None => self.top.directory(path)?,
        };
        let opened = Rc::new(opened);
        self.keep((path.to_vec(), Rc::clone(&opened)));
        Ok(opened)
    }

    /// The most recently used one is last.
    fn keep(&mut self, directory: (Vec<u8>, Rc<OwnedFd>)) {
        if self.opened.len() == MAX_OPEN {
            self.opened.pop_front();
        }
        self.opened.push_back(directory);
    }
}

const MAX_OPEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_directory_of_a_deep_tree_is_the_one_at_its_path() {
        let place = tempfile::tempdir().unwrap();
        let deepest = vec!["d"; 3 * MAX_OPEN].join("/");
        fs::create_dir_all(place.path().join(&deepest)).unwrap();
        fs::create_dir(place.path().join("d/e")).unwrap();
        let top = Beneath::open(place.path()).unwrap();
        let mut descent = Descent::new(&top);
        let down = (0..=deepest.len()).filter(|end| *end == 0 || end % 2 == 1).map(|end| &deepest[..end]);
        // Back in a directory whose descriptor is closed by then.
        for path in down.chain(["d/e", "d", ""]) {
            let opened = descent.directory(path.as_bytes()).unwrap();
            let same = beneath::identity_of(&*opened)
                .unwrap()
                .is(&beneath::identity_of(top.directory(path.as_bytes()).unwrap()).unwrap());
            assert!(same && descent.opened.len() <= MAX_OPEN, "{path}");
        }
        assert!(descent.directory(b"d/none").is_err());
    }

    #[test]
    fn no_link_is_followed_from_an_open_directory() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", place.path().join("out")).unwrap();
        let top = Beneath::open(place.path()).unwrap();
        let mut descent = Descent::new(&top);
        descent.directory(b"").unwrap();
        assert!(descent.directory(b"out").is_err());
    }
}
