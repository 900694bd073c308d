//! Packs the objects of an agent's git directory that the host lacks.
//!
//! git never runs on the agent's directory: its objects are copied as files into a scratch repository of ours beside the
//! quarantine, packed there, and the pack goes through the same [`Quarantine::take`] as one that was pushed.

use super::receive::{Incoming, beginning};
use super::store::{lay_out, make_directory};
use super::{HostRepository, Quarantine, QuarantineError, Taken};
use crate::foreign::{Copied, Foreign, ForeignError};
use crate::inert::{Running, pack_limits};
use belljar_git::ObjectId;
use belljar_spec::git::PushLimits;
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

impl Quarantine {
    /// Takes the objects that these tips need beyond the host's refs from a git directory that an agent writes to.
    pub(crate) fn take_from(
        &self,
        from: &Foreign,
        host: &HostRepository,
        tips: &[ObjectId],
        known: &[ObjectId],
        limits: PushLimits,
    ) -> Result<Taken, QuarantineError> {
        let scratch = self.directory.join("scratch");
        make_directory(&scratch)?;
        lay_out(&scratch, host)?;
        let objects = scratch.join("objects");
        let mut copied = Copied::new(limits);
        let names: HashSet<ObjectId> = known.iter().cloned().collect();
        copied.needed(from, tips, &names, &objects).map_err(spoiled)?;
        match self.take_packed(&scratch, tips, known, limits) {
            Err(QuarantineError::Refused(_)) => {}
            outcome => return outcome,
        }
        // An object is missing: it is in a pack, or a ref on the host is broken.
        for pack in copied.everything(from, None, &objects).map_err(spoiled)? {
            let call = self.call_on(&scratch).args(["index-pack", "--threads=1"]).arg(&pack).with_thread();
            let running = call.limited(pack_limits(limits.bytes.as_u64())).spawn()?;
            // A pack that git cannot read counts as empty.
            let _ = running.wait_with_output();
        }
        self.take_packed(&scratch, tips, &self.existing(known)?, limits)
    }

    pub(super) fn take_packed(
        &self,
        scratch: &Path,
        tips: &[ObjectId],
        known: &[ObjectId],
        limits: PushLimits,
    ) -> Result<Taken, QuarantineError> {
        let words = ["pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset"];
        let mut running = self
            .call_on(scratch)
            .args(words)
            .limited(pack_limits(limits.bytes.as_u64()))
            .with_thread()
            .spawn()?;
        let revisions =
            tips.iter().map(|id| format!("{id}\n")).chain(known.iter().map(|id| format!("^{id}\n")));
        let revisions = revisions.collect::<String>();
        if let Some(mut stdin) = running.stdin.take() {
            // Not joined: git reads all its input, or ends.
            thread::spawn(move || stdin.write_all(revisions.as_bytes()));
        }
        let complaints = running.stderr.take().map(|stderr| thread::spawn(move || beginning(stderr)));
        let mut packing = Packing { running, complaints };
        let taken = self.take(&[], &mut packing, limits);
        match (packing.finish()?, taken) {
            (None, taken) => taken,
            // If both failed, the first one has the reason.
            (Some(_), Err(error @ QuarantineError::Refused(belljar_git::PushRefusal::Bytes { .. }))) => {
                Err(error)
            }
            (Some(reason), _) => Err(QuarantineError::pack(reason)),
        }
    }
}

/// A running `git pack-objects`.
struct Packing {
    running: Running,
    complaints: Option<JoinHandle<Vec<u8>>>,
}

impl Packing {
    /// Why it failed, if it did.
    fn finish(mut self) -> Result<Option<String>, QuarantineError> {
        // The reader closed the pipe early: it has refused the pack.
        drop(self.running.stdout.take());
        let output = self.running.wait_with_output().map_err(QuarantineError::Broken)?;
        let stderr = self.complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let finished = crate::inert::Finished { code: output.status.code(), stdout: Vec::new(), stderr };
        Ok((finished.code != Some(0)).then(|| finished.reason()))
    }
}

impl Incoming for Packing {
    fn read_unless(
        &mut self,
        buffer: &mut [u8],
        other: BorrowedFd<'_>,
        time_limit: Duration,
    ) -> io::Result<Option<usize>> {
        let stdout = self.running.stdout.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        let timeout = Timespec::try_from(time_limit).map_err(io::Error::other)?;
        let mut files = [PollFd::new(&stdout, PollFlags::IN), PollFd::from_borrowed_fd(other, PollFlags::IN)];
        if poll(&mut files, Some(&timeout))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        let (is_ours, is_other) = (!files[0].revents().is_empty(), !files[1].revents().is_empty());
        match is_other && !is_ours {
            true => Ok(None),
            false => stdout.read(buffer).map(Some),
        }
    }
}

/// Files that an agent made differently from git.
fn spoiled(error: ForeignError) -> QuarantineError {
    QuarantineError::pack(error.to_string())
}
