//! A command's output as server-sent events.

use super::command::{Command, Progress};
use super::log::LogPosition;
use super::text;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use belljar_api::CommandEvent;
use futures_util::{Stream, stream};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Which events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// From its start to its end.
    All,
    /// What was written behind this cursor, and what will be, to its end.
    Behind(u64),
    /// What was written behind this cursor by now.
    Now(u64),
}

/// The events of a command.
pub(super) fn events(
    command: Arc<Command>,
    which: Which,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let from = match which {
        Which::All => 0,
        Which::Behind(from) | Which::Now(from) => from,
    };
    let place = command.log().place(from);
    let following = Following {
        place,
        progress: command.progress(),
        command,
        begin: which == Which::All,
        only_now: matches!(which, Which::Now(_)),
        over: false,
    };
    let next =
        |mut following: Following| async move { following.next().await.map(|event| (Ok(event), following)) };
    Sse::new(stream::unfold(following, next)).keep_alive(KeepAlive::new().interval(QUIET))
}

struct Following {
    command: Arc<Command>,
    progress: watch::Receiver<Progress>,
    place: LogPosition,
    begin: bool,
    only_now: bool,
    over: bool,
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.begin) {
            // So that the client learns its process id.
            self.command.has_started().await;
            return Some(self.event(&CommandEvent::Started { command: self.command.info_at_start() }));
        }
        while !self.over {
            let Progress { ended, .. } = *self.progress.borrow_and_update();
            // A client that wants only the output so far gets all of it, to the last byte.
            let written = text::next(&self.command.log(), &mut self.place, ended || self.only_now);
            match written {
                Ok(Some(event)) => return Some(self.event(&event)),
                Ok(None) if ended => {
                    self.over = true;
                    let result = self.command.result().cloned().unwrap_or_default();
                    return Some(self.event(&CommandEvent::Ended { result }));
                }
                Ok(None) if !self.only_now => {
                    // We hold the command, and with it the sender: it cannot be closed.
                    let _ = self.progress.changed().await;
                }
                // What cannot be read again ends here, and the reader can come back with its cursor.
                Ok(None) | Err(_) => self.over = true,
            }
        }
        None
    }

    fn event(&self, event: &CommandEvent) -> Event {
        let text = serde_json::to_string(event).expect("an event is words and numbers");
        Event::default().id(self.place.cursor.to_string()).data(text)
    }
}

/// After so long without an event a keep-alive is sent, so that no proxy between takes the connection for dead.
const QUIET: Duration = Duration::from_secs(15);
