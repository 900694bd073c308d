//! Our own standard streams, waited for without blocking the rest. Nothing about them is changed: they are shared
//! with whoever started us.

use belljar_sys::rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use belljar_sys::rustix::io::{Errno, read, write};
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One of our standard streams.
pub(crate) struct HostStream {
    fd: Standard,
    /// `None` for files, which are always ready.
    readiness: Option<AsyncFd<Standard>>,
}

#[derive(Clone, Copy)]
struct Standard(BorrowedFd<'static>);

impl AsRawFd for Standard {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl HostStream {
    pub(crate) fn stdin() -> HostStream {
        HostStream::new(belljar_sys::rustix::stdio::stdin(), Interest::READABLE)
    }

    pub(crate) fn stdout() -> HostStream {
        HostStream::new(belljar_sys::rustix::stdio::stdout(), Interest::WRITABLE)
    }

    pub(crate) fn stderr() -> HostStream {
        HostStream::new(belljar_sys::rustix::stdio::stderr(), Interest::WRITABLE)
    }

    fn new(fd: BorrowedFd<'static>, interest: Interest) -> HostStream {
        let fd = Standard(fd);
        // The safe constructor is deprecated for descriptors that might be closed under it; these never are.
        #[expect(deprecated, reason = "its replacement is unsafe, and our standard streams stay open")]
        let readiness = AsyncFd::with_interest(fd, interest).ok();
        HostStream { fd, readiness }
    }

    /// The next bytes; none at the end.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let ready = match &self.readiness {
                Some(readiness) => Some(readiness.readable().await?),
                None => None,
            };
            let outcome = read(self.fd.0.as_fd(), &mut *buffer);
            if let Some(mut ready) = ready {
                // Another wait asks the kernel again: what we read may have been all there is.
                ready.clear_ready();
            }
            match outcome {
                Err(Errno::INTR | Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let ready = match &self.readiness {
                Some(readiness) => Some(readiness.writable().await?),
                None => None,
            };
            // A pipe that is ready takes this much without making us wait: pipe(7).
            let piece = &bytes[..bytes.len().min(PIPE_BUF)];
            let outcome = write(self.fd.0.as_fd(), piece);
            if let Some(mut ready) = ready {
                ready.clear_ready();
            }
            match outcome {
                Ok(length) => bytes = &bytes[length..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

const PIPE_BUF: usize = 4096;
