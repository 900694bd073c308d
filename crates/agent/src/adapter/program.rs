//! A program of one's own that keeps a small contract: it finds the messages in the file that `BELLJAR_MESSAGES` names, its
//! model in `BELLJAR_MODEL`, and what it should know in the file that `BELLJAR_CONTEXT` names; asks at `OPENAI_BASE_URL` or one
//! of its siblings; and writes one JSON object: `{"payloads":[{"text":…}],"meta":{"durationMs":…,"error":null}}`. What it exits
//! with is 0, or 1 with an error in `meta`.

use super::{Adapter, Effort, Found, Setup, Task};
use crate::parse;
use belljar_spec::llm::UpstreamKind;
use belljar_spec::{ErrorCode, Printable, SandboxError};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whatever the program is.
pub static PROGRAM: Adapter = Adapter {
    name: "program",
    title: "the program",
    package: "",
    version: "",
    program: "",
    native: &[],
    beside: &[],
    node: None,
    speaks: &UpstreamKind::ALL,
    efforts: &Effort::ALL,
    headless,
    interactive: headless,
    parser: parse::program::parser,
    context: CONTEXT,
};

/// Where it is. A path that begins at the root is a program of the host; any other one is looked for in the workspace, as
/// the sandbox sees it.
pub fn found(path: &Path) -> Result<Found, SandboxError> {
    let alone = Found { program: path.to_path_buf(), needs: Vec::new(), path: Vec::new(), version: None };
    if !path.is_absolute() {
        return Ok(alone);
    }
    let shown = Printable::from(path.to_string_lossy().as_ref());
    let wrong = |what: &str, hint: &str| {
        Err(ErrorCode::ProgramMissing.error(format!("the program `{shown}` {what}")).hint(hint))
    };
    let Ok(real) = path.canonicalize() else {
        return wrong(
            "does not exist",
            "check the spelling; one of the workspace is written without the first slash: `./agent`",
        );
    };
    match fs::metadata(&real) {
        Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => {}
        Ok(file) if file.is_file() => return wrong("may not be executed", "make it executable: `chmod +x`"),
        _ => return wrong("is not a file", "name the program itself"),
    }
    let needs = if super::find::is_seen(&real) { Vec::new() } else { vec![real.clone()] };
    Ok(Found { program: real, needs, ..alone })
}

fn headless(task: &Task) -> Setup {
    let messages = match task.messages {
        [] => json!([{ "role": "user", "content": task.prompt.unwrap_or_default() }]),
        messages => json!(messages),
    };
    let setup = Setup::new(task, &[])
        .env("BELLJAR_MESSAGES", format!("{}/{MESSAGES}", task.home))
        .env("BELLJAR_CONTEXT", format!("{}/{CONTEXT}", task.home))
        .file(MESSAGES, messages.to_string())
        .env("BELLJAR_WEB_SEARCH", if task.web_search { "1" } else { "0" });
    let setup = match task.model {
        Some(model) => setup.env("BELLJAR_MODEL", &model.model),
        None => setup,
    };
    match task.effort {
        Some(effort) => setup.env("BELLJAR_EFFORT", effort.as_str()),
        None => setup,
    }
}

const MESSAGES: &str = ".belljar/messages.json";
const CONTEXT: &str = ".belljar/context.md";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::pinned::{model, shown, task};
    use crate::messages::{Message, Role};

    #[test]
    fn a_program_finds_its_messages_and_its_model() {
        let model = model("openai/gpt-5");
        let task = Task { effort: Some(Effort::Low), ..task(UpstreamKind::OpenAi, Some(&model)) };
        assert_eq!(
            shown(&headless(&task)),
            r#"/opt/agent
BELLJAR_MESSAGES=/home/agent/.belljar/messages.json
BELLJAR_CONTEXT=/home/agent/.belljar/context.md
BELLJAR_WEB_SEARCH=0
BELLJAR_MODEL=gpt-5
BELLJAR_EFFORT=low
~/.belljar/messages.json: [{"content":"- fix it","role":"user"}]
"#
        );
    }

    #[test]
    fn a_program_gets_a_whole_conversation() {
        let message = |role, content: &str| Message { role, content: content.into() };
        let messages = [message(Role::User, "a"), message(Role::Assistant, "b"), message(Role::User, "c")];
        let task = Task { messages: &messages, ..task(UpstreamKind::OpenAi, None) };
        let written = &headless(&task).files[0].1;
        let read: Vec<Message> = serde_json::from_str(written).unwrap();
        assert_eq!(read, messages);
    }

    #[test]
    fn a_program_is_of_the_workspace_or_of_the_host() {
        let relative = found(Path::new("./agent")).unwrap();
        assert_eq!((relative.program.as_path(), relative.needs.len()), (Path::new("./agent"), 0));
        assert_eq!(found(Path::new("/usr/bin/env")).unwrap().needs.len(), 0);
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().canonicalize().unwrap().join("agent");
        assert!(found(&program).unwrap_err().message.ends_with("does not exist"));
        fs::write(&program, "#!/bin/sh\n").unwrap();
        assert_eq!(found(&program).unwrap_err().hint.unwrap().to_string(), "make it executable: `chmod +x`");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found(&program).unwrap().needs, [program]);
        assert!(found(folder.path()).unwrap_err().message.ends_with("is not a file"));
    }
}
