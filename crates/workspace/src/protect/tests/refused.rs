//! Folders that are refused.

use super::Fixture;
use belljar_spec::ErrorCode;
use std::fs;

#[test]
fn a_git_directory_that_is_not_ours_is_refused() {
    let fixture = Fixture::new();
    fixture.repository("main");
    fixture.git(&["-C", "main", "worktree", "add", "-q", "../one"]);
    fixture.git(&["init", "-q", "--separate-git-dir", "sg", "separate"]);
    let fake = fixture.path("fake");
    fs::create_dir(&fake).unwrap();
    let cases = [
        (format!("gitdir: {}\n", fixture.path("main/.git").display()), "the whole of another repository"),
        (format!("gitdir: {}\n", fixture.path("main/.git/worktrees/one").display()), "another's worktree"),
        (format!("gitdir: {}\n", fixture.path("home").display()), "a home"),
        ("gitdir: /nonexistent\n".to_string(), "nothing"),
        ("nonsense".to_string(), "no name"),
        (String::new(), "empty"),
    ];
    for (content, case) in cases {
        fs::write(fake.join(".git"), content).unwrap();
        assert_eq!(fixture.view("fake").unwrap_err().code, ErrorCode::PathRefused, "{case}");
    }
    // A worktree whose `commondir` names another place.
    let evil = fixture.path("evil");
    fs::create_dir_all(evil.join("worktrees/x")).unwrap();
    fs::write(evil.join("worktrees/x/gitdir"), fake.join(".git").to_str().unwrap()).unwrap();
    fs::write(evil.join("worktrees/x/commondir"), fixture.path("main/.git").to_str().unwrap()).unwrap();
    fs::write(fake.join(".git"), format!("gitdir: {}", evil.join("worktrees/x").display())).unwrap();
    assert_eq!(fixture.view("fake").unwrap_err().code, ErrorCode::PathRefused);

    // Nothing points back, until its owner sets `core.worktree`.
    assert_eq!(fixture.view("separate").unwrap_err().code, ErrorCode::PathRefused);
    fixture.git(&["-C", "separate", "config", "core.worktree", fixture.path("separate").to_str().unwrap()]);
    assert!(fixture.view("separate").unwrap().git.is_some());
}

#[test]
fn links_are_refused_wherever_they_are() {
    for link in [".git", ".git/hooks", ".git/config", ".git/info", ".husky", ".git/worktrees", ".git/modules"]
    {
        let fixture = Fixture::new();
        fixture.git(&["init", "-q", "w"]);
        let link_at = fixture.path("w").join(link);
        let away = fixture.path("away");
        if link_at.exists() {
            fs::rename(&link_at, &away).unwrap();
        }
        std::os::unix::fs::symlink(&away, &link_at).unwrap();
        assert_eq!(fixture.view("w").unwrap_err().code, ErrorCode::PathRefused, "{link}");
    }
}
