//! Pulls that break off, wait, or find no room.

use crate::archive::{Tar, gzip};
use crate::served::{pull, served, store};
use crate::server::{Server, answer};
use belljar_images::{Digest, ImageError, Limits, PullOptions};
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_broken_connection_is_taken_up_where_it_broke() {
    let layer =
        Tar::default().file("a", (0..400_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).end();
    let blob = gzip(&layer);
    let times = AtomicUsize::new(0);
    let (server, _) = served(&layer, move |request, stream| {
        let is_blob = request.path.ends_with(Digest::of(&blob).hex());
        if !is_blob {
            return false;
        }
        let from: usize = request
            .header("range")
            .map_or(0, |range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap());
        match times.fetch_add(1, Ordering::SeqCst) {
            0 => answer(stream, "503 Service Unavailable", &[], b"busy"),
            // Says that all comes, and breaks off.
            1 | 2 => {
                let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
                let range = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: {range}\r\n\r\n",
                    blob.len() - from
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&blob[from..from + blob.len() / 3]).unwrap();
            }
            _ => {
                let range = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
                answer(stream, "206 Partial Content", &[("Content-Range", &range)], &blob[from..]);
            }
        }
        true
    });
    let (_folder, store) = store();
    let image = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default()).unwrap();
    assert_eq!(fs::metadata(image.lowers[0].join("a")).unwrap().len(), 1_600_000);
    let ranges: Vec<bool> = server
        .requests
        .lock()
        .unwrap()
        .iter()
        .filter(|request| request.header("range").is_some())
        .map(|request| request.header("range") != Some("bytes=0-"))
        .collect();
    assert_eq!(ranges, [true, true], "the rest was asked for, and only the rest");
}

#[test]
fn what_a_killed_pull_left_is_used_or_begun_again() {
    let layer = Tar::default().file("a", "x".repeat(5000)).end();
    let blob = gzip(&layer);
    for (left, asks_for_rest) in
        [(blob[..blob.len() / 2].to_vec(), true), (vec![7; blob.len()], false), (vec![7; 9999], false)]
    {
        let (server, _) = served(&layer, |_, _| false);
        let (folder, store) = store();
        let registry = Digest::of(server.address.as_bytes());
        let (layer_id, blob_id) = (Digest::of(&layer), Digest::of(&blob));
        let part = format!("{}-{}-{}", layer_id.hex(), &blob_id.hex()[..16], &registry.hex()[..16]);
        fs::write(folder.path().join("images/blobs").join(part), left).unwrap();
        let unfinished =
            folder.path().join("images/layers").join(format!(".new-{}", Digest::of(&layer).hex()));
        fs::create_dir_all(unfinished.join("tree/a/b")).unwrap();
        let image = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default()).unwrap();
        assert_eq!(fs::metadata(image.lowers[0].join("a")).unwrap().len(), 5000);
        let requests = server.requests.lock().unwrap();
        assert_eq!(requests.iter().any(|request| request.header("range").is_some()), asks_for_rest);
    }
}

#[test]
fn a_registry_that_sends_nothing_keeps_no_other_waiting() {
    let layer = Tar::default().file("a", "x".repeat(1000)).end();
    let blob = Digest::of(&gzip(&layer)).to_string();
    let (resume, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let own_digest = blob.clone();
    // It says that it has the same layer.
    let (slow, _) = served(&layer, move |request, _| {
        if request.path.ends_with(&own_digest) {
            let _ = wait.lock().unwrap().recv();
        }
        false
    });
    let (server, _) = served(&layer, |_, _| false);
    let (folder, store) = store();
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| pull(&store, &format!("{}/app:1", slow.address), &PullOptions::default()));
        while !slow.paths().iter().any(|path| path.ends_with(&blob)) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        pull(&store, &format!("{}/app:1", server.address), &PullOptions::default()).unwrap();
        drop(resume);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(fs::read_dir(folder.path().join("images/layers")).unwrap().count(), 1, "it is there once");
    assert_eq!(fs::read_dir(folder.path().join("images/blobs")).unwrap().count(), 0);
}

#[test]
fn where_there_is_no_room_nothing_is_fetched_and_nothing_left() {
    let layer = Tar::default().file("a", "x").end();
    let (server, _) = served(&layer, |_, _| false);
    let (folder, store) = store();
    let limits = Limits { reserve: u64::MAX, ..Limits::default() };
    let options = PullOptions { limits, ..Default::default() };
    let error = pull(&store, &format!("{}/app:1", server.address), &options).unwrap_err();
    assert!(matches!(error, ImageError::NoSpace(_)), "{error}");
    let converted = belljar_spec::SandboxError::from(error);
    assert!(converted.hint.unwrap_or_default().to_string().contains("images gc"));
    assert_eq!(fs::read_dir(folder.path().join("images/blobs")).unwrap().count(), 0);
    let blob = Digest::of(&gzip(&layer)).to_string();
    assert!(!server.paths().iter().any(|path| path.ends_with(&blob)), "not even asked for");
}

#[test]
fn a_token_server_that_is_busy_is_asked_again_and_is_no_refusal() {
    let layer = Tar::default().file("a", "x").end();
    for (time_limit, is_enough) in [(2, true), (usize::MAX, false)] {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let tokens = Server::start(move |_, stream| {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (status, body): (_, &[u8]) =
                if number < time_limit { ("503 Busy", b"") } else { ("200 OK", br#"{"token":"abc"}"#) };
            answer(stream, status, &[], body);
        });
        let realm = format!("Bearer realm=\"http://{}/token\"", tokens.address);
        let (server, _) = served(&layer, move |request, stream| {
            let is_in = request.header("authorization") == Some("Bearer abc");
            if !is_in {
                answer(stream, "401 Unauthorized", &[("WWW-Authenticate", &realm)], b"");
            }
            !is_in
        });
        let (_folder, store) = store();
        match pull(&store, &format!("{}/app:1", server.address), &PullOptions::default()) {
            Ok(_) => assert!(is_enough),
            Err(ImageError::Answer { status: 503, .. }) => assert!(!is_enough),
            Err(error) => panic!("{error}"),
        }
    }
}
