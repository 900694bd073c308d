//! An agent that runs outside, with the daemon, the folder and the model that it works with.

use crate::agents::path;
use crate::job::KEY;
use belljar_tests_daemon::{Home, Started};
use belljar_tests_hosts::{Model, Step};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder beside a file that is nobody's business, a daemon, and a model that plays a script.
pub struct Outside {
    pub model: Model,
    home: Home,
    _daemon: Started,
    folder: PathBuf,
}

/// What no sandbox of the folder may see.
pub const CONFIDENTIAL: &str = "confidential words of the host";

impl Outside {
    #[expect(clippy::new_without_default, reason = "no two are the same")]
    pub fn new() -> Outside {
        let model = Model::start(Ipv4Addr::LOCALHOST);
        model.expect_key(KEY);
        let home = Home::new().listening();
        let folder = home.folder("web");
        fs::create_dir(folder.join("sub")).unwrap();
        fs::write(home.path("work/secret.txt"), CONFIDENTIAL).unwrap();
        let daemon = home.start();
        Outside { model, home, _daemon: daemon, folder: folder.canonicalize().unwrap() }
    }

    /// The daemon's address for clients with a token.
    pub fn url(&self) -> String {
        format!("http://{}", self.home.tcp())
    }

    /// The folder that is worked on.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Another folder, which nobody prepared.
    pub fn other_folder(&self) -> PathBuf {
        self.home.folder("other")
    }

    /// A file below the folder that the folder is in.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.home.path("work").join(name)
    }

    /// A file beside the folder.
    pub fn secret(&self) -> PathBuf {
        self.home.path("work/secret.txt")
    }

    /// A file of the user's home.
    pub fn at_home(&self, name: &str) -> PathBuf {
        self.home.path("home").join(name)
    }

    /// A program with the environment of this user, in the folder.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let own = self.home.belljar();
        command.env_clear().envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
            .env("PATH", path())
            .env("BELLJAR", own.get_program())
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    /// belljar, in the folder.
    pub fn belljar(&self, words: &[&str]) -> Output {
        self.program(self.home.belljar().get_program()).args(words).output().unwrap()
    }

    /// The shell that `belljar integrate` writes.
    pub fn shell(&self) -> PathBuf {
        self.home.path("state/belljar/integrations/bash")
    }

    /// Runs an agent to its end, with more words; its model takes these steps. Returns what its commands gave, as the model saw it.
    pub fn run(&self, agent: &str, words: &[&str], steps: impl Into<Vec<Step>>) -> Vec<String> {
        self.model.script(steps);
        let output = self.agent(agent, words).output().unwrap();
        let printed =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let results =
            self.model.calls().iter().rev().find(|call| !call.side).map(|call| call.tool_results.clone());
        let results = results.unwrap_or_default();
        assert!(
            output.status.success() && !results.is_empty(),
            "{results:?}\n{}\n{}",
            printed[0],
            printed[1]
        );
        results
    }

    /// The command line that people use in scripts.
    fn agent(&self, agent: &str, words: &[&str]) -> Command {
        let url = self.model.url();
        let mut command = self.program(agent);
        match agent {
            "claude" => command
                .args(["-p", "Do the task.", "--dangerously-skip-permissions"])
                .envs([("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)])
                .envs([("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("IS_SANDBOX", "1")]),
            "opencode" => command
                .args(["run", "--auto", "--title", "t", "-m", "anthropic/claude-sonnet-4-5", "Do the task."])
                .envs([("ANTHROPIC_API_KEY", KEY), ("OPENCODE_DISABLE_MODELS_FETCH", "1")])
                .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
                .env(
                    "OPENCODE_CONFIG_CONTENT",
                    format!(r#"{{"provider":{{"anthropic":{{"options":{{"baseURL":"{url}/v1"}}}}}}}}"#),
                ),
            "pi" => {
                self.write_home(
                    ".pi/agent/models.json",
                    &format!(r#"{{"providers":{{"anthropic":{{"baseUrl":"{url}"}}}}}}"#),
                );
                command
                    .args(["--model", "anthropic/claude-sonnet-4-5", "-p", "Do the task."])
                    .envs([("ANTHROPIC_API_KEY", KEY), ("PI_OFFLINE", "1")])
            }
            "gemini" => command
                .args(["-p", "Do the task.", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"])
                .envs([("GEMINI_API_KEY", KEY), ("GOOGLE_GEMINI_BASE_URL", url.as_str())]),
            "codex" => {
                self.write_home(
                    ".codex/config.toml",
                    &format!(
                        "model_provider = \"test\"\n[model_providers.test]\nname = \"test\"\nbase_url = \"{url}/v1\"\n\
                         env_key = \"CODEX_API_KEY\"\n[analytics]\nenabled = false\n[features]\nplugins = false\n"
                    ),
                );
                command
                    .args([
                        "exec",
                        "--skip-git-repo-check",
                        "--dangerously-bypass-approvals-and-sandbox",
                        "-m",
                        "mock",
                    ])
                    .env("CODEX_API_KEY", KEY)
            }
            other => panic!("nobody knows how `{other}` is started"),
        };
        command.args(words);
        if agent == "codex" {
            command.arg("Do the task.");
        }
        command
    }

    /// A file of the user's home.
    pub fn write_home(&self, name: &str, text: &str) {
        let file = self.at_home(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}
