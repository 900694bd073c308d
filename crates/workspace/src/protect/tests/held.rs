//! The protected paths of a folder.

use super::super::*;
use super::{Fixture, seen, what};
use belljar_spec::ErrorCode;
use belljar_spec::workspace::Shielded::{Anchored, Existing, MissingDirectory, MissingFile};
use std::fs;

#[test]
fn a_repository_as_git_makes_it() {
    let fixture = Fixture::new();
    fixture.git(&["init", "-q", "w"]);
    let view = fixture.view("w").unwrap();
    assert_eq!(view.git, None);
    assert_eq!(
        seen(&view.shields),
        [
            (".git", Anchored),
            (".git/hooks", Existing),
            (".git/remotes", MissingDirectory),
            (".git/branches", Existing),
            (".git/config", Existing),
            (".git/config.worktree", MissingFile("")),
            (".git/info", Anchored),
            (".git/info/attributes", MissingFile("")),
            (".git/commondir", MissingFile(".")),
            (".git/objects", Anchored),
            (".git/objects/info", Anchored),
            (".git/objects/info/alternates", MissingFile("")),
            (".husky", MissingDirectory),
            (".belljar", MissingDirectory),
        ]
    );
}

#[test]
fn nothing_there_is_held_as_nothing() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("w")).unwrap();
    let view = fixture.view("w").unwrap();
    assert_eq!(
        seen(&view.shields),
        [(".git", MissingDirectory), (".husky", MissingDirectory), (".belljar", MissingDirectory)]
    );

    fixture.git(&["init", "-q", "bald"]);
    fs::remove_dir_all(fixture.path("bald/.git/info")).unwrap();
    fs::remove_dir_all(fixture.path("bald/.git/hooks")).unwrap();
    let view = fixture.view("bald").unwrap();
    assert_eq!(what(&view.shields, ".git/info"), Some(MissingDirectory));
    assert_eq!(what(&view.shields, ".git/hooks"), Some(MissingDirectory));
    assert_eq!(what(&view.shields, ".git/info/attributes"), None);
}

#[test]
fn a_bare_repository_is_a_git_directory_itself() {
    let fixture = Fixture::new();
    fixture.git(&["init", "-q", "--bare", "b.git"]);
    let view = fixture.view("b.git").unwrap();
    for path in ["hooks", "config"] {
        assert_eq!(what(&view.shields, path), Some(Existing), "{path}");
    }
    assert_eq!(what(&view.shields, "info/attributes"), Some(MissingFile("")));
    assert_eq!(what(&view.shields, "commondir"), Some(MissingFile(".")));
    assert_eq!(what(&view.shields, ".git"), Some(MissingDirectory));
}

#[test]
fn whatever_config_names_is_held() {
    let fixture = Fixture::new();
    fixture.git(&["init", "-q", "w"]);
    fs::create_dir_all(fixture.path("w/tools")).unwrap();
    fs::write(fixture.path("w/tools/clean.py"), "").unwrap();
    fs::write(fixture.path("w/team.config"), "[core]\nhooksPath = .team-hooks\n").unwrap();
    let absolute = fixture.path("w/abs-hooks");
    let config = format!(
        "[core]\nhooksPath = .githooks\nhooksPath = {}\n[filter \"x\"]\nclean = python3 tools/clean.py %f\n\
         [include]\npath = ../team.config\npath = more\n[IncludeIf \"onbranch:z\"]\npath = ../a/b\n[alias]\nx = log\n",
        absolute.display()
    );
    fs::write(fixture.path("w/.git/config"), config).unwrap();
    fs::write(fixture.path("home/.gitconfig"), "[core]\nhooksPath = .global-hooks\n").unwrap();
    fs::write(fixture.path("w/log"), "no program").unwrap();

    let shields = fixture.view("w").unwrap().shields;
    for (path, expected) in [
        (".githooks", Some(MissingDirectory)),
        ("abs-hooks", Some(MissingDirectory)),
        (".team-hooks", Some(MissingDirectory)),
        (".global-hooks", Some(MissingDirectory)),
        ("team.config", Some(Existing)),
        (".git/more", Some(MissingFile(""))),
        ("a", Some(MissingDirectory)),
        ("tools", Some(Anchored)),
        ("tools/clean.py", Some(Existing)),
        ("log", None),
    ] {
        assert_eq!(what(&shields, path), expected, "{path}");
    }
}

#[test]
fn programs_are_held_wherever_config_names_them() {
    let fixture = Fixture::new();
    fixture.git(&["init", "-q", "w"]);
    for folder in ["w/tools/fmt", "w/tools/app", "w/src"] {
        fs::create_dir_all(fixture.path(folder)).unwrap();
    }
    for file in ["key", "sub", "merge", "mail", "tunnel", "httpd", "path", "app/__main__.py"] {
        fs::write(fixture.path("w/tools").join(file), "").unwrap();
    }
    std::os::unix::fs::symlink(fixture.path("w"), fixture.path("link")).unwrap();
    let config = format!(
        "[core]\nhooksPath = {}\nattributesFile = my.attributes\n\
         [filter \"x\"]\nclean = ./tools/clean.sh %f\nsmudge = sed s/a/b/ s/c.d/e.f\nprocess = perl tools/there.pl\n\
         [diff \"x\"]\ntextconv = python3 -I tools/fmt\n[alias]\na = log origin/main\nb = !black ./src\n\
         c = !uv tools/app\n[gpg \"ssh\"]\ndefaultKeyCommand = tools/key\n[submodule \"s\"]\nupdate = !tools/sub\n\
         [mergetool \"m\"]\npath = tools/merge\n[sendemail]\ntoCmd = tools/mail\n[imap]\ntunnel = tools/tunnel\n\
         [instaweb]\nhttpd = tools/httpd -f\n[man \"m\"]\npath = tools/path\n[init]\ntemplateDir = template\n",
        fixture.path("link/new/hooks").display()
    );
    fs::write(fixture.path("w/.git/config"), config).unwrap();
    let shields = fixture.view("w").unwrap().shields;
    for (path, expected) in [
        ("new", Some(MissingDirectory)),
        ("my.attributes", Some(MissingFile(""))),
        ("tools/clean.sh", Some(MissingDirectory)),
        ("tools/there.pl", Some(MissingDirectory)),
        ("tools/fmt", Some(Existing)),
        ("tools/app", Some(Existing)),
        ("tools/key", Some(Existing)),
        ("tools/sub", Some(Existing)),
        ("tools/merge", Some(Existing)),
        ("tools/mail", Some(Existing)),
        ("tools/tunnel", Some(Existing)),
        ("tools/httpd", Some(Existing)),
        ("tools/path", Some(Existing)),
        ("template", Some(MissingDirectory)),
        // The argument to work on, and words that are no paths.
        ("src", None),
        ("s", None),
        ("origin", None),
    ] {
        assert_eq!(what(&shields, path), expected, "{path}");
    }
}

#[test]
fn what_a_repository_around_the_folder_names_in_it_is_held() {
    let fixture = Fixture::new();
    fixture.repository("main");
    fixture.git(&["-C", "main", "worktree", "add", "-q", "../linked"]);
    for repository in ["main", "linked"] {
        fs::create_dir_all(fixture.path(repository).join("tools/deep/hooks")).unwrap();
        fs::write(fixture.path(repository).join("tools/deep/clean.sh"), "").unwrap();
    }
    fixture.git(&["-C", "main", "config", "core.hooksPath", "tools/deep/hooks"]);
    fixture.git(&["-C", "main", "config", "filter.x.clean", "sh tools/deep/clean.sh"]);
    for repository in ["main", "linked"] {
        let shields = fixture.view(&format!("{repository}/tools")).unwrap().shields;
        assert_eq!(what(&shields, "deep"), Some(Anchored), "{repository}");
        assert_eq!(what(&shields, "deep/hooks"), Some(Existing), "{repository}");
        assert_eq!(what(&shields, "deep/clean.sh"), Some(Existing), "{repository}");
        // A repository in between does not end the search.
        fixture.git(&["init", "-q", &format!("{repository}/tools/deep")]);
        let shields = fixture.view(&format!("{repository}/tools/deep")).unwrap().shields;
        assert_eq!(what(&shields, "hooks"), Some(Existing), "{repository}");
    }
}

#[test]
fn a_protected_directory_is_no_workspace() {
    let fixture = Fixture::new();
    fixture.repository("main");
    fixture.git(&["init", "-q", "--bare", "b.git"]);
    for folder in ["main/.husky/_", "main/.belljar", "main/tools/hooks/lib", "main/other", "global/hooks"] {
        fs::create_dir_all(fixture.path(folder)).unwrap();
    }
    fixture.git(&["-C", "main", "config", "core.hooksPath", "tools/hooks"]);
    fs::write(fixture.path("home/.gitconfig"), "[core]\nhooksPath =\n[init]\ntemplateDir =\n").unwrap();
    for (folder, named) in [
        ("main/.git", "`.git`"),
        ("main/.git/hooks", "part of a git directory"),
        ("main/.git/refs/heads", "part of a git directory"),
        ("main/.husky/_", "`.husky`"),
        ("main/.belljar", "`.belljar`"),
        ("main/tools/hooks", "main/tools/hooks` as its hooks"),
        ("main/tools/hooks/lib", "main/tools/hooks` as its hooks"),
        ("b.git/hooks", "part of a git directory"),
    ] {
        let error = fixture.view(folder).unwrap_err();
        assert_eq!(error.code, ErrorCode::PathRefused, "{folder}");
        assert!(error.message.contains(named), "{folder}: {error}");
    }
    for folder in ["main", "main/other", "main/tools", "b.git", "home"] {
        fixture.view(folder).unwrap();
    }
    // A repository whose own config makes all of it hooks, and hooks of every repository of the user.
    fs::write(
        fixture.path("home/.gitconfig"),
        format!("[core]\nhooksPath = {}", fixture.path("global/hooks").display()),
    )
    .unwrap();
    assert_eq!(fixture.view("global/hooks").unwrap_err().code, ErrorCode::PathRefused);
    fixture.git(&["-C", "main", "config", "core.hooksPath", "."]);
    assert_eq!(fixture.view("main").unwrap_err().code, ErrorCode::PathRefused);
}

#[test]
fn a_folder_of_settings_is_no_workspace_unless_a_repository_is() {
    let fixture = Fixture::new();
    for folder in [
        ".vscode",
        ".claude/hooks/lib",
        ".claude/notes",
        ".opencode",
        ".codex/x",
        ".codex/worktrees/w",
        "src",
    ] {
        fs::create_dir_all(fixture.path(&format!("main/{folder}"))).unwrap();
    }
    fixture.repository("main/.codex/worktrees/w");
    let view = |folder: &str, policy: Policy<'_>| {
        view_with(&fixture.path(&format!("main/{folder}")), policy, &fixture.host())
    };
    for folder in [".vscode", ".claude", ".claude/hooks", ".claude/hooks/lib", ".opencode", ".codex/x"] {
        let error = view(folder, Policy::default()).unwrap_err();
        assert_eq!(error.code, ErrorCode::PathRefused, "{folder}");
        assert!(error.hint.unwrap_or_default().to_string().contains("unprotect"), "{folder}");
    }
    for folder in ["src", ".claude/notes", ".codex/worktrees/w"] {
        view(folder, Policy::default()).unwrap();
    }
    let unprotect: Vec<ProtectedPath> = vec![".vscode".parse().unwrap()];
    let policy = Policy { protect: &[], unprotect: &unprotect };
    view(".vscode", policy).unwrap();
}

#[test]
fn policy_adds_paths() {
    let fixture = Fixture::new();
    fixture.git(&["init", "-q", "w"]);
    fs::write(fixture.path("w/Makefile"), "").unwrap();
    let view = |paths: &[&str]| {
        let paths: Vec<ProtectedPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        view_with(&fixture.path("w"), Policy { protect: &paths, unprotect: &[] }, &fixture.host())
    };
    let shields = view(&[".github/workflows", "Makefile", ".git"]).unwrap().shields;
    assert_eq!(what(&shields, ".github"), Some(MissingDirectory));
    assert_eq!(what(&shields, "Makefile"), Some(Existing));
    assert_eq!(what(&shields, ".git"), Some(Existing), "all of it");
    assert_eq!(what(&shields, ".git/hooks"), None);
    assert_eq!(view(&["Makefile/x"]).unwrap_err().code, ErrorCode::PathRefused);
}

#[test]
fn repositories_further_down_are_held_so_far_as_they_are_found() {
    let fixture = Fixture::new();
    let inits = |paths: &[String]| paths.iter().for_each(|path| fixture.git(&["init", "-q", path]));
    let itself = |folder: &str| {
        let mut view = fixture.view(folder).unwrap();
        below::hold(&mut view, &fixture.host(), None, Nested::Shared).unwrap();
        view
    };
    inits(&["w/a", "w/b/c", "w/b/d/e", "w/b/d/f/too-deep", "w/node_modules/x"].map(String::from));
    fixture.git(&["-C", "w/a", "config", "core.hooksPath", "my-hooks"]);
    fs::write(fixture.path("w/b/.git"), "gitdir: /elsewhere\n").unwrap();
    std::os::unix::fs::symlink("/tmp", fixture.path("w/b/c/.git/link")).unwrap();
    let view = itself("w");
    for path in ["a/.git/hooks", "b/c/.git/config", "b/d/e/.git/hooks", "b/.git"] {
        assert_eq!(what(&view.shields, path), Some(Existing), "{path}");
    }
    assert_eq!(what(&view.shields, "a/.git/commondir"), Some(MissingFile(".")));
    assert_eq!(what(&view.shields, "a/my-hooks"), Some(MissingDirectory));
    for path in ["b/d/f/too-deep/.git/hooks", "node_modules/x/.git/hooks"] {
        assert_eq!(what(&view.shields, path), None, "{path}");
    }

    // Hooks in another place: the whole git directory is protected, and the folder stays usable.
    fs::remove_dir_all(fixture.path("w/a/.git/hooks")).unwrap();
    std::os::unix::fs::symlink("/tmp", fixture.path("w/a/.git/hooks")).unwrap();
    assert_eq!(what(&itself("w").shields, "a/.git"), Some(Existing));
    assert_eq!(what(&itself("w").shields, "a/my-hooks"), Some(MissingDirectory));

    // Even if an agent damages one, the folder stays usable, and the others are protected.
    fixture.git(&["init", "-q", "--bare", "w/bare/.bare"]);
    fs::write(fixture.path("w/bare/.git"), "gitdir: ./.bare\n").unwrap();
    fs::create_dir_all(fixture.path("w/bare/.husky")).unwrap();
    use std::os::unix::ffi::OsStrExt;
    fs::create_dir_all(fixture.path("w").join(std::ffi::OsStr::from_bytes(b"\xff/.git"))).unwrap();
    fs::create_dir_all(fixture.path("w/evil/.git")).unwrap();
    let line = "[alias]\nx = !./run\n";
    fs::write(fixture.path("w/evil/.git/config"), line.repeat(20_000)).unwrap();
    let view = itself("w");
    for path in ["bare/.bare/hooks", "bare/.git", "bare/.husky", "b/c/.git/hooks", "evil/.git/config"] {
        assert_eq!(what(&view.shields, path), Some(Existing), "{path}");
    }
    assert_eq!(what(&view.shields, "evil/run"), None);

    inits(&(0..20).map(|number| format!("many/{number}")).collect::<Vec<_>>());
    let view = itself("many");
    let held = |path: &str| {
        (0..20).filter(|at| what(&view.shields, &format!("{at}/{path}")) == Some(Existing)).count()
    };
    assert_eq!((held(".git/hooks"), held(".git")), (16, 4));
}
