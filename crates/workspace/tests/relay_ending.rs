//! The end of a sandbox in the middle of a push: an incomplete push is aborted, a complete one lands, and nothing takes for ever. A
//! stopped git stands in for one that computes as long as a pack can make it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::relay::{Raw, Stage, commands, indexer, pack_of, push};
use crate::repository::Repository;
use belljar_sys::rustix::process::{Pid, Signal, kill_process, test_kill_process};
use belljar_workspace::relay::RelayEvent;
use std::fs;
use std::net::Shutdown;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// With a branch `agent/x` on the host, and a commit on top of it that the host lacks.
struct Pushing {
    stage: Stage,
    raw: Raw,
    old: String,
    new: String,
    pack: Vec<u8>,
}

impl Pushing {
    /// A push has begun, and all but its last byte has arrived; the unpacking git is stopped.
    fn begin(landing: Duration) -> (Pushing, Pid) {
        let stage = Stage::new().landing(landing);
        let clone = stage.clone_as("clone");
        clone.git(&["checkout", "-q", "-b", "agent/x"]);
        let old = clone.commit("work", "one\n", "work");
        push(&clone, &["agent/x"]);
        let new = clone.commit("work", "two\n", "work");
        let pack = pack(&clone);
        let mut raw = Raw::push(stage.address);
        raw.send(&commands(&[(old.clone(), new.clone(), "refs/heads/agent/x")]));
        raw.send(&pack[..pack.len() - 1]);
        let process = indexer(&stage.place.join("state"));
        kill_process(process, Signal::STOP).unwrap();
        (Pushing { stage, raw, old, new, pack }, process)
    }

    fn send_last_byte(&mut self) {
        let last = self.pack.len() - 1;
        self.raw.send(&self.pack[last..]);
        while !is_read(&self.raw) {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the relay, and runs `meanwhile` at the same time.
    fn end(&mut self, meanwhile: impl FnOnce()) {
        let (relay, (sender, receiver)) = (self.stage.relay.take(), channel());
        let ending = thread::spawn(move || {
            drop(relay);
            sender.send(()).unwrap();
        });
        meanwhile();
        receiver.recv_timeout(FOR_EVER).unwrap();
        ending.join().unwrap();
    }

    fn tip(&self) -> String {
        self.stage.host.git(&["rev-parse", "agent/x"])
    }

    fn broken(&self) -> Vec<String> {
        let events = self.stage.events.lock().unwrap();
        let why = events.iter().filter_map(|event| match event {
            RelayEvent::Broken { why } => Some(why.clone()),
            _ => None,
        });
        why.collect()
    }
}

fn pack(clone: &Repository) -> Vec<u8> {
    let list = clone.git(&["rev-list", "--objects", "--no-object-names", "agent/x", "^host/agent/x"]) + "\n";
    pack_of(&clone.folder, &list)
}

/// Whether the relay has read all that was sent to it (proc(5), `/proc/net/tcp`).
fn is_read(raw: &Raw) -> bool {
    let (ours, theirs) = (raw.socket.local_addr().unwrap().port(), raw.socket.peer_addr().unwrap().port());
    let rows = fs::read_to_string("/proc/net/tcp").unwrap();
    rows.lines().any(|row| {
        let words = row.split_whitespace().collect::<Vec<_>>();
        words[1].ends_with(&format!(":{theirs:04X}"))
            && words[2].ends_with(&format!(":{ours:04X}"))
            && words[4].ends_with(":00000000")
    })
}

#[test]
fn a_push_that_does_not_land_is_given_up() {
    let (mut pushing, process) = Pushing::begin(Duration::from_millis(500));
    pushing.send_last_byte();
    let _ = pushing.raw.socket.shutdown(Shutdown::Write);
    // The relay now waits only for git; it did so before, without a time limit.
    thread::sleep(Duration::from_millis(300));
    pushing.end(|| {});
    assert_eq!(pushing.tip(), pushing.old);
    assert!(test_kill_process(process).is_err(), "it is still there");
    assert!(pushing.broken()[0].contains("took too long to land"), "{:?}", pushing.broken());
    pushing.stage.assert_swept();
    pushing.stage.host.git(&["fsck", "--strict"]);
}

#[test]
fn a_push_that_has_not_come_whole_is_given_up_at_once() {
    let (mut pushing, process) = Pushing::begin(2 * FOR_EVER);
    pushing.end(|| kill_process(process, Signal::CONT).unwrap());
    assert_eq!(pushing.tip(), pushing.old);
    assert_eq!(pushing.broken(), ["the push ended in the middle: the sandbox has ended"]);
    pushing.stage.assert_swept();
}

#[test]
fn a_push_that_has_come_whole_lands_after_the_end() {
    let (mut pushing, process) = Pushing::begin(2 * FOR_EVER);
    pushing.send_last_byte();
    pushing.end(|| kill_process(process, Signal::CONT).unwrap());
    assert_eq!(pushing.tip(), pushing.new);
    pushing.stage.assert_swept();
}

/// Longer than anything that is not stuck.
const FOR_EVER: Duration = Duration::from_secs(60);
