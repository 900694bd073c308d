//! The same agent through `belljar agent run`, from exec to exit.

use crate::{Outcome, PROMPT};
use belljar_agent::adapter::Adapter;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn run(adapter: &Adapter, path: &OsStr, model: &str, folder: &Path) -> Outcome<()> {
    let belljar = std::env::current_exe()?.with_file_name("belljar");
    let state = tempfile::tempdir()?;
    let status = Command::new(&belljar)
        .args(["agent", "run", adapter.name, "--prompt", PROMPT, "--egress", "strict"])
        .args(["--llm", model, "--llm-key", "env:BENCH_KEY"])
        .env("BENCH_KEY", "sk-bench")
        .env("PATH", path)
        .env("XDG_STATE_HOME", state.path())
        .env("XDG_CONFIG_HOME", state.path())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{} failed in a sandbox", adapter.title).into()),
    }
}
