//! Pseudo-terminals and the terminal we were started from.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

/// A new pseudo-terminal: the side that programs see, and ours.
pub struct Pair {
    /// Ours.
    pub controller: OwnedFd,
    /// Theirs.
    pub terminal: OwnedFd,
}

/// Opens a pair with its size already set, so that the first byte a program writes is laid out right.
pub fn open_pair(rows: u16, cols: u16) -> Result<Pair, Errno> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    set_size(&controller, rows, cols)?;
    let name = ptsname(&controller, Vec::new())?;
    use rustix::fs::{Mode, OFlags, open};
    let terminal = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Pair { controller, terminal })
}

/// Tells a terminal its size; the programs in it get SIGWINCH.
pub fn set_size(terminal: impl AsFd, rows: u16, cols: u16) -> Result<(), Errno> {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 })
}

/// A terminal's rows and columns.
pub fn size(terminal: impl AsFd) -> Result<(u16, u16), Errno> {
    let size = tcgetwinsize(terminal)?;
    Ok((size.ws_row, size.ws_col))
}

/// A terminal switched to raw mode: every key goes through as it is. Switched back on drop.
pub struct RawMode<F: AsFd> {
    terminal: F,
    before: Termios,
}

impl<F: AsFd> RawMode<F> {
    /// Switches `terminal`.
    pub fn enter(terminal: F) -> Result<RawMode<F>, Errno> {
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(RawMode { terminal, before })
    }
}

impl<F: AsFd> Drop for RawMode<F> {
    fn drop(&mut self) {
        // Nothing better can be done about a terminal that is gone.
        let _ = tcsetattr(&self.terminal, OptionalActions::Drain, &self.before);
    }
}
