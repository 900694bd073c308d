//! Commands among the processes and paths of the host: each is a copy of one thread of the guest, and that thread is confined.
//!
//! Filters and Landlock's domains belong to threads. The guest's other threads, which carry out what the host asks for, stay outside of
//! the commands' domain, where no command can signal or trace them, and their own calls need no supervisor. (A command that signals the
//! confined thread by its number ends the guest, and with it the sandbox; the holder sees to that.)

use crate::confinement::{DEFAULT_FILTER, Restricted, restrict_to_paths};
use crate::stream::fault;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::{caps, notify, seccomp};
use belljar_wire::message::{Fault, LANDLOCK_WITH_SCOPES, OLDEST_LANDLOCK, Supervision};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Where commands are started.
#[derive(Default)]
pub(crate) struct Spawner {
    /// A thread that is confined; `None`: any thread will do.
    confined: Option<Mutex<Sender<Job>>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Spawner {
    /// Does something where commands are started, and waits for it. `None`: the thread is gone.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let Some(confined) = &self.confined else { return Some(work()) };
        let (done, outcome) = channel();
        let job = Box::new(move || drop(done.send(work())));
        confined.lock().unwrap_or_else(PoisonError::into_inner).send(job).ok()?;
        outcome.recv().ok()
    }
}

/// Confines this process, which must have one thread, and makes the thread that commands come from. Gives what their calls are told
/// to.
pub(crate) fn confine(supervision: &Supervision) -> Result<(Spawner, OwnedFd), Fault> {
    if supervision.landlock_abi < OLDEST_LANDLOCK {
        return Err(fault("apply Landlock: its version is too old", Errno::NOSYS));
    }
    seccomp::no_new_privileges().map_err(|errno| fault("set no_new_privs", errno))?;
    restrict_to_paths(supervision, Restricted::Guest)
        .map_err(|error| fault(format!("apply Landlock: {error}"), Errno::INVAL))?;
    caps::drop_all().map_err(|errno| fault("drop capabilities", errno))?;
    let (jobs, work) = channel::<Job>();
    let (tell, confined) = channel();
    let theirs = supervision.clone();
    let thread = thread::Builder::new().stack_size(STACK).spawn(move || {
        let outcome = confine_thread(&theirs);
        let is_confined = outcome.is_ok();
        if tell.send(outcome).is_ok() && is_confined {
            work.into_iter().for_each(|job| job());
        }
    });
    thread.map_err(|_| fault("make the thread that commands come from", Errno::AGAIN))?;
    let listener = confined.recv().unwrap_or(Err(fault("confine commands", Errno::IO)))?;
    Ok((Spawner { confined: Some(Mutex::new(jobs)) }, listener))
}

fn confine_thread(supervision: &Supervision) -> Result<OwnedFd, Fault> {
    restrict_to_paths(supervision, Restricted::Commands)
        .map_err(|error| fault(format!("apply Landlock to commands: {error}"), Errno::INVAL))?;
    seccomp::install(DEFAULT_FILTER).map_err(|errno| fault("install the seccomp filter", errno))?;
    let filter = if supervision.landlock_abi >= LANDLOCK_WITH_SCOPES { FILTER } else { FILTER_WITH_SIGNALS };
    // Last: from here on sockets of this thread are the supervisor's to make.
    notify::install(filter).map_err(|errno| fault("install the supervisor's seccomp filter", errno))
}

/// Compiled by the build script from confine/landlock.table.
const FILTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervised.bpf"));
const FILTER_WITH_SIGNALS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervised-signals.bpf"));
const STACK: usize = 256 * 1024;
