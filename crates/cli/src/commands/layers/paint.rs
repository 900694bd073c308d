//! What goes to a terminal: colours of ours, and nothing that a file could say to it.

use super::super::print;
use super::diff::Reader;
use belljar_overlay::quote;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::stdio::stdout;
use belljar_sys::rustix::termios::isatty;
use std::io::{self, Write};

/// What is printed: for a person at a terminal, or as it is.
pub(super) struct Printer {
    text: Vec<u8>,
    terminal: bool,
    colours: bool,
}

impl Printer {
    pub(super) fn new() -> Printer {
        let terminal = isatty(stdout());
        // https://no-color.org
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Printer { text: Vec::new(), terminal, colours }
    }

    pub(super) fn plain(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    pub(super) fn added(&mut self, text: &str) {
        self.coloured(GREEN, text);
    }

    pub(super) fn removed(&mut self, text: &str) {
        self.coloured(RED, text);
    }

    /// A patch. Programs get its bytes; a terminal gets what can be seen of them.
    pub(super) fn patch(&mut self, patch: &[u8]) {
        if !self.terminal {
            self.text.extend_from_slice(patch);
            return;
        }
        let mut in_hunk = false;
        for line in patch.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            in_hunk = match line {
                line if line.starts_with(b"diff --git ") => false,
                line => in_hunk || line.starts_with(b"@@"),
            };
            let colour = match line.first() {
                Some(b'+') if in_hunk => GREEN,
                Some(b'-') if in_hunk => RED,
                Some(b'@') if in_hunk => CYAN,
                _ if !in_hunk => BOLD,
                _ => "",
            };
            self.coloured(colour, &quote::visible(line));
            self.text.push(b'\n');
        }
    }

    /// Whether it is time to print some of it.
    pub(super) fn is_full(&self) -> bool {
        self.text.len() > 64 * 1024
    }

    pub(super) fn print_some(&mut self) -> Result<Reader, SandboxError> {
        match io::stdout().write_all(&std::mem::take(&mut self.text)) {
            Ok(()) => Ok(Reader::There),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => {
                Err(ErrorCode::StreamFailed.error(format!("cannot write: {error}")).caused_by(error))
            }
        }
    }

    pub(super) fn print(self) -> Result<(), SandboxError> {
        print(&self.text).map(|_| ())
    }

    fn coloured(&mut self, colour: &str, text: &str) {
        if self.colours && !colour.is_empty() {
            self.plain(&format!("{colour}{text}{RESET}"));
        } else {
            self.plain(text);
        }
    }
}

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const CYAN: &str = "\x1b[36m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";
