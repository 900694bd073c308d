use super::*;
use crate::adapter::{ALL, named};
use belljar_spec::ErrorCode;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A place for packages, with a PATH of its own.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    fn write(&self, path: &str, content: &[u8]) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    fn package(&self, root: &str, name: &str, version: &str) {
        let manifest = format!(r#"{{"name":"{name}","version":"{version}"}}"#);
        self.write(&format!("{root}/package.json"), manifest.as_bytes());
    }

    /// A release of node that must not be run to be asked which it is.
    fn node(&self, root: &str, version: (u32, u32)) {
        let trap = self.root().join("was-run");
        self.write(&format!("{root}/bin/node"), format!("#!/bin/sh\ntouch {}\n", trap.display()).as_bytes());
        let header =
            format!("#define NODE_MAJOR_VERSION {}\n#define NODE_MINOR_VERSION {}\n", version.0, version.1);
        self.write(&format!("{root}/include/node/node_version.h"), header.as_bytes());
    }

    fn find(&self, agent: &str) -> Result<Found, SandboxError> {
        find(named(agent).unwrap(), &self.path())
    }

    fn path(&self) -> OsString {
        self.root().join("bin").into_os_string()
    }
}

const ELF: &[u8] = b"\x7fELF and more";

fn cpu() -> &'static str {
    if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" }
}

#[test]
fn what_is_missing_comes_with_the_command_that_mends_it() {
    let machine = Machine::new();
    let error = machine.find("codex").unwrap_err();
    assert_eq!(error.message, "Codex is not here: there is no `codex` on PATH");
    assert_eq!(error.hint.unwrap().to_string(), "`npm install -g @openai/codex@0.166.0`");
    // A folder that depends on where one stands does not count.
    machine.write("bin/codex", ELF);
    assert!(find(named("codex").unwrap(), OsStr::new("bin:.:")).is_err());
}

#[test]
fn a_native_program_of_a_package_is_what_is_started() {
    let machine = Machine::new();
    let root = machine.root();
    machine.package("lib/node_modules/@anthropic-ai/claude-code", "@anthropic-ai/claude-code", "2.1.325");
    let program = machine.write("lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe", ELF);
    machine.link("bin/claude", "../lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe");
    let found = machine.find("claude").unwrap();
    assert_eq!(
        found,
        Found {
            program,
            needs: vec![root.join("lib/node_modules")],
            path: Vec::new(),
            version: Some("2.1.325".into())
        }
    );
}

#[test]
fn a_launcher_is_left_aside_for_the_program_that_it_starts() {
    let inside = format!(
        "@openai/codex-linux-{}/vendor/{}-unknown-linux-musl/bin/codex",
        cpu(),
        std::env::consts::ARCH
    );
    for native in ["lib/node_modules/@openai/codex/node_modules", "lib/node_modules"] {
        let machine = Machine::new();
        machine.package("lib/node_modules/@openai/codex", "@openai/codex", "0.166.0");
        machine.write("lib/node_modules/@openai/codex/bin/codex.js", b"#!/usr/bin/env node\n");
        machine.link("bin/codex", "../lib/node_modules/@openai/codex/bin/codex.js");
        let error = machine.find("codex").unwrap_err();
        assert_eq!(error.code, ErrorCode::ProgramMissing);
        let program = machine.write(&format!("{native}/{inside}"), ELF);
        let found = machine.find("codex").unwrap();
        assert_eq!((found.program, found.needs), (program, vec![machine.root().join("lib/node_modules")]));
    }
}

#[test]
fn packages_that_are_links_to_others_are_seen_whole() {
    // As pnpm has them.
    let machine = Machine::new();
    let store = "global/5/node_modules/.pnpm";
    machine.package(&format!("{store}/@openai+codex@1/node_modules/@openai/codex"), "@openai/codex", "0.1.0");
    machine.write(
        &format!("{store}/@openai+codex@1/node_modules/@openai/codex/bin/codex.js"),
        b"#!/usr/bin/env node\n",
    );
    machine
        .link("global/5/node_modules/@openai/codex", "../.pnpm/@openai+codex@1/node_modules/@openai/codex");
    machine.link("bin/codex", "../global/5/node_modules/@openai/codex/bin/codex.js");
    let below = format!("vendor/{}-unknown-linux-musl/bin/codex", std::env::consts::ARCH);
    let native = format!("codex-linux-{}", cpu());
    let program = machine.write(&format!("{store}/native/node_modules/@openai/{native}/{below}"), ELF);
    machine.link(
        &format!("{store}/@openai+codex@1/node_modules/@openai/{native}"),
        &format!("../../../native/node_modules/@openai/{native}"),
    );
    let found = machine.find("codex").unwrap();
    assert_eq!((found.program, found.needs), (program, vec![machine.root().join("global/5/node_modules")]));
}

#[test]
fn a_program_by_itself_needs_itself() {
    let machine = Machine::new();
    let program = machine.write("share/claude/versions/2.1.300", ELF);
    machine.link("bin/claude", "../share/claude/versions/2.1.300");
    let found = machine.find("claude").unwrap();
    assert_eq!((found.needs, found.version), (vec![program], Some("2.1.300".into())));

    let codex = machine.write("bin/codex", ELF);
    let host = machine.write("bin/codex-code-mode-host", ELF);
    let found = machine.find("codex").unwrap();
    assert_eq!((found.needs, found.version), (vec![codex, host], None));
}

#[test]
fn a_launcher_of_a_version_manager_is_told_from_the_agent() {
    let machine = Machine::new();
    machine.write("lib/mise", ELF);
    machine.link("bin/opencode", "../lib/mise");
    machine.write("bin/claude", b"#!/bin/sh\nexec something\n");
    for agent in ["opencode", "claude"] {
        assert_eq!(machine.find(agent).unwrap_err().code, ErrorCode::ProgramMissing);
    }
    // What comes later in PATH is looked at all the same.
    let program = machine.write("more/opencode", ELF);
    let path = std::env::join_paths([machine.root().join("bin"), machine.root().join("more")]).unwrap();
    assert_eq!(find(named("opencode").unwrap(), &path).unwrap().program, program);
}

#[test]
fn an_agent_for_node_comes_with_a_node_that_is_new_enough() {
    let machine = Machine::new();
    machine.package(
        "lib/node_modules/@earendil-works/pi-coding-agent",
        "@earendil-works/pi-coding-agent",
        "0.87.1",
    );
    let program = machine
        .write("lib/node_modules/@earendil-works/pi-coding-agent/dist/cli.js", b"#!/usr/bin/env node\n");
    machine.link("bin/pi", "../lib/node_modules/@earendil-works/pi-coding-agent/dist/cli.js");
    let error = machine.find("pi").unwrap_err();
    assert_eq!(error.message, "pi needs node 22.19 or newer, and there is no `node` on PATH");
    machine.node(".", (20, 20));
    let error = machine.find("pi").unwrap_err();
    let node = machine.root().join("bin/node");
    assert_eq!(error.message, format!("pi needs node 22.19 or newer, and `{}` is 20.20", node.display()));
    machine.node("node/24", (24, 1));
    let found = find(
        named("pi").unwrap(),
        &std::env::join_paths([machine.root().join("bin"), machine.root().join("node/24/bin")]).unwrap(),
    )
    .unwrap();
    let folder = machine.root().join("node/24/bin");
    assert_eq!(found.path, std::slice::from_ref(&folder));
    assert_eq!(
        (found.program, found.needs),
        (program, vec![machine.root().join("lib/node_modules"), folder])
    );
    assert!(!machine.root().join("was-run").exists());
}

#[test]
fn what_every_sandbox_sees_is_not_asked_for() {
    assert!(is_seen(Path::new("/usr/lib/node_modules")));
    assert!(!is_seen(Path::new("/usrlocal")));
    let mut needs: Vec<PathBuf> = ["/a/b", "/a/b/c", "/a", "/ab"].iter().map(PathBuf::from).collect();
    within_each_other(&mut needs);
    assert_eq!(needs, [Path::new("/a"), Path::new("/ab")]);
}

#[test]
fn the_versions_that_people_are_told_are_those_that_tests_run() {
    let setup = include_str!("../../../../dev");
    for adapter in ALL {
        let line = format!("\n  {}@{}\n", adapter.package, adapter.version);
        assert!(setup.contains(&line), "`./dev` does not install{line}");
    }
}
