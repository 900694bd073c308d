//! For tests: a task that is like most, and a setup as text.

use super::{ModelName, Resume, Setup, Task};
use belljar_spec::llm::UpstreamKind;
use std::fmt::Write;
use std::path::Path;

pub(super) fn task<'t>(upstream: UpstreamKind, model: Option<&'t ModelName>) -> Task<'t> {
    Task {
        program: Path::new("/opt/agent"),
        home: "/home/agent",
        workspace: "/workspace",
        prompt: Some("- fix it"),
        messages: &[],
        attached: None,
        model,
        effort: None,
        web_search: false,
        route: "http://127.0.0.1:14180",
        upstream,
        resume: Resume::No,
        own_arguments: &[],
    }
}

pub(super) fn model(name: &str) -> ModelName {
    name.parse().unwrap()
}

/// One line an argument list, a variable, a file; files with lines of their own indented.
pub(super) fn shown(setup: &Setup) -> String {
    let mut text = String::new();
    let argv: Vec<_> = setup.argv.iter().map(|argument| argument.to_str().unwrap()).collect();
    let _ = writeln!(text, "{}", argv.join(" "));
    for (name, value) in &setup.env {
        let _ = writeln!(text, "{}={}", name.as_str(), value.to_str().unwrap());
    }
    for (path, content) in &setup.files {
        let _ = writeln!(
            text,
            "~/{path}: {}",
            content.trim_end().replace('\n', "\n  ").replace("\n  \n", "\n\n")
        );
    }
    if !setup.stdin.is_empty() {
        let _ = writeln!(text, "<<< {}", String::from_utf8_lossy(&setup.stdin));
    }
    short(&text)
}

/// With words for what is long and always the same.
pub(super) fn short(text: &str) -> String {
    text.replace(super::KEY, "KEY").replace("http://127.0.0.1:14180", "ROUTE")
}
