//! Commands of a remote sandbox: started, followed, given input, ended.

use crate::http::Failure;
use crate::rpc::{CallError, Envd, Messages, about};
use base64::prelude::{BASE64_STANDARD, Engine};
use belljar_sys::rustix::process::Signal;
use belljar_wire::message::{Ending, WindowSize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A command to start.
pub(crate) struct Start {
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: String,
    pub(crate) terminal: Option<WindowSize>,
    pub(crate) stdin: bool,
}

/// What happens to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started(u32),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(Ending),
}

/// What comes from a command, beginning with [`Event::Started`].
pub(crate) struct Events(Messages);

impl Events {
    /// The next one; nothing behind the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, CallError> {
        loop {
            let Some(message) = self.0.next().await? else { return Ok(None) };
            if let Some(event) = event(&message).map_err(|why| CallError::Failed(Failure::Invalid(why)))? {
                return Ok(Some(event));
            }
        }
    }
}

impl Envd {
    /// Starts a command. Its stream may be dropped: the command goes on.
    pub(crate) async fn start(&self, start: &Start) -> Result<Events, CallError> {
        let (cmd, args) = start.argv.split_first().map_or(("", &[][..]), |(cmd, args)| (cmd.as_str(), args));
        let mut message = json!({
            "process": { "cmd": cmd, "args": args, "envs": start.env, "cwd": start.cwd },
            "stdin": start.stdin,
        });
        if let Some(size) = start.terminal {
            message["pty"] = pty(size);
        }
        self.stream("process.Process/Start", &message).await.map(Events)
    }

    /// Follows a command that runs, from now on.
    pub(crate) async fn follow(&self, pid: u32) -> Result<Events, CallError> {
        self.stream("process.Process/Connect", &about(pid)).await.map(Events)
    }

    pub(crate) async fn input(&self, pid: u32, bytes: &[u8], is_terminal: bool) -> Result<(), CallError> {
        let mut message = about(pid);
        message["input"][if is_terminal { "pty" } else { "stdin" }] = BASE64_STANDARD.encode(bytes).into();
        self.unary("process.Process/SendInput", &message).await.map(drop)
    }

    pub(crate) async fn close_input(&self, pid: u32) -> Result<(), CallError> {
        self.unary("process.Process/CloseStdin", &about(pid)).await.map(drop)
    }

    pub(crate) async fn resize(&self, pid: u32, size: WindowSize) -> Result<(), CallError> {
        let mut message = about(pid);
        message["pty"] = pty(size);
        self.unary("process.Process/Update", &message).await.map(drop)
    }

    /// Kills one process, and not what it started.
    pub(crate) async fn kill(&self, pid: u32) -> Result<(), CallError> {
        let mut message = about(pid);
        message["signal"] = "SIGNAL_SIGKILL".into();
        self.unary("process.Process/SendSignal", &message).await.map(drop)
    }

    /// Runs a script of ours with `sh` to its end, with these arguments; gives its exit code and what it wrote.
    pub(crate) async fn script(&self, script: &str, args: &[&str]) -> Result<(i32, String), CallError> {
        let words = ["sh", "-c", script, "sh"];
        let env = [("LC_ALL".to_string(), "C".to_string())].into();
        let start = Start {
            argv: words.iter().chain(args).map(ToString::to_string).collect(),
            env,
            cwd: "/".into(),
            terminal: None,
            stdin: false,
        };
        let mut events = self.start(&start).await?;
        let mut output = Vec::new();
        while let Some(event) = events.next().await? {
            match event {
                Event::Started(_) => {}
                Event::Stdout(bytes) | Event::Stderr(bytes) => {
                    let room = MAX_SCRIPT_OUTPUT_BYTES.saturating_sub(output.len());
                    output.extend(bytes.into_iter().take(room));
                }
                Event::Ended(ending) => {
                    let code = match ending {
                        Ending::Exited(code) => code,
                        Ending::Signaled(signal) => 128 + signal,
                    };
                    return Ok((code, String::from_utf8_lossy(&output).into_owned()));
                }
            }
        }
        Err(CallError::Failed(Failure::Broken("a stream ended before its command".into())))
    }
}

fn pty(WindowSize { rows, cols }: WindowSize) -> Value {
    json!({ "size": { "cols": cols, "rows": rows } })
}

/// What a message says; nothing of what is new to us.
fn event(message: &Value) -> Result<Option<Event>, String> {
    let event = &message["event"];
    if let Some(start) = event.get("start") {
        let pid = start["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        return pid
            .map(|pid| Some(Event::Started(pid)))
            .ok_or_else(|| "a command without a process id".into());
    }
    if let Some(data) = event.get("data") {
        let found =
            ["stdout", "stderr", "pty"].into_iter().find_map(|name| Some((name, data.get(name)?.as_str()?)));
        let Some((name, text)) = found else { return Ok(None) };
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| "output that is not base64".to_string())?;
        return Ok(Some(if name == "stderr" { Event::Stderr(bytes) } else { Event::Stdout(bytes) }));
    }
    Ok(event.get("end").map(|end| Event::Ended(ending(end))))
}

/// How a command ended. A default may be left out: an exit code of zero is no field.
fn ending(end: &Value) -> Ending {
    let code = end["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
    let word = [&end["status"], &end["error"]]
        .into_iter()
        .filter_map(|text| text.as_str()?.strip_prefix("signal: "))
        .map(|word| word.trim_end_matches(" (core dumped)"))
        .next();
    match word.map(signal) {
        Some(Some(signal)) => Ending::Signaled(signal),
        // A signal whose name we do not know.
        Some(None) => Ending::Signaled(Signal::KILL.as_raw()),
        None if code < 0 => Ending::Signaled(Signal::KILL.as_raw()),
        None => Ending::Exited(code),
    }
}

/// A signal by the word that Go has for it, or by its name.
fn signal(word: &str) -> Option<i32> {
    let by_word = WORDS.iter().find(|(known, _)| *known == word).map(|(_, signal)| signal.as_raw());
    by_word.or_else(|| {
        let name = word.strip_prefix("SIG")?;
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| signal.as_raw())
    })
}

/// Go's words (`syscall.Signal.String`, zerrors_linux_amd64.go).
const WORDS: [(&str, Signal); 26] = [
    ("hangup", Signal::HUP),
    ("interrupt", Signal::INT),
    ("quit", Signal::QUIT),
    ("illegal instruction", Signal::ILL),
    ("trace/breakpoint trap", Signal::TRAP),
    ("aborted", Signal::ABORT),
    ("bus error", Signal::BUS),
    ("floating point exception", Signal::FPE),
    ("killed", Signal::KILL),
    ("user defined signal 1", Signal::USR1),
    ("segmentation fault", Signal::SEGV),
    ("user defined signal 2", Signal::USR2),
    ("broken pipe", Signal::PIPE),
    ("alarm clock", Signal::ALARM),
    ("terminated", Signal::TERM),
    ("stack fault", Signal::STKFLT),
    ("child exited", Signal::CHILD),
    ("CPU time limit exceeded", Signal::XCPU),
    ("file size limit exceeded", Signal::XFSZ),
    ("virtual timer expired", Signal::VTALARM),
    ("profiling timer expired", Signal::PROF),
    ("window changed", Signal::WINCH),
    ("I/O possible", Signal::IO),
    ("power failure", Signal::POWER),
    ("bad system call", Signal::SYS),
    ("urgent I/O condition", Signal::URG),
];

/// As a belljar writes those that its clients have no word for.
const NAMES: [(&str, Signal); 12] = [
    ("ILL", Signal::ILL),
    ("TRAP", Signal::TRAP),
    ("BUS", Signal::BUS),
    ("FPE", Signal::FPE),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
    ("XCPU", Signal::XCPU),
    ("XFSZ", Signal::XFSZ),
    ("SYS", Signal::SYS),
    ("VTALRM", Signal::VTALARM),
    ("PROF", Signal::PROF),
];

/// What a script of ours says is a line or two.
const MAX_SCRIPT_OUTPUT_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_code_or_a_signal() {
        for (end, expected) in [
            (json!({ "exitCode": 3, "exited": true, "status": "exit status 3" }), Ending::Exited(3)),
            (json!({ "exited": true }), Ending::Exited(0)),
            (json!({ "exitCode": -1, "status": "signal: killed" }), Ending::Signaled(9)),
            (
                json!({ "exitCode": -1, "error": "signal: segmentation fault (core dumped)" }),
                Ending::Signaled(11),
            ),
            (json!({ "exitCode": -1, "status": "signal: SIGUSR1" }), Ending::Signaled(10)),
            (json!({ "exitCode": -1 }), Ending::Signaled(9)),
        ] {
            assert_eq!(ending(&end), expected, "{end}");
        }
    }

    #[test]
    fn messages_say_what_happens_to_a_command() {
        let output = |message: Value| event(&json!({ "event": message }));
        assert_eq!(output(json!({ "start": { "pid": 7 } })), Ok(Some(Event::Started(7))));
        assert_eq!(output(json!({ "data": { "stderr": "aGk=" } })), Ok(Some(Event::Stderr(b"hi".to_vec()))));
        assert_eq!(output(json!({ "data": { "pty": "aGk=" } })), Ok(Some(Event::Stdout(b"hi".to_vec()))));
        assert_eq!(output(json!({ "keepalive": {} })), Ok(None));
        assert_eq!(output(json!({ "newer": {} })), Ok(None));
        assert!(
            output(json!({ "start": {} })).is_err() && output(json!({ "data": { "stdout": "%" } })).is_err()
        );
    }
}
