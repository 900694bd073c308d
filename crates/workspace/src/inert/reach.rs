//! The directories in which a git process may open files. Whatever path a repository names (a link, `commondir`, `alternates`, an
//! included config, a table of refs), and even if the sandbox changes it while git runs: nothing else is read or written. The
//! kernel enforces it (Landlock, Linux 5.19 and newer); elsewhere the checks of [`crate::private_git::obstacle`] have to do.

use belljar_sys::landlock::{Access, Ruleset};
use belljar_sys::rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use belljar_sys::rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Directories with their real paths, and what git may do in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    directories: Vec<(PathBuf, Access)>,
    /// Files elsewhere that may be read: config that the repository's config includes. Git fails without it.
    files: Vec<PathBuf>,
}

impl Reach {
    /// May read below it.
    pub fn read(mut self, directory: &Path) -> Reach {
        self.directories.push((directory.to_path_buf(), Access::Read));
        self
    }

    /// May read and write below it.
    pub fn write(mut self, directory: &Path) -> Reach {
        self.directories.push((directory.to_path_buf(), Access::Write));
        self
    }

    /// May read this file, wherever it is.
    pub fn read_file(mut self, file: PathBuf) -> Reach {
        self.files.push(file);
        self
    }

    /// Both together.
    pub(super) fn and(mut self, other: Reach) -> Reach {
        self.directories.extend(other.directories);
        self.files.extend(other.files);
        self
    }

    /// As a Landlock ruleset, with the machine's programs and our own; `None` if the kernel does not support it. A link on the way
    /// to one of the directories is an error: the real path had none.
    pub(super) fn ruleset(&self, program: &Path) -> io::Result<Option<Ruleset>> {
        let Some(ruleset) = Ruleset::new()? else { return Ok(None) };
        // Where git was installed, as in `/opt/git/bin/git`.
        let real = program.canonicalize()?;
        let elsewhere = real.ancestors().nth(2).filter(|prefix| prefix.parent().is_some());
        for directory in PROGRAMS.into_iter().map(Path::new).chain(elsewhere) {
            match open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(opened) => ruleset.allow_below(opened, Access::Read)?,
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (device, access) in DEVICES {
            let opened = open(device, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            ruleset.allow_file(opened, access)?;
        }
        for (directory, access) in &self.directories {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                Ok(opened) => ruleset.allow_below(opened, *access)?,
                // Git itself reports a missing directory.
                Err(Errno::NOENT) => {}
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    return Err(io::Error::other(format!("`{}` leads elsewhere now", directory.display())));
                }
                Err(error) => return Err(error.into()),
            }
        }
        for file in self.files.iter().filter(|file| file.is_file()) {
            if let Ok(opened) = open(file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                ruleset.allow_file(opened, Access::Read)?;
            }
        }
        Ok(Some(ruleset))
    }
}

/// For names of temporary files.
const DEVICES: [(&str, Access); 2] = [("/dev/null", Access::Write), ("/dev/urandom", Access::Read)];
/// Programs, their libraries and the files that these read, for every git.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/nix/store"];
