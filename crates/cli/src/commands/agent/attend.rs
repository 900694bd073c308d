//! A run in the foreground: what is shown of it, and ctrl-C. The first one stops the agent and keeps its work; the second
//! one stops belljar, and with it everything inside.

use super::super::block_on;
use super::screen::{Screen, Writing};
use belljar_spec::SandboxError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// A screen that several look at.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Screen>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Screen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does work that takes long, and shows it. Everything is written when this is over.
pub(super) fn attended<T, W>(
    (screen, writing): (Screen, Writing),
    work: impl FnOnce(Shared, Stop) -> W,
) -> Result<T, SandboxError>
where
    W: Future<Output = Result<T, SandboxError>>,
{
    let shared = Shared(Arc::new(Mutex::new(screen)));
    block_on(async {
        let (tell, stop) = oneshot::channel();
        tokio::spawn(listen(Signals::catch(), tell, Arc::downgrade(&shared.0)));
        let outcome = tokio::select! {
            outcome = work(shared.clone(), Stop(stop)) => outcome,
            () = ticking(&shared) => unreachable!("it never ends"),
        };
        shared.lock().clear();
        drop(shared);
        // Nobody holds the screen any more: its writer ends with what it has.
        let _ = tokio::task::spawn_blocking(|| writing.wait()).await;
        outcome
    })
}

async fn ticking(screen: &Shared) {
    loop {
        tokio::time::sleep(SECOND).await;
        screen.lock().tick();
    }
}

/// Somebody wants it to end.
pub(super) struct Stop(oneshot::Receiver<()>);

impl Stop {
    /// Waits until somebody does.
    pub(super) async fn wait(self) {
        if self.0.await.is_err() {
            // Nobody listens any more, and so nobody will.
            std::future::pending().await
        }
    }
}

/// Passes on the first one, and obeys the second one at once, whatever goes on by then. Does not hold the screen: that ends
/// with the work.
async fn listen(mut signals: Signals, tell: oneshot::Sender<()>, screen: Weak<Mutex<Screen>>) {
    signals.next().await;
    if let Some(screen) = screen.upgrade() {
        Shared(screen).lock().announce("stopping; what was done so far is kept (ctrl-C once more: at once)");
    }
    let _ = tell.send(());
    signals.next().await;
    // The sandbox ends with us, to its last process.
    eprintln!("\nbelljar: stopped at once");
    std::process::exit(i32::from(CANCELLED));
}

/// Those that ask a program to end.
struct Signals([Option<Signal>; 3]);

impl Signals {
    fn catch() -> Signals {
        // One that cannot be caught does to us what it always does.
        Signals(
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .map(|kind| signal(kind).ok()),
        )
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            () = one(interrupt) => {}
            () = one(terminate) => {}
            () = one(hangup) => {}
        }
    }
}

async fn one(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => {
            signals.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// As a shell says it of a program that ctrl-C ended.
pub(super) const CANCELLED: u8 = 130;
const SECOND: Duration = Duration::from_secs(1);
