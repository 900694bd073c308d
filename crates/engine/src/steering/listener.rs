//! The side of the process that holds the sandbox: takes orders over its socket, on the gateway's event loop.

use super::client::Steered;
use super::orders::{Order, Reply};
use super::report::{Notices, live_report};
use super::{directory, socket_name};
use belljar_gateway::{Change, ChangeRefused, LiveEvent, LivePolicy, Served};
use belljar_spec::egress::{Rule, RuleEffect, RuleSource};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{create_private, lock_open_file};
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// A sandbox that takes orders. Dropped, it takes none.
pub(crate) struct Steering {
    task: AbortHandle,
    paths: [PathBuf; 2],
    /// Its lock says that the sandbox lives.
    _file: File,
}

impl Steering {
    /// Takes orders for this sandbox from now on.
    pub(crate) fn begin(state: &Path, steered: &Steered, served: &Served) -> io::Result<Steering> {
        let directory = directory(state);
        create_private(&directory)?;
        let file_path = directory.join(&steered.id);
        let socket_path = directory.join(socket_name(&steered.id));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file_path)?;
        // Locked first: a sweep removes what nobody holds.
        if !lock_open_file(&file, Duration::ZERO)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file.write_all(&serde_json::to_vec(steered)?)?;
        // Of a life before, which was killed.
        match fs::remove_file(&socket_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = super::client::short(&socket_path, |path| StdListener::bind(path))?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _within = served.event_loop().enter();
            UnixListener::from_std(listener)?
        };
        let marker = match steered.asks {
            true => None,
            false => {
                Some((file.try_clone()?, serde_json::to_vec(&Steered { asks: true, ..steered.clone() })?))
            }
        };
        let task = served.spawn(attend(listener, Arc::clone(served.policy()), marker));
        Ok(Steering { task, paths: [socket_path, file_path], _file: file })
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.task.abort();
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}

/// Takes orders. With the first question of a program in a sandbox that does not ask by itself, its file says that it asks: those who look for
/// questions look at no other.
async fn attend(listener: UnixListener, policy: Arc<LivePolicy>, mut marker: Option<(File, Vec<u8>)>) {
    let mut conversations = JoinSet::new();
    let mut events = policy.watch();
    loop {
        tokio::select! {
            event = events.recv(), if marker.is_some() => {
                if matches!(event, Ok(LiveEvent::Opened(_)) | Err(RecvError::Lagged(_)))
                    && let Some((file, text)) = marker.take()
                {
                    // `true` is shorter: a reader of that moment sees text without an end, and looks again.
                    let _ = file.write_all_at(&text, 0).and_then(|()| file.set_len(text.len() as u64));
                }
                if matches!(event, Err(RecvError::Closed)) {
                    marker = None;
                }
            }
            accepted = listener.accept(), if conversations.len() < MAX_CONVERSATIONS => match accepted {
                Ok((stream, _)) => {
                    if stream.peer_cred().is_ok_and(|peer| is_outside(&peer)) {
                        conversations.spawn(converse(stream, Arc::clone(&policy)));
                    }
                }
                // Too many open files, for the moment.
                Err(_) => sleep(ACCEPT_RETRY_INTERVAL).await,
            },
            Some(_) = conversations.join_next() => {}
        }
    }
}

/// Whether a process is one of the owner's, or of root, in our own process namespace. A sandbox has one of its own.
fn is_outside(peer: &UCred) -> bool {
    let is_known = peer.uid() == geteuid().as_raw() || peer.uid() == 0;
    let Some(pid) = peer.pid().filter(|pid| is_known && *pid > 0) else { return false };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    is_in_our_namespace(&status)
}

/// The line has the process's number in each namespace that it is in, from ours inwards (proc_pid_status(5)).
fn is_in_our_namespace(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

async fn converse(stream: UnixStream, policy: Arc<LivePolicy>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader.take(MAX_ORDER_BYTES));
    let mut line = Vec::new();
    if !matches!(timeout(ORDER_TIMEOUT, reader.read_until(b'\n', &mut line)).await, Ok(Ok(1..))) {
        return;
    }
    let order = match serde_json::from_slice(&line) {
        Ok(order) => order,
        Err(error) => {
            let error = ErrorCode::RequestInvalid
                .error(format!("the process that holds the sandbox does not know this order: {error}"))
                .hint("it is of another version of belljar: start the sandbox again");
            let _ = send(&mut writer, &Reply::refused(&error)).await;
            return;
        }
    };
    let reply = match order {
        Order::Watch {} => {
            tokio::select! {
                // The client sends nothing more: it hung up.
                _ = reader.read_until(b'\n', &mut line) => {}
                () = watch(&mut writer, &policy) => {}
            }
            return;
        }
        Order::Show {} => Reply::Policy(Box::new(live_report(&policy.state()))),
        Order::Change { effect, rule, lasting, by } => {
            let by: Arc<str> = by.into();
            let source = RuleSource::Live(Arc::clone(&by));
            let rule = match effect {
                RuleEffect::Allow => Rule::allow(&rule, source),
                RuleEffect::Deny => Rule::deny(&rule, source),
            };
            let changed =
                rule.map_err(|error| ErrorCode::RequestValue.error(error.to_string())).and_then(|rule| {
                    let change = Change { effect, rule, lasting, by };
                    policy.change(&change).map_err(refused)
                });
            changed.map_or_else(|error| Reply::refused(&error), Reply::from)
        }
        Order::Answer { question, rule, verdict, by } => {
            let answered = policy.answer(question, &rule, verdict, &by.into()).map_err(refused);
            answered.map_or_else(|error| Reply::refused(&error), Reply::from)
        }
    };
    let _ = send(&mut writer, &reply).await;
}

/// Tells what happens.
async fn watch(writer: &mut (impl AsyncWriteExt + Unpin), policy: &LivePolicy) {
    let mut notices = Notices::of(policy);
    while let Some(notice) = notices.next().await {
        if send(writer, &Reply::Notice(notice)).await.is_err() {
            return;
        }
    }
}

async fn send(writer: &mut (impl AsyncWriteExt + Unpin), reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    timeout(ORDER_TIMEOUT, writer.write_all(&line)).await?
}

fn refused(refusal: ChangeRefused) -> SandboxError {
    let code = match refusal {
        ChangeRefused::Denied(..) | ChangeRefused::NotByOperator(_) | ChangeRefused::ThisMachine(_) => {
            ErrorCode::NotGranted
        }
        ChangeRefused::PortNotLed(_) | ChangeRefused::EgressOff => ErrorCode::NotSupported,
        ChangeRefused::DenyOnce => ErrorCode::RequestConflict,
        ChangeRefused::TooMany => ErrorCode::QuotaExceeded,
        ChangeRefused::NotRecorded => ErrorCode::StateFailed,
        ChangeRefused::NoQuestion(_) => ErrorCode::NameUnknown,
    };
    let error = code.error(refusal.to_string());
    match refusal {
        ChangeRefused::Denied(..) => {
            error.hint("a rule that forbids wins: take it out where it is written, or where it was added")
        }
        ChangeRefused::EgressOff | ChangeRefused::PortNotLed(_) => {
            error.hint("start the sandbox again with the rule, in strict mode")
        }
        ChangeRefused::NotByOperator(_)
        | ChangeRefused::ThisMachine(_)
        | ChangeRefused::DenyOnce
        | ChangeRefused::TooMany
        | ChangeRefused::NotRecorded
        | ChangeRefused::NoQuestion(_) => error,
    }
}

/// One for each that watches: a terminal, the daemon, a person who answers.
const MAX_CONVERSATIONS: usize = 32;
const MAX_ORDER_BYTES: u64 = 16 * 1024;
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_namespace_is_told_by_its_numbers() {
        assert!(is_in_our_namespace("Name:\tsh\nNStgid:\t12\nNSpid:\t12\n"));
        for status in ["Name:\tsh\nNSpid:\t12\t3\n", "NSpid:\n", "Name:\tNSpid: 12\n", ""] {
            assert!(!is_in_our_namespace(status), "{status}");
        }
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(is_in_our_namespace(&own));
    }
}
