//! An agent on the host, as a person without belljar would start it.

use crate::{Outcome, PROMPT};
use belljar_agent::adapter::{Adapter, Found, Resume, Task};
use belljar_spec::llm::UpstreamKind;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn run(adapter: &Adapter, found: &Found, model: &str, folder: &Path) -> Outcome<()> {
    let home = tempfile::tempdir()?;
    let setup = (adapter.headless)(&Task {
        program: &found.program,
        home: home.path().to_str().ok_or("a home that is not valid UTF-8")?,
        workspace: folder.to_str().ok_or("a folder that is not valid UTF-8")?,
        prompt: Some(PROMPT),
        messages: &[],
        attached: None,
        model: None,
        effort: None,
        web_search: false,
        route: model,
        upstream: UpstreamKind::LiteLlm,
        resume: Resume::No,
        own_arguments: &[],
    });
    for (path, content) in &setup.files {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().ok_or("a file without a folder")?)?;
        std::fs::write(path, content)?;
    }
    let temporary = home.path().join("tmp");
    std::fs::create_dir(&temporary)?;
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(found.path.iter().cloned().chain(std::env::split_paths(&usual)))?;
    let mut child = Command::new(&setup.argv[0])
        .args(&setup.argv[1..])
        .env_clear()
        .env("PATH", path)
        .env("HOME", home.path())
        // As new as inside: node keeps what it compiled among temporary files, and would find it again.
        .env("TMPDIR", &temporary)
        .envs(base(model))
        .envs(setup.env.iter().map(|(name, value)| (name.as_str(), value)))
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().ok_or("no standard input")?.write_all(&setup.stdin)?;
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(format!("{} failed on the host", adapter.title).into()),
    }
}

/// What the route tells programs inside.
fn base(model: &str) -> [(&'static str, String); 6] {
    [
        ("OPENAI_BASE_URL", format!("{model}/v1")),
        ("ANTHROPIC_BASE_URL", model.into()),
        ("GOOGLE_GEMINI_BASE_URL", model.into()),
        ("OPENAI_API_KEY", "placeholder".into()),
        ("ANTHROPIC_API_KEY", "placeholder".into()),
        ("GEMINI_API_KEY", "placeholder".into()),
    ]
}
