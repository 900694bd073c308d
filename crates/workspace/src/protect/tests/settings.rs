//! Settings of programs, which are protected by default.

use super::super::*;
use super::{Fixture, what};
use belljar_spec::workspace::Shielded::{Anchored, Existing, MissingDirectory, MissingFile, Watched};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn settings_are_held_whether_they_are_there_or_not() {
    let fixture = Fixture::new();
    for folder in
        ["empty", "used/.claude", "used/.vscode", "used/.hg", "used/.opencode/plugin", "used/.cursor"]
    {
        fs::create_dir_all(fixture.path(folder)).unwrap();
    }
    let held = [".claude", ".mcp.json", ".codex", ".gemini", ".vscode", ".idea", ".envrc", ".devcontainer"];
    // Tools that create a project refuse a non-empty folder.
    let shields = fixture.whole_view("empty").shields;
    for path in [".claude/settings.json", ".mcp.json", ".vscode", "opencode.json", ".hg/hgrc"] {
        assert_eq!(what(&shields, path), Some(Watched), "{path}");
    }
    fs::write(fixture.path("empty/file"), "").unwrap();
    let shields = fixture.whole_view("empty").shields;
    for path in held {
        assert_eq!(what(&shields, path), Some(MissingDirectory), "{path}");
    }
    for path in ["opencode.json", ".opencode/plugin", ".hg/hgrc"] {
        assert_eq!(what(&shields, path), Some(Watched), "{path}");
    }
    // Go takes a folder with both for two repositories, and builds nothing there.
    assert_eq!(what(&shields, ".hg"), None);
    fs::write(fixture.path("used/.claude/settings.json"), "{}").unwrap();
    fs::write(fixture.path("used/opencode.json"), "{}").unwrap();
    symlink("config/editor", fixture.path("used/.zed")).unwrap();
    fs::create_dir_all(fixture.path("used/config/editor")).unwrap();
    let shields = fixture.whole_view("used").shields;
    for (path, expected) in [
        // Notes of an agent can be written beside what is executed.
        (".claude", Anchored),
        (".claude/settings.json", Existing),
        (".claude/hooks", MissingDirectory),
        (".vscode", Existing),
        (".cursor", Existing),
        (".hg/hgrc", MissingFile("")),
        (".opencode/plugin", Existing),
        (".opencode/tool", Watched),
        ("opencode.json", Existing),
        // A link is followed, and watched itself.
        (".zed", Watched),
        ("config/editor", Existing),
    ] {
        assert_eq!(what(&shields, path), Some(expected), "{path}");
    }

    let without: Vec<ProtectedPath> = vec![".vscode".parse().unwrap()];
    let policy = Policy { protect: &[], unprotect: &without };
    let view = view_with(&fixture.path("used"), policy, &fixture.host()).unwrap();
    assert_eq!(what(&view.shields, ".vscode"), None);
    assert!(held_paths(&view).iter().any(|path| path.as_str() == ".claude/settings.json"));
}

#[test]
fn settings_that_cannot_be_held_are_told_when_they_are_made() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("w/config/editor")).unwrap();
    symlink("config/editor", fixture.path("w/.zed")).unwrap();
    let before = Baseline::take(&fixture.whole_view("w"));
    assert!(before.compare().is_empty());
    fs::write(fixture.path("w/opencode.json"), "{\"mcp\":{}}").unwrap();
    fs::remove_file(fixture.path("w/.zed")).unwrap();
    fs::create_dir(fixture.path("w/.zed")).unwrap();
    fs::write(fixture.path("w/.zed/tasks.json"), "[]").unwrap();
    let found: Vec<(PathBuf, LeftKind)> =
        before.compare().left.into_iter().map(|one| (one.path, one.what)).collect();
    let expected = [".zed", "opencode.json"].map(|path| (fixture.path("w").join(path), LeftKind::Settings));
    assert_eq!(found, expected);
}

#[test]
fn what_a_link_to_nothing_leads_to_cannot_be_made_unseen() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("w/docs")).unwrap();
    symlink("docs/servers.json", fixture.path("w/.mcp.json")).unwrap();
    symlink("docs/config.json", fixture.path("w/opencode.json")).unwrap();
    symlink("/nowhere/at/all", fixture.path("w/.envrc")).unwrap();
    let view = fixture.whole_view("w");
    assert_eq!(what(&view.shields, "docs/servers.json"), Some(MissingDirectory));
    assert_eq!(what(&view.shields, "docs/config.json"), Some(Watched));
    let before = Baseline::take(&view);
    assert!(before.compare().is_empty());
    fs::write(fixture.path("w/docs/config.json"), "{}").unwrap();
    let reported: Vec<PathBuf> = before.compare().executed.into_iter().map(|one| one.path).collect();
    assert_eq!(reported, [PathBuf::from("docs/config.json")]);
}
