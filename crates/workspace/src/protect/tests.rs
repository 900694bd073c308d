//! Folders of every kind, made by a real git.

use super::*;
use belljar_spec::workspace::Shielded::{self, Anchored, Existing, MissingDirectory, MissingFile};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

#[test]
fn a_repository_as_git_makes_it() {
    let place = Place::new();
    place.git(&["init", "-q", "w"]);
    let view = place.view("w").unwrap();
    assert_eq!(view.git, None);
    assert_eq!(
        seen(&view.shields),
        [
            (".git", Anchored),
            (".git/hooks", Existing),
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
    let place = Place::new();
    fs::create_dir(place.path("w")).unwrap();
    let view = place.view("w").unwrap();
    assert_eq!(
        seen(&view.shields),
        [(".git", MissingDirectory), (".husky", MissingDirectory), (".belljar", MissingDirectory)]
    );

    place.git(&["init", "-q", "bald"]);
    fs::remove_dir_all(place.path("bald/.git/info")).unwrap();
    fs::remove_dir_all(place.path("bald/.git/hooks")).unwrap();
    let view = place.view("bald").unwrap();
    assert_eq!(what(&view.shields, ".git/info"), Some(MissingDirectory));
    assert_eq!(what(&view.shields, ".git/hooks"), Some(MissingDirectory));
    assert_eq!(what(&view.shields, ".git/info/attributes"), None);
}

#[test]
fn a_bare_repository_is_a_git_directory_itself() {
    let place = Place::new();
    place.git(&["init", "-q", "--bare", "b.git"]);
    let view = place.view("b.git").unwrap();
    for path in ["hooks", "config"] {
        assert_eq!(what(&view.shields, path), Some(Existing), "{path}");
    }
    assert_eq!(what(&view.shields, "info/attributes"), Some(MissingFile("")));
    assert_eq!(what(&view.shields, "commondir"), Some(MissingFile(".")));
    assert_eq!(what(&view.shields, ".git"), Some(MissingDirectory));
}

#[test]
fn whatever_config_names_is_held() {
    let place = Place::new();
    place.git(&["init", "-q", "w"]);
    fs::create_dir_all(place.path("w/tools")).unwrap();
    fs::write(place.path("w/tools/clean.py"), "").unwrap();
    fs::write(place.path("w/team.config"), "[core]\nhooksPath = .team-hooks\n").unwrap();
    let absolute = place.path("w/abs-hooks");
    let config = format!(
        "[core]\nhooksPath = .githooks\nhooksPath = {}\n[filter \"x\"]\nclean = python3 tools/clean.py %f\n\
         [include]\npath = ../team.config\npath = more\n[IncludeIf \"onbranch:z\"]\npath = ../a/b\n[alias]\nx = log\n",
        absolute.display()
    );
    fs::write(place.path("w/.git/config"), config).unwrap();
    fs::write(place.path("home/.gitconfig"), "[core]\nhooksPath = .global-hooks\n").unwrap();
    fs::write(place.path("w/log"), "no program").unwrap();

    let shields = place.view("w").unwrap().shields;
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
    let place = Place::new();
    place.git(&["init", "-q", "w"]);
    for folder in ["w/tools/fmt", "w/tools/app", "w/src"] {
        fs::create_dir_all(place.path(folder)).unwrap();
    }
    for file in ["key", "sub", "merge", "mail", "tunnel", "httpd", "path", "app/__main__.py"] {
        fs::write(place.path("w/tools").join(file), "").unwrap();
    }
    std::os::unix::fs::symlink(place.path("w"), place.path("link")).unwrap();
    let config = format!(
        "[core]\nhooksPath = {}\nattributesFile = my.attributes\n\
         [filter \"x\"]\nclean = ./tools/clean.sh %f\nsmudge = sed s/a/b/ s/c.d/e.f\nprocess = perl tools/there.pl\n\
         [diff \"x\"]\ntextconv = python3 -I tools/fmt\n[alias]\na = log origin/main\nb = !black ./src\n\
         c = !uv tools/app\n[gpg \"ssh\"]\ndefaultKeyCommand = tools/key\n[submodule \"s\"]\nupdate = !tools/sub\n\
         [mergetool \"m\"]\npath = tools/merge\n[sendemail]\ntoCmd = tools/mail\n[imap]\ntunnel = tools/tunnel\n\
         [instaweb]\nhttpd = tools/httpd -f\n[man \"m\"]\npath = tools/path\n[init]\ntemplateDir = template\n",
        place.path("link/new/hooks").display()
    );
    fs::write(place.path("w/.git/config"), config).unwrap();
    let shields = place.view("w").unwrap().shields;
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
        // What is worked on, and what is no path at all.
        ("src", None),
        ("s", None),
        ("origin", None),
    ] {
        assert_eq!(what(&shields, path), expected, "{path}");
    }
}

#[test]
fn what_a_repository_around_the_folder_names_in_it_is_held() {
    let place = Place::new();
    place.repository("main");
    place.git(&["-C", "main", "worktree", "add", "-q", "../linked"]);
    for repository in ["main", "linked"] {
        fs::create_dir_all(place.path(repository).join("tools/deep/hooks")).unwrap();
        fs::write(place.path(repository).join("tools/deep/clean.sh"), "").unwrap();
    }
    place.git(&["-C", "main", "config", "core.hooksPath", "tools/deep/hooks"]);
    place.git(&["-C", "main", "config", "filter.x.clean", "sh tools/deep/clean.sh"]);
    for repository in ["main", "linked"] {
        let shields = place.view(&format!("{repository}/tools")).unwrap().shields;
        assert_eq!(what(&shields, "deep"), Some(Anchored), "{repository}");
        assert_eq!(what(&shields, "deep/hooks"), Some(Existing), "{repository}");
        assert_eq!(what(&shields, "deep/clean.sh"), Some(Existing), "{repository}");
        // A repository in between is not the end of it.
        place.git(&["init", "-q", &format!("{repository}/tools/deep")]);
        let shields = place.view(&format!("{repository}/tools/deep")).unwrap().shields;
        assert_eq!(what(&shields, "hooks"), Some(Existing), "{repository}");
    }
}

#[test]
fn a_protected_directory_is_no_workspace() {
    let place = Place::new();
    place.repository("main");
    place.git(&["init", "-q", "--bare", "b.git"]);
    for folder in ["main/.husky/_", "main/.belljar", "main/tools/hooks/lib", "main/other", "global/hooks"] {
        fs::create_dir_all(place.path(folder)).unwrap();
    }
    place.git(&["-C", "main", "config", "core.hooksPath", "tools/hooks"]);
    fs::write(place.path("home/.gitconfig"), "[core]\nhooksPath =\n[init]\ntemplateDir =\n").unwrap();
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
        let error = place.view(folder).unwrap_err();
        assert_eq!(error.code, "workspace_is_protected", "{folder}");
        assert!(error.message.contains(named), "{folder}: {error}");
    }
    for folder in ["main", "main/other", "main/tools", "b.git", "home"] {
        place.view(folder).unwrap();
    }
    // Whose own config says that it is all hooks, and hooks of every repository of the user.
    fs::write(
        place.path("home/.gitconfig"),
        format!("[core]\nhooksPath = {}", place.path("global/hooks").display()),
    )
    .unwrap();
    assert_eq!(place.view("global/hooks").unwrap_err().code, "workspace_is_protected");
    place.git(&["-C", "main", "config", "core.hooksPath", "."]);
    assert_eq!(place.view("main").unwrap_err().code, "workspace_is_protected");
}

#[test]
fn a_linked_worktree_holds_what_is_not_its_own() {
    let place = Place::new();
    place.repository("main");
    place.git(&["-C", "main", "worktree", "add", "-q", "../one"]);
    place.git(&["-C", "main", "worktree", "add", "-q", "../two"]);
    let view = place.view("one").unwrap();
    let git = view.git.unwrap();
    assert_eq!((git.common, git.own.as_str()), (place.path("main/.git"), "worktrees/one"));
    for (path, expected) in [
        ("hooks", Some(Existing)),
        ("config", Some(Existing)),
        ("commondir", Some(MissingFile("."))),
        ("worktrees", Some(Anchored)),
        ("worktrees/one", Some(Anchored)),
        ("worktrees/one/gitdir", Some(Existing)),
        ("worktrees/one/commondir", Some(Existing)),
        ("worktrees/one/config.worktree", Some(MissingFile(""))),
        ("worktrees/two", Some(Existing)),
        ("HEAD", Some(Existing)),
        ("index", Some(Existing)),
        ("objects", Some(Anchored)),
        ("objects/info/alternates", Some(MissingFile(""))),
        ("objects/pack", None),
    ] {
        assert_eq!(what(&git.shields, path), expected, "{path}");
    }
    assert_eq!(what(&view.shields, ".git"), None, "shown as another file");

    let known = view_of_worktree(&place.path("one"), &place.path("main/.git"), "worktrees/one", &[]).unwrap();
    assert_eq!(known.git.unwrap().shields, git.shields);
    // From the main worktree, both are somebody else's.
    let main = place.view("main").unwrap().shields;
    assert_eq!(what(&main, ".git/worktrees/one"), Some(Existing));
}

#[test]
fn worktrees_below_the_folder_keep_their_git_files() {
    let place = Place::new();
    place.repository("main");
    place.git(&["-C", "main", "worktree", "add", "-q", ".trees/one"]);
    place.git(&["-C", "main", "worktree", "add", "-q", ".trees/one/deep/two"]);
    place.git(&["-C", "main", "worktree", "add", "-q", "../gone"]);
    fs::remove_dir_all(place.path("gone")).unwrap();
    let relative = place.path("main/.git/worktrees/two/gitdir");
    fs::write(&relative, "../../../.trees/one/deep/two/.git\n").unwrap();

    let main = place.view("main").unwrap().shields;
    assert_eq!(what(&main, ".trees"), Some(Anchored));
    assert_eq!(what(&main, ".trees/one"), Some(Anchored));
    assert_eq!(what(&main, ".trees/one/.git"), Some(Existing));
    assert_eq!(what(&main, ".trees/one/deep/two/.git"), Some(Existing));
    // Seen from a folder without a repository of its own, and from another worktree.
    let trees = place.view("main/.trees").unwrap().shields;
    assert_eq!(what(&trees, "one/.git"), Some(Existing));
    let one = place.view("main/.trees/one").unwrap().shields;
    assert_eq!(what(&one, "deep/two/.git"), Some(Existing));
    assert_eq!(what(&one, ".git"), None, "shown as another file");

    place.git(&["-C", "main", "clone", "-q", "--bare", ".", "../b.git"]);
    place.git(&["-C", "b.git", "worktree", "add", "-q", "tree", "main"]);
    assert_eq!(what(&place.view("b.git").unwrap().shields, "tree/.git"), Some(Existing));
}

#[test]
fn submodules_are_held_and_can_be_worked_in() {
    let place = Place::new();
    place.repository("lib");
    place.repository("main");
    let add = ["-C", "main", "-c", "protocol.file.allow=always", "submodule", "add", "-q"];
    place.git(&[&add[..], &["--name", "deep/name", "../lib", "sub"]].concat());
    let shields = place.view("main").unwrap().shields;
    for (path, expected) in [
        (".git/modules", Some(Anchored)),
        (".git/modules/deep", Some(Anchored)),
        (".git/modules/deep/name/hooks", Some(Existing)),
        (".git/modules/deep/name/config", Some(Existing)),
        (".git/modules/deep/name/commondir", Some(MissingFile("."))),
        ("sub", Some(Anchored)),
        ("sub/.git", Some(Existing)),
    ] {
        assert_eq!(what(&shields, path), expected, "{path}");
    }

    let view = place.view("main/sub").unwrap();
    let git = view.git.unwrap();
    assert_eq!((git.common, git.own.as_str()), (place.path("main/.git/modules/deep/name"), ""));
    assert_eq!(what(&git.shields, "hooks"), Some(Existing));
    assert_eq!(what(&git.shields, "HEAD"), None, "it is ours");
}

/// An agent can make a git directory below `modules`; who opens a pipe waits for its other end.
#[test]
fn a_pipe_for_a_submodules_config_holds_nobody_up() {
    let place = Place::new();
    place.repository("main");
    place.git(&["init", "-q", "--bare", "main/.git/modules/planted"]);
    let config = place.path("main/.git/modules/planted/config");
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let (sender, receiver) = std::sync::mpsc::channel();
    let folder = place.path("main");
    std::thread::spawn(move || sender.send(view(&folder, &[]).map(|view| view.shields)));
    let shields = receiver.recv_timeout(Duration::from_secs(100)).expect("it waits").unwrap();
    assert_eq!(what(&shields, ".git/modules/planted/config"), Some(Existing));
}

#[test]
fn a_git_directory_that_is_not_ours_is_refused() {
    let place = Place::new();
    place.repository("main");
    place.git(&["-C", "main", "worktree", "add", "-q", "../one"]);
    place.git(&["init", "-q", "--separate-git-dir", "sg", "separate"]);
    let fake = place.path("fake");
    fs::create_dir(&fake).unwrap();
    let cases = [
        (format!("gitdir: {}\n", place.path("main/.git").display()), "the whole of another repository"),
        (format!("gitdir: {}\n", place.path("main/.git/worktrees/one").display()), "another's worktree"),
        (format!("gitdir: {}\n", place.path("home").display()), "a home"),
        ("gitdir: /nonexistent\n".to_string(), "nothing"),
        ("nonsense".to_string(), "no name"),
        (String::new(), "empty"),
    ];
    for (content, case) in cases {
        fs::write(fake.join(".git"), content).unwrap();
        assert_eq!(place.view("fake").unwrap_err().code, "git_dir_not_ours", "{case}");
    }
    // A worktree whose common directory is said to be elsewhere.
    let evil = place.path("evil");
    fs::create_dir_all(evil.join("worktrees/x")).unwrap();
    fs::write(evil.join("worktrees/x/gitdir"), fake.join(".git").to_str().unwrap()).unwrap();
    fs::write(evil.join("worktrees/x/commondir"), place.path("main/.git").to_str().unwrap()).unwrap();
    fs::write(fake.join(".git"), format!("gitdir: {}", evil.join("worktrees/x").display())).unwrap();
    assert_eq!(place.view("fake").unwrap_err().code, "git_dir_not_ours");

    // Nothing points back, until its owner says so.
    assert_eq!(place.view("separate").unwrap_err().code, "git_dir_not_ours");
    place.git(&["-C", "separate", "config", "core.worktree", place.path("separate").to_str().unwrap()]);
    assert!(place.view("separate").unwrap().git.is_some());
}

#[test]
fn links_are_refused_wherever_they_are() {
    for link in [".git", ".git/hooks", ".git/config", ".git/info", ".husky", ".git/worktrees", ".git/modules"]
    {
        let place = Place::new();
        place.git(&["init", "-q", "w"]);
        let link_at = place.path("w").join(link);
        let away = place.path("away");
        if link_at.exists() {
            fs::rename(&link_at, &away).unwrap();
        }
        std::os::unix::fs::symlink(&away, &link_at).unwrap();
        assert_eq!(place.view("w").unwrap_err().code, "protected_path_is_link", "{link}");
    }
}

#[test]
fn what_no_mount_can_prevent_is_found_afterwards() {
    for (version, format) in [("2", "sha1"), ("4", "sha1"), ("3", "sha256")] {
        let place = Place::new();
        place.git(&["init", "-q", "--object-format", format, "w"]);
        place.repository("w");
        let found = || -> Vec<(String, LeftKind)> {
            let all = left(&place.view("w").unwrap()).into_iter();
            all.map(|one| (one.path.strip_prefix(place.path("w")).unwrap().display().to_string(), one.what))
                .collect()
        };
        assert_eq!(found(), []);
        // A repository that nobody names is not gone into; one in the index is.
        place.git(&["init", "-q", "--object-format", format, "w/deep/nested"]);
        place.repository("w/deep/nested");
        fs::write(place.path("w/deep/zzz"), "").unwrap();
        assert_eq!(found(), []);
        place.git(&["-C", "w", "update-index", "--index-version", version]);
        place.git(&["-C", "w", "-c", "advice.addEmbeddedRepo=false", "add", "deep"]);
        assert_eq!(found(), [("deep/nested".to_string(), LeftKind::Repository)]);
        place.git(&["-C", "w", "update-index", "--split-index"]);
        assert_eq!(found(), [("deep/nested".to_string(), LeftKind::Repository)]);
        let view = place.view("w").unwrap();
        let later = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(left_since(later, &view), []);
        let before = SystemTime::now();
        place.git(&["-C", "w/deep/nested", "config", "core.fsmonitor", "/canary"]);
        place.git(&["-C", "w", "config", "a.b", "c"]);
        let kinds: Vec<LeftKind> = left_since(before, &view).iter().map(|one| one.what).collect();
        assert_eq!(kinds, [LeftKind::Repository, LeftKind::Held]);
        place.git(&["-C", "w", "update-index", "--no-split-index"]);
        for entry in fs::read_dir(place.path("w/.git")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        place.git(&["-C", "w", "rm", "-q", "-f", "--cached", "deep/nested"]);

        std::os::unix::fs::symlink("/tmp/x", place.path("w/.git/COMMIT_MSG")).unwrap();
        fs::remove_file(place.path("w/.git/logs/refs/heads/main")).unwrap();
        std::os::unix::fs::symlink("/tmp/x", place.path("w/.git/logs/refs/heads/main")).unwrap();
        fs::create_dir(place.path("w/.git/rebase-merge")).unwrap();
        fs::write(place.path("w/.git/rebase-merge/git-rebase-todo"), "pick 1 a\n  x touch /canary\n")
            .unwrap();
        let expected = [
            (".git/COMMIT_MSG", LeftKind::Link),
            (".git/logs/refs/heads/main", LeftKind::Link),
            (".git/rebase-merge/git-rebase-todo", LeftKind::Commands),
        ];
        assert_eq!(found(), expected.map(|(path, what)| (path.to_string(), what)));
    }
    let place = Place::new();
    fs::create_dir(place.path("plain")).unwrap();
    let view = place.view("plain").unwrap();
    assert_eq!(left(&view), []);
    place.git(&["init", "-q", "--bare", "plain"]);
    assert_eq!(left(&view)[0].what, LeftKind::GitDirectory);
}

#[test]
fn a_folder_made_a_git_directory_is_found_whatever_its_own_one_is() {
    let place = Place::new();
    place.repository("w");
    let view = place.view("w").unwrap();
    // Until the kernel's clock for files has ticked, what was just made is as new as what follows.
    std::thread::sleep(Duration::from_millis(30));
    let before = SystemTime::now();
    place.git(&["init", "-q", "--bare", "planted"]);
    for name in ["HEAD", "config", "objects", "refs"] {
        fs::rename(place.path("planted").join(name), place.path("w").join(name)).unwrap();
    }
    fs::write(place.path("w/.git/HEAD"), "nonsense").unwrap();
    let kinds: Vec<LeftKind> = left_since(before, &view).iter().map(|one| one.what).collect();
    assert_eq!(kinds, [LeftKind::GitDirectory]);

    // One that it was from the start and that nobody changed is no harm.
    place.git(&["init", "-q", "--bare", "b.git"]);
    let view = place.view("b.git").unwrap();
    assert_eq!(left_since(SystemTime::now() + Duration::from_secs(1), &view), []);
}

#[test]
fn what_was_held_and_is_changed_all_the_same_is_found() {
    let place = Place::new();
    place.repository("w");
    let hook = place.path("w/.git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "").unwrap();
    let view = place.view("w").unwrap();
    // Later than what git has made, by more than the tick of the clock for files.
    std::thread::sleep(Duration::from_millis(50));
    let before = SystemTime::now();
    let found = || -> Vec<PathBuf> {
        let held = left_since(before, &view).into_iter().filter(|one| one.what == LeftKind::Held);
        held.map(|one| one.path.strip_prefix(place.path("w")).unwrap().to_path_buf()).collect()
    };
    // What stands for missing ones is no harm.
    fs::create_dir(place.path("w/.husky")).unwrap();
    fs::write(place.path("w/.git/commondir"), ".").unwrap();
    fs::write(place.path("w/.git/config.worktree"), "").unwrap();
    assert!(found().is_empty(), "{:?}", found());

    fs::write(&hook, "touch /canary").unwrap();
    assert_eq!(found(), [PathBuf::from(".git/hooks")]);
    fs::write(place.path("w/.husky/pre-commit"), "touch /canary").unwrap();
    fs::write(place.path("w/.git/commondir"), "..").unwrap();
    fs::write(place.path("w/.git/config.worktree"), "[core]\nfsmonitor = touch /canary\n").unwrap();
    std::os::unix::fs::symlink("/canary", place.path("w/.belljar")).unwrap();
    let expected = [".git/hooks", ".git/config.worktree", ".git/commondir", ".husky", ".belljar"];
    assert_eq!(found(), expected.map(PathBuf::from));
}

#[test]
fn what_a_worktree_leaves_for_the_main_one_is_held_or_found() {
    let place = Place::new();
    place.repository("main");
    place.git(&["-C", "main", "worktree", "add", "-q", "../one"]);
    let common = place.path("main/.git");
    fs::write(common.join("ORIG_HEAD"), "").unwrap();
    fs::create_dir(common.join("sequencer")).unwrap();
    let view = place.view("one").unwrap();
    let shields = &view.git.as_ref().unwrap().shields;
    for (path, expected) in [
        ("COMMIT_EDITMSG", Some(Existing)),
        ("ORIG_HEAD", Some(Existing)),
        ("sequencer", Some(Existing)),
        ("MERGE_MSG", None),
        ("rebase-merge", None),
    ] {
        assert_eq!(what(shields, path), expected, "{path}");
    }
    // What is not there cannot be held: git takes an empty one for a merge that is going on.
    std::os::unix::fs::symlink("/tmp/x", common.join("MERGE_MSG")).unwrap();
    fs::remove_file(common.join("logs/HEAD")).unwrap();
    std::os::unix::fs::symlink("/tmp/x", common.join("logs/HEAD")).unwrap();
    fs::create_dir(common.join("rebase-merge")).unwrap();
    fs::write(common.join("rebase-merge/git-rebase-todo"), "exec touch /canary\n").unwrap();
    std::os::unix::fs::symlink("/tmp/x", common.join("worktrees/one/MERGE_MSG")).unwrap();
    let expected = [
        ("MERGE_MSG", LeftKind::Link),
        ("logs/HEAD", LeftKind::Link),
        ("rebase-merge/git-rebase-todo", LeftKind::Commands),
        ("worktrees/one/MERGE_MSG", LeftKind::Link),
    ];
    let expected = expected.map(|(path, what)| Left { path: common.join(path), what });
    assert_eq!(left(&view), expected);
    // The main worktree's own work is not ours to report.
    fs::write(common.join("COMMIT_EDITMSG"), "its own").unwrap();
    let since = SystemTime::now() - Duration::from_secs(1);
    let paths: Vec<PathBuf> = left_since(since, &view).into_iter().map(|one| one.path).collect();
    assert!(!paths.contains(&common.join("COMMIT_EDITMSG")), "{paths:?}");
}

#[test]
fn files_that_are_too_large_are_reported_and_not_read() {
    let place = Place::new();
    place.repository("w");
    let view = place.view("w").unwrap();
    let before = SystemTime::now() - Duration::from_secs(1);
    let git_dir = place.path("w/.git");
    let grow = |name: &str, size: u64| {
        let file = fs::OpenOptions::new().create(true).append(true).open(git_dir.join(name)).unwrap();
        file.set_len(size).unwrap();
    };
    let found = || -> Vec<PathBuf> {
        let too_much = left_since(before, &view).into_iter().filter(|one| one.what == LeftKind::TooMuch);
        too_much.map(|one| one.path.strip_prefix(&git_dir).unwrap().to_path_buf()).collect()
    };
    // Git does not take it for an index.
    grow("sharedindex.1", 1 << 40);
    assert!(found().is_empty(), "{:?}", found());
    grow("index", 1 << 40);
    fs::create_dir(git_dir.join("rebase-merge")).unwrap();
    grow("rebase-merge/git-rebase-todo", 1 << 40);
    assert_eq!(found(), ["index", "rebase-merge/git-rebase-todo"].map(PathBuf::from));
    // Many that are not too large by themselves.
    fs::remove_dir_all(git_dir.join("rebase-merge")).unwrap();
    grow("index", 200 << 20);
    fs::write(git_dir.join("sharedindex.2"), "DIRC").unwrap();
    grow("sharedindex.2", 200 << 20);
    assert_eq!(found().len(), 1);
}

#[test]
fn links_hidden_by_number_or_depth_are_not_passed_over() {
    let place = Place::new();
    place.repository("w");
    let view = place.view("w").unwrap();
    let git_dir = place.path("w/.git");
    let too_much = [Left { path: git_dir.clone(), what: LeftKind::TooMuch }];
    // The repository itself is so new that its files count as changed.
    let too_much_since = |since: SystemTime| -> Vec<Left> {
        left_since(since, &view).into_iter().filter(|one| one.what != LeftKind::Held).collect()
    };
    let deep = "d/".repeat(40);
    fs::create_dir_all(git_dir.join("refs/heads").join(&deep)).unwrap();
    let link = git_dir.join("refs/heads").join(&deep).join("link");
    std::os::unix::fs::symlink("/tmp/x", link).unwrap();
    assert_eq!(too_much_since(SystemTime::now()), too_much);
    fs::remove_dir_all(git_dir.join("refs/heads/d")).unwrap();
    assert_eq!(left(&view), []);

    fs::create_dir(git_dir.join("refs/many")).unwrap();
    for number in 0..=50_000 {
        fs::write(git_dir.join(format!("refs/many/{number}")), "").unwrap();
    }
    assert_eq!(too_much_since(SystemTime::now()), too_much);
}

#[test]
fn a_damaged_index_names_nothing() {
    let place = Place::new();
    place.repository("w");
    let index = place.path("w/.git/index");
    let whole = fs::read(&index).unwrap();
    for length in 0..whole.len() {
        fs::write(&index, &whole[..length]).unwrap();
        assert_eq!(left(&place.view("w").unwrap()), []);
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        fs::write(&index, changed).unwrap();
        left(&place.view("w").unwrap());
    }
}

#[test]
fn policy_adds_paths() {
    let place = Place::new();
    place.git(&["init", "-q", "w"]);
    fs::write(place.path("w/Makefile"), "").unwrap();
    let view = |paths: &[&str]| {
        let paths: Vec<ProtectedPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        view_with(&place.path("w"), &paths, &place.host())
    };
    let shields = view(&[".github/workflows", "Makefile", ".git"]).unwrap().shields;
    assert_eq!(what(&shields, ".github"), Some(MissingDirectory));
    assert_eq!(what(&shields, "Makefile"), Some(Existing));
    assert_eq!(what(&shields, ".git"), Some(Existing), "all of it");
    assert_eq!(what(&shields, ".git/hooks"), None);
    assert_eq!(view(&["Makefile/x"]).unwrap_err().code, "protected_path_below_file");
}

fn seen(shields: &[belljar_spec::workspace::Shield]) -> Vec<(&str, Shielded)> {
    shields.iter().map(|shield| (shield.path.as_str(), shield.what.clone())).collect()
}

fn what(shields: &[belljar_spec::workspace::Shield], path: &str) -> Option<Shielded> {
    shields.iter().find(|shield| shield.path == path).map(|shield| shield.what.clone())
}

/// Folders, and a home with nothing in it.
struct Place {
    root: PathBuf,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("home")).unwrap();
        Place { root, _directory: directory }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn host(&self) -> HostFiles {
        HostFiles { files: vec![self.path("home/.gitconfig")], home: Some(self.path("home")) }
    }

    fn view(&self, folder: &str) -> Result<View, SandboxError> {
        view_with(&self.path(folder), &[], &self.host())
    }

    fn repository(&self, name: &str) {
        self.git(&["init", "-q", name]);
        fs::write(self.path(name).join("file"), "x").unwrap();
        self.git(&["-C", name, "add", "file"]);
        self.git(&["-C", name, "commit", "-q", "-m", "x"]);
    }

    fn git(&self, args: &[&str]) {
        let who = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
        let output = Command::new("git")
            .args(who)
            .args(args)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
