//! Our own standard streams, waited for without blocking the rest. Nothing about them is changed: they are shared with the
//! process that started us.

use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use belljar_sys::rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use belljar_sys::rustix::io::{Errno, read, write};
use belljar_sys::rustix::time::Timespec;
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
            self.ready(PollFlags::IN).await?;
            match read(self.fd.0.as_fd(), &mut *buffer) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.ready(PollFlags::OUT).await?;
            // A pipe that is ready takes this much without making us wait: pipe(7).
            match write(self.fd.0.as_fd(), &bytes[..bytes.len().min(PIPE_BUF)]) {
                Ok(length) => bytes = &bytes[length..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Waits until the kernel says that it is ready now. The stream blocks, so no call ever says that it would have to
    /// wait; and the runtime hears of changes only. So the kernel is asked, before and after each wait.
    async fn ready(&self, what: PollFlags) -> io::Result<()> {
        let Some(readiness) = &self.readiness else { return Ok(()) };
        let now = || -> io::Result<bool> {
            let mut fds = [PollFd::new(&self.fd.0, what)];
            poll(&mut fds, Some(&Timespec::default()))?;
            Ok(!fds[0].revents().is_empty())
        };
        while !now()? {
            let mut change = match what {
                PollFlags::IN => readiness.readable().await?,
                _ => readiness.writable().await?,
            };
            if !now()? {
                change.clear_ready();
            }
        }
        Ok(())
    }
}

const PIPE_BUF: usize = 4096;
