//! A run in the foreground: what is shown of it, and ctrl-C. The first one stops the agent and keeps its work; the second
//! one stops belljar, and with it everything inside.

use super::super::block_on;
use super::screen::{Screen, Writing};
use crate::failure::exit_code;
use crate::foreground::EndSignals;
use belljar_spec::SandboxError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
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
    let (tell, stop) = oneshot::channel();
    let weak = Arc::downgrade(&shared.0);
    // A thread of its own, to the end of the program: it obeys whatever else is waited for.
    std::thread::spawn(|| {
        block_on(async {
            listen(EndSignals::new(), tell, weak).await;
            Ok(())
        })
    });
    let outcome = block_on(async {
        tokio::select! {
            outcome = work(shared.clone(), Stop(stop)) => outcome,
            () = ticking(&shared) => unreachable!("it never ends"),
        }
    });
    shared.lock().clear();
    drop(shared);
    // The last handle of the screen is dropped: its writer ends with what it has.
    let is_read = writing.wait();
    match outcome {
        // Saying it would wait for ever.
        Err(error) if !is_read => std::process::exit(i32::from(exit_code(&error))),
        outcome => outcome,
    }
}

async fn ticking(screen: &Shared) {
    loop {
        tokio::time::sleep(SECOND).await;
        screen.lock().tick();
    }
}

/// A request to end: the user pressed ctrl-C.
pub(super) struct Stop(oneshot::Receiver<()>);

impl Stop {
    /// Waits until the request comes.
    pub(super) async fn wait(self) {
        if self.0.await.is_err() {
            // The thread that listens for signals is gone, so the request will never come.
            std::future::pending().await
        }
    }
}

/// Passes on the first signal, and obeys the second one at once, whatever happens by then. Does not hold the screen: that
/// ends with the work.
async fn listen(mut signals: EndSignals, tell: oneshot::Sender<()>, screen: Weak<Mutex<Screen>>) {
    signals.next().await;
    // Once the work is over there is nothing left to stop but us.
    if announced(&screen, "stopping; what was done so far is kept (ctrl-C once more: at once)") {
        let _ = tell.send(());
        signals.next().await;
        if announced(&screen, "stopped at once") {
            // The writer thread writes it, if it is read.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    // The sandbox ends with us, to its last process.
    std::process::exit(i32::from(CANCELLED));
}

/// Says it if there is a screen. Never waits for its reader.
fn announced(screen: &Weak<Mutex<Screen>>, text: &str) -> bool {
    let Some(screen) = screen.upgrade() else { return false };
    Shared(screen).lock().announce(text);
    true
}

/// As a shell says it of a program that ctrl-C ended.
pub(super) const CANCELLED: u8 = 130;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
