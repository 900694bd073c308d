//! A home of its own, a folder to work in with programs in it, and a model.

use belljar_sys::terminal::{Pair, open_pair};
use belljar_tests_cli::{Run, belljar};
use belljar_tests_hosts::Model;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What the model wants, and no sandbox sees.
pub(crate) const KEY: &str = "sk-real-0123456789";

pub(crate) struct Home {
    folder: tempfile::TempDir,
    pub(crate) model: Model,
}

impl Home {
    pub(crate) fn new() -> Home {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config/belljar", "work", "bin"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let model = Model::start(Ipv4Addr::LOCALHOST);
        model.expect_key(KEY);
        Home { folder, model }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program of the workspace.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.path("work").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path("work").join(name)).ok()
    }

    /// Runs belljar, with nothing on standard input.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.run_with(args, b"")
    }

    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Run {
        let (code, stdout, stderr) = self.bytes(args, input);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Run { code, stdout: text(stdout), stderr: text(stderr) }
    }

    pub(crate) fn bytes(&self, args: &[&str], input: &[u8]) -> (i32, Vec<u8>, Vec<u8>) {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let feeding = std::thread::spawn(move || {
            // One that does not read is no error here.
            let _ = stdin.write_all(&input);
        });
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let _ = feeding.join();
        (status.code().unwrap_or(-1), stdout, stderr)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(belljar());
        command
            .args(args)
            .current_dir(self.path("work"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("MODEL_KEY", KEY)
            .env_remove("NO_COLOR");
        command
    }

    /// Runs it at a terminal, and gives all that the terminal was told.
    pub(crate) fn at_terminal(&self, args: &[&str]) -> (i32, Vec<u8>) {
        let Pair { controller, terminal } = open_pair(24, 80).unwrap();
        let mut command = self.command(args);
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut child =
            command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        // Ours are closed, so that the terminal ends with the program.
        drop((command, terminal));
        let mut reported = Vec::new();
        let mut reader = File::from(controller);
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            reported.extend_from_slice(&buffer[..length]);
        }
        (child.wait().unwrap().code().unwrap_or(-1), reported)
    }

    /// `agent run PROGRAM`, with the model of this home.
    pub(crate) fn agent<'a>(&'a self, url: &'a str, program: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let words =
            ["agent", "run", program, "--model", "openai/gpt-5", "--llm", url, "--llm-key", "env:MODEL_KEY"];
        [&words[..], more].concat()
    }

    /// The result of the only run.
    pub(crate) fn result(&self) -> Value {
        let mut runs = fs::read_dir(self.path("state/belljar/runs")).unwrap().flatten();
        let run = runs.next().unwrap().path();
        assert!(runs.next().is_none(), "there are several runs");
        serde_json::from_slice(&fs::read(run.join("result.json")).unwrap()).unwrap()
    }
}

/// Asks the model once.
pub(crate) const ASK: &str = r#"curl -sS -o /dev/null -w '%{http_code}\n' $OPENAI_BASE_URL/chat/completions -H content-type:application/json -d "{\"model\":\"$BELLJAR_MODEL\",\"messages\":[]}" >&2"#;

/// What a program that keeps the contract writes.
pub(crate) fn answer(text: &str) -> String {
    // printf leaves backslashes alone, and echo of some shells does not.
    format!(r#"printf '%s\n' '{{"payloads":[{{"text":"{text}"}}],"meta":{{"durationMs":1,"error":null}}}}'"#)
}
