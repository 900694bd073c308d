//! File operations: what they do, what they refuse, and that they stay where they belong.

use belljar_engine::{EntryKind, FileEntry};
use belljar_spec::{BackendName, ErrorCode, ErrorKind, Permission, SharedPath};
use belljar_tests_conformance::*;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

for_every_backend! {
    everywhere:
        without_isolation_a_link_that_changes_all_the_time_leads_nowhere,
        with_isolation_the_hosts_files_do_not_exist,
        a_shared_path_is_seen_as_it_was_shared;
    living everywhere:
        what_is_written_can_be_read,
        what_the_host_wrote_can_be_read,
        a_big_file_goes_in_and_out_unchanged,
        writing_keeps_the_permissions,
        exists_does_not_tell_what_may_not_be_seen,
        the_workspace_itself_cannot_be_removed,
        an_absolute_path_of_the_workspace_works,
        what_may_not_be_read_is_refused,
        without_isolation_paths_are_held_in_the_workspace,
        without_isolation_links_out_of_the_workspace_are_refused,
        with_isolation_system_files_cannot_be_written,
        file_operations_run_side_by_side;
    living each_kernel:
        writing_replaces_the_whole_content,
        writing_needs_the_folder_above,
        reading_what_is_not_there_says_so,
        reading_a_folder_says_so,
        writing_to_a_folder_says_so,
        mkdir_makes_one_folder,
        mkdir_makes_those_above_when_asked,
        readdir_lists_everything_by_kind,
        readdir_lists_many,
        readdir_lists_names_that_are_not_text,
        readdir_of_a_file_says_so,
        exists_tells_what_is_there,
        remove_takes_a_file_away,
        remove_takes_a_folder_only_when_asked,
        remove_follows_no_link,
        remove_of_what_is_not_there_says_so,
        stat_tells_kind_size_and_time,
        stat_does_not_follow_a_link,
        unusual_names_are_names_like_others,
        a_name_that_is_too_long_is_an_error,
        a_path_with_a_zero_byte_is_an_error,
        dots_inside_the_workspace_work,
        links_inside_the_workspace_are_followed,
        a_link_that_leads_round_is_an_error,
        a_pipe_does_not_hang,
        a_socket_and_a_device_are_no_files;
}

async fn what_is_written_can_be_read(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for content in [&content[..], b"", b"text\n"] {
        fixture.write_file("file", content).await.unwrap();
        assert_eq!(fixture.read_file("file").await.unwrap(), content);
        assert_eq!(fs::read(fixture.host("file")).unwrap(), content, "as the host sees it");
    }
    assert_eq!(fixture.answer("cat file").await, "text");
}

async fn what_the_host_wrote_can_be_read(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fs::create_dir(fixture.host("d")).unwrap();
    fs::write(fixture.host("d/file"), "from the host").unwrap();
    assert_eq!(fixture.read_file("d/file").await.unwrap(), b"from the host");
}

async fn a_big_file_goes_in_and_out_unchanged(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let content: Vec<u8> =
        (0..5_000_003u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fixture.write_file("big", &content).await.unwrap();
    assert!(fs::read(fixture.host("big")).unwrap() == content);
    assert!(fixture.read_file("big").await.unwrap() == content);
}

async fn writing_replaces_the_whole_content(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", &[b'x'; 200_000]).await.unwrap();
    fixture.write_file("file", b"short").await.unwrap();
    assert_eq!(fs::read(fixture.host("file")).unwrap(), b"short");
}

async fn writing_keeps_the_permissions(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("new", b"a").await.unwrap();
    assert_eq!(fixture.answer("umask 022; : > made; find made -printf %m").await, "644");
    assert_eq!(fixture.answer("[ -x new ] && echo runs || echo data").await, "data");
    fixture.sh("chmod 750 new").await;
    fixture.write_file("new", b"b").await.unwrap();
    assert_eq!(fixture.answer("find new -printf %m").await, "750");
}

async fn writing_needs_the_folder_above(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let error = fixture.write_file("no/such/file", b"x").await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::NotFound));
    // All of a big content is refused just as well.
    let error = fixture.write_file("no/such/file", &[0; 3_000_000]).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(!fixture.host("no").exists());
}

async fn reading_what_is_not_there_says_so(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let error = fixture.read_file("missing").await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::NotFound));
    assert!(error.message.contains("missing"), "{error}");
    fs::write(fixture.host("file"), "").unwrap();
    assert_eq!(fixture.read_file("file/below").await.unwrap_err().code, ErrorCode::FileOperation);
}

async fn reading_a_folder_says_so(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for path in [".", "", fixture.workspace()] {
        assert_eq!(fixture.read_file(path).await.unwrap_err().code, ErrorCode::FileOperation, "{path}");
    }
}

async fn writing_to_a_folder_says_so(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("d", false).await.unwrap();
    assert_eq!(fixture.write_file("d", b"x").await.unwrap_err().code, ErrorCode::FileOperation);
    assert!(fixture.host("d").is_dir());
}

async fn mkdir_makes_one_folder(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("d", false).await.unwrap();
    fixture.mkdir("d/e/", false).await.unwrap();
    assert!(fixture.host("d/e").is_dir());
    assert_eq!(fixture.mkdir("d", false).await.unwrap_err().code, ErrorCode::AlreadyExists);
    assert_eq!(fixture.mkdir("x/y", false).await.unwrap_err().code, ErrorCode::NotFound);
    fixture.write_file("file", b"").await.unwrap();
    assert_eq!(fixture.mkdir("file", false).await.unwrap_err().code, ErrorCode::AlreadyExists);
}

async fn mkdir_makes_those_above_when_asked(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("a/b/c", true).await.unwrap();
    fixture.mkdir("a/b/c", true).await.unwrap();
    fixture.mkdir(&fixture.inside("a/b/d/e/"), true).await.unwrap();
    assert!(fixture.host("a/b/c").is_dir() && fixture.host("a/b/d/e").is_dir());
    fixture.write_file("a/file", b"kept").await.unwrap();
    for path in ["a/file", "a/file/below"] {
        let error = fixture.mkdir(path, true).await.unwrap_err();
        assert!(
            [ErrorCode::FileOperation, ErrorCode::AlreadyExists].contains(&error.code),
            "{path}: {}",
            error.code
        );
    }
    assert_eq!(fs::read(fixture.host("a/file")).unwrap(), b"kept");
}

/// Without what stands in the place of protected paths that are not there.
fn unprotected(mut entries: Vec<FileEntry>) -> Vec<FileEntry> {
    entries.retain(|entry| ![".belljar", ".git", ".husky"].iter().any(|name| entry.name == *name));
    entries
}

async fn readdir_lists_everything_by_kind(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir folder; : > file; ln -s nowhere link; mkfifo pipe; : > .hidden").await;
    let mut entries = unprotected(fixture.readdir(".").await.unwrap());
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let entries: Vec<_> = entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
    let expected = [
        (".hidden", EntryKind::File),
        ("file", EntryKind::File),
        ("folder", EntryKind::Directory),
        ("link", EntryKind::Symlink),
        ("pipe", EntryKind::Other),
    ];
    assert_eq!(entries, expected);
    assert_eq!(fixture.readdir("folder").await.unwrap(), []);
}

async fn readdir_lists_many(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for number in 0..3000 {
        fs::write(fixture.host(&format!("{number:0>100}")), "").unwrap();
    }
    let entries = unprotected(fixture.readdir(".").await.unwrap());
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3000);
}

async fn readdir_lists_names_that_are_not_text(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let name = OsStr::from_bytes(b"\xff\xfe\n");
    fs::write(fixture.on_host().join(name), "").unwrap();
    assert_eq!(fixture.readdir("").await.unwrap()[0].name, name);
}

async fn readdir_of_a_file_says_so(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", b"").await.unwrap();
    assert_eq!(fixture.readdir("file").await.unwrap_err().code, ErrorCode::FileOperation);
    assert_eq!(fixture.readdir("missing").await.unwrap_err().code, ErrorCode::NotFound);
}

async fn exists_tells_what_is_there(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir folder; : > file; ln -s nowhere dangling").await;
    for path in ["file", "folder", "folder/", ".", "dangling"] {
        assert!(fixture.exists(path).await.unwrap(), "{path}");
    }
    for path in ["missing", "file/below", "dangling/below", "folder/missing"] {
        assert!(!fixture.exists(path).await.unwrap(), "{path}");
    }
}

async fn exists_does_not_tell_what_may_not_be_seen(backend: BackendName) {
    let outside = tempfile::TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    let fixture = SandboxFixture::new(backend).await;
    let path = outside.path().join("secret");
    assert!(!fixture.exists(path.to_str().unwrap()).await.unwrap());
    assert!(!fixture.exists(&format!("..{}", path.display())).await.unwrap());
    assert!(!fixture.exists(&format!("../../../..{}", path.display())).await.unwrap());
}

async fn remove_takes_a_file_away(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for path in ["file", "pipe", "link"] {
        fixture
            .sh("[ -e file ] || : > file; [ -e pipe ] || mkfifo pipe; [ -e link ] || ln -s file link")
            .await;
        fixture.remove(path, false).await.unwrap();
        assert!(fixture.host(path).symlink_metadata().is_err(), "{path} is still there");
    }
}

async fn remove_takes_a_folder_only_when_asked(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir -p d/e/f empty; : > d/e/f/file; mkdir d/closed; chmod 0555 d/e").await;
    for path in ["d", "empty"] {
        assert_eq!(fixture.remove(path, false).await.unwrap_err().code, ErrorCode::FileOperation, "{path}");
        assert!(fixture.host(path).exists());
    }
    fixture.sh("chmod 0755 d/e").await;
    for path in ["d", "empty/"] {
        fixture.remove(path, true).await.unwrap();
        assert!(!fixture.host(path).exists());
    }
}

async fn remove_follows_no_link(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir kept tree; : > kept/file; ln -s ../kept tree/link; ln -s kept link").await;
    fixture.remove("link", true).await.unwrap();
    fixture.remove("tree", true).await.unwrap();
    assert!(fixture.host("kept/file").exists(), "what the link led to was removed");
    assert!(!fixture.host("tree").exists() && fixture.host("link").symlink_metadata().is_err());
}

async fn remove_of_what_is_not_there_says_so(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for recursive in [false, true] {
        assert_eq!(fixture.remove("missing", recursive).await.unwrap_err().code, ErrorCode::NotFound);
        assert_eq!(fixture.remove("missing/below", recursive).await.unwrap_err().code, ErrorCode::NotFound);
    }
}

async fn the_workspace_itself_cannot_be_removed(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", b"kept").await.unwrap();
    for path in [".", "", "..", "file/..", fixture.workspace()] {
        assert!(fixture.remove(path, true).await.is_err(), "{path}");
    }
    assert!(fixture.on_host().is_dir());
    assert_eq!(
        fixture.answer("cat file").await,
        "kept",
        "it was refused, but only after everything was gone"
    );
}

async fn stat_tells_kind_size_and_time(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", &[0; 12_345]).await.unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    fs::File::options().write(true).open(fixture.host("file")).unwrap().set_modified(time).unwrap();
    let stat = fixture.stat("file").await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mtime_ms), (EntryKind::File, 12_345, 1_234_567_890_123));
    assert_eq!(fixture.stat(".").await.unwrap().kind, EntryKind::Directory);
    fixture.sh("mkfifo pipe").await;
    assert_eq!(fixture.stat("pipe").await.unwrap().kind, EntryKind::Other);
    assert_eq!(fixture.stat("missing").await.unwrap_err().code, ErrorCode::NotFound);
}

async fn stat_does_not_follow_a_link(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("echo content > file; ln -s file link; ln -s / root; ln -s missing dangling").await;
    for name in ["link", "root", "dangling"] {
        assert_eq!(fixture.stat(name).await.unwrap().kind, EntryKind::Symlink, "{name}");
    }
}

async fn unusual_names_are_names_like_others(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let long = "n".repeat(255);
    let names = [
        "with space",
        "line\nend",
        "..x",
        "...",
        "-rf",
        "*",
        "~",
        "$HOME",
        "ü\u{301}",
        "\\",
        ":",
        "'\"",
        &long,
    ];
    for name in names {
        fixture.write_file(name, name.as_bytes()).await.unwrap();
        assert_eq!(fs::read(fixture.host(name)).unwrap(), name.as_bytes());
        assert_eq!(fixture.read_file(name).await.unwrap(), name.as_bytes());
        assert!(fixture.exists(name).await.unwrap());
        assert_eq!(unprotected(fixture.readdir("").await.unwrap())[0].name, name);
        fixture.remove(name, false).await.unwrap();
        fixture.mkdir(&format!("{name}/{name}"), true).await.unwrap();
        assert!(fixture.host(name).join(name).is_dir());
        fixture.remove(name, true).await.unwrap();
        assert_eq!(unprotected(fixture.readdir("").await.unwrap()), [], "{name}");
    }
}

async fn a_name_that_is_too_long_is_an_error(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for name in ["n".repeat(256), "d/".repeat(3000) + "file", "x".repeat(100_000)] {
        assert_eq!(fixture.write_file(&name, b"").await.unwrap_err().kind(), ErrorKind::Runtime);
        assert_eq!(fixture.read_file(&name).await.unwrap_err().kind(), ErrorKind::Runtime);
        assert!(!fixture.exists(&name).await.unwrap());
    }
    assert_eq!(fixture.answer("echo alive").await, "alive");
}

async fn a_path_with_a_zero_byte_is_an_error(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", b"").await.unwrap();
    assert!(fixture.read_file("file\0").await.is_err());
    assert!(fixture.write_file("file\0x", b"").await.is_err());
    assert!(fixture.remove("file\0", false).await.is_err());
    assert!(!fixture.exists("file\0").await.unwrap());
    assert!(fixture.host("file").exists());
}

async fn an_absolute_path_of_the_workspace_works(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir(&fixture.inside("d"), false).await.unwrap();
    fixture.write_file(&fixture.inside("d/file"), b"x").await.unwrap();
    assert_eq!(fixture.read_file("d/file").await.unwrap(), b"x");
    assert_eq!(unprotected(fixture.readdir(fixture.workspace()).await.unwrap()).len(), 1);
    assert_eq!(fixture.stat(&fixture.inside("d")).await.unwrap().kind, EntryKind::Directory);
    fixture.remove(&fixture.inside("d"), true).await.unwrap();
    assert!(!fixture.exists(&fixture.inside("d")).await.unwrap());
}

async fn dots_inside_the_workspace_work(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("a/b", true).await.unwrap();
    fixture.write_file("a/b/../../a/./file", b"x").await.unwrap();
    assert_eq!(fixture.read_file("./a//b/../file").await.unwrap(), b"x");
    fixture.remove("a/b/../file", false).await.unwrap();
    assert!(!fixture.host("a/file").exists());
}

async fn links_inside_the_workspace_are_followed(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir real; echo content > real/file; ln -s real way; ln -s ../real/file real/link").await;
    assert_eq!(fixture.read_file("way/file").await.unwrap(), b"content\n");
    assert_eq!(fixture.read_file("way/link").await.unwrap(), b"content\n");
    fixture.write_file("way/link", b"new").await.unwrap();
    assert_eq!(fs::read(fixture.host("real/file")).unwrap(), b"new");
    assert!(fixture.host("real/link").symlink_metadata().unwrap().is_symlink());
}

async fn a_link_that_leads_round_is_an_error(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("ln -s b a; ln -s a b").await;
    assert_eq!(fixture.read_file("a").await.unwrap_err().kind(), ErrorKind::Runtime);
    assert_eq!(fixture.write_file("a", b"").await.unwrap_err().kind(), ErrorKind::Runtime);
    fixture.remove("a", false).await.unwrap();
}

async fn a_pipe_does_not_hang(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkfifo pipe; ln -s pipe link").await;
    for path in ["pipe", "link"] {
        assert!(fixture.read_file(path).await.is_err());
        assert!(fixture.write_file(path, b"x").await.is_err());
        assert!(fixture.readdir(path).await.is_err());
        assert!(fixture.exists(path).await.unwrap());
    }
    // With a reader at the other end.
    let reader = fixture.spawn(&sh("cat pipe")).await.unwrap();
    assert!(fixture.write_file("pipe", b"x").await.is_err());
    drop(reader);
}

async fn a_socket_and_a_device_are_no_files(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let _socket = std::os::unix::net::UnixListener::bind(fixture.host("socket")).unwrap();
    assert!(fixture.read_file("socket").await.is_err());
    assert!(fixture.write_file("socket", b"x").await.is_err());
    for device in ["/dev/zero", "/dev/null", "/dev/tty"] {
        assert!(fixture.read_file(device).await.is_err(), "{device} has no end");
        assert!(fixture.write_file(device, b"x").await.is_err(), "{device}");
    }
}

async fn what_may_not_be_read_is_refused(backend: BackendName) {
    if !is_isolated(backend) && is_root() {
        return; // Root reads everything.
    }
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("echo secret > closed; chmod 0 closed; mkdir shut; : > shut/file; chmod 0 shut").await;
    // With isolation there are no capabilities, so this holds where we are root too.
    for path in ["closed", "shut/file"] {
        let error = fixture.read_file(path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Policy, "{path}: {error}");
    }
    assert_eq!(fixture.readdir("shut").await.unwrap_err().kind(), ErrorKind::Policy);
    assert!(!fixture.exists("shut/file").await.unwrap());
    fixture.sh("chmod 700 shut closed").await;
}

async fn without_isolation_paths_are_held_in_the_workspace(backend: BackendName) {
    if is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let beside = format!("{}-beside", fixture.on_host().display());
    fs::create_dir(&beside).unwrap();
    fs::write(format!("{beside}/file"), "kept").unwrap();
    let name = fixture.on_host().file_name().unwrap().to_str().unwrap();
    let file = format!("{beside}/file");
    for path in [&file, &format!("../{name}-beside/file"), &format!("d/../../{name}-beside/file")] {
        fixture.mkdir("d", true).await.unwrap();
        let outcomes = [
            fixture.read_file(path).await.map(drop),
            fixture.write_file(path, b"changed").await,
            fixture.remove(path, true).await,
            fixture.stat(path).await.map(drop),
            fixture.readdir(&format!("{path}/..")).await.map(drop),
            fixture.mkdir(&format!("{path}x"), false).await,
            fixture.mkdir(&format!("{path}x/y"), true).await,
        ];
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let error = outcome.expect_err(&format!("{path}, {index}"));
            assert_eq!(
                (error.kind(), error.code),
                (ErrorKind::Policy, ErrorCode::PermissionDenied),
                "{path}, {index}"
            );
        }
    }
    let kept = fs::read_to_string(&file).unwrap();
    let entries = fs::read_dir(&beside).unwrap().count();
    fs::remove_dir_all(&beside).unwrap();
    assert_eq!((kept.as_str(), entries), ("kept", 1));
}

async fn without_isolation_links_out_of_the_workspace_are_refused(backend: BackendName) {
    if is_isolated(backend) {
        return;
    }
    let outside = tempfile::TempDir::new().unwrap();
    fs::write(outside.path().join("file"), "kept").unwrap();
    let fixture = SandboxFixture::new(backend).await;
    symlink(outside.path(), fixture.host("folder")).unwrap();
    symlink(outside.path().join("file"), fixture.host("file")).unwrap();
    symlink(outside.path().join("new"), fixture.host("new")).unwrap();
    symlink("../../../../../../../../etc/passwd", fixture.host("up")).unwrap();
    symlink("/proc/self/cwd/../..", fixture.host("magic")).unwrap();
    for path in ["file", "folder/file", "up", "magic/etc/passwd", "folder/../file"] {
        let error = fixture.read_file(path).await.unwrap_err();
        assert_eq!((error.kind(), error.code), (ErrorKind::Policy, ErrorCode::PermissionDenied), "{path}");
    }
    for path in ["file", "folder/file", "folder/made", "new"] {
        assert_eq!(
            fixture.write_file(path, b"x").await.unwrap_err().code,
            ErrorCode::PermissionDenied,
            "{path}"
        );
    }
    assert_eq!(fixture.readdir("folder").await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(fixture.mkdir("folder/made", false).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(fixture.mkdir("folder/made/more", true).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(fixture.remove("folder/file", true).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert!(!fixture.exists("folder/file").await.unwrap());
    // The link itself is the workspace's.
    fixture.remove("folder", true).await.unwrap();
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

async fn without_isolation_a_link_that_changes_all_the_time_leads_nowhere(backend: BackendName) {
    if is_isolated(backend) {
        return;
    }
    let outside = tempfile::TempDir::new().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let fixture = SandboxFixture::new(backend).await;
    let script = "mkdir real; echo inside > real/file; ln -s \"$1\" away; ln -s real home
        while :; do cp -dT away t; mv -T t way; cp -dT home t; mv -T t way; done";
    let command =
        belljar_spec::Command::new(["sh", "-c", script, "sh", outside.path().to_str().unwrap()]).unwrap();
    let running = fixture.spawn(&command).await.unwrap();
    wait_until("the link", || fixture.host("way").symlink_metadata().is_ok());
    for round in 0..300 {
        if let Ok(content) = fixture.read_file("way/file").await {
            assert_ne!(content, b"outside");
        }
        let _ = fixture.write_file("way/file", b"inside").await;
        let _ = fixture.mkdir(&format!("way/{round}/x"), true).await;
        let _ = fixture.remove(&format!("way/{round}"), true).await;
    }
    drop(running);
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "outside");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

async fn with_isolation_the_hosts_files_do_not_exist(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let outside = tempfile::TempDir::new().unwrap();
    fs::write(outside.path().join("file"), "kept").unwrap();
    let fixture = SandboxFixture::new(backend).await;
    symlink(outside.path(), fixture.host("folder")).unwrap();
    let file = outside.path().join("file").to_str().unwrap().to_string();
    for path in [file.as_str(), "folder/file", &format!("../{file}")] {
        assert_eq!(fixture.read_file(path).await.unwrap_err().code, ErrorCode::NotFound, "{path}");
        assert!(fixture.write_file(path, b"x").await.is_err(), "{path}");
        assert!(fixture.remove(path, true).await.is_err(), "{path}");
    }
    // Its own /tmp is private.
    fixture.write_file("/tmp/conformance-private", b"x").await.unwrap();
    assert!(!std::path::Path::new("/tmp/conformance-private").exists());
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

async fn with_isolation_system_files_cannot_be_written(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    for path in ["/usr/new", "/etc/passwd", "/new", "/bin/sh", "/proc/sys/kernel/hostname"] {
        let error = fixture.write_file(path, b"x").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code),
            (ErrorKind::Policy, ErrorCode::PermissionDenied),
            "{path}: {error}"
        );
    }
    assert_eq!(fixture.mkdir("/usr/new", true).await.unwrap_err().kind(), ErrorKind::Policy);
    assert_eq!(fixture.remove("/usr/bin/env", false).await.unwrap_err().kind(), ErrorKind::Policy);
}

async fn a_shared_path_is_seen_as_it_was_shared(backend: BackendName) {
    let (readable, writable) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    fs::write(readable.path().join("file"), "read").unwrap();
    let share =
        |folder: &tempfile::TempDir, permission| SharedPath { path: folder.path().into(), permission };
    let shared = vec![share(&readable, Permission::Read), share(&writable, Permission::Write)];
    let fixture = match SandboxFixture::try_with(backend, |spec| spec.shared = shared).await {
        Ok(fixture) => fixture,
        // Where there is no isolation no path can be made read-only: refused, by name.
        Err(refusal) if !is_isolated(backend) => {
            assert_eq!(refusal.kind(), ErrorKind::Unavailable, "{refusal}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let (read, write) = (readable.path().display(), writable.path().display());
    assert_eq!(fixture.read_file(&format!("{read}/file")).await.unwrap(), b"read");
    assert_eq!(
        fixture.write_file(&format!("{read}/file"), b"x").await.unwrap_err().code,
        ErrorCode::PermissionDenied
    );
    assert_ne!(fixture.sh(&format!("echo x > {read}/other")).await.exit_code, Some(0));
    fixture.write_file(&format!("{write}/file"), b"written").await.unwrap();
    assert_eq!(fs::read_to_string(writable.path().join("file")).unwrap(), "written");
    assert_eq!(fs::read_to_string(readable.path().join("file")).unwrap(), "read");
}

async fn file_operations_run_side_by_side(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let content = vec![7; 1_000_000];
    let command = sh("sleep 0.1; echo done");
    let (a, b, c, d) = tokio::join!(
        fixture.write_file("a", &content),
        fixture.write_file("b", &content),
        fixture.exec(&command),
        fixture.mkdir("x/y/z", true),
    );
    a.unwrap();
    b.unwrap();
    d.unwrap();
    assert_eq!(c.unwrap().stdout, b"done\n");
    let (a, b) = tokio::join!(fixture.read_file("a"), fixture.read_file("b"));
    assert!(a.unwrap() == content && b.unwrap() == content);
}
