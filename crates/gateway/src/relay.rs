//! Bytes, both ways, until both sides have said all.
//!
//! What arrives in small pieces is read and written, which takes two system calls; what arrives faster than that goes
//! through a pipe that the kernel moves pages over (splice), and the pipe goes away when the stream is quiet. An idle
//! connection holds no buffer.

use crate::serving::Meter;
use belljar_spec::egress::Reason;
use belljar_sys::rustix::fd::AsFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{Shutdown, shutdown};
use belljar_sys::rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// How many bytes went which way.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Out of the sandbox.
    pub(crate) sent: AtomicU64,
    /// Into it.
    pub(crate) received: AtomicU64,
    /// Whether it ended because the sandbox had no bytes left: a protocol library between us loses the error.
    pub(crate) ran_out: AtomicBool,
}

/// Why a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides had said all.
    Finished,
    /// The side inside broke off.
    BrokenInside,
    /// The side outside did.
    BrokenOutside,
    /// Refused on the way.
    Refused(Reason),
}

/// Relays until the end. `ahead` was read from inside already.
pub(crate) async fn relay(
    inside: &TcpStream,
    outside: &TcpStream,
    ahead: Vec<u8>,
    counts: &Counts,
    meter: &Meter,
) -> End {
    // Set by the direction that ends first: the other one then ends the connection, and need not say so twice.
    let half = AtomicBool::new(false);
    let out = async {
        write(outside, &ahead, &counts.sent, meter).await.map_err(|stop| stop.at(End::BrokenOutside))?;
        drop(ahead);
        copy(inside, outside, &counts.sent, meter, &half).await.map_err(|stop| match stop {
            Stop::Reading => End::BrokenInside,
            Stop::Writing => End::BrokenOutside,
            Stop::Refused(reason) => End::Refused(reason),
        })
    };
    let back = async {
        copy(outside, inside, &counts.received, meter, &half).await.map_err(|stop| match stop {
            Stop::Reading => End::BrokenOutside,
            Stop::Writing => End::BrokenInside,
            Stop::Refused(reason) => End::Refused(reason),
        })
    };
    let both = async {
        match tokio::try_join!(out, back) {
            Ok(_) => End::Finished,
            Err(end) => end,
        }
    };
    tokio::select! {
        end = both => end,
        () = silence(counts) => End::Refused(Reason::IdleTimeout),
    }
}

/// Returns when nothing went either way for a long time. Looks at the counts now and then, which costs a relay
/// nothing while it works.
pub(crate) async fn silence(counts: &Counts) {
    let total = || counts.sent.load(Ordering::Relaxed) + counts.received.load(Ordering::Relaxed);
    let mut seen = total();
    loop {
        sleep_until(Instant::now() + IDLE).await;
        let now = total();
        if now == seen {
            return;
        }
        seen = now;
    }
}

/// Where one direction stopped.
pub(crate) enum Stop {
    Reading,
    Writing,
    Refused(Reason),
}

impl Stop {
    fn at(self, broken: End) -> End {
        match self {
            Stop::Refused(reason) => End::Refused(reason),
            Stop::Reading | Stop::Writing => broken,
        }
    }
}

async fn copy(
    from: &TcpStream,
    to: &TcpStream,
    count: &AtomicU64,
    meter: &Meter,
    half: &AtomicBool,
) -> Result<(), Stop> {
    let mut turn = Turn::default();
    loop {
        turn.taken().await;
        let piece = read(from).await?;
        match piece {
            Piece::End => {
                if half.swap(true, Ordering::Relaxed) {
                    return Ok(());
                }
                // The other side may still have something to say.
                return shutdown(to, Shutdown::Write).map_err(|_| Stop::Writing);
            }
            Piece::Small(length) => write_scratch(to, length, count, meter).await?,
            Piece::Full => {
                write_scratch(to, SCRATCH, count, meter).await?;
                pour(from, to, count, meter).await?;
            }
        }
    }
}

/// What one read brought; the bytes are in the scratch buffer.
enum Piece {
    End,
    Small(usize),
    /// As much as there was room for: more is waiting.
    Full,
}

async fn read(from: &TcpStream) -> Result<Piece, Stop> {
    loop {
        match BUFFER.with_borrow_mut(|buffer| from.try_read(buffer)) {
            Ok(0) => return Ok(Piece::End),
            Ok(SCRATCH) => return Ok(Piece::Full),
            Ok(length) => return Ok(Piece::Small(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                from.readable().await.map_err(|_| Stop::Reading)?;
            }
            Err(_) => return Err(Stop::Reading),
        }
    }
}

/// Writes what was just read. Only what the other side does not take at once is kept for this connection.
async fn write_scratch(to: &TcpStream, length: usize, count: &AtomicU64, meter: &Meter) -> Result<(), Stop> {
    let rest = BUFFER.with_borrow(|buffer| {
        let bytes = &buffer[..length];
        meter.spend(length as u64).map_err(Stop::Refused)?;
        count.fetch_add(length as u64, Ordering::Relaxed);
        match to.try_write(bytes) {
            Ok(written) if written == length => Ok(Vec::new()),
            Ok(written) => Ok(bytes[written..].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(bytes.to_vec()),
            Err(_) => Err(Stop::Writing),
        }
    })?;
    write_all(to, &rest).await
}

/// Pays for bytes, counts them, and writes them.
pub(crate) async fn write(
    to: &TcpStream,
    bytes: &[u8],
    count: &AtomicU64,
    meter: &Meter,
) -> Result<(), Stop> {
    meter.spend(bytes.len() as u64).map_err(Stop::Refused)?;
    count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    write_all(to, bytes).await
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> Result<(), Stop> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                to.writable().await.map_err(|_| Stop::Writing)?;
            }
            Err(_) => return Err(Stop::Writing),
        }
    }
    Ok(())
}

/// Moves pages while there are many; returns when there is nothing to move at the moment.
async fn pour(from: &TcpStream, to: &TcpStream, count: &AtomicU64, meter: &Meter) -> Result<(), Stop> {
    // Where all pipes are taken, or there are too many open files, the bytes are moved in small pieces.
    let Some(_wide) = Wide::take() else { return Ok(()) };
    let Ok((pipe_out, pipe_in)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else { return Ok(()) };
    // More than the default moves more a system call; where that is not granted, the default does.
    let _ = fcntl_setpipe_size(&pipe_in, PIPE);
    let mut small = 0;
    let mut turn = Turn::default();
    loop {
        turn.taken().await;
        let moved = from.try_io(Interest::READABLE, || move_pages(from, &pipe_in, PIPE));
        let length = match moved {
            Ok(0) => return Ok(()), // the end, which the next read sees again
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                small += 1;
                if small > MAX_SMALL_READS {
                    return Ok(());
                }
                from.readable().await.map_err(|_| Stop::Reading)?;
                continue;
            }
            Err(_) => return Err(Stop::Reading),
        };
        if length >= SCRATCH {
            small = 0;
        }
        meter.spend(length as u64).map_err(Stop::Refused)?;
        count.fetch_add(length as u64, Ordering::Relaxed);
        let mut left = length;
        while left > 0 {
            match to.try_io(Interest::WRITABLE, || move_pages(&pipe_out, to, left)) {
                Ok(moved) => left -= moved.min(left),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    to.writable().await.map_err(|_| Stop::Writing)?;
                }
                Err(_) => return Err(Stop::Writing),
            }
        }
    }
}

/// One of the pipes that there may be. What is in a pipe waits in the host's memory, until the peer reads it.
struct Wide;

impl Wide {
    fn take() -> Option<Wide> {
        let taken = WIDE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < MAX_WIDE).then_some(taken + 1)
        });
        taken.ok().map(|_| Wide)
    }
}

impl Drop for Wide {
    fn drop(&mut self) {
        WIDE.fetch_sub(1, Ordering::Relaxed);
    }
}

static WIDE: AtomicU32 = AtomicU32::new(0);

/// One connection's turn. A stream that never has to wait must not keep the others waiting.
#[derive(Default)]
struct Turn(u32);

impl Turn {
    async fn taken(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(PIECES) {
            yield_now().await;
        }
    }
}

fn move_pages(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    loop {
        match splice(&from, None, &to, None, most, flags) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

/// Ends a connection so that the other side sees at once that it was not let through.
pub(crate) fn reset(stream: TcpStream) {
    // With nothing left to linger for, closing sends a reset.
    let _ = stream.set_zero_linger();
}

thread_local! {
    /// Shared by every relay of the thread: a piece is written, or kept by its connection, before the next is read.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// One read.
const SCRATCH: usize = 32 * 1024;
/// Pieces in one turn.
const PIECES: u32 = 16;
/// One pipe: what the kernel grants every user (/proc/sys/fs/pipe-max-size).
const PIPE: usize = 1024 * 1024;
/// As many as an ordinary user gets (/proc/sys/fs/pipe-user-pages-soft), whichever user runs us.
const MAX_WIDE: u32 = 32;
/// So many waits for bytes without a large piece between them, and the pipe goes away.
const MAX_SMALL_READS: u32 = 64;
/// Longer than a stream of a model that thinks for ten minutes; looked at once in as long.
const IDLE: Duration = Duration::from_secs(30 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use tokio::task::spawn_blocking;
    use tokio::time::sleep;

    /// Both ends of a connection: the gateway's, and that of a program.
    fn pair() -> (TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let theirs =
            std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (ours, _) = listener.accept().expect("a connection");
        ours.set_nonblocking(true).expect("a socket");
        (TcpStream::from_std(ours).expect("an event loop"), theirs)
    }

    /// The clock is paused but for what is slept, and for a thread that works it is paused altogether.
    #[tokio::test(start_paused = true)]
    async fn a_stream_is_quiet_for_minutes_and_continues_and_one_that_is_silent_ends() {
        let ((inside, mut client), (outside, mut server)) = (pair(), pair());
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let relayed =
            tokio::spawn(
                async move { relay(&inside, &outside, Vec::new(), &counted, &Meter::new(None)).await },
            );
        for quiet in [10, 29, 10, 29, 29, 29] {
            sleep(Duration::from_secs(quiet * 60)).await;
            (client, server) = spawn_blocking(move || {
                let mut byte = [0];
                client.write_all(b"x").expect("the relay continues");
                server.read_exact(&mut byte).expect("the relay continues");
                (client, server)
            })
            .await
            .expect("said and heard");
        }
        let last = Instant::now();
        assert_eq!(relayed.await.expect("it ends"), End::Refused(Reason::IdleTimeout));
        assert!((IDLE..=2 * IDLE).contains(&last.elapsed()), "{:?}", last.elapsed());
        assert_eq!(counts.sent.load(Ordering::Relaxed), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_on_which_nothing_was_ever_said_ends() {
        let ((inside, _client), (outside, _server)) = (pair(), pair());
        let began = Instant::now();
        let end = relay(&inside, &outside, Vec::new(), &Counts::default(), &Meter::new(None)).await;
        assert_eq!((end, began.elapsed() >= IDLE), (End::Refused(Reason::IdleTimeout), true));
    }
}
