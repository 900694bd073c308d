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
    let place = Place::new(backend).await;
    let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for content in [&content[..], b"", b"text\n"] {
        place.write_file("file", content).await.unwrap();
        assert_eq!(place.read_file("file").await.unwrap(), content);
        assert_eq!(fs::read(place.host("file")).unwrap(), content, "as the host sees it");
    }
    assert_eq!(place.answer("cat file").await, "text");
}

async fn what_the_host_wrote_can_be_read(backend: BackendName) {
    let place = Place::new(backend).await;
    fs::create_dir(place.host("d")).unwrap();
    fs::write(place.host("d/file"), "from the host").unwrap();
    assert_eq!(place.read_file("d/file").await.unwrap(), b"from the host");
}

async fn a_big_file_goes_in_and_out_unchanged(backend: BackendName) {
    let place = Place::new(backend).await;
    let content: Vec<u8> =
        (0..5_000_003u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    place.write_file("big", &content).await.unwrap();
    assert!(fs::read(place.host("big")).unwrap() == content);
    assert!(place.read_file("big").await.unwrap() == content);
}

async fn writing_replaces_the_whole_content(backend: BackendName) {
    let place = Place::new(backend).await;
    place.write_file("file", &[b'x'; 200_000]).await.unwrap();
    place.write_file("file", b"short").await.unwrap();
    assert_eq!(fs::read(place.host("file")).unwrap(), b"short");
}

async fn writing_keeps_the_permissions(backend: BackendName) {
    let place = Place::new(backend).await;
    place.write_file("new", b"a").await.unwrap();
    assert_eq!(place.answer("umask 022; : > made; find made -printf %m").await, "644");
    assert_eq!(place.answer("[ -x new ] && echo runs || echo data").await, "data");
    place.sh("chmod 750 new").await;
    place.write_file("new", b"b").await.unwrap();
    assert_eq!(place.answer("find new -printf %m").await, "750");
}

async fn writing_needs_the_folder_above(backend: BackendName) {
    let place = Place::new(backend).await;
    let error = place.write_file("no/such/file", b"x").await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::NotFound));
    // All of a big content is refused just as well.
    let error = place.write_file("no/such/file", &[0; 3_000_000]).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(!place.host("no").exists());
}

async fn reading_what_is_not_there_says_so(backend: BackendName) {
    let place = Place::new(backend).await;
    let error = place.read_file("missing").await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::NotFound));
    assert!(error.message.contains("missing"), "{error}");
    fs::write(place.host("file"), "").unwrap();
    assert_eq!(place.read_file("file/below").await.unwrap_err().code, ErrorCode::FileOperation);
}

async fn reading_a_folder_says_so(backend: BackendName) {
    let place = Place::new(backend).await;
    for path in [".", "", place.workspace()] {
        assert_eq!(place.read_file(path).await.unwrap_err().code, ErrorCode::FileOperation, "{path}");
    }
}

async fn writing_to_a_folder_says_so(backend: BackendName) {
    let place = Place::new(backend).await;
    place.mkdir("d", false).await.unwrap();
    assert_eq!(place.write_file("d", b"x").await.unwrap_err().code, ErrorCode::FileOperation);
    assert!(place.host("d").is_dir());
}

async fn mkdir_makes_one_folder(backend: BackendName) {
    let place = Place::new(backend).await;
    place.mkdir("d", false).await.unwrap();
    place.mkdir("d/e/", false).await.unwrap();
    assert!(place.host("d/e").is_dir());
    assert_eq!(place.mkdir("d", false).await.unwrap_err().code, ErrorCode::AlreadyExists);
    assert_eq!(place.mkdir("x/y", false).await.unwrap_err().code, ErrorCode::NotFound);
    place.write_file("file", b"").await.unwrap();
    assert_eq!(place.mkdir("file", false).await.unwrap_err().code, ErrorCode::AlreadyExists);
}

async fn mkdir_makes_those_above_when_asked(backend: BackendName) {
    let place = Place::new(backend).await;
    place.mkdir("a/b/c", true).await.unwrap();
    place.mkdir("a/b/c", true).await.unwrap();
    place.mkdir(&place.inside("a/b/d/e/"), true).await.unwrap();
    assert!(place.host("a/b/c").is_dir() && place.host("a/b/d/e").is_dir());
    place.write_file("a/file", b"kept").await.unwrap();
    for path in ["a/file", "a/file/below"] {
        let error = place.mkdir(path, true).await.unwrap_err();
        assert!(
            [ErrorCode::FileOperation, ErrorCode::AlreadyExists].contains(&error.code),
            "{path}: {}",
            error.code
        );
    }
    assert_eq!(fs::read(place.host("a/file")).unwrap(), b"kept");
}

/// Without what stands in the place of protected paths that are not there.
fn unprotected(mut entries: Vec<FileEntry>) -> Vec<FileEntry> {
    entries.retain(|entry| ![".belljar", ".git", ".husky"].iter().any(|name| entry.name == *name));
    entries
}

async fn readdir_lists_everything_by_kind(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("mkdir folder; : > file; ln -s nowhere link; mkfifo pipe; : > .hidden").await;
    let mut entries = unprotected(place.readdir(".").await.unwrap());
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
    assert_eq!(place.readdir("folder").await.unwrap(), []);
}

async fn readdir_lists_many(backend: BackendName) {
    let place = Place::new(backend).await;
    for number in 0..3000 {
        fs::write(place.host(&format!("{number:0>100}")), "").unwrap();
    }
    let entries = unprotected(place.readdir(".").await.unwrap());
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3000);
}

async fn readdir_lists_names_that_are_not_text(backend: BackendName) {
    let place = Place::new(backend).await;
    let name = OsStr::from_bytes(b"\xff\xfe\n");
    fs::write(place.on_host().join(name), "").unwrap();
    assert_eq!(place.readdir("").await.unwrap()[0].name, name);
}

async fn readdir_of_a_file_says_so(backend: BackendName) {
    let place = Place::new(backend).await;
    place.write_file("file", b"").await.unwrap();
    assert_eq!(place.readdir("file").await.unwrap_err().code, ErrorCode::FileOperation);
    assert_eq!(place.readdir("missing").await.unwrap_err().code, ErrorCode::NotFound);
}

async fn exists_tells_what_is_there(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("mkdir folder; : > file; ln -s nowhere dangling").await;
    for path in ["file", "folder", "folder/", ".", "dangling"] {
        assert!(place.exists(path).await.unwrap(), "{path}");
    }
    for path in ["missing", "file/below", "dangling/below", "folder/missing"] {
        assert!(!place.exists(path).await.unwrap(), "{path}");
    }
}

async fn exists_does_not_tell_what_may_not_be_seen(backend: BackendName) {
    let outside = tempfile::TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    let place = Place::new(backend).await;
    let path = outside.path().join("secret");
    assert!(!place.exists(path.to_str().unwrap()).await.unwrap());
    assert!(!place.exists(&format!("..{}", path.display())).await.unwrap());
    assert!(!place.exists(&format!("../../../..{}", path.display())).await.unwrap());
}

async fn remove_takes_a_file_away(backend: BackendName) {
    let place = Place::new(backend).await;
    for path in ["file", "pipe", "link"] {
        place.sh("[ -e file ] || : > file; [ -e pipe ] || mkfifo pipe; [ -e link ] || ln -s file link").await;
        place.remove(path, false).await.unwrap();
        assert!(place.host(path).symlink_metadata().is_err(), "{path} is still there");
    }
}

async fn remove_takes_a_folder_only_when_asked(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("mkdir -p d/e/f empty; : > d/e/f/file; mkdir d/closed; chmod 0555 d/e").await;
    for path in ["d", "empty"] {
        assert_eq!(place.remove(path, false).await.unwrap_err().code, ErrorCode::FileOperation, "{path}");
        assert!(place.host(path).exists());
    }
    place.sh("chmod 0755 d/e").await;
    for path in ["d", "empty/"] {
        place.remove(path, true).await.unwrap();
        assert!(!place.host(path).exists());
    }
}

async fn remove_follows_no_link(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("mkdir kept tree; : > kept/file; ln -s ../kept tree/link; ln -s kept link").await;
    place.remove("link", true).await.unwrap();
    place.remove("tree", true).await.unwrap();
    assert!(place.host("kept/file").exists(), "what the link led to was removed");
    assert!(!place.host("tree").exists() && place.host("link").symlink_metadata().is_err());
}

async fn remove_of_what_is_not_there_says_so(backend: BackendName) {
    let place = Place::new(backend).await;
    for recursive in [false, true] {
        assert_eq!(place.remove("missing", recursive).await.unwrap_err().code, ErrorCode::NotFound);
        assert_eq!(place.remove("missing/below", recursive).await.unwrap_err().code, ErrorCode::NotFound);
    }
}

async fn the_workspace_itself_cannot_be_removed(backend: BackendName) {
    let place = Place::new(backend).await;
    place.write_file("file", b"kept").await.unwrap();
    for path in [".", "", "..", "file/..", place.workspace()] {
        assert!(place.remove(path, true).await.is_err(), "{path}");
    }
    assert!(place.on_host().is_dir());
    assert_eq!(place.answer("cat file").await, "kept", "it was refused, but only after everything was gone");
}

async fn stat_tells_kind_size_and_time(backend: BackendName) {
    let place = Place::new(backend).await;
    place.write_file("file", &[0; 12_345]).await.unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    fs::File::options().write(true).open(place.host("file")).unwrap().set_modified(time).unwrap();
    let stat = place.stat("file").await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mtime_ms), (EntryKind::File, 12_345, 1_234_567_890_123));
    assert_eq!(place.stat(".").await.unwrap().kind, EntryKind::Directory);
    place.sh("mkfifo pipe").await;
    assert_eq!(place.stat("pipe").await.unwrap().kind, EntryKind::Other);
    assert_eq!(place.stat("missing").await.unwrap_err().code, ErrorCode::NotFound);
}

async fn stat_does_not_follow_a_link(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("echo content > file; ln -s file link; ln -s / root; ln -s missing dangling").await;
    for name in ["link", "root", "dangling"] {
        assert_eq!(place.stat(name).await.unwrap().kind, EntryKind::Symlink, "{name}");
    }
}

async fn unusual_names_are_names_like_others(backend: BackendName) {
    let place = Place::new(backend).await;
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
        place.write_file(name, name.as_bytes()).await.unwrap();
        assert_eq!(fs::read(place.host(name)).unwrap(), name.as_bytes());
        assert_eq!(place.read_file(name).await.unwrap(), name.as_bytes());
        assert!(place.exists(name).await.unwrap());
        assert_eq!(unprotected(place.readdir("").await.unwrap())[0].name, name);
        place.remove(name, false).await.unwrap();
        place.mkdir(&format!("{name}/{name}"), true).await.unwrap();
        assert!(place.host(name).join(name).is_dir());
        place.remove(name, true).await.unwrap();
        assert_eq!(unprotected(place.readdir("").await.unwrap()), [], "{name}");
    }
}

async fn a_name_that_is_too_long_is_an_error(backend: BackendName) {
    let place = Place::new(backend).await;
    for name in ["n".repeat(256), "d/".repeat(3000) + "file", "x".repeat(100_000)] {
        assert_eq!(place.write_file(&name, b"").await.unwrap_err().kind(), ErrorKind::Runtime);
        assert_eq!(place.read_file(&name).await.unwrap_err().kind(), ErrorKind::Runtime);
        assert!(!place.exists(&name).await.unwrap());
    }
    assert_eq!(place.answer("echo alive").await, "alive");
}

async fn a_path_with_a_zero_byte_is_an_error(backend: BackendName) {
    let place = Place::new(backend).await;
    place.write_file("file", b"").await.unwrap();
    assert!(place.read_file("file\0").await.is_err());
    assert!(place.write_file("file\0x", b"").await.is_err());
    assert!(place.remove("file\0", false).await.is_err());
    assert!(!place.exists("file\0").await.unwrap());
    assert!(place.host("file").exists());
}

async fn an_absolute_path_of_the_workspace_works(backend: BackendName) {
    let place = Place::new(backend).await;
    place.mkdir(&place.inside("d"), false).await.unwrap();
    place.write_file(&place.inside("d/file"), b"x").await.unwrap();
    assert_eq!(place.read_file("d/file").await.unwrap(), b"x");
    assert_eq!(unprotected(place.readdir(place.workspace()).await.unwrap()).len(), 1);
    assert_eq!(place.stat(&place.inside("d")).await.unwrap().kind, EntryKind::Directory);
    place.remove(&place.inside("d"), true).await.unwrap();
    assert!(!place.exists(&place.inside("d")).await.unwrap());
}

async fn dots_inside_the_workspace_work(backend: BackendName) {
    let place = Place::new(backend).await;
    place.mkdir("a/b", true).await.unwrap();
    place.write_file("a/b/../../a/./file", b"x").await.unwrap();
    assert_eq!(place.read_file("./a//b/../file").await.unwrap(), b"x");
    place.remove("a/b/../file", false).await.unwrap();
    assert!(!place.host("a/file").exists());
}

async fn links_inside_the_workspace_are_followed(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("mkdir real; echo content > real/file; ln -s real way; ln -s ../real/file real/link").await;
    assert_eq!(place.read_file("way/file").await.unwrap(), b"content\n");
    assert_eq!(place.read_file("way/link").await.unwrap(), b"content\n");
    place.write_file("way/link", b"new").await.unwrap();
    assert_eq!(fs::read(place.host("real/file")).unwrap(), b"new");
    assert!(place.host("real/link").symlink_metadata().unwrap().is_symlink());
}

async fn a_link_that_leads_round_is_an_error(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("ln -s b a; ln -s a b").await;
    assert_eq!(place.read_file("a").await.unwrap_err().kind(), ErrorKind::Runtime);
    assert_eq!(place.write_file("a", b"").await.unwrap_err().kind(), ErrorKind::Runtime);
    place.remove("a", false).await.unwrap();
}

async fn a_pipe_does_not_hang(backend: BackendName) {
    let place = Place::new(backend).await;
    place.sh("mkfifo pipe; ln -s pipe link").await;
    for path in ["pipe", "link"] {
        assert!(place.read_file(path).await.is_err());
        assert!(place.write_file(path, b"x").await.is_err());
        assert!(place.readdir(path).await.is_err());
        assert!(place.exists(path).await.unwrap());
    }
    // With a reader at the other end.
    let reader = place.spawn(&sh("cat pipe")).await.unwrap();
    assert!(place.write_file("pipe", b"x").await.is_err());
    drop(reader);
}

async fn a_socket_and_a_device_are_no_files(backend: BackendName) {
    let place = Place::new(backend).await;
    let _socket = std::os::unix::net::UnixListener::bind(place.host("socket")).unwrap();
    assert!(place.read_file("socket").await.is_err());
    assert!(place.write_file("socket", b"x").await.is_err());
    for device in ["/dev/zero", "/dev/null", "/dev/tty"] {
        assert!(place.read_file(device).await.is_err(), "{device} has no end");
        assert!(place.write_file(device, b"x").await.is_err(), "{device}");
    }
}

async fn what_may_not_be_read_is_refused(backend: BackendName) {
    if !is_isolated(backend) && is_root() {
        return; // Root reads everything.
    }
    let place = Place::new(backend).await;
    place.sh("echo secret > closed; chmod 0 closed; mkdir shut; : > shut/file; chmod 0 shut").await;
    // With isolation there are no capabilities, so this holds where we are root too.
    for path in ["closed", "shut/file"] {
        let error = place.read_file(path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Policy, "{path}: {error}");
    }
    assert_eq!(place.readdir("shut").await.unwrap_err().kind(), ErrorKind::Policy);
    assert!(!place.exists("shut/file").await.unwrap());
    place.sh("chmod 700 shut closed").await;
}

async fn without_isolation_paths_are_held_in_the_workspace(backend: BackendName) {
    if is_isolated(backend) {
        return;
    }
    let place = Place::new(backend).await;
    let beside = format!("{}-beside", place.on_host().display());
    fs::create_dir(&beside).unwrap();
    fs::write(format!("{beside}/file"), "kept").unwrap();
    let name = place.on_host().file_name().unwrap().to_str().unwrap();
    let file = format!("{beside}/file");
    for path in [&file, &format!("../{name}-beside/file"), &format!("d/../../{name}-beside/file")] {
        place.mkdir("d", true).await.unwrap();
        let outcomes = [
            place.read_file(path).await.map(drop),
            place.write_file(path, b"changed").await,
            place.remove(path, true).await,
            place.stat(path).await.map(drop),
            place.readdir(&format!("{path}/..")).await.map(drop),
            place.mkdir(&format!("{path}x"), false).await,
            place.mkdir(&format!("{path}x/y"), true).await,
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
    let place = Place::new(backend).await;
    symlink(outside.path(), place.host("folder")).unwrap();
    symlink(outside.path().join("file"), place.host("file")).unwrap();
    symlink(outside.path().join("new"), place.host("new")).unwrap();
    symlink("../../../../../../../../etc/passwd", place.host("up")).unwrap();
    symlink("/proc/self/cwd/../..", place.host("magic")).unwrap();
    for path in ["file", "folder/file", "up", "magic/etc/passwd", "folder/../file"] {
        let error = place.read_file(path).await.unwrap_err();
        assert_eq!((error.kind(), error.code), (ErrorKind::Policy, ErrorCode::PermissionDenied), "{path}");
    }
    for path in ["file", "folder/file", "folder/made", "new"] {
        assert_eq!(
            place.write_file(path, b"x").await.unwrap_err().code,
            ErrorCode::PermissionDenied,
            "{path}"
        );
    }
    assert_eq!(place.readdir("folder").await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(place.mkdir("folder/made", false).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(place.mkdir("folder/made/more", true).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert_eq!(place.remove("folder/file", true).await.unwrap_err().code, ErrorCode::PermissionDenied);
    assert!(!place.exists("folder/file").await.unwrap());
    // The link itself is the workspace's.
    place.remove("folder", true).await.unwrap();
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

async fn without_isolation_a_link_that_changes_all_the_time_leads_nowhere(backend: BackendName) {
    if is_isolated(backend) {
        return;
    }
    let outside = tempfile::TempDir::new().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let place = Place::new(backend).await;
    let script = "mkdir real; echo inside > real/file; ln -s \"$1\" away; ln -s real home
        while :; do cp -dT away t; mv -T t way; cp -dT home t; mv -T t way; done";
    let command =
        belljar_spec::Command::new(["sh", "-c", script, "sh", outside.path().to_str().unwrap()]).unwrap();
    let running = place.spawn(&command).await.unwrap();
    wait_until("the link", || place.host("way").symlink_metadata().is_ok());
    for round in 0..300 {
        if let Ok(content) = place.read_file("way/file").await {
            assert_ne!(content, b"outside");
        }
        let _ = place.write_file("way/file", b"inside").await;
        let _ = place.mkdir(&format!("way/{round}/x"), true).await;
        let _ = place.remove(&format!("way/{round}"), true).await;
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
    let place = Place::new(backend).await;
    symlink(outside.path(), place.host("folder")).unwrap();
    let file = outside.path().join("file").to_str().unwrap().to_string();
    for path in [file.as_str(), "folder/file", &format!("../{file}")] {
        assert_eq!(place.read_file(path).await.unwrap_err().code, ErrorCode::NotFound, "{path}");
        assert!(place.write_file(path, b"x").await.is_err(), "{path}");
        assert!(place.remove(path, true).await.is_err(), "{path}");
    }
    // Its own /tmp is private.
    place.write_file("/tmp/conformance-private", b"x").await.unwrap();
    assert!(!std::path::Path::new("/tmp/conformance-private").exists());
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

async fn with_isolation_system_files_cannot_be_written(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let place = Place::new(backend).await;
    for path in ["/usr/new", "/etc/passwd", "/new", "/bin/sh", "/proc/sys/kernel/hostname"] {
        let error = place.write_file(path, b"x").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code),
            (ErrorKind::Policy, ErrorCode::PermissionDenied),
            "{path}: {error}"
        );
    }
    assert_eq!(place.mkdir("/usr/new", true).await.unwrap_err().kind(), ErrorKind::Policy);
    assert_eq!(place.remove("/usr/bin/env", false).await.unwrap_err().kind(), ErrorKind::Policy);
}

async fn a_shared_path_is_seen_as_it_was_shared(backend: BackendName) {
    let (readable, writable) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    fs::write(readable.path().join("file"), "read").unwrap();
    let share =
        |folder: &tempfile::TempDir, permission| SharedPath { path: folder.path().into(), permission };
    let shared = vec![share(&readable, Permission::Read), share(&writable, Permission::Write)];
    let place = match Place::try_with(backend, |spec| spec.shared = shared).await {
        Ok(place) => place,
        // Where there is no isolation no path can be made read-only: refused, by name.
        Err(refusal) if !is_isolated(backend) => {
            assert_eq!(refusal.kind(), ErrorKind::Unavailable, "{refusal}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let (read, write) = (readable.path().display(), writable.path().display());
    assert_eq!(place.read_file(&format!("{read}/file")).await.unwrap(), b"read");
    assert_eq!(
        place.write_file(&format!("{read}/file"), b"x").await.unwrap_err().code,
        ErrorCode::PermissionDenied
    );
    assert_ne!(place.sh(&format!("echo x > {read}/other")).await.exit_code, Some(0));
    place.write_file(&format!("{write}/file"), b"written").await.unwrap();
    assert_eq!(fs::read_to_string(writable.path().join("file")).unwrap(), "written");
    assert_eq!(fs::read_to_string(readable.path().join("file")).unwrap(), "read");
}

async fn file_operations_run_side_by_side(backend: BackendName) {
    let place = Place::new(backend).await;
    let content = vec![7; 1_000_000];
    let command = sh("sleep 0.1; echo done");
    let (a, b, c, d) = tokio::join!(
        place.write_file("a", &content),
        place.write_file("b", &content),
        place.exec(&command),
        place.mkdir("x/y/z", true),
    );
    a.unwrap();
    b.unwrap();
    d.unwrap();
    assert_eq!(c.unwrap().stdout, b"done\n");
    let (a, b) = tokio::join!(place.read_file("a"), place.read_file("b"));
    assert!(a.unwrap() == content && b.unwrap() == content);
}
