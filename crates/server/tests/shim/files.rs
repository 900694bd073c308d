//! Files, in both directions.

use crate::shim::started::Started;
use axum::body::Body;
use belljar_api::{FileEntry, FileKind, FileStat, Page};
use futures_util::stream;
use http_body_util::BodyExt;
use serde_json::json;

#[tokio::test]
async fn a_file_is_written_read_moved_and_removed() {
    let started = Started::new();
    assert_eq!(started.ask("PUT", "/files?path=a.txt", "one").await.0, 201);
    assert_eq!(started.ask("PUT", "/files?path=a.txt", "two").await.0, 204);
    let response = started.send(started.request("GET", "/files?path=a.txt", Body::empty())).await;
    assert_eq!(response.headers()["content-length"], "3");
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "two");
    let stat: FileStat = started.json("GET", "/files/stat?path=a.txt", json!({})).await;
    assert_eq!((stat.kind, stat.size), (FileKind::File, 3));
    assert_eq!(
        started.ask("POST", "/files/folder", json!({"path": "x/y", "recursive": true}).to_string()).await.0,
        204
    );
    assert_eq!(
        started.ask("POST", "/files/move", json!({"from": "a.txt", "to": "x/y/b"}).to_string()).await.0,
        204
    );
    assert_eq!(started.ask("GET", "/files?path=/workspace/x/y/b", Body::empty()).await.1, b"two");
    for (method, path, expected) in [
        ("GET", "/files?path=a.txt", 404),
        ("GET", "/files/stat?path=nothing", 404),
        ("GET", "/files", 400),
        ("GET", "/files?path=", 422),
        ("GET", "/files?path=a%00b", 422),
        ("DELETE", "/files?path=nothing", 404),
        ("PUT", "/files?path=no/such/folder/a", 404),
    ] {
        assert_eq!(started.refused(method, path, json!({})).await.0, expected, "{method} {path}");
    }
    assert!(
        started.ask("GET", "/files?path=x", Body::empty()).await.0.is_client_error(),
        "a folder has no content"
    );
    assert!(
        started.ask("DELETE", "/files?path=x", Body::empty()).await.0.is_client_error(),
        "it is not empty"
    );
    assert_eq!(started.ask("DELETE", "/files?path=x&recursive=true", Body::empty()).await.0, 204);
    let kernel = started.ask("GET", "/files?path=/proc/version", Body::empty()).await;
    assert!(String::from_utf8_lossy(&kernel.1).starts_with("Linux"), "a file without a size has a content");
}

#[tokio::test]
async fn a_folder_is_listed_in_parts() {
    let started = Started::new();
    started.run(json!({"shell": "mkdir d && cd d && for i in $(seq 100 149); do : > f$i; done; ln -s f100 z; : > \"$(printf 'e\\377')\""})).await;
    let (mut names, mut after, mut parts) = (Vec::new(), String::new(), 0);
    loop {
        let page: Page<FileEntry> =
            started.json("GET", &format!("/files/list?path=d&limit=20{after}"), json!({})).await;
        parts += 1;
        names.extend(page.items);
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!((names.len(), parts), (52, 3));
    assert_eq!((names[0].name_base64.as_deref(), names[0].kind), (Some("Zf8="), FileKind::File));
    assert!(
        names[1..51].iter().map(|entry| entry.name.clone()).eq((100..150).map(|number| format!("f{number}")))
    );
    assert_eq!(names[51].kind, FileKind::Symlink);
}

#[tokio::test]
async fn a_hundred_megabytes_pass_through_without_staying() {
    let started = Started::new();
    let before = started.private_kib();
    let pieces = stream::iter((0..1600_u32).map(|piece| Ok::<_, std::io::Error>(vec![piece as u8; 65_536])));
    assert_eq!(started.ask("PUT", "/files?path=big", Body::from_stream(pieces)).await.0, 201);
    let mut response =
        started.send(started.request("GET", "/files?path=big", Body::empty())).await.into_body();
    let mut length = 0_u64;
    while let Some(frame) = response.frame().await {
        let frame = frame.expect("a body");
        let data = frame.data_ref().expect("bytes");
        for (at, byte) in [(0, data[0]), (data.len() - 1, data[data.len() - 1])] {
            assert_eq!(byte, ((length + at as u64) / 65_536) as u8);
        }
        length += data.len() as u64;
    }
    assert_eq!(length, 1600 * 65_536);
    let grown = started.private_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "100 MB made the shim {grown} KiB larger");
}

#[tokio::test]
async fn a_request_that_ends_too_soon_changes_nothing() {
    let started = Started::new();
    assert_eq!(started.ask("PUT", "/files?path=kept", "as it was").await.0, 201);
    for path in ["kept", "new"] {
        let pieces = stream::iter([Ok(vec![b'x'; 100_000]), Err(std::io::Error::other("gone"))]);
        let request = started.request("PUT", &format!("/files?path={path}"), Body::from_stream(pieces));
        let stream = hyper_util::rt::TokioIo::new(started.stream().await);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.expect("a server");
        let connection = tokio::spawn(connection);
        assert!(sender.send_request(request).await.is_err());
        let _ = connection.await;
    }
    let listed = started.run(json!({"shell": "sleep 0.3; cat kept; ls -A | grep -v '^\\.'"})).await;
    assert_eq!(listed.result.expect("it ended").stdout.as_deref(), Some("as it waskept\n"));
}

#[tokio::test]
async fn changes_are_told_as_they_happen() {
    let started = Started::new();
    let mut events = started.events("/files/watch?path=.&recursive=true").await;
    started.run(json!({"shell": "mkdir deep; echo x > deep/file; rm -r deep"})).await;
    let mut seen = Vec::new();
    loop {
        let (_, event) = events.next().await.expect("an event");
        seen.push(format!(
            "{} {}",
            event["kind"].as_str().expect("a kind"),
            event["path"].as_str().expect("a path")
        ));
        if seen.last().is_some_and(|last| last == "removed deep") {
            break;
        }
    }
    assert!(seen.contains(&"created deep".to_string()), "{seen:?}");
    assert_eq!(started.refused("GET", "/files/watch?path=nothing", json!({})).await.0, 404);
}
