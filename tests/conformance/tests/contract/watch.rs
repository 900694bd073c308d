//! Watching folders.

use belljar_engine::ChangeKind::{self, Created, Modified, Overflow, Removed};
use belljar_engine::Watch;
use belljar_spec::{BackendName, ErrorCode};
use belljar_tests_conformance::*;
use std::fs;
use std::os::unix::fs::symlink;

for_every_backend! {
    everywhere:
        a_watch_ends_with_its_sandbox;
    each_kernel:
        it_continues_in_a_sandbox_that_is_paused;
    living everywhere:
        what_happens_is_told_in_order,
        what_the_host_does_is_told_too,
        what_cannot_be_watched_says_why;
    living each_kernel:
        below_the_folder_only_when_asked,
        a_new_folder_is_watched_with_all_in_it,
        a_moved_folder_is_told_by_its_new_name,
        a_file_that_is_replaced_is_told,
        many_files_in_new_folders_are_each_told_once,
        no_link_is_followed,
        names_that_are_not_text_are_told,
        the_end_of_the_folder_is_the_end,
        watches_do_not_disturb_each_other_or_commands,
        more_than_can_be_told_is_said;
}

/// The changes up to the first with this path.
async fn until(watch: &mut Watch, last: &str) -> Vec<(ChangeKind, String)> {
    let mut seen = Vec::new();
    loop {
        let change = watch.next().await.unwrap().expect("the folder is there");
        let path = change.path.to_string_lossy().into_owned();
        let is_last = path == last;
        seen.push((change.kind, path));
        if is_last {
            return seen;
        }
    }
}

fn of(changes: &[(ChangeKind, &str)]) -> Vec<(ChangeKind, String)> {
    changes.iter().map(|(kind, path)| (*kind, (*path).to_string())).collect()
}

async fn what_happens_is_told_in_order(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut watch = fixture.watch(".", false).await.unwrap();
    fixture.sh("mkdir d; : > file; echo content > file; chmod 600 file; mv file other; rm other; rmdir d; : > end").await;
    let expected = [
        (Created, "d"),
        (Created, "file"),
        (Modified, "file"),
        (Removed, "file"),
        (Created, "other"),
        (Removed, "other"),
        (Removed, "d"),
        (Created, "end"),
    ];
    let mut seen = until(&mut watch, "end").await;
    // How often it is said that a file changed depends on who is faster.
    seen.dedup();
    assert_eq!(seen, of(&expected));
}

async fn what_the_host_does_is_told_too(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut watch = fixture.watch(fixture.workspace(), true).await.unwrap();
    fs::create_dir(fixture.host("d")).unwrap();
    if !sees_host_changes(backend) {
        // Who looks sees it, and what is done inside is told as ever.
        fs::write(fixture.host("d/file"), "from the host").unwrap();
        assert_eq!(fixture.read_file("d/file").await.unwrap(), b"from the host");
        fixture.write_file("end", b"").await.unwrap();
        assert_eq!(until(&mut watch, "end").await, of(&[(Created, "end")]));
        return;
    }
    assert_eq!(until(&mut watch, "d").await, of(&[(Created, "d")]));
    fs::write(fixture.host("d/file"), "from the host").unwrap();
    assert_eq!(until(&mut watch, "d/file").await, of(&[(Created, "d/file")]));
    fixture.write_file("end", b"").await.unwrap();
    assert_eq!(until(&mut watch, "end").await, of(&[(Modified, "d/file"), (Created, "end")]));
}

async fn below_the_folder_only_when_asked(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir -p a/b/c").await;
    let (mut flat, mut deep) =
        (fixture.watch(".", false).await.unwrap(), fixture.watch(".", true).await.unwrap());
    fixture.sh(": > a/b/c/file; : > a/file; : > end").await;
    assert_eq!(until(&mut flat, "end").await, of(&[(Created, "end")]));
    let expected = [(Created, "a/b/c/file"), (Created, "a/file"), (Created, "end")];
    assert_eq!(until(&mut deep, "end").await, of(&expected));
}

async fn a_new_folder_is_watched_with_all_in_it(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut watch = fixture.watch(".", true).await.unwrap();
    fixture.sh("mkdir -p a/b/c; echo 1 > a/b/c/file").await;
    fixture.sh("echo 2 > a/b/c/file; : > a/b/end").await;
    let seen = until(&mut watch, "a/b/end").await;
    for path in ["a", "a/b", "a/b/c", "a/b/c/file"] {
        let created: Vec<_> = seen.iter().filter(|change| **change == (Created, path.to_string())).collect();
        assert_eq!(created.len(), 1, "{path}: {seen:?}");
    }
    assert!(seen.contains(&(Modified, "a/b/c/file".into())), "{seen:?}");
}

async fn a_moved_folder_is_told_by_its_new_name(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir -p old/inner new; : > old/inner/file").await;
    let mut watch = fixture.watch(".", true).await.unwrap();
    fixture.sh("mv old new/moved").await;
    let seen = until(&mut watch, "new/moved/inner/file").await;
    let expected = [
        (Removed, "old"),
        (Created, "new/moved"),
        (Created, "new/moved/inner"),
        (Created, "new/moved/inner/file"),
    ];
    assert_eq!(seen, of(&expected));
    fixture.sh(": > new/moved/inner/later").await;
    assert_eq!(until(&mut watch, "new/moved/inner/later").await, of(&[(Created, "new/moved/inner/later")]));
}

async fn a_file_that_is_replaced_is_told(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("echo old > file").await;
    let mut watch = fixture.watch(".", false).await.unwrap();
    fixture.write_file("file", b"new").await.unwrap();
    assert_eq!(until(&mut watch, "file").await, of(&[(Modified, "file")]));
    fixture.sh("echo newest > temporary; mv temporary file; : > end").await;
    let seen = until(&mut watch, "end").await;
    assert!(seen.contains(&(Created, "file".into())), "{seen:?}");
}

async fn many_files_in_new_folders_are_each_told_once(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut watch = fixture.watch(".", true).await.unwrap();
    fixture.sh("for d in 1 2 3 4 5 6 7 8; do mkdir -p $d/$d; for f in 1 2 3 4 5 6 7 8 9; do : > $d/$d/$f; done; done; : > end").await;
    let seen = until(&mut watch, "end").await;
    let created: Vec<&String> =
        seen.iter().filter(|(kind, _)| *kind == Created).map(|(_, path)| path).collect();
    assert_eq!(created.len(), 8 * 11 + 1, "{seen:?}");
    for d in 1..=8 {
        for f in 1..=9 {
            assert!(created.contains(&&format!("{d}/{d}/{f}")));
        }
    }
}

async fn no_link_is_followed(backend: BackendName) {
    let (fixture, outside) = (SandboxFixture::new(backend).await, tempfile::TempDir::new().unwrap());
    fs::create_dir(fixture.host("a")).unwrap();
    symlink(outside.path(), fixture.host("a/out")).unwrap();
    symlink("..", fixture.host("a/round")).unwrap();
    let mut watch = fixture.watch("a", true).await.unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    fixture.sh(&format!("ln -s {} a/new", outside.path().display())).await;
    fs::write(outside.path().join("secret2"), "").unwrap();
    fixture.sh(": > a/end").await;
    assert_eq!(until(&mut watch, "end").await, of(&[(Created, "new"), (Created, "end")]));
}

async fn names_that_are_not_text_are_told(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut watch = fixture.watch(".", true).await.unwrap();
    fixture.sh("mkdir \"$(printf '\\377 d')\"; : > \"$(printf '\\377 d/\\376\\n')\"").await;
    watch.next().await.unwrap().unwrap();
    let change = watch.next().await.unwrap().unwrap();
    assert_eq!(change.path.as_encoded_bytes(), b"\xff d/\xfe");
}

async fn the_end_of_the_folder_is_the_end(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for ending in ["rm -r d", "mv d elsewhere"] {
        fixture.sh("mkdir -p d/e; : > d/e/file").await;
        let mut watch = fixture.watch("d", true).await.unwrap();
        fixture.sh(ending).await;
        let mut last = None;
        while let Some(change) = watch.next().await.unwrap() {
            last = Some((change.kind, change.path.to_string_lossy().into_owned()));
        }
        assert_eq!(last, Some((Removed, String::new())), "{ending}");
        assert_eq!(watch.next().await.unwrap(), None);
    }
}

async fn what_cannot_be_watched_says_why(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", b"").await.unwrap();
    for (path, code) in [("missing", ErrorCode::NotFound), ("file", ErrorCode::FileOperation)] {
        assert_eq!(fixture.watch(path, true).await.map(drop).unwrap_err().code, code, "{path}");
    }
    if is_isolated(backend) {
        assert_eq!(fixture.watch("/proc", true).await.map(drop).unwrap_err().code, ErrorCode::FileOperation);
    } else {
        let outside = tempfile::TempDir::new().unwrap();
        symlink(outside.path(), fixture.host("out")).unwrap();
        let path = outside.path().display().to_string();
        for path in ["out", "..", "/", path.as_str()] {
            assert_eq!(
                fixture.watch(path, true).await.map(drop).unwrap_err().code,
                ErrorCode::PermissionDenied,
                "{path}"
            );
        }
    }
}

async fn watches_do_not_disturb_each_other_or_commands(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(fixture.watch(".", true).await.unwrap());
    }
    // The test reads nothing from this one.
    let _unread = fixture.watch(".", true).await.unwrap();
    drop(watches.split_off(5));
    fixture.sh("for i in 1 2 3 4 5 6 7 8 9; do echo $i > file$i; done; : > end").await;
    for watch in &mut watches {
        assert!(until(watch, "end").await.len() >= 10);
    }
    assert_eq!(fixture.answer("echo fine").await, "fine");
}

async fn a_watch_ends_with_its_sandbox(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut watch = fixture.watch(".", true).await.unwrap();
    fixture.dispose().await;
    assert_eq!(watch.next().await.unwrap_err().code, ErrorCode::GuestGone);
    assert_eq!(fixture.watch(".", true).await.map(drop).unwrap_err().code, ErrorCode::SandboxNotAlive);
}

/// A folder with more in it than is told of one.
async fn more_than_can_be_told_is_said(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fs::create_dir_all(fixture.host("away/full")).unwrap();
    for index in 0..10_200 {
        fs::write(fixture.host(&format!("away/full/{index}")), "").unwrap();
    }
    fs::create_dir(fixture.host("seen")).unwrap();
    let mut watch = fixture.watch("seen", true).await.unwrap();
    fixture.rename("away/full", "seen/full").await.unwrap();
    let mut changes = 0;
    loop {
        let change = watch.next().await.unwrap().unwrap();
        changes += 1;
        if change.kind == Overflow {
            assert_eq!(change.path, "full");
            break;
        }
    }
    assert!(changes > 10_000, "{changes}");
    fixture.write_file("seen/full/later", b"").await.unwrap();
    assert_eq!(until(&mut watch, "full/later").await, of(&[(Created, "full/later")]));
}

async fn it_continues_in_a_sandbox_that_is_paused(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let mut watch = fixture.watch(".", true).await.unwrap();
    fixture.pause().await.unwrap();
    fixture.write_file("file", b"").await.unwrap();
    assert_eq!(until(&mut watch, "file").await, of(&[(Created, "file")]));
}
