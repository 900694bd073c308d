//! Where a sandbox is in its life, and what may happen next. Pure: told what happened, it says what is to be done. Only the
//! sandbox's own task (`task`) carries that out.
//!
//! ```text
//!            hold                ready                  pause
//!  Stopped ────────► Starting ──────────► Live ◄────────────────► Paused
//!     ▲                 │ failed           │        resume           │
//!     │                 ▼                  ▼                         ▼
//!     │ files kept   ┌──────────────────────────────────────────────────┐
//!     └───────────── │ Stopping: stop, delete, idle, the shim died       │ ──────► Gone
//!                    └──────────────────────────────────────────────────┘  wiped
//! ```
//!
//! A sandbox that is new begins as Stopped, with nothing on disk. Its shim may die in any state; its sandbox then ends as by a stop
//! that no caller asked for. Files are wiped where the sandbox is ephemeral, was never ready, or is deleted. While it is Starting
//! or Stopping, every command that needs it to be one or the other waits.

use crate::identity::Role;
use crate::shim::Stop;

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Being made, woken up, or found again.
    Starting,
    Live,
    Paused,
    /// On the way to Stopped or, where its files go, to its end.
    Stopping(Stop),
    Stopped,
    /// Nothing is left.
    Gone,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A caller wants a lease on it.
    Acquire(Role),
    /// Its shim is there.
    Ready {
        paused: bool,
    },
    /// Its shim did not come up.
    Failed,
    Pause,
    Resume,
    Stop,
    Delete,
    /// It was neither held nor used for long enough.
    Idle,
    /// Its shim died without having been stopped.
    Died,
    /// Its shim is gone, and its files, if they were to go.
    Ended,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is as it should be.
    Nothing,
    /// Start a shim.
    Start,
    Pause,
    Resume,
    /// End the shim, and see to the files.
    End(Stop),
    /// Ask again when it has arrived where it is going.
    Wait,
    Refuse,
}

/// What a sandbox is, as far as its life goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nature {
    pub persistent: bool,
    /// It was ready once.
    pub was_ready: bool,
}

impl Nature {
    /// What becomes of the files when it stops without having been deleted.
    pub(crate) fn files(self) -> Stop {
        if self.persistent && self.was_ready { Stop::Keep } else { Stop::Wipe }
    }
}

/// What comes of an event.
pub(crate) fn step(phase: Phase, event: Event, nature: Nature) -> (Phase, Act) {
    let ending = |files| (Phase::Stopping(files), Act::End(files));
    match (phase, event) {
        (Phase::Stopped, Event::Acquire(Role::Owner)) => (Phase::Starting, Act::Start),
        (Phase::Stopped, Event::Acquire(Role::Guest)) => (phase, Act::Refuse),
        (Phase::Live | Phase::Paused, Event::Acquire(_)) => (phase, Act::Nothing),

        (Phase::Starting, Event::Ready { paused: false }) => (Phase::Live, Act::Nothing),
        (Phase::Starting, Event::Ready { paused: true }) => (Phase::Paused, Act::Nothing),
        (Phase::Starting, Event::Failed | Event::Died) => ending(nature.files()),

        (Phase::Live, Event::Pause) => (Phase::Paused, Act::Pause),
        (Phase::Paused, Event::Resume) => (Phase::Live, Act::Resume),
        (Phase::Live, Event::Resume) | (Phase::Paused, Event::Pause) => (phase, Act::Nothing),
        (Phase::Stopped, Event::Pause | Event::Resume) => (phase, Act::Refuse),

        (Phase::Live | Phase::Paused, Event::Stop | Event::Idle | Event::Died) => ending(nature.files()),
        (Phase::Stopped, Event::Stop) => (phase, Act::Nothing),
        (Phase::Live | Phase::Paused | Phase::Stopped, Event::Delete) => ending(Stop::Wipe),

        (Phase::Stopping(Stop::Keep), Event::Ended) => (Phase::Stopped, Act::Nothing),
        (Phase::Stopping(Stop::Wipe), Event::Ended) => (Phase::Gone, Act::Nothing),

        (
            Phase::Starting | Phase::Stopping(_),
            Event::Acquire(_) | Event::Pause | Event::Resume | Event::Stop | Event::Delete,
        ) => (phase, Act::Wait),
        // What is gone comes back under no circumstances; deleting it twice is no mistake.
        (Phase::Gone, Event::Delete | Event::Stop) => (phase, Act::Nothing),
        (Phase::Gone, Event::Acquire(_) | Event::Pause | Event::Resume) => (phase, Act::Refuse),

        // News that came too late.
        (_, Event::Ready { .. } | Event::Failed | Event::Idle | Event::Died | Event::Ended) => {
            (phase, Act::Nothing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Acquire(Role::Owner)),
            Just(Event::Acquire(Role::Guest)),
            any::<bool>().prop_map(|paused| Event::Ready { paused }),
            Just(Event::Failed),
            Just(Event::Pause),
            Just(Event::Resume),
            Just(Event::Stop),
            Just(Event::Delete),
            Just(Event::Idle),
            Just(Event::Died),
            Just(Event::Ended),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn no_order_of_events_leads_astray(persistent: bool, events in prop::collection::vec(events(), 0..60)) {
            let mut nature = Nature { persistent, was_ready: false };
            let mut phase = Phase::Stopped;
            for event in events {
                let (next, act) = step(phase, event, nature);
                // Only an owner brings one to life, and only a deletion or its nature removes files.
                prop_assert_eq!(act == Act::Start, phase == Phase::Stopped && event == Event::Acquire(Role::Owner));
                if let Act::End(files) = act {
                    let wiped = event == Event::Delete || !persistent || !nature.was_ready;
                    prop_assert_eq!(files == Stop::Wipe, wiped);
                    prop_assert_eq!(next, Phase::Stopping(files));
                }
                // It waits only where something is under way.
                if act == Act::Wait {
                    prop_assert!(matches!(phase, Phase::Starting | Phase::Stopping(_)));
                }
                if act == Act::Wait || act == Act::Refuse {
                    prop_assert_eq!(next, phase);
                }
                if phase == Phase::Gone {
                    prop_assert_eq!(next, Phase::Gone);
                }
                if phase != next && next == Phase::Gone {
                    prop_assert_eq!((phase, event), (Phase::Stopping(Stop::Wipe), Event::Ended));
                }
                nature.was_ready |= phase == Phase::Starting && matches!(next, Phase::Live | Phase::Paused);
                phase = next;
            }
            // Whatever happened, a deletion leads to the end.
            for event in [Event::Ready { paused: false }, Event::Ended, Event::Delete, Event::Ended] {
                phase = step(phase, event, nature).0;
            }
            prop_assert_eq!(phase, Phase::Gone);
        }
    }
}
