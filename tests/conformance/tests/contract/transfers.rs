//! Files that come and go piece by piece.

use belljar_engine::FileReader;
use belljar_spec::{BackendName, ByteSize, ErrorCode, SandboxError, SandboxSpec};
use belljar_tests_conformance::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

for_every_backend! {
    everywhere:
        a_file_that_is_replaced_keeps_its_content_until_the_end,
        a_transfer_ends_with_its_sandbox,
        with_isolation_a_full_disk_is_said_before_all_is_sent,
        with_isolation_a_full_disk_leaves_the_old_content;
    each_kernel:
        a_large_file_that_is_replaced_keeps_its_content_until_the_end;
    living everywhere:
        pieces_add_up_to_the_file,
        a_file_whose_folder_is_not_ours_is_replaced;
    living each_kernel:
        a_file_is_read_while_it_is_larger_than_what_is_held,
        an_empty_file_has_no_pieces,
        what_cannot_be_opened_says_so_before_the_first_piece,
        a_new_file_that_is_cut_short_is_removed,
        a_replaced_file_stays_the_same_file,
        a_shorter_content_replaces_a_longer_one,
        a_link_is_written_through,
        transfers_run_side_by_side_and_beside_commands;
}

/// More than is held in memory on the way.
fn large(seed: u32) -> Vec<u8> {
    (0..900_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).wrapping_add(seed).to_le_bytes()).collect()
}

async fn all(mut reader: FileReader) -> Result<Vec<u8>, SandboxError> {
    let mut content = Vec::new();
    while let Some(piece) = reader.next().await? {
        assert!(!piece.is_empty());
        content.extend(piece);
    }
    assert_eq!(reader.next().await?, None, "the end stays the end");
    Ok(content)
}

async fn pieces_add_up_to_the_file(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut writer = fixture.create_file("file").await.unwrap();
    for piece in [&b"one "[..], b"", b"two ", &[b'3'; 200_000]] {
        writer.write(piece).await.unwrap();
    }
    writer.finish().await.unwrap();
    let expected = [&b"one two "[..], &[b'3'; 200_000]].concat();
    assert!(fs::read(fixture.host("file")).unwrap() == expected);
    assert!(all(fixture.open_file("file").await.unwrap()).await.unwrap() == expected);
}

async fn a_file_is_read_while_it_is_larger_than_what_is_held(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let content = large(1);
    fs::write(fixture.host("large"), &content).unwrap();
    let mut reader = fixture.open_file("large").await.unwrap();
    let first = reader.next().await.unwrap().unwrap();
    assert!(first.len() < content.len());
    // One that is dropped in the middle disturbs no other.
    drop(fixture.open_file("large").await.unwrap());
    assert!([first, all(reader).await.unwrap()].concat() == content);
}

async fn an_empty_file_has_no_pieces(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.create_file("empty").await.unwrap().finish().await.unwrap();
    assert_eq!(fixture.host("empty").metadata().unwrap().len(), 0);
    assert_eq!(all(fixture.open_file("empty").await.unwrap()).await.unwrap(), b"");
    fixture.write_file("empty", b"not any more").await.unwrap();
    fixture.create_file("empty").await.unwrap().finish().await.unwrap();
    assert_eq!(fixture.read_file("empty").await.unwrap(), b"");
}

async fn what_cannot_be_opened_says_so_before_the_first_piece(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.mkdir("folder", false).await.unwrap();
    let code = |outcome: Result<(), SandboxError>| outcome.unwrap_err().code;
    assert_eq!(code(fixture.open_file("missing").await.map(drop)), ErrorCode::NotFound);
    assert_eq!(code(fixture.open_file("folder").await.map(drop)), ErrorCode::FileOperation);
    assert_eq!(code(fixture.create_file("no/such/file").await.map(drop)), ErrorCode::NotFound);
    assert_eq!(code(fixture.create_file("folder").await.map(drop)), ErrorCode::FileOperation);
}

async fn a_new_file_that_is_cut_short_is_removed(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut writer = fixture.create_file("new").await.unwrap();
    writer.write(&large(2)).await.unwrap();
    drop(writer);
    let (file, beside) = (fixture.host("new"), fixture.host("other"));
    wait_until("the file to be removed", || !file.exists());
    // A file that has its name by then is another program's.
    let mut writer = fixture.create_file("new").await.unwrap();
    writer.write(b"some").await.unwrap();
    fixture.sh("mv new other; echo another > new").await;
    drop(writer);
    fixture.create_file("later").await.unwrap().finish().await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"another\n");
    assert!(beside.exists());
}

async fn a_file_that_is_replaced_keeps_its_content_until_the_end(backend: BackendName) {
    replaced(backend, b"the new content").await;
}

async fn a_large_file_that_is_replaced_keeps_its_content_until_the_end(backend: BackendName) {
    replaced(backend, &large(3)).await;
}

async fn replaced(backend: BackendName, content: &[u8]) {
    let fixture = SandboxFixture::new(backend).await;
    let file = fixture.host("file");
    fs::write(&file, "the good content").unwrap();
    let names = || fs::read_dir(fixture.on_host()).unwrap().count();
    let before = names();
    let mut writer = fixture.create_file("file").await.unwrap();
    writer.write(content).await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"the good content");
    drop(writer);
    let mut writer = fixture.create_file("file").await.unwrap();
    writer.write(content).await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"the good content", "one that was cut short changed nothing");
    writer.finish().await.unwrap();
    assert!(fs::read(&file).unwrap() == content);
    assert_eq!(names(), before, "nothing is left beside it");
}

async fn a_replaced_file_stays_the_same_file(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("echo old > file; chmod 640 file; ln file twin").await;
    let before = fs::metadata(fixture.host("file")).unwrap();
    for content in [&b"short"[..], &large(4)] {
        fixture.write_file("file", content).await.unwrap();
        let after = fs::metadata(fixture.host("file")).unwrap();
        let identity = |found: &fs::Metadata| (found.ino(), found.mode(), found.uid(), found.nlink());
        assert_eq!(identity(&after), identity(&before));
        assert!(fs::read(fixture.host("twin")).unwrap() == content);
    }
}

async fn a_shorter_content_replaces_a_longer_one(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let longer = [large(5), large(6)].concat();
    for content in [&longer[..], &large(7), b"short", b""] {
        fixture.write_file("file", content).await.unwrap();
        assert!(fs::read(fixture.host("file")).unwrap() == content);
    }
}

async fn a_link_is_written_through(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fs::write(fixture.host("file"), "old").unwrap();
    symlink("file", fixture.host("link")).unwrap();
    symlink("made", fixture.host("dangling")).unwrap();
    fixture.write_file("link", b"new").await.unwrap();
    fixture.write_file("dangling", b"made through it").await.unwrap();
    assert_eq!(fs::read(fixture.host("file")).unwrap(), b"new");
    assert_eq!(fs::read(fixture.host("made")).unwrap(), b"made through it");
    assert!(fixture.host("link").is_symlink() && fixture.host("dangling").is_symlink());
}

/// There is no room for a second file beside it.
async fn a_file_whose_folder_is_not_ours_is_replaced(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir closed; echo old > closed/file; chmod 555 closed").await;
    let content = large(8);
    fixture.write_file("closed/file", &content).await.unwrap();
    assert!(fs::read(fixture.host("closed/file")).unwrap() == content);
    fixture.sh("chmod 755 closed").await;
}

async fn transfers_run_side_by_side_and_beside_commands(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let names: Vec<String> = (0..12).map(|n| format!("file-{n}")).collect();
    let mut writers = Vec::new();
    for name in &names {
        writers.push(fixture.create_file(name).await.unwrap());
    }
    for writer in writers.iter_mut().rev() {
        writer.write(b"begun, ").await.unwrap();
    }
    assert_eq!(fixture.answer("echo meanwhile").await, "meanwhile");
    for (writer, name) in writers.into_iter().zip(&names) {
        let mut writer = writer;
        writer.write(name.as_bytes()).await.unwrap();
        writer.finish().await.unwrap();
    }
    for name in &names {
        assert_eq!(fs::read_to_string(fixture.host(name)).unwrap(), format!("begun, {name}"));
    }
}

async fn a_transfer_ends_with_its_sandbox(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fs::write(fixture.host("large"), large(9)).unwrap();
    let mut reader = fixture.open_file("large").await.unwrap();
    let mut writer = fixture.create_file("other").await.unwrap();
    reader.next().await.unwrap();
    fixture.dispose().await;
    // What was sent before is still there to be read; then it is over, and not the end of the file.
    let error = loop {
        match reader.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("cut short, it looks complete"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, ErrorCode::GuestGone);
    let outcome = async {
        writer.write(&large(10)).await?;
        writer.finish().await
    };
    assert_eq!(outcome.await.unwrap_err().code, ErrorCode::GuestGone);
    assert_eq!(fixture.open_file("large").await.map(drop).unwrap_err().code, ErrorCode::SandboxNotAlive);
}

async fn small_disk(backend: BackendName) -> Option<SandboxFixture> {
    let small = |spec: &mut SandboxSpec| spec.limits.disk = Some(ByteSize::mebibytes(4));
    if is_isolated(backend) { Some(SandboxFixture::with(backend, small).await) } else { None }
}

async fn with_isolation_a_full_disk_is_said_before_all_is_sent(backend: BackendName) {
    let Some(fixture) = small_disk(backend).await else { return };
    let mut writer = fixture.create_file("/tmp/huge").await.unwrap();
    let mut pieces = 0;
    let error = loop {
        match writer.write(&[b'x'; 65_536]).await {
            Ok(()) => pieces += 1,
            Err(error) => break error,
        }
        assert!(pieces < 100_000, "it is never said");
    };
    assert_eq!(error.code, ErrorCode::DiskFull);
    assert!(!fixture.exists("/tmp/huge").await.unwrap());
}

async fn with_isolation_a_full_disk_leaves_the_old_content(backend: BackendName) {
    let Some(fixture) = small_disk(backend).await else { return };
    fixture.write_file("/tmp/file", b"the good content").await.unwrap();
    for size in [700_000, 2_500_000, 9_000_000] {
        fixture.sh("head -c 1500000 /dev/zero > /tmp/half; head -c 2M /dev/zero > /tmp/more").await;
        let error = fixture.write_file("/tmp/file", &vec![b'x'; size]).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::DiskFull, "{size}");
        assert_eq!(fixture.read_file("/tmp/file").await.unwrap(), b"the good content", "{size}");
    }
    fixture.sh("rm /tmp/half /tmp/more").await;
    fixture.write_file("/tmp/file", &[b'x'; 1_500_000]).await.unwrap();
    assert_eq!(fixture.stat("/tmp/file").await.unwrap().size, 1_500_000);
}
