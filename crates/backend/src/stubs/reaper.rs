//! The process that takes stubs away.

use super::note::Note;
use crate::embedded;
use belljar_spec::SandboxError;
use belljar_sys::launch::{Capabilities, Launch, Namespaces, Program, Started, launch};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{CWD, Mode, OFlags, openat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::pipe::{PipeFlags, pipe_with};
use belljar_sys::rustix::process::{WaitId, WaitIdOptions, waitid};
use std::ffi::{CStr, CString};
use std::path::Path;

/// A reaper that waits for us to let go. Dropped, it has done its work.
pub(super) struct Reaper {
    /// It sees this one close, whatever becomes of us.
    pipe: Option<OwnedFd>,
    process: Started,
}

impl Reaper {
    /// Starts one for these notes, and for the sandbox whose first process `guest` is.
    pub(super) fn start(
        kept_program: Option<&Path>,
        directory: &Path,
        notes: &[Note],
        guest: Option<BorrowedFd<'_>>,
    ) -> Result<Reaper, SandboxError> {
        let failed = |errno: Errno| {
            let message = format!("cannot start the process that cleans up after a sandbox: {errno}");
            SandboxError::runtime("reaper_failed", message)
        };
        let (theirs, pipe) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, directory, flags, Mode::empty()).map_err(failed)?;
        let mut inherit = vec![theirs.as_fd(), directory.as_fd()];
        inherit.extend(notes.iter().flat_map(|note| [note.file(), note.folder.as_fd()]));
        inherit.extend(guest);
        let names: Result<Vec<CString>, _> =
            notes.iter().map(|note| CString::new(note.name.as_str())).collect();
        let names = names.map_err(|_| failed(Errno::INVAL))?;
        let whom = if guest.is_some() { c"sandbox" } else { c"nobody" };
        let words = [c"belljar-guest", c"reap", whom].into_iter().chain(names.iter().map(CString::as_c_str));
        let (process, ()) = launch(
            &Launch {
                program: Program::Open(embedded::program(kept_program)?),
                argv: &words.collect::<Vec<&CStr>>(),
                env: &[],
                namespaces: Namespaces::NONE,
                identity: None,
                capabilities: Capabilities::Usual,
                cgroup: None,
                tasks_files: &[],
                inherit: &inherit,
                stderr: None,
            },
            |_| (),
        )
        .map_err(failed)?;
        let reaper = Reaper { pipe: Some(pipe), process };
        match reaper.process.executed() {
            Ok(Ok(())) => Ok(reaper),
            Ok(Err(failure)) => Err(failed(failure.errno)),
            Err(_) => Err(failed(Errno::IO)),
        }
    }

    /// Lets go, and waits until it has ended. Whether it did its work.
    pub(super) fn finish(&mut self) -> bool {
        if self.pipe.take().is_none() {
            return true;
        }
        loop {
            match waitid(WaitId::PidFd(self.process.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                ended => return matches!(ended, Ok(Some(status)) if status.exit_status() == Some(0)),
            }
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.finish();
    }
}
