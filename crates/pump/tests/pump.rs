//! Two pumps and the connection between them.

use belljar_pump::{Hangup, Pump, tcp_pair};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use belljar_wire::mux::{MOST_STREAMS, Side, WINDOW};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// The host's pump, and where the guest's gives what arrives: what for, and a socket.
struct Wall {
    host: Pump,
    guest: Pump,
    arrived: Receiver<(Vec<u8>, OwnedFd)>,
    back: Receiver<(Vec<u8>, OwnedFd)>,
}

#[derive(Clone, Copy)]
enum Sockets {
    Unix,
    Tcp,
}

fn wall(sockets: Sockets) -> Wall {
    let (one, other) = UnixStream::pair().expect("a connection");
    let end = |connection: UnixStream, side: Side| {
        let (send, receive) = channel();
        let pump = Pump::start(
            connection.into(),
            side,
            Box::new(move |header| {
                let (ours, theirs): (OwnedFd, OwnedFd) = match sockets {
                    Sockets::Unix => UnixStream::pair().map(|(a, b)| (a.into(), b.into())).ok()?,
                    Sockets::Tcp => tcp_pair().ok()?,
                };
                send.send((header.to_vec(), theirs)).ok()?;
                (header != b"nobody").then_some(ours.into())
            }),
        );
        (pump.expect("a pump"), receive)
    };
    let ((host, back), (guest, arrived)) = (end(one, Side::Host), end(other, Side::Guest));
    Wall { host, guest, arrived, back }
}

impl Wall {
    /// A stream from the host to the guest: both ends.
    fn open(&self, hangup: Hangup) -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        self.host.open(b"what for", theirs.as_fd(), hangup).expect("a stream");
        drop(theirs);
        let (header, socket) = self.arrived.recv().expect("it arrives");
        assert_eq!(header, b"what for");
        (ours, socket.into())
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 % 251) as u8).collect()
}

#[test]
fn much_goes_both_ways_at_once() {
    let wall = wall(Sockets::Unix);
    let much = pattern(20 * WINDOW as usize + 17);
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (ours, theirs) = wall.open(Hangup::Waits);
            let much = much.clone();
            let echo = |stream: UnixStream, much: Vec<u8>| {
                let mut reader = stream.try_clone().expect("a copy");
                let writer = thread::spawn(move || {
                    (&stream).write_all(&much).expect("written");
                    stream.shutdown(Shutdown::Write).expect("an end");
                });
                let mut all = Vec::new();
                reader.read_to_end(&mut all).expect("read");
                writer.join().expect("the writer");
                all
            };
            let other = much.clone();
            let guest = thread::spawn(move || echo(theirs, other));
            thread::spawn(move || (echo(ours, much), guest.join().expect("the guest")))
        })
        .collect();
    for worker in workers {
        let (from_guest, from_host) = worker.join().expect("a worker");
        assert!(from_guest == much && from_host == much);
    }
}

#[test]
fn a_reader_that_sleeps_keeps_nobody_else_waiting() {
    let wall = wall(Sockets::Unix);
    let (stuck, _nobody_reads) = wall.open(Hangup::Waits);
    stuck.set_nonblocking(true).expect("set");
    let mut written = 0;
    loop {
        match (&stuck).write(&[1; 65536]) {
            Ok(length) => written += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock && written >= WINDOW as usize => break,
            Err(_) => thread::yield_now(),
        }
    }
    let (mut ours, mut theirs) = wall.open(Hangup::Waits);
    ours.write_all(b"still here?").expect("written");
    let mut answer = [0; 11];
    theirs.read_exact(&mut answer).expect("read");
    assert_eq!(&answer, b"still here?");
}

#[test]
fn who_hangs_up_is_heard_before_what_nobody_takes() {
    let wall = wall(Sockets::Unix);
    let (ours, theirs) = wall.open(Hangup::Cuts);
    ours.set_nonblocking(true).expect("set");
    let (mut refused, mut written) = (0, 0);
    while refused < 100 || written < WINDOW as usize {
        match (&ours).write(&[1; 65536]) {
            Ok(length) => (refused, written) = (0, written + length),
            Err(_) => {
                refused += 1;
                thread::yield_now();
            }
        }
    }
    ours.shutdown(Shutdown::Write).expect("an end");
    // Reading nothing, it learns of the end.
    let socket = theirs.as_fd();
    let mut waiting = [belljar_sys::rustix::event::PollFd::from_borrowed_fd(
        socket,
        belljar_sys::rustix::event::PollFlags::RDHUP,
    )];
    belljar_sys::rustix::event::poll(&mut waiting, None).expect("it ends");
    (&theirs).write_all(b"good-bye").expect("the other direction is open");
    drop(theirs);
    ours.set_nonblocking(false).expect("set");
    let mut last = String::new();
    (&ours).read_to_string(&mut last).expect("read");
    assert_eq!(last, "good-bye");
}

#[test]
fn all_that_was_written_before_the_end_arrives() {
    let wall = wall(Sockets::Unix);
    let (mut ours, mut theirs) = wall.open(Hangup::Cuts);
    let much = pattern(3 * WINDOW as usize);
    let expected = much.clone();
    let guest = thread::spawn(move || {
        theirs.write_all(&much).expect("written");
        drop(theirs);
    });
    thread::sleep(Duration::from_millis(50));
    let mut all = Vec::new();
    ours.read_to_end(&mut all).expect("read");
    assert!(all == expected);
    guest.join().expect("the guest");
    // Nobody is there any more: whoever goes on writing is told, and does not wait for ever.
    while ours.write(&[0; 4096]).is_ok() {}
}

#[test]
fn a_reset_is_a_reset_on_the_other_side() {
    let wall = wall(Sockets::Tcp);
    let (client, accepted) = tcp_pair().expect("sockets");
    wall.guest.open(b"caught", accepted.as_fd(), Hangup::Waits).expect("a stream");
    drop(accepted);
    let (header, server) = wall.back.recv().expect("it arrives");
    assert_eq!(header, b"caught");
    let (mut client, server) = (TcpStream::from(client), TcpStream::from(server));
    client.write_all(b"hello").expect("written");
    let mut heard = [0; 5];
    (&server).read_exact(&mut heard).expect("read");
    belljar_sys::rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO)).expect("set");
    drop(server);
    assert_eq!(client.read(&mut [0; 1]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

#[test]
fn an_end_in_good_order_is_one_on_the_other_side() {
    let wall = wall(Sockets::Tcp);
    let (client, accepted) = tcp_pair().expect("sockets");
    wall.guest.open(b"caught", accepted.as_fd(), Hangup::Waits).expect("a stream");
    drop(accepted);
    let (_, server) = wall.back.recv().expect("it arrives");
    let (mut client, mut server) = (TcpStream::from(client), TcpStream::from(server));
    client.write_all(b"question").expect("written");
    client.shutdown(Shutdown::Write).expect("half an end");
    let mut question = String::new();
    server.read_to_string(&mut question).expect("read");
    server.write_all(b"answer").expect("written");
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("read");
    assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
}

#[test]
fn a_stream_that_nobody_wants_ends_at_once() {
    let wall = wall(Sockets::Unix);
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    wall.host.open(b"nobody", theirs.as_fd(), Hangup::Cuts).expect("a stream");
    drop(theirs);
    let mut nothing = Vec::new();
    ours.read_to_end(&mut nothing).expect("read");
    assert_eq!(nothing, b"");
}

#[test]
fn streams_that_ended_make_room_for_others() {
    let wall = wall(Sockets::Unix);
    for _ in 0..MOST_STREAMS + 10 {
        let (mut ours, theirs) = wall.open(Hangup::Cuts);
        drop(theirs);
        assert_eq!(ours.read(&mut [0; 1]).expect("read"), 0);
    }
}

#[test]
fn one_stream_too_many_is_refused_to_whoever_wants_it() {
    allow_many_descriptors();
    let (connection, theirs) = UnixStream::pair().expect("a connection");
    let host = Pump::start(connection.into(), Side::Host, Box::new(|_| None)).expect("a pump");
    // A guest that takes what it is sent, and answers nothing.
    let mut guest = theirs.try_clone().expect("a copy");
    thread::spawn(move || while guest.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {});
    let (ours, socket) = UnixStream::pair().expect("sockets");
    for number in 0..MOST_STREAMS {
        host.open(b"", socket.as_fd(), Hangup::Waits).unwrap_or_else(|errno| panic!("{number}: {errno}"));
    }
    assert_eq!(host.open(b"", socket.as_fd(), Hangup::Waits), Err(Errno::MFILE));
    assert!(!host.is_over(), "the others go on");
    ours.set_nonblocking(true).expect("set");
    let heard = (&ours).read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(heard, Err(ErrorKind::WouldBlock), "none of them has ended");
    theirs.shutdown(Shutdown::Both).expect("the end");
    while !host.is_over() {
        thread::yield_now();
    }
    assert_eq!(host.open(b"", socket.as_fd(), Hangup::Waits), Err(Errno::PIPE), "that is another matter");
}

/// Two for each stream, and some.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("as many as there may be");
}

#[test]
fn with_the_connection_everything_ends() {
    let Wall { host, guest, arrived, back: _back } = wall(Sockets::Unix);
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    host.open(b"", theirs.as_fd(), Hangup::Cuts).expect("a stream");
    drop(theirs);
    let _held = arrived.recv().expect("it arrives");
    drop(guest);
    assert_eq!(ours.read(&mut [0; 1]).expect("read"), 0);
    let (_ours, theirs) = UnixStream::pair().expect("sockets");
    while host.open(b"", theirs.as_fd(), Hangup::Cuts).is_ok() {
        thread::yield_now();
    }
}
