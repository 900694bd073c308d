//! The control socket: setup first, then a thread per request, until the host is gone.

use crate::connect::{Handover, Ports};
use crate::egress::{Network, Opened, relayed};
use crate::files::PathRoot;
use crate::pause::Pause;
use crate::relay::Watch;
use crate::stream::{Stream, fault};
use crate::supervised::{self, Spawner};
use crate::{confinement, connect, exec, files, listening, muxed, setup, tree};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};
use belljar_sys::rustix::process::{
    DumpableBehavior, Resource, Rlimit, getpid, getrlimit, set_dumpable_behavior, setrlimit,
};
use belljar_sys::rustix::thread::gettid;
use belljar_sys::{Inherited, passing};
use belljar_wire::message::{
    Confined, EgressSetup, ExecEvent, Fault, Reply, Request, Setup, SetupReply, Step,
};
use belljar_wire::pump::Pump;
use std::io;
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Serves until the control socket closes.
pub(crate) fn serve() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let word = words.next();
    let (control_socket, pump) = match (word.as_deref(), words.next()) {
        (Some(MUX), Some(path)) => {
            let (control_socket, pump) = muxed::knock(&path)?;
            (control_socket, Some(Arc::new(pump)))
        }
        (Some(CONTROL_SOCKET), Some(path)) => (knock(&path)?, None),
        _ => (Inherited::take().first(1).pop().ok_or(io::ErrorKind::NotConnected)?, None),
    };
    // While the host decides what the sandbox sees.
    let network = if word.as_deref() == Some(NETWORK) { begin_network(&control_socket)? } else { None };
    let Some((world, ready)) = open(&control_socket, network, pump)? else { return Ok(()) };
    let post = Arc::new(Post {
        control_socket,
        world,
        waiting: AtomicUsize::new(1),
        ready: Mutex::new(Some(ready)),
    });
    // A request that waits already need not be delayed by the message that the sandbox is ready.
    if !has_caller(&post.control_socket) {
        post.say_ready();
    }
    wait_at_control_socket(&post);
    leave();
}

/// Enters a network namespace, and begins to open in it the sockets that the host asks for in its first message. `None`: the host left.
fn begin_network(control_socket: &OwnedFd) -> io::Result<Option<Network>> {
    let entered = Network::enter();
    let Some(mut stream) = passing::receive(control_socket)?.and_then(Stream::knocking) else {
        return Ok(None);
    };
    Ok(Some(entered.begin(stream.receive_message()?)))
}

/// The control socket where the guest inherits no descriptor: the host listens at it, for this guest alone and only once.
fn knock(path: &str) -> Result<OwnedFd, Errno> {
    let control_socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect_to(&control_socket, &SocketAddrUnix::new(path)?)?;
    Ok(control_socket)
}

/// The control socket, and the threads that wait for requests at it.
struct Post {
    control_socket: OwnedFd,
    world: World,
    waiting: AtomicUsize,
    /// The message that the host has yet to get: that the setup is done.
    ready: Mutex<Option<(Stream, Confined)>>,
}

impl Post {
    /// Tells the host that the sandbox is ready, if it does not know yet. Told late, when the first command has been
    /// started: the host has much to do then, perhaps on the same processor.
    fn say_ready(&self) {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((mut stream, confined)) = ready {
            // A host that hung up closes the control socket as well.
            let _ = stream.send_message(&SetupReply::Ready(confined));
        }
    }
}

fn has_caller(control_socket: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(control_socket, PollFlags::IN)];
    poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// What every request needs to know.
pub(crate) struct World {
    pub(crate) place: PathRoot,
    /// What every command is limited to.
    pub(crate) limits: Vec<(Resource, u64)>,
    pub(crate) ports: Ports,
    pub(crate) pause: Pause,
    handover: Handover,
    pub(crate) spawner: Spawner,
    /// Dropped, it would close the control socket.
    _pump: Option<Arc<Pump>>,
}

/// Takes requests until the control socket closes, or enough other threads wait.
fn wait_at_control_socket(post: &Arc<Post>) {
    let is_first_thread = gettid() == getpid();
    while let Ok(Some(descriptors)) = passing::receive(&post.control_socket) {
        post.waiting.fetch_sub(1, Ordering::SeqCst);
        tree::reap();
        if let Some(stream) = Stream::knocking(descriptors) {
            // An error here is a host that hung up.
            let _ = answer(post, stream);
        }
        post.say_ready();
        if post.waiting.fetch_add(1, Ordering::SeqCst) >= ENOUGH && !is_first_thread {
            post.waiting.fetch_sub(1, Ordering::SeqCst);
            return;
        }
    }
    // The first thread may be busy with a request whose host is gone: any thread that sees the control socket closed ends the guest.
    leave();
}

/// Makes sure that a thread waits for requests while the caller is busy; `false` where no thread can be made for it.
fn keep_watch(post: &Arc<Post>) -> bool {
    if post.waiting.load(Ordering::SeqCst) > 0 {
        return true;
    }
    post.waiting.fetch_add(1, Ordering::SeqCst);
    let theirs = Arc::clone(post);
    let made = thread::Builder::new().stack_size(STACK).spawn(move || wait_at_control_socket(&theirs));
    if made.is_err() {
        post.waiting.fetch_sub(1, Ordering::SeqCst);
    }
    made.is_ok()
}

/// A request arrives while the caller is busy.
fn serve_control_socket(post: &Arc<Post>) {
    if !keep_watch(post) {
        // An error here is a host that hung up.
        let _ = answer_without_a_thread(post);
    }
}

/// The sandbox has as many processes as it may: the request gets an answer all the same.
fn answer_without_a_thread(post: &Arc<Post>) -> io::Result<()> {
    if let Some(mut stream) = Stream::knocking(passing::receive(&post.control_socket)?.unwrap_or_default()) {
        match stream.receive_message()? {
            Request::Exec(request) => {
                let program = request.argv.first().map(|arg| String::from_utf8_lossy(&arg.0).into_owned());
                let doing = format!("run {}", program.unwrap_or_default());
                stream.send_message(&ExecEvent::NotStarted(fault(doing, Errno::AGAIN)))?;
            }
            // It would keep this thread for as long as the host likes.
            Request::Watch { path, .. } => {
                stream.send_message(&Reply::Failed(fault(format!("watch {path}"), Errno::AGAIN)))?;
            }
            other => carry_out(&post.world, other, &mut stream)?,
        }
    }
    Ok(())
}

/// The host is gone. When process 1 ends, the kernel kills all others; elsewhere the guest has to kill them itself.
fn leave() -> ! {
    tree::kill_below_us();
    exit(0);
}

/// Takes the first stream and builds the sandbox that it describes. `None`: the host left, or was told that it failed.
fn open(
    control_socket: &OwnedFd,
    network: Option<Network>,
    pump: Option<Arc<Pump>>,
) -> io::Result<Option<(World, (Stream, Confined))>> {
    let Some(descriptors) = passing::receive(control_socket)? else { return Ok(None) };
    // No process with our user id may read our memory, our descriptors or our limits through /proc, or trace us. Not
    // earlier: the host, an ordinary user, has just written our id maps there.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut descriptors = descriptors.into_iter();
    let Some(first) = descriptors.next() else { return Ok(None) };
    let mut stream = Stream::new(first);
    let setup: Setup = stream.receive_message()?;
    match build(control_socket, setup, descriptors.collect(), network, pump.clone()) {
        Ok((world, confined)) => Ok(Some((world, (stream, confined)))),
        Err(fault) => {
            stream.send_message(&SetupReply::Failed(fault))?;
            // What is pumped has not arrived when it was sent: the host hangs up when it has read it.
            while pump.is_some() && matches!(passing::receive(control_socket), Ok(Some(_))) {}
            Ok(None)
        }
    }
}

fn build(
    control_socket: &OwnedFd,
    setup: Setup,
    passed: Vec<OwnedFd>,
    network: Option<Network>,
    pump: Option<Arc<Pump>>,
) -> Result<(World, Confined), Fault> {
    if setup.version != belljar_wire::VERSION {
        return Err(Fault {
            doing: format!("speak version {} of the guest protocol", setup.version),
            errno: 0,
        });
    }
    let opened = setup::carry_out(&setup.steps, passed, network)?;
    let mut relayed = None;
    let mut egress = match (opened, &pump) {
        (Some(opened), Some(_)) => {
            let report = opened.report.clone();
            relayed = Some(opened);
            Some(report)
        }
        (Some(Opened { report, sockets }), None) => {
            let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
            passing::send(control_socket, &sockets)
                .map_err(|errno| fault("hand over the egress sockets", errno))?;
            Some(report)
        }
        (None, _) => None,
    };
    let place = PathRoot::open(setup.files, setup.workspace)?;
    let limits = exec::limits(&setup.confinement.rlimits)?;
    // Processes are counted for all of us together, and the first ones of every command are ours.
    for (resource, value) in limits.iter().filter(|(resource, _)| *resource == Resource::Nproc) {
        let limit = Rlimit { current: Some(*value), maximum: Some(*value) };
        setrlimit(*resource, limit).map_err(|errno| fault("limit the number of processes", errno))?;
    }
    // Every command has a limit of its own; connections and looks at processes must not run out together.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    let (landlock_abi, spawner) = match &setup.confinement.supervision {
        None => (confinement::confinement(&setup.confinement)?, Spawner::default()),
        Some(supervision) => {
            let (spawner, listener) = supervised::confine(supervision)?;
            passing::send(control_socket, &[listener.as_fd()])
                .map_err(|errno| fault("hand over the listener of system calls", errno))?;
            (supervision.landlock_abi, spawner)
        }
    };
    let ports = Ports::of(&setup.steps, egress.as_ref());
    let handover = if pump.is_some() { Handover::Impossible } else { Handover::Possible };
    if let (Some(pump), Some(opened), Some(sockets)) = (&pump, relayed, relayed_egress(&setup.steps)) {
        // Confined like everything that comes after.
        let served = relayed::serve(pump, sockets, opened);
        egress = Some(served.map_err(|error| fault("serve the egress sockets", error))?);
    }
    let is_supervised = setup.confinement.supervision.is_some();
    let world = World { place, limits, ports, handover, spawner, pause: Pause::default(), _pump: pump };
    Ok((world, Confined { landlock_abi, egress, is_supervised }))
}

fn relayed_egress(steps: &[Step]) -> Option<&EgressSetup> {
    steps.iter().find_map(|step| match step {
        Step::RelayEgress(egress) => Some(egress),
        _ => None,
    })
}

fn answer(post: &Arc<Post>, mut stream: Stream) -> io::Result<()> {
    match stream.receive_message()? {
        Request::Exec(request) => {
            let watch =
                Watch { control_socket: post.control_socket.as_fd(), call: &|| serve_control_socket(post) };
            exec::run(&post.world, request, stream, watch, &|| post.say_ready())
        }
        other => {
            post.say_ready();
            // Where it fails, others wait for the end of this, so it must have one.
            match (keep_watch(post), &other) {
                (false, Request::Watch { path, .. }) => {
                    stream.send_message(&Reply::Failed(fault(format!("watch {path}"), Errno::AGAIN)))
                }
                _ => carry_out(&post.world, other, &mut stream),
            }
        }
    }
}

/// Anything but a command.
fn carry_out(world: &World, request: Request, stream: &mut Stream) -> io::Result<()> {
    let outcome = match request {
        Request::Connect { port } => return connect::answer(&world.ports, port, stream, world.handover),
        Request::Listening => {
            let reply = listening::ports(&world.ports).unwrap_or_else(Reply::Failed);
            return stream.send_message(&reply);
        }
        Request::Pause => world.pause.pause().map_err(|errno| fault("pause", errno)),
        Request::Resume => world.pause.resume().map_err(|errno| fault("resume", errno)),
        other => return files::answer(&world.place, other, stream),
    };
    stream.send_message(&outcome.map_or_else(Reply::Failed, |()| Reply::Done))
}

/// The argument that tells the guest where to connect to.
const CONTROL_SOCKET: &str = "door";
/// The same, for a control socket that carries streams.
const MUX: &str = "mux";
/// The argument that tells the guest to enter a network namespace of its own.
const NETWORK: &str = "network";
/// Threads that wait while nothing happens.
const ENOUGH: usize = 2;
/// A request's thread: its buffers are on the heap.
const STACK: usize = 256 * 1024;
