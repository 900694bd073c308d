//! What comes from a running command, sorted for the two tasks that wait for it: output for the reader, room for standard
//! input for the writer.
//!
//! Each receives for both while the other does not wait, so that a caller that writes first and reads later makes progress.
//! Output that is received while the reader is away is kept, up to a limit: then both wait for the reader.

use crate::stream::FromGuest;
use belljar_spec::SandboxError;
use belljar_wire::frame::{Frame, Tag};
use belljar_wire::message::{self, ExecEvent, STDIN_WINDOW};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Mutex as Turn, Notify};

pub(crate) struct Window {
    from: Turn<FromGuest>,
    sorted: Mutex<Sorted>,
    /// Something was sorted, or fetched.
    changed: Notify,
}

/// What was received and not fetched yet.
struct Sorted {
    /// How much more standard input the guest takes.
    room: usize,
    output: VecDeque<Frame>,
}

impl Window {
    pub(crate) fn new(from: FromGuest) -> Window {
        let sorted = Sorted { room: STDIN_WINDOW, output: VecDeque::new() };
        Window { from: Turn::new(from), sorted: Mutex::new(sorted), changed: Notify::new() }
    }

    /// The next frame that is about the command. May be dropped while it waits: nothing is lost.
    pub(crate) async fn output(&self) -> Result<Frame, SandboxError> {
        self.until(|sorted| sorted.output.pop_front(), |_| true).await
    }

    /// Waits until the guest takes standard input, and says how much. May be dropped while it waits.
    pub(crate) async fn room(&self) -> Result<usize, SandboxError> {
        self.until(|sorted| Some(sorted.room).filter(|room| *room > 0), Sorted::has_space).await
    }

    /// So much of it was sent.
    pub(crate) fn spend(&self, length: usize) {
        let mut sorted = self.sorted();
        sorted.room = sorted.room.saturating_sub(length);
    }

    /// Fetches what is wanted, and listens until it is there, as long as that may be.
    async fn until<T>(
        &self,
        select: impl Fn(&mut Sorted) -> Option<T>,
        may_listen: impl Fn(&Sorted) -> bool,
    ) -> Result<T, SandboxError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let fetched = select(&mut self.sorted());
            if let Some(fetched) = fetched {
                self.changed.notify_waiters();
                return Ok(fetched);
            }
            if !may_listen(&self.sorted()) {
                changed.await;
                continue;
            }
            let mut from = tokio::select! {
                biased;
                () = changed => continue,
                from = self.from.lock() => from,
            };
            let frame = from.receive().await?;
            self.sorted().sort(frame);
            self.changed.notify_waiters();
        }
    }

    fn sorted(&self) -> MutexGuard<'_, Sorted> {
        self.sorted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sorted {
    fn sort(&mut self, frame: Frame) {
        let taken = match frame.tag {
            Tag::Message => match message::decode(&frame.payload) {
                Some(ExecEvent::Taken(taken)) => Some(taken),
                _ => None,
            },
            Tag::Stdin | Tag::Stdout | Tag::Stderr | Tag::Data => None,
        };
        match taken {
            // A guest cannot make us send more at once than others.
            Some(taken) => self.room = self.room.saturating_add(taken as usize).min(STDIN_WINDOW),
            None => self.output.push_back(frame),
        }
    }

    /// Whether more may be kept for a reader that is away.
    fn has_space(&self) -> bool {
        self.output.iter().map(|frame| frame.payload.len() + FRAME).sum::<usize>() < MAX_KEPT
    }
}

/// What keeping a frame costs, even an empty one.
const FRAME: usize = 64;
/// About what a pipe and a socket keep, too.
const MAX_KEPT: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_wire::frame::encode;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, Window) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_, from) = crate::stream::open(theirs).unwrap();
        (ours, Window::new(from))
    }

    fn say(guest: &mut UnixStream, tag: Tag, payload: &[u8]) {
        let mut frame = Vec::new();
        encode(tag, payload, &mut frame);
        guest.write_all(&frame).unwrap();
    }

    fn taken(length: u32) -> Vec<u8> {
        message::encode(&ExecEvent::Taken(length))
    }

    #[tokio::test]
    async fn a_writer_receives_for_the_reader() {
        let (mut guest, window) = pair();
        assert_eq!(window.room().await.unwrap(), STDIN_WINDOW);
        window.spend(STDIN_WINDOW);
        say(&mut guest, Tag::Stdout, b"first");
        say(&mut guest, Tag::Message, &taken(7));
        say(&mut guest, Tag::Stdout, b"second");
        assert_eq!(window.room().await.unwrap(), 7);
        assert_eq!(window.output().await.unwrap().payload, b"first");
        assert_eq!(window.output().await.unwrap().payload, b"second");
    }

    #[tokio::test]
    async fn a_reader_receives_for_the_writer() {
        let (mut guest, window) = pair();
        window.spend(STDIN_WINDOW);
        say(&mut guest, Tag::Message, &taken(7));
        say(&mut guest, Tag::Stderr, b"word");
        let (output, room) = tokio::join!(window.output(), window.room());
        assert_eq!((output.unwrap().payload.as_slice(), room.unwrap()), (&b"word"[..], 7));
    }

    #[tokio::test]
    async fn a_guest_gives_no_more_room_than_there_is() {
        let (mut guest, window) = pair();
        window.spend(1);
        say(&mut guest, Tag::Message, &taken(u32::MAX));
        say(&mut guest, Tag::Message, &taken(u32::MAX));
        say(&mut guest, Tag::Stdout, b"word");
        window.output().await.unwrap();
        assert_eq!(window.room().await.unwrap(), STDIN_WINDOW);
    }

    #[tokio::test]
    async fn what_is_kept_for_an_absent_reader_is_bounded() {
        let (mut guest, window) = pair();
        window.spend(STDIN_WINDOW);
        let flood = std::thread::spawn(move || {
            let piece = [0; 60_000];
            for _ in 0..100 {
                say(&mut guest, Tag::Stdout, &piece);
            }
            say(&mut guest, Tag::Message, &taken(1));
            guest
        });
        let waited = tokio::time::timeout(std::time::Duration::from_millis(300), window.room()).await;
        assert!(waited.is_err(), "{waited:?}");
        assert!(window.sorted().output.len() < 10);
        for _ in 0..100 {
            assert_eq!(window.output().await.unwrap().payload.len(), 60_000);
        }
        assert_eq!(window.room().await.unwrap(), 1);
        drop(flood.join());
        assert!(window.output().await.is_err() && window.room().await.is_ok());
    }
}
