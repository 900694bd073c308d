//! Moves bytes between a command and its stream until both are done.
//!
//! Everything waits in one poll. Output is read only when the last piece has left, so a slow reader slows the command. Of
//! standard input the host sends no more than a window that the command has not taken, and is told when it has: nothing
//! piles up, and what the host says besides (signals, sizes) is read at once, whether the command reads or not.
//!
//! ```text
//! running --stopped--> told to the host, which continues it
//! running --status--> ended: take what the pipes hold at that moment --all sent--> done
//!    \--host closed its direction--> tree killed --status--> ended
//!    \--supervisor killed from inside--> everything killed, said so, done
//! ```

use crate::exec::{Ends, Running};
use crate::stream::Stream;
use crate::tree;
use belljar_sys::rustix::buffer::spare_capacity;
use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use belljar_sys::rustix::fd::{BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::statvfs;
use belljar_sys::rustix::io::{Errno, ioctl_fionbio, ioctl_fionread, read, retry_on_intr, write};
use belljar_sys::rustix::process::{Pid, Signal, kill_process, kill_process_group};
use belljar_sys::spawn::Supervised;
use belljar_sys::terminal;
use belljar_wire::frame::{self, CHUNK, FrameReader, Tag};
use belljar_wire::message::{self, Disk, Ending, ExecControl, ExecEvent, STDIN_WINDOW};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Where a command writes, and how its bytes are tagged.
pub(crate) struct Output {
    pipe: OwnedFd,
    tag: Tag,
    /// How much of it is still the command's: all that comes, until it ends.
    left: u64,
}

impl Output {
    pub(crate) fn stdout(pipe: OwnedFd) -> Output {
        Output { pipe, tag: Tag::Stdout, left: u64::MAX }
    }

    pub(crate) fn stderr(pipe: OwnedFd) -> Output {
        Output { pipe, tag: Tag::Stderr, left: u64::MAX }
    }

    /// The command has ended: what it wrote is in here already, and what others write from now on is not its own.
    fn ends(&mut self, is_terminal: bool) {
        self.left = match ioctl_fionread(&self.pipe) {
            // A terminal says how much is in the line, and not what is still on its way there.
            Ok(held) if !is_terminal => held,
            _ => MAX_HELD_BYTES,
        };
    }
}

pub(crate) struct Relay<'w> {
    socket: OwnedFd,
    reader: FrameReader,
    /// Ready when the host has closed its direction, where the socket itself does not say so.
    alarm: Option<OwnedFd>,
    /// Bytes on their way to the host.
    leaving: Vec<u8>,
    /// That the command is stopped is among them.
    stop_is_leaving: bool,
    supervised: Supervised,
    mark: Option<u64>,
    terminal: Option<OwnedFd>,
    outputs: Vec<Output>,
    stdin: Option<OwnedFd>,
    /// Bytes on their way to the command.
    arriving: Vec<u8>,
    /// What the command took, or will never take, and the host was not told of yet.
    taken: usize,
    /// No more of them will come.
    stdin_closing: bool,
    /// The host still has something to say.
    host_open: bool,
    state: State,
    /// Whether /tmp is the sandbox's own.
    private: bool,
    /// Watches the control socket while this thread is busy here: no other thread does, until a request arrives.
    watch: Watch<'w>,
}

/// The control socket, and what to call when a request waits at it.
pub(crate) struct Watch<'w> {
    pub(crate) control_socket: BorrowedFd<'w>,
    pub(crate) call: &'w dyn Fn(),
}

enum State {
    Running,
    Ended(ExecEvent),
    Done,
}

impl<'w> Relay<'w> {
    pub(crate) fn new(
        stream: Stream,
        running: Running,
        ends: Ends,
        private: bool,
        watch: Watch<'w>,
    ) -> io::Result<Relay<'w>> {
        let (socket, reader, alarm) = stream.into_parts();
        let Ends { stdin, outputs, terminal } = ends;
        let Running { supervised, mark } = running;
        for fd in outputs.iter().map(|output| &output.pipe).chain([&socket, &stdin]) {
            ioctl_fionbio(fd, true)?;
        }
        let mut leaving = Vec::new();
        if let Ok(command) = u32::try_from(supervised.command) {
            frame::encode(Tag::Message, &message::encode(&ExecEvent::Started(command)), &mut leaving);
        }
        Ok(Relay {
            socket,
            reader,
            alarm,
            leaving,
            stop_is_leaving: false,
            supervised,
            mark,
            terminal,
            outputs,
            stdin: Some(stdin),
            arriving: Vec::new(),
            taken: 0,
            stdin_closing: false,
            host_open: true,
            state: State::Running,
            private,
            watch,
        })
    }

    pub(crate) fn run(mut self) -> io::Result<()> {
        // Never filled with zeros: most commands write little.
        let mut buffer = Vec::with_capacity(CHUNK);
        let outcome = loop {
            self.take_requests();
            if let State::Done = self.state
                && self.leaving.is_empty()
            {
                break Ok(());
            }
            match self.wait() {
                Ok(ready) => {
                    if let Err(error) = self.serve(&ready, &mut buffer) {
                        break Err(error);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno.into()),
            }
        };
        if outcome.is_err() {
            // The host no longer listens: a command is not to continue without its host.
            self.kill_tree();
        }
        outcome
    }

    /// Waits for the first thing that can be done.
    fn wait(&self) -> Result<Ready, Errno> {
        let mut interest = PollFlags::RDHUP;
        // A host that keeps to its window is always read.
        if self.host_open && self.arriving.len() <= STDIN_WINDOW {
            interest |= PollFlags::IN;
        }
        if !self.leaving.is_empty() {
            interest |= PollFlags::OUT;
        }
        // A direction that the host closed is ready for ever: it is looked at once.
        let socket_matters = self.host_open || interest.contains(PollFlags::OUT);
        let mut fds = vec![PollFd::new(&self.supervised.status, PollFlags::IN)];
        if socket_matters {
            let interest = if self.host_open { interest } else { interest - PollFlags::RDHUP };
            fds.push(PollFd::new(&self.socket, interest));
        }
        let stdin_at = fds.len();
        if let (Some(stdin), false) = (&self.stdin, self.arriving.is_empty()) {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        let outputs_at = fds.len();
        if self.leaving.is_empty() {
            fds.extend(self.outputs.iter().map(|output| PollFd::new(&output.pipe, PollFlags::IN)));
        }
        let control_socket_at = fds.len();
        fds.push(PollFd::new(&self.watch.control_socket, PollFlags::IN));
        let alarm_at = fds.len();
        if let (Some(alarm), true) = (&self.alarm, self.host_open) {
            fds.push(PollFd::new(alarm, PollFlags::IN));
        }
        if !matches!(self.state, State::Running) {
            // How it ended is known; only the rest matters, and all of that is at hand.
            fds[0] = PollFd::new(&self.supervised.status, PollFlags::empty());
        }
        let timeout = (!matches!(self.state, State::Running) && self.leaving.is_empty())
            .then(belljar_sys::rustix::time::Timespec::default);
        poll(&mut fds, timeout.as_ref())?;
        let happened = |index: usize| fds.get(index).map_or(PollFlags::empty(), PollFd::revents);
        Ok(Ready {
            control_socket: !happened(control_socket_at).is_empty(),
            alarm: !happened(alarm_at).is_empty(),
            status: matches!(self.state, State::Running) && !happened(0).is_empty(),
            socket: if socket_matters { happened(1) } else { PollFlags::empty() },
            stdin: stdin_at < outputs_at && !happened(stdin_at).is_empty(),
            outputs: (outputs_at..control_socket_at).map(|index| !happened(index).is_empty()).collect(),
        })
    }

    fn serve(&mut self, ready: &Ready, buffer: &mut Vec<u8>) -> io::Result<()> {
        if ready.control_socket {
            (self.watch.call)();
        }
        if ready.socket.intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if ready.socket.contains(PollFlags::OUT) {
            self.flush()?;
        }
        if (ready.socket.contains(PollFlags::RDHUP) || ready.alarm) && self.host_open {
            self.host_open = false;
            self.kill_tree();
        } else if ready.socket.contains(PollFlags::IN) {
            buffer.clear();
            match read(&self.socket, spare_capacity(buffer)) {
                Ok(_) => self.reader.push(buffer),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if ready.stdin {
            self.feed();
        }
        self.collect(&ready.outputs, buffer);
        if ready.status {
            match self.read_status() {
                // The answer to one that is on its way continues it again.
                ExecEvent::Stopped if self.stop_is_leaving => {}
                ExecEvent::Stopped => {
                    self.stop_is_leaving = true;
                    frame::encode(Tag::Message, &message::encode(&ExecEvent::Stopped), &mut self.leaving);
                }
                ended => {
                    self.state = State::Ended(ended);
                    let is_terminal = self.terminal.is_some();
                    self.outputs.iter_mut().for_each(|output| output.ends(is_terminal));
                }
            }
        }
        if let State::Ended(event) = &self.state
            && self.outputs.is_empty()
        {
            frame::encode(Tag::Message, &message::encode(event), &mut self.leaving);
            self.state = State::Done;
            self.flush()?;
        }
        Ok(())
    }

    /// Obeys every frame that has arrived whole.
    fn take_requests(&mut self) {
        loop {
            let frame = match self.reader.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => {
                    self.host_open = false;
                    self.kill_tree();
                    break;
                }
            };
            match frame.tag {
                Tag::Stdin if self.stdin.is_some() && !self.stdin_closing => {
                    let is_first = self.arriving.is_empty();
                    self.arriving.extend(frame.payload);
                    if is_first {
                        self.feed();
                    }
                }
                Tag::Stdin => self.took(frame.payload.len()),
                Tag::Message => self.obey(&frame.payload),
                Tag::Stdout | Tag::Stderr | Tag::Data => {}
            }
        }
    }

    fn obey(&mut self, payload: &[u8]) {
        match message::decode(payload) {
            Some(ExecControl::CloseStdin) => {
                self.stdin_closing = true;
                self.close_stdin();
            }
            Some(ExecControl::Resize(size)) => {
                if let Some(terminal) = &self.terminal {
                    let _ = terminal::set_size(terminal, size.rows, size.cols);
                    // gVisor sends no signal. A process that does not handle this one ignores it.
                    if let (Some(mark), Some(root)) = (self.mark, Pid::from_raw(self.supervised.supervisor)) {
                        tree::signal_tree(root, mark, Signal::WINCH);
                    }
                }
            }
            Some(ExecControl::Signal(number)) => {
                let signal = Signal::from_named_raw(number);
                if let (Some(group), Some(signal)) = (Pid::from_raw(self.supervised.command), signal) {
                    let _ = kill_process_group(group, signal);
                    if let (Signal::KILL, Some(supervisor)) =
                        (signal, Pid::from_raw(self.supervised.supervisor))
                    {
                        // One that is stopped, as in a sandbox that is paused, would not say that its command is gone.
                        let _ = kill_process(supervisor, Signal::CONT);
                    }
                }
            }
            None => {}
        }
    }

    fn feed(&mut self) {
        let Some(stdin) = &self.stdin else { return };
        match write(stdin, &self.arriving) {
            Ok(length) => {
                self.arriving.drain(..length);
                self.took(length);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The command does not read any more: what it did not take is not for it.
            Err(_) => {
                self.took(self.arriving.len());
                self.arriving.clear();
                self.stdin = None;
            }
        }
        if self.stdin_closing {
            self.close_stdin();
        }
    }

    /// There is room for more. Reported only now and then: a person who types never fills a window.
    fn took(&mut self, length: usize) {
        self.taken += length;
        if self.taken >= STDIN_WINDOW / 4 && matches!(self.state, State::Running) {
            let taken = u32::try_from(std::mem::take(&mut self.taken)).unwrap_or(u32::MAX);
            frame::encode(Tag::Message, &message::encode(&ExecEvent::Taken(taken)), &mut self.leaving);
        }
    }

    /// Closes standard input once everything before has been taken. A terminal has no such end: the key for it
    /// is a byte like others.
    fn close_stdin(&mut self) {
        if self.arriving.is_empty() && self.terminal.is_none() {
            self.stdin = None;
        }
    }

    fn collect(&mut self, ready: &[bool], buffer: &mut Vec<u8>) {
        let ended = !matches!(self.state, State::Running);
        let mut index = 0;
        let leaving = &mut self.leaving;
        self.outputs.retain_mut(|output| {
            let looked_at = ready.get(index).copied();
            index += 1;
            // The first one that gave something: the next waits until that has left.
            if !leaving.is_empty() {
                return true;
            }
            // A background process may write for ever.
            if output.left == 0 {
                return false;
            }
            match looked_at {
                // It was not asked while something was leaving: it may hold more.
                None => return true,
                Some(false) => return !ended,
                Some(true) => {}
            }
            buffer.clear();
            let mut outcome = read(&output.pipe, spare_capacity(buffer));
            if outcome == Err(Errno::IO) {
                // A terminal that the last process has left. The kernel looks for bytes before it looks for open ends: what
                // was written in between is there at the second look.
                outcome = read(&output.pipe, spare_capacity(buffer));
            }
            match outcome {
                Ok(0) => false,
                Ok(length) => {
                    let mine = output.left.min(length as u64);
                    output.left -= mine;
                    frame::encode(output.tag, &buffer[..mine as usize], leaving);
                    true
                }
                Err(Errno::AGAIN) => !ended,
                Err(Errno::INTR) => true,
                // A terminal that no process has open.
                Err(_) => false,
            }
        });
        if !self.leaving.is_empty() {
            let _ = self.flush();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.leaving.is_empty() {
            match write(&self.socket, &self.leaving) {
                Ok(length) => {
                    self.leaving.drain(..length);
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.stop_is_leaving = false;
        Ok(())
    }

    fn read_status(&self) -> ExecEvent {
        let mut bytes = [0; 4];
        match retry_on_intr(|| read(&self.supervised.status, &mut bytes)) {
            Ok(4) => match ExitStatus::from_raw(i32::from_ne_bytes(bytes)) {
                status if status.stopped_signal().is_some() => ExecEvent::Stopped,
                status => ExecEvent::Ended { ending: ending(status), disk: self.disk() },
            },
            _ => {
                // A process inside killed the supervisor, perhaps to outlive it: all processes are killed.
                tree::kill_below_us();
                ExecEvent::SupervisorLost
            }
        }
    }

    /// The private filesystem, all of which is one: its temporary directory stands for it. What found no room may give some
    /// back as it ends, databases do; so a little that is free is full too.
    fn disk(&self) -> Disk {
        match statvfs("/tmp") {
            Ok(tmp) if self.private && tmp.f_blocks > 0 => {
                let little = (tmp.f_blocks / 64).min(LITTLE / tmp.f_frsize.max(1));
                if tmp.f_bavail <= little { Disk::Full } else { Disk::Free }
            }
            _ => Disk::Free,
        }
    }

    fn kill_tree(&self) {
        if let Some(supervisor) = Pid::from_raw(self.supervised.supervisor) {
            tree::kill_tree(supervisor, self.mark);
        }
    }
}

struct Ready {
    control_socket: bool,
    alarm: bool,
    status: bool,
    socket: PollFlags,
    stdin: bool,
    outputs: Vec<bool>,
}

fn ending(status: ExitStatus) -> Ending {
    match status.signal() {
        Some(signal) => Ending::Signaled(signal),
        None => Ending::Exited(status.code().unwrap_or(0)),
    }
}

/// What a terminal may hold, or a pipe that does not say: more than any kernel keeps there.
const MAX_HELD_BYTES: u64 = 1024 * 1024;
/// Of room for files, where a lot of it could be there.
const LITTLE: u64 = 1024 * 1024;
