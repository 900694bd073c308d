//! Ports of a sandbox in the foreground: those that lead into it are said before it runs, and those that a program inside opens when it does.

use belljar_engine::Forwarding;
use belljar_sys::rustix::stdio::stderr;
use belljar_sys::rustix::termios::isatty;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Says where the ports of this machine lead.
pub(super) fn say(forwarding: &Forwarding) {
    for at in forwarding.ports() {
        eprintln!("belljar: {} leads to port {} inside", SocketAddr::new(at.address, at.port), at.inside);
    }
}

/// Tells a person of each port that a program inside opens, except those that are `known`, for as long as the event loop runs. `look` says
/// which are open, and nothing where that cannot be known; `way` is the command that leads to one. A program may have the whole screen:
/// there the window's title says it.
pub(super) fn tell<F>(
    look: impl Fn() -> F + Send + 'static,
    way: impl Fn(u16) -> String + Send + 'static,
    mut known: BTreeSet<u16>,
    has_terminal: bool,
) -> AbortHandle
where
    F: Future<Output = Option<Vec<u16>>> + Send,
{
    let is_read = isatty(stderr());
    let task = async move {
        // Nothing that reads a log waits for a port.
        if !is_read {
            return;
        }
        loop {
            sleep(LOOK_INTERVAL).await;
            // A backend without a network of its own never has an answer; a sandbox that ends has none either.
            let Some(open) = look().await else { return };
            for port in open.into_iter().filter(|port| known.insert(*port)) {
                opened(port, &way(port), has_terminal);
            }
        }
    };
    tokio::spawn(task).abort_handle()
}

fn opened(port: u16, way: &str, has_terminal: bool) {
    let text = match has_terminal {
        true => format!("\x1b]2;port {port} is open inside: {way}\x07"),
        false => format!("belljar: port {port} is open inside: `{way}` leads to it\n"),
    };
    // One write, so that it stands in no sequence of the program's.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Soon enough for a person, and one short question of the guest each time.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
