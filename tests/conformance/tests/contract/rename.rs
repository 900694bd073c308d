//! Giving things another name.

use belljar_spec::{BackendName, ErrorCode, ErrorKind};
use belljar_tests_conformance::*;
use std::fs;
use std::os::unix::fs::symlink;

for_every_backend! {
    everywhere:
        with_isolation_another_filesystem_is_said_so;
    living everywhere:
        a_file_gets_another_name,
        without_isolation_both_names_are_held_in_the_workspace;
    living each_kernel:
        a_file_replaces_another,
        a_folder_moves_with_all_in_it,
        a_link_is_moved_itself,
        what_cannot_be_moved_says_why;
}

async fn a_file_gets_another_name(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("d", false).await.unwrap();
    fixture.write_file("a", b"content").await.unwrap();
    fixture.rename("a", "d/b").await.unwrap();
    fixture.rename(&fixture.inside("d/b"), "d/c c").await.unwrap();
    assert_eq!(fs::read(fixture.host("d/c c")).unwrap(), b"content");
    assert!(!fixture.host("a").exists() && !fixture.host("d/b").exists());
}

async fn a_file_replaces_another(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("new", b"new").await.unwrap();
    fixture.write_file("old", b"old").await.unwrap();
    fixture.rename("new", "old").await.unwrap();
    assert_eq!(fixture.read_file("old").await.unwrap(), b"new");
    fixture.rename("old", "old").await.unwrap();
    assert_eq!(fixture.read_file("old").await.unwrap(), b"new");
}

async fn a_folder_moves_with_all_in_it(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("d/e", true).await.unwrap();
    fixture.mkdir("empty", false).await.unwrap();
    fixture.write_file("d/e/file", b"deep").await.unwrap();
    fixture.rename("d/", "moved").await.unwrap();
    fixture.rename("moved", "empty").await.unwrap();
    assert_eq!(fs::read(fixture.host("empty/e/file")).unwrap(), b"deep");
}

async fn a_link_is_moved_itself(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fs::write(fixture.host("file"), "here").unwrap();
    symlink("/etc/passwd", fixture.host("link")).unwrap();
    fixture.rename("link", "moved").await.unwrap();
    assert!(fixture.host("moved").is_symlink());
    fixture.rename("file", "moved").await.unwrap();
    assert_eq!(
        fs::read(fixture.host("moved")).unwrap(),
        b"here",
        "the link was replaced, and not what it leads to"
    );
}

async fn what_cannot_be_moved_says_why(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("full/inner", true).await.unwrap();
    fixture.mkdir("folder", false).await.unwrap();
    fixture.write_file("file", b"").await.unwrap();
    for (from, to, code) in [
        ("missing", "x", ErrorCode::NotFound),
        ("file", "no/such/folder", ErrorCode::NotFound),
        ("file", "folder", ErrorCode::FileOperation),
        ("folder", "file", ErrorCode::FileOperation),
        ("folder", "full", ErrorCode::AlreadyExists),
        ("full", "full/inner/deeper", ErrorCode::FileOperation),
        (".", "x", ErrorCode::FileOperation),
        ("file", "folder/..", ErrorCode::FileOperation),
    ] {
        let error = fixture.rename(from, to).await.unwrap_err();
        assert_eq!(error.code, code, "{from} to {to}: {error}");
    }
    assert!(fixture.host("file").exists() && fixture.host("full/inner").exists());
}

async fn with_isolation_another_filesystem_is_said_so(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("/tmp/file", b"content").await.unwrap();
    let error = fixture.rename("/tmp/file", "file").await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::FileOperation));
    fixture.rename("/tmp/file", "/tmp/moved").await.unwrap();
    fixture.write_file("file", b"").await.unwrap();
    let refused = fixture.rename("file", "/usr/file").await.unwrap_err();
    assert!(matches!(refused.code, ErrorCode::PermissionDenied | ErrorCode::FileOperation), "{refused}");
}

async fn without_isolation_both_names_are_held_in_the_workspace(backend: BackendName) {
    if is_isolated(backend) {
        return;
    }
    let (fixture, outside) = (SandboxFixture::new(backend).await, tempfile::TempDir::new().unwrap());
    fs::write(outside.path().join("secret"), "secret").unwrap();
    symlink(outside.path(), fixture.host("out")).unwrap();
    fixture.write_file("file", b"mine").await.unwrap();
    let secret = outside.path().join("secret").display().to_string();
    for (from, to) in [
        (secret.as_str(), "taken"),
        ("out/secret", "taken"),
        ("file", "out/put"),
        ("file", "../put"),
        ("file", secret.as_str()),
    ] {
        assert_eq!(
            fixture.rename(from, to).await.unwrap_err().code,
            ErrorCode::PermissionDenied,
            "{from} to {to}"
        );
    }
    assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}
