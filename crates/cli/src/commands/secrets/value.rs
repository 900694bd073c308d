//! The value of a secret, from the user who sets it.

use belljar_spec::secret::SecretName;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::io::{dup, read as read_some, retry_on_intr};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::{QueueSelector, isatty, tcflush};
use belljar_sys::terminal::RawMode;
use belljar_vault::Secret;
use std::fs::File;
use std::io;
use zeroize::Zeroizing;

/// Asks for it at a terminal; else reads standard input to its end.
pub(in crate::commands) fn read(name: &SecretName) -> Result<Secret, SandboxError> {
    let failed = |error: io::Error| {
        ErrorCode::StreamFailed
            .error(format!("cannot read the value: {error}"))
            .hint("give it by a pipe or a file: `belljar secrets set NAME < FILE`")
            .caused_by(error)
    };
    if !isatty(stdin()) {
        // Without a buffer in between, which would keep a copy.
        let input = dup(stdin()).map(File::from).map_err(|error| failed(error.into()))?;
        return Secret::read_from(input).map_err(failed);
    }
    let typed = typed(&format!("Value of `{name}`, which is not shown: "));
    eprintln!();
    match typed.map_err(failed)? {
        Typed::Value(mut line) => Ok(Secret::new(std::mem::take(&mut *line))),
        Typed::Cancelled => Err(ErrorCode::RequestValue.error(format!("`{name}` is not set"))),
        Typed::Lines => Err(ErrorCode::RequestValue
            .error("the value has more than one line")
            .hint(format!("give it by a pipe or a file: `belljar secrets set {name} < FILE`"))),
    }
}

enum Typed {
    Value(Zeroizing<Vec<u8>>),
    /// By ctrl-C.
    Cancelled,
    /// More came behind the line break, as when several lines are pasted.
    Lines,
}

/// A line from the terminal that is not shown. Keys come one by one: were ctrl-C left to the terminal, it would end us and
/// leave the terminal silent.
fn typed(question: &str) -> io::Result<Typed> {
    let _raw = RawMode::enter(stdin())?;
    // Not before the terminal is silent: the user may answer at once.
    eprint!("{question}");
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_SECRET_BYTES));
    let outcome = loop {
        let mut key = [0];
        if retry_on_intr(|| read_some(stdin(), &mut key))? == 0 {
            break Typed::Value(line);
        }
        match key[0] {
            b'\r' | b'\n' if more_is_coming()? => break Typed::Lines,
            b'\r' | b'\n' | END => break Typed::Value(line),
            INTERRUPT => break Typed::Cancelled,
            BACKSPACE | DELETE => erase(&mut line),
            KILL_LINE => line.clear(),
            // Growing would leave a copy behind; the vault takes no value of this length.
            byte if line.len() < MAX_SECRET_BYTES => line.push(byte),
            _ => {}
        }
    };
    // What was pasted behind it must not become words of a shell.
    let _ = tcflush(stdin(), QueueSelector::IFlush);
    Ok(outcome)
}

/// A person who types has not pressed the next key yet.
fn more_is_coming() -> io::Result<bool> {
    let stdin = stdin();
    let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
    let a_moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    Ok(poll(&mut waiting, Some(&a_moment))? > 0)
}

/// Removes the last letter, which may have several bytes.
fn erase(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

/// More than the vault takes.
const MAX_SECRET_BYTES: usize = 66_000;
const INTERRUPT: u8 = 3;
const END: u8 = 4;
const BACKSPACE: u8 = 8;
const KILL_LINE: u8 = 21;
const DELETE: u8 = 127;
