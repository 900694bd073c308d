//! Landlock: which files a program may open, whatever paths, links and lists lead to them (landlock(7)). Attributes of files, and
//! what a program got open, are not its matter.

use crate::caps::{check, last_errno};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// What a program may open: below some directories, and nothing else.
#[derive(Debug)]
pub struct Ruleset {
    descriptor: OwnedFd,
    /// All that it decides on.
    handled: u64,
}

/// What may be done with a file, or with all that is below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and execute.
    Read,
    /// Also write, make, rename and remove.
    Write,
}

/// The kernel's version of Landlock, or why it has none; a filter around us may say so too.
pub fn version() -> Result<u32, Errno> {
    let only_version = 1u32;
    // SAFETY: with this flag there are no attributes, and no descriptor is made.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, only_version)
    };
    u32::try_from(answer).map_err(|_| last_errno())
}

impl Ruleset {
    /// One that allows nothing yet; none where the kernel's Landlock would also refuse what programs need: before its second version
    /// no file could be moved to another directory.
    pub fn new() -> Result<Option<Ruleset>, Errno> {
        let Ok(version @ 2..) = version() else { return Ok(None) };
        let handled = if version >= 3 { EVERYTHING | TRUNCATE } else { EVERYTHING };
        let attributes = RulesetAttributes { handled_access_fs: handled };
        // SAFETY: the attributes live until the call returns, and their size is said; the kernel only reads them.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                size_of::<RulesetAttributes>(),
                0u32,
            )
        };
        let Ok(descriptor @ 0..) = i32::try_from(answer) else { return Err(last_errno()) };
        // SAFETY: the kernel made this descriptor for us, close-on-exec, and nothing else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Some(Ruleset { descriptor, handled }))
    }

    /// Allows something below a directory. The descriptor may be one that only names it (`O_PATH`).
    pub fn allow_below(&self, directory: impl AsFd, access: Access) -> Result<(), Errno> {
        let all = match access {
            Access::Read => READ_FILE | READ_DIR | EXECUTE,
            Access::Write => EVERYTHING | TRUNCATE,
        };
        self.add(directory, all)
    }

    /// Allows something with one file.
    pub fn allow_file(&self, file: impl AsFd, access: Access) -> Result<(), Errno> {
        let all = match access {
            Access::Read => READ_FILE | EXECUTE,
            Access::Write => READ_FILE | WRITE_FILE | TRUNCATE,
        };
        self.add(file, all)
    }

    fn add(&self, file: impl AsFd, access: u64) -> Result<(), Errno> {
        let parent_fd = file.as_fd().as_raw_fd();
        let attributes = PathBeneath { allowed_access: access & self.handled, parent_fd };
        // SAFETY: the attributes live until the call returns, and both descriptors are open; the kernel only reads.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.descriptor.as_raw_fd(),
                PATH_BENEATH,
                &raw const attributes,
                0u32,
            )
        })
    }

    /// Holds the calling thread to it, and all that it starts, for ever. It gets no privileges by exec any more either. Allocates
    /// nothing.
    pub fn restrict_self(&self) -> Result<(), Errno> {
        crate::seccomp::no_new_privileges()?;
        // SAFETY: the descriptor is open; the call changes only what the calling thread may do.
        check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.descriptor.as_raw_fd(), 0u32) })
    }
}

/// `struct landlock_ruleset_attr` of the first version; a larger kernel takes the rest as zero.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
}

/// `struct landlock_path_beneath_attr`
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// `LANDLOCK_RULE_PATH_BENEATH`
const PATH_BENEATH: u32 = 1;
/// `LANDLOCK_ACCESS_FS_*` of linux/landlock.h: all of the first two versions.
const EVERYTHING: u64 = (1 << 14) - 1;
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;

    fn named(path: &Path) -> OwnedFd {
        open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn a_program_opens_nothing_but_what_is_allowed() {
        let Some(ruleset) = Ruleset::new().unwrap() else { return };
        let place = std::env::temp_dir().join(format!("belljar-landlock-{}", std::process::id()));
        let [inside, outside] = ["inside", "outside"].map(|name| place.join(name));
        for folder in [&inside, &outside] {
            fs::create_dir_all(folder.join("a")).unwrap();
            fs::create_dir(folder.join("b")).unwrap();
            fs::write(folder.join("a/file"), "text").unwrap();
        }
        symlink(&outside, inside.join("link")).unwrap();
        for folder in ["/usr", "/bin", "/lib", "/lib64", "/etc"].map(Path::new) {
            if folder.exists() {
                ruleset.allow_below(named(folder), Access::Read).unwrap();
            }
        }
        ruleset.allow_below(named(&inside), Access::Write).unwrap();
        ruleset.allow_file(named(Path::new("/dev/null")), Access::Write).unwrap();
        let ruleset = Arc::new(ruleset);
        let works = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &format!("exec 2> /dev/null; {script}")]).current_dir(&inside);
            crate::before_exec::confine(&mut command, Arc::clone(&ruleset)).status().unwrap().success()
        };
        assert!(works("cat a/file && echo x > a/new && mv a/new b/ && rm b/new && mkdir c && rmdir c"));
        for script in [
            "cat ../outside/a/file",
            "cat link/a/file",
            "ls link/",
            "echo x > link/a/file",
            "echo x > link/new",
            "rm link/a/file",
            "mv a/file link/b/",
            "ln link/a/file a/hard",
        ] {
            assert!(!works(script), "{script}");
        }
        assert_eq!(fs::read_to_string(outside.join("a/file")).unwrap(), "text");
        fs::remove_dir_all(place).unwrap();
    }
}
