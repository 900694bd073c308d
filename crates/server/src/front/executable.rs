//! Whether the executable of this process was replaced, by an upgrade: another file has its name now.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The executable of a process, as it was when the process looked.
#[derive(Debug)]
pub(super) struct Executable {
    path: PathBuf,
    identity: (u64, u64),
}

impl Executable {
    /// None where its name says nothing already: it was replaced before, or lies in a filesystem that this process does not see.
    pub(super) fn of_this_process() -> Option<Executable> {
        let path = fs::read_link("/proc/self/exe").ok()?;
        Executable::at(path, identity(Path::new("/proc/self/exe")).ok()?)
    }

    fn at(path: PathBuf, running: (u64, u64)) -> Option<Executable> {
        let identity = identity(&path).ok().filter(|found| *found == running)?;
        Some(Executable { path, identity })
    }

    /// One that is only gone is not replaced: there is nothing to hand over to.
    pub(super) fn is_replaced(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found != self.identity)
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.metadata()?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_of_the_same_name_is_a_replacement_and_none_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("belljar");
        fs::write(&path, "old").unwrap();
        let executable = Executable::at(path.clone(), identity(&path).unwrap()).unwrap();
        assert!(!executable.is_replaced());
        // As a package manager does.
        fs::write(folder.path().join("new"), "new").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(executable.is_replaced());
        fs::remove_file(&path).unwrap();
        assert!(!executable.is_replaced());
        assert!(Executable::of_this_process().is_some());
    }
}
