//! Receives a file piece by piece. One that is cut short leaves nothing behind: a new file is removed again, and one that
//! was there keeps its content until all of the other has arrived.
//!
//! The content is replaced and not the file: its permissions, its owner, its other names and the links to it stay as they
//! are, and a file that is a mount can be written too.
//!
//! ```text
//! new       --pieces--> the file itself --cut short--> removed
//! replaced  --pieces--> memory --too many--> a file without a name --all there--> the file itself
//! ```

use crate::files::{PathRoot, regular};
use crate::stream::{Stream, fault};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, SeekFrom, fallocate, fstat, ftruncate, openat, seek, sendfile,
    statat, unlinkat,
};
use belljar_sys::rustix::io::{Errno, write};
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use belljar_wire::message::Reply;
use std::io;

/// Takes a file to its end. The error is a host that hung up.
pub(crate) fn take(place: &PathRoot, path: &str, stream: &mut Stream) -> io::Result<()> {
    let failed = |errno: Errno| Reply::Failed(fault(format!("write {path}"), errno));
    let mut upload = match Upload::begin(place, path) {
        Ok(upload) => Some(upload),
        Err(errno) => return stream.send_message(&failed(errno)),
    };
    stream.send_message(&Reply::Opened)?;
    // What the host sends is taken to its end in any case, so that it is there to read our answer.
    loop {
        let Some(frame) = stream.receive()? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        if frame.payload.is_empty() {
            break;
        }
        if let Some(open) = &mut upload
            && let Err(errno) = open.add(&frame.payload)
        {
            upload = None;
            stream.send_message(&failed(errno))?;
        }
    }
    match upload.map(Upload::finish) {
        Some(Ok(())) => stream.send_message(&Reply::Done),
        Some(Err(errno)) => stream.send_message(&failed(errno)),
        None => Ok(()),
    }
}

/// A file that is being taken.
struct Upload<'p> {
    place: &'p PathRoot,
    path: &'p str,
    file: OwnedFd,
    state: State,
}

enum State {
    /// The file was made for it.
    New,
    /// The content is kept until all of it is there.
    Held(Vec<u8>),
    /// There is too much of it, and it is kept here.
    Spooled(OwnedFd),
    /// There is nowhere to keep it.
    InPlace,
    /// It is all there.
    Finished,
}

impl<'p> Upload<'p> {
    fn begin(place: &'p PathRoot, path: &'p str) -> Result<Upload<'p>, Errno> {
        let upload = |file, state| Upload { place, path, file, state };
        match place.resolve(path, OFlags::WRONLY).and_then(regular) {
            Err(Errno::NOENT) => {}
            other => return other.map(|file| upload(file, State::Held(Vec::new()))),
        }
        match place.resolve(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
            // A link to a path that does not exist, or another process was faster.
            Err(Errno::EXIST) => {
                let file = place.resolve(path, OFlags::WRONLY | OFlags::CREATE).and_then(regular)?;
                Ok(upload(file, State::Held(Vec::new())))
            }
            other => other.map(|file| upload(file, State::New)),
        }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        if let State::Held(held) = &mut self.state {
            if held.len() + bytes.len() <= HELD {
                held.extend_from_slice(bytes);
                return Ok(());
            }
            let held = std::mem::take(held);
            self.state = match self.without_a_name() {
                Ok(spool) => State::Spooled(spool),
                Err(Errno::NOSPC | Errno::DQUOT) => return Err(Errno::NOSPC),
                // Not every filesystem knows such files, and a file may be ours where its folder is not.
                Err(_) => {
                    ftruncate(&self.file, 0)?;
                    State::InPlace
                }
            };
            self.add(&held)?;
        }
        match &self.state {
            State::Spooled(spool) => write_all(spool, bytes),
            State::New | State::InPlace | State::Held(_) | State::Finished => write_all(&self.file, bytes),
        }
    }

    fn without_a_name(&self) -> Result<OwnedFd, Errno> {
        let (folder, _) = self.place.parent(self.path)?;
        let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
        match openat(&folder, ".", flags | OFlags::TMPFILE, mode) {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(Errno::NOSPC),
            // gVisor knows no such files: one that has a name for a moment.
            Err(_) => {
                let name = format!(".belljar-{:016x}", random()?);
                let file = openat(&folder, &*name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
                unlinkat(&folder, &*name, AtFlags::empty())?;
                Ok(file)
            }
            made => made,
        }
    }

    fn finish(mut self) -> Result<(), Errno> {
        match &self.state {
            State::Held(held) => {
                self.make_room(held.len() as u64)?;
                write_all(&self.file, held)?;
                ftruncate(&self.file, held.len() as u64)?;
            }
            State::Spooled(spool) => {
                let length = seek(spool, SeekFrom::Current(0))?;
                self.make_room(length)?;
                seek(spool, SeekFrom::Start(0))?;
                while sendfile(&self.file, spool, None, AT_ONCE)? > 0 {}
                ftruncate(&self.file, length)?;
            }
            State::New | State::InPlace | State::Finished => {}
        }
        self.state = State::Finished;
        Ok(())
    }

    /// A disk that is full is found out before anything of the old content is gone.
    fn make_room(&self, length: u64) -> Result<(), Errno> {
        if length == 0 {
            return Ok(());
        }
        let before = fstat(&self.file)?.st_size.try_into().unwrap_or(0);
        let ask = |flags| fallocate(&self.file, flags, 0, length);
        let reserved = match ask(FallocateFlags::KEEP_SIZE) {
            // gVisor has only the plain kind, which makes it longer: it becomes as long as that anyway.
            Err(Errno::OPNOTSUPP) => ask(FallocateFlags::empty()),
            other => other,
        };
        match reserved {
            Err(Errno::NOSPC | Errno::DQUOT) => {
                ftruncate(&self.file, before)?;
                Err(Errno::NOSPC)
            }
            // Not every filesystem can be asked.
            _ => Ok(()),
        }
    }

    /// Removes the file that was made for this, if its name still means it.
    fn remove_one(&self) -> Result<(), Errno> {
        let ours = fstat(&self.file)?;
        let (folder, name) = self.place.parent(self.path)?;
        let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino) {
            unlinkat(&folder, name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if matches!(self.state, State::New) {
            // Where it cannot be removed, there is no caller left to tell.
            let _ = self.remove_one();
        }
    }
}

fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(file, bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// What is kept in memory: most files that are replaced are smaller.
const HELD: usize = 1024 * 1024;
/// What the kernel copies in one call; it has a bound of its own just below 2 GiB.
const AT_ONCE: usize = 1 << 30;
