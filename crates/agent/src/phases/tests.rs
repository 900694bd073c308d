use super::file::understand;
use super::*;
use belljar_config::TomlText;
use belljar_spec::SandboxError;
use belljar_spec::egress::Mode;
use belljar_sys::rustix;
use belljar_sys::rustix::fs::{CWD, FileType, mknodat};
use std::fs;
use std::os::unix::fs::symlink;

/// Phases of a file in a folder with a prompt and a note beside it.
fn read(content: &str) -> Result<Vec<Phase>, SandboxError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("plan.md"), "Plan it.\n").unwrap();
    fs::write(folder.path().join("notes.md"), "A note.\n").unwrap();
    understand(&TomlText { name: "release.toml", content }, folder.path())
}

const WHOLE: &str = r#"
agent = "claude"
model = "anthropic/claude-sonnet-4-5"
groups = ["github"]
budget = "usd=1"

[[phase]]
name = "plan"
prompt_file = "plan.md"
model = "anthropic/claude-opus-5"
effort = "high"
egress = "none"
inspect = true
groups = []
context = ["notes.md"]

[[phase]]
name = "do"
agent = "./mine"
prompt = "Do it: {{plan}} and {{nothing}}"
egress = "open"
web_search = "tavily"
github = "repo-write"
github_repos = ["acme/widgets"]
budget = "turns=20,time=10m"

[[phase]]
name = "check"
prompt = "Check it."
web_search = true
"#;

#[test]
fn a_phase_says_what_is_its_own_and_the_top_of_the_file_the_rest() {
    let phases = read(WHOLE).unwrap();
    let [plan, work, check] = phases.as_slice() else { panic!("three phases") };
    assert_eq!(
        (plan.name.as_str(), plan.prompt.as_str(), plan.agent.name().as_str()),
        ("plan", "Plan it.\n", "claude")
    );
    assert_eq!(plan.model.as_ref().unwrap().to_string(), "anthropic/claude-opus-5");
    assert_eq!((plan.effort, plan.egress.mode), (Some(Effort::High), Some(Mode::None)));
    assert!(plan.egress.inspect && !work.egress.inspect);
    assert!(plan.egress.groups.is_empty() && plan.web_search.is_none() && plan.github.is_none());
    assert_eq!((plan.context.len(), plan.context[0].1.as_str()), (1, "A note.\n"));
    assert_eq!(work.agent.name(), "./mine");
    assert_eq!((work.egress.mode, work.egress.groups.len()), (Some(Mode::Open), 1));
    assert_eq!(work.web_search, Some(WebSearch::Named("tavily".parse().unwrap())));
    assert_eq!(work.github.as_ref().unwrap().repositories.len(), 1);
    assert_eq!(work.budget, "turns=20,time=10m".parse().unwrap());
    // Open is what one phase chose, and no other.
    assert_eq!((check.egress.mode, &check.web_search), (None, &Some(WebSearch::IfStored)));
    assert_eq!(check.budget, "usd=1".parse().unwrap());
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_to_write() {
    let one = "[[phase]]\nname = \"a\"\nagent = \"claude\"\nprompt = \"x\"\n";
    for (content, message, hint) in [
        ("", "release.toml:1: there is no phase", "[[phase]]"),
        ("agent = \"claude\"\n", "release.toml:1: there is no phase", "[[phase]]"),
        (
            "egress = \"open\"\n[[phase]]\nname = \"a\"",
            ":1: open egress is chosen by the phase",
            "below that `[[phase]]`",
        ),
        ("prompt = \"x\"\n", ":1: `prompt` belongs to one phase", "below `[[phase]]`"),
        ("[[phase]]\nprompt = \"x\"", ":1: a phase has no name", "name = \"plan\""),
        ("[[phase]]\nname = \"a b\"", ":2: `a b` is not the name of a phase", "letters"),
        ("[[phase]]\nname = \"a\"\nprompt = \"x\"", ":1: no agent is named", "agent = \"claude\""),
        (
            "[[phase]]\nname = \"a\"\nagent = \"claud\"\nprompt = \"x\"",
            ":3: there is no agent `claud`",
            "did you mean `claude`?",
        ),
        ("[[phase]]\nname = \"a\"\nagent = \"pi\"", ":1: a phase has no prompt", "prompt_file"),
        (
            &format!("{one}prompt_file = \"plan.md\""),
            ":5: a phase has one prompt, and this one has two",
            "take",
        ),
        (
            "[[phase]]\nname = \"a\"\nagent = \"pi\"\nprompt = \" \"",
            ":4: the prompt from `prompt` is empty",
            "say what",
        ),
        ("[[phase]]\nname = \"a\"\nagent = \"pi\"\nprompt_file = \"no.md\"", ":4: `", "exists"),
        (&format!("{one}promt = \"y\""), ":5: there is no key `promt`", "did you mean `prompt`?"),
        (&format!("{one}zebra = 1"), ":5: there is no key `zebra`", "known here: phase, name"),
        (&format!("{one}model = \"gpt-5\""), ":5: `gpt-5` does not say whose model it is", ""),
        (&format!("{one}effort = \"loads\""), ":5: `loads` is not an effort", ""),
        (&format!("{one}egress = \"wide\""), ":5: `wide`", ""),
        (&format!("{one}allow = [\"x.com\",\n\"http://y\"]"), ":6: ", ""),
        (&format!("{one}groups = [\"hubs\"]"), ":5: ", ""),
        (&format!("{one}allow = \"x.com\""), ":5: invalid type", "write a list"),
        (&format!("{one}web_search = 3"), ":5: expected true, false, or the name", ""),
        (&format!("{one}github = \"all\""), ":5: ", ""),
        (&format!("{one}budget = \"much\""), ":5: `much` is not a budget", ""),
        (&format!("{one}context = [\"no.md\"]"), ":5: `", "exists"),
        (&format!("{one}{one}"), ":5: there is another phase `a`", "another name"),
        (&format!("{one}[[phase.phase]]\nname = \"b\""), ":5: a phase has no phases", "one after the other"),
        ("[phase]\nname = \"a\"", ":1: invalid type", "[[phase]]"),
        (
            "agent = \"pi\"\n[[phase]]\nname = \"a\"\nprompt = \"{{b}}\"\n[[phase]]\nname = \"b\"\nprompt = \"x\"",
            ":2: the prompt of `a` wants the answer of `b`, which has not run by then",
            "before it",
        ),
    ] {
        let error = read(content).err().unwrap_or_else(|| panic!("{content} makes sense"));
        assert!(error.message.contains(message), "{content}: {error}");
        let shown = error.hint.clone().unwrap_or_default().to_string();
        assert!(shown.contains(hint), "{content}: {shown}");
        assert!(!error.message.contains('\n'), "{content}: {}", error.message);
    }
}

#[test]
fn what_a_file_names_lies_beneath_its_folder() {
    let (folder, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    fs::write(host.path().join("secret.md"), "secret").unwrap();
    fs::create_dir_all(at("in/folder")).unwrap();
    fs::write(at("secret.md"), "secret").unwrap();
    fs::write(at("in/folder/a.md"), "one").unwrap();
    symlink(host.path(), at("in/out")).unwrap();
    symlink(host.path().join("secret.md"), at("in/link.md")).unwrap();
    mknodat(CWD, at("in/pipe.md"), FileType::Fifo, fs_mode(), 0).unwrap();
    let read = |line: &str| {
        let prompt = if line.starts_with("prompt_file") { "" } else { "prompt = \"x\"" };
        let content = format!("[[phase]]\nname = \"a\"\nagent = \"pi\"\n{line}\n{prompt}");
        fs::write(at("in/phases.toml"), content).unwrap();
        super::read(&at("in/phases.toml"))
    };
    assert_eq!(read("prompt_file = \"./folder/a.md\"").unwrap()[0].prompt, "one");
    assert_eq!(read("context = [\"folder\"]").unwrap()[0].context, [("folder/a.md".into(), "one".into())]);
    let absolute = host.path().join("secret.md").display().to_string();
    for (path, reason) in [
        (absolute.as_str(), "may lie outside of the folder"),
        ("../secret.md", "may lie outside of the folder"),
        ("folder/../../secret.md", "may lie outside of the folder"),
        ("link.md", "leads over a link"),
        ("out/secret.md", "leads over a link"),
        ("pipe.md", "is not a regular file"),
    ] {
        for line in [format!("prompt_file = \"{path}\""), format!("context = [\"folder\", \"{path}\"]")] {
            let error = read(&line).err().unwrap_or_else(|| panic!("{line} is read"));
            assert!(
                error.message.contains("phases.toml:4: ") && error.message.contains(reason),
                "{line}: {error}"
            );
            assert!(error.hint.is_some(), "{line}");
        }
    }
}

#[test]
fn phases_are_a_regular_file_of_a_sane_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("phases.toml");
    mknodat(CWD, &path, FileType::Fifo, fs_mode(), 0).unwrap();
    let message = |path| super::read(path).err().expect("it is not read").message;
    assert!(message(&path).ends_with("it is not a regular file"), "{}", message(&path));
    fs::remove_file(&path).unwrap();
    fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(message(&path).ends_with("it may have 1 MiB"), "{}", message(&path));
}

fn fs_mode() -> rustix::fs::Mode {
    rustix::fs::Mode::RWXU
}
