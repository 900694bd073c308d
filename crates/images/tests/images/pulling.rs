//! Pulls: from a real registry, and from servers that are broken, slow or hostile.

use crate::archive::{Tar, config, gzip};
use crate::registry::{GZIP, INDEX, MANIFEST, PLAIN, Registry, ZSTD};
use crate::server::{Asked, Server, answer};
use belljar_images::{
    Digest, Image, ImageError, Limits, Mirror, Platform, PullOptions, PullPolicy, Silent, Store,
};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("images")).unwrap();
    (folder, store)
}

fn pull(store: &Store, name: &str, options: &PullOptions) -> Result<Image, ImageError> {
    store.ensure(&name.parse().unwrap(), options, &Silent)
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// What is in the store but the image that a test had before.
fn remains(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for place in ["layers", "names", "blobs"] {
        let entries = fs::read_dir(folder.join("images").join(place)).unwrap();
        names.extend(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
    }
    names.retain(|name| !name.ends_with(".lock"));
    names
}

#[test]
fn layers_of_every_kind_come_from_a_real_registry() {
    let Some(registry) = Registry::start() else { return };
    let layers = [
        Tar::default().file("a", "gzip").end(),
        Tar::default().file("b", "zstd".repeat(1000)).end(),
        Tar::default().file("c", "plain").file(".wh.a", "").end(),
    ];
    let digest = registry.push(
        "some/app",
        "1",
        &[
            (&layers[0], gzip(&layers[0]), GZIP),
            (&layers[1], zstd(&layers[1]), ZSTD),
            (&layers[2], layers[2].clone(), PLAIN),
        ],
    );
    let (folder, store) = store();
    let name = format!("{}/some/app:1", registry.address);
    let image = pull(&store, &name, &PullOptions::default()).unwrap();
    assert_eq!(image.digest, digest);
    assert_eq!(image.lowers.len(), 3);
    assert_eq!(fs::read_to_string(image.lowers[0].join("c")).unwrap(), "plain");
    assert_eq!(fs::read_to_string(image.lowers[1].join("b")).unwrap(), "zstd".repeat(1000));
    assert_eq!(fs::read_to_string(image.lowers[2].join("a")).unwrap(), "gzip");
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    assert_eq!(image.environment, [pair("PATH", "/bin"), pair("A", "b=c")]);
    assert_eq!((image.user.as_deref(), image.working_dir.as_deref()), (Some("1000:1000"), Some("/srv")));
    assert_eq!(image.command, ["/bin/x", "y"]);
    assert_eq!(remains(folder.path()).len(), 4, "three layers and a name, and no blob");

    let by_digest = format!("{}/some/app@{digest}", registry.address);
    assert_eq!(pull(&store, &by_digest, &PullOptions::default()).unwrap().lowers, image.lowers);
    let other = format!("{}/some/app@{}", registry.address, Digest::of(b"else"));
    assert!(matches!(pull(&store, &other, &PullOptions::default()), Err(ImageError::NotFound { .. })));
    drop(registry);
    // What is here needs no registry, unless it is asked for.
    assert!(pull(&store, &name, &PullOptions::default()).is_ok());
    let always = PullOptions { policy: PullPolicy::Always, ..Default::default() };
    assert!(matches!(pull(&store, &name, &always), Err(ImageError::Unreachable { .. })));
    let never = PullOptions { policy: PullPolicy::Never, ..Default::default() };
    assert!(matches!(pull(&store, "none:1", &never), Err(ImageError::Missing(_))));
}

#[test]
fn an_index_leads_to_what_runs_here() {
    let Some(registry) = Registry::start() else { return };
    let layer = Tar::default().file("a", "here").end();
    let ours = registry.push("app", "ours", &[(&layer, gzip(&layer), GZIP)]);
    let here = Platform::here();
    let entry = |digest: &Digest, os: &str, architecture: &str| {
        let size = 10;
        format!(
            r#"{{"mediaType":"{MANIFEST}","digest":"{digest}","size":{size},"platform":{{"os":"{os}","architecture":"{architecture}"}}}}"#
        )
    };
    let index = |entries: &[String]| {
        format!(r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{}]}}"#, entries.join(","))
    };
    let both =
        index(&[entry(&ours, "windows", &here.architecture), entry(&ours, "linux", &here.architecture)]);
    let listed = registry.push_manifest("app", "both", INDEX, &both);
    registry.push_manifest("app", "foreign", INDEX, &index(&[entry(&ours, "linux", "s390x")]));
    let (_folder, store) = store();
    let image = pull(&store, &format!("{}/app:both", registry.address), &PullOptions::default()).unwrap();
    assert_eq!(image.digest, ours);
    assert!(pull(&store, &format!("{}/app@{listed}", registry.address), &PullOptions::default()).is_ok());
    let error =
        pull(&store, &format!("{}/app:foreign", registry.address), &PullOptions::default()).unwrap_err();
    assert!(matches!(&error, ImageError::Platform { there, .. } if there == "linux/s390x"), "{error}");
}

#[test]
fn passwords_are_read_from_dockers_file() {
    let Some(registry) = Registry::closed() else { return };
    let layer = Tar::default().file("a", "closed").end();
    registry.push("app", "1", &[(&layer, gzip(&layer), GZIP)]);
    let (folder, store) = store();
    let name = format!("{}/app:1", registry.address);
    let error = pull(&store, &name, &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Unauthorized { .. }), "{error}");
    let file = folder.path().join("config.json");
    let options = PullOptions { credentials: Some(file.clone()), ..Default::default() };
    for (password, works) in [("YW5uOndyb25n", false), ("YW5uOnMzY3JldA==", true)] {
        fs::write(&file, format!(r#"{{"auths":{{"{}":{{"auth":"{password}"}}}}}}"#, registry.address))
            .unwrap();
        assert_eq!(pull(&store, &name, &options).is_ok(), works);
    }
}

/// A registry with one image of one layer, which answers as `change` wants where that answers.
fn served(
    layer: &[u8],
    change: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> (Server, Digest) {
    served_as(layer, gzip(layer), change)
}

/// The same, with the layer packed so.
fn served_as(
    layer: &[u8],
    blob: Vec<u8>,
    change: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> (Server, Digest) {
    let config = config(&[layer]);
    let manifest = manifest(&config, &[&blob]);
    let digest = Digest::of(manifest.as_bytes());
    let (config_digest, blob_digest) =
        (Digest::of(config.as_bytes()).to_string(), Digest::of(&blob).to_string());
    let server = Server::start(move |asked, stream| {
        if change(asked, stream) {
            return;
        }
        let last = asked.path.rsplit('/').next().unwrap();
        let body: &[u8] = match last {
            _ if asked.path.contains("/manifests/") => manifest.as_bytes(),
            last if last == config_digest => config.as_bytes(),
            last if last == blob_digest => &blob,
            _ => return answer(stream, "404 Not Found", &[], b""),
        };
        answer(stream, "200 OK", &[], body);
    });
    (server, digest)
}

fn manifest(config: &str, blobs: &[&[u8]]) -> String {
    let described: Vec<String> = blobs
        .iter()
        .map(|blob| {
            format!(r#"{{"mediaType":"{GZIP}","digest":"{}","size":{}}}"#, Digest::of(blob), blob.len())
        })
        .collect();
    format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":{}}},"layers":[{}]}}"#,
        Digest::of(config.as_bytes()),
        config.len(),
        described.join(",")
    )
}

#[test]
fn a_broken_connection_is_taken_up_where_it_broke() {
    let layer =
        Tar::default().file("a", (0..400_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).end();
    let blob = gzip(&layer);
    let times = AtomicUsize::new(0);
    let (server, _) = served(&layer, move |asked, stream| {
        let is_blob = asked.path.ends_with(Digest::of(&blob).hex());
        if !is_blob {
            return false;
        }
        let from: usize = asked
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
        .asked
        .lock()
        .unwrap()
        .iter()
        .filter(|asked| asked.header("range").is_some())
        .map(|asked| asked.header("range") != Some("bytes=0-"))
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
        let asked = server.asked.lock().unwrap();
        assert_eq!(asked.iter().any(|asked| asked.header("range").is_some()), asks_for_rest);
    }
}

#[test]
fn what_is_not_what_it_should_be_is_refused_and_leaves_nothing() {
    let layer = Tar::default().file("a", "x").end();
    type Change = fn(&Asked, &mut TcpStream) -> bool;
    let changes: [(&str, Change); 6] = [
        ("another blob", |asked, stream| {
            let is_blob = asked.path.contains("/blobs/") && asked.header("accept-nothing").is_none();
            if is_blob {
                answer(stream, "200 OK", &[], b"something else");
            }
            is_blob
        }),
        ("a manifest without end", |asked, stream| {
            if asked.path.contains("/manifests/") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[b' '; 65536]).is_ok() {}
            }
            asked.path.contains("/manifests/")
        }),
        ("a manifest that nests", |asked, stream| {
            if asked.path.contains("/manifests/") {
                answer(stream, "200 OK", &[], "[".repeat(1 << 20).as_bytes());
            }
            asked.path.contains("/manifests/")
        }),
        ("a refusal without end", |asked, stream| {
            if asked.path.contains("/manifests/") {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[b' '; 65536]).is_ok() {}
            }
            asked.path.contains("/manifests/")
        }),
        ("a circle", |asked, stream| {
            answer(stream, "307 Temporary Redirect", &[("Location", &asked.path)], b"");
            true
        }),
        ("no answer at all", |_, stream| {
            let _ = stream.write_all(b"\x00\x01\x02");
            true
        }),
    ];
    for (what, change) in changes {
        let (server, _) = served(&layer, change);
        let (folder, store) = store();
        let error = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default());
        assert!(error.is_err(), "{what}");
        assert_eq!(remains(folder.path()), [""; 0], "{what}");
    }
}

#[test]
fn a_blob_that_is_right_and_unpacks_to_something_else_is_refused() {
    let (good, evil) = (Tar::default().file("a", "good").end(), Tar::default().file("a", "evil").end());
    let config = config(&[&good]);
    let blob = gzip(&evil);
    let manifest = manifest(&config, &[&blob]);
    let server = Server::start(move |asked, stream| {
        let body = match asked.path.rsplit('/').next().unwrap() {
            "1" => manifest.as_bytes(),
            last if last == Digest::of(config.as_bytes()).to_string() => config.as_bytes(),
            _ => &blob,
        };
        answer(stream, "200 OK", &[], body);
    });
    let (folder, store) = store();
    let error = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Mismatch { what: "layer's content", .. }), "{error}");
    assert_eq!(remains(folder.path()), [""; 0]);
}

#[test]
fn too_much_of_anything_is_refused() {
    let layer = Tar::default().file("a", "x".repeat(100_000)).end();
    let (server, _) = served(&layer, |_, _| false);
    for limits in [
        Limits { layer_bytes: 50_000, ..Limits::default() },
        Limits { image_bytes: 50_000, ..Limits::default() },
        Limits { layers: 0, ..Limits::default() },
        Limits { entries: 0, ..Limits::default() },
    ] {
        let (folder, store) = store();
        let options = PullOptions { limits, ..Default::default() };
        assert!(pull(&store, &format!("{}/app:1", server.address), &options).is_err());
        assert!(!remains(folder.path()).iter().any(|name| name.ends_with(".json") || name.contains("-")));
    }
}

#[test]
fn nobody_is_led_to_the_clear_nor_a_password_to_a_stranger() {
    let layer = Tar::default().file("a", "x").end();
    let thief = Server::start(|_, stream| answer(stream, "200 OK", &[], br#"{"token":"t"}"#));
    let (folder, store) = store();
    let file = folder.path().join("config.json");
    // Another host, for all that cookies and passwords know: it was not named as one to be spoken to in the clear.
    let strange = thief.address.replace("127.0.0.1", "0.0.0.0");
    let realm = format!("Bearer realm=\"http://{strange}/token\"");
    let (server, _) = served(&layer, move |_, stream| {
        answer(stream, "401 Unauthorized", &[("WWW-Authenticate", &realm)], b"");
        true
    });
    fs::write(&file, format!(r#"{{"auths":{{"{}":{{"auth":"YW5uOnMzY3JldA=="}}}}}}"#, server.address))
        .unwrap();
    let options = PullOptions { credentials: Some(file.clone()), ..Default::default() };
    let error = pull(&store, &format!("{}/app:1", server.address), &options).unwrap_err();
    assert!(matches!(error, ImageError::Downgrade { .. }), "{error}");
    let location = format!("http://{strange}/x");
    let (server, _) = served(&layer, move |_, stream| {
        answer(stream, "307 Temporary Redirect", &[("Location", &location)], b"");
        true
    });
    let error = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Downgrade { .. }), "{error}");
    assert_eq!(thief.paths(), [""; 0]);
    // A redirect within what may be spoken to works, and the password stays behind.
    let blob = gzip(&layer);
    let storage = Server::start(move |_, stream| answer(stream, "200 OK", &[], &blob));
    let location = format!("http://{}/blob", storage.address);
    let blob_digest = Digest::of(&gzip(&layer)).to_string();
    let (server, _) = served(&layer, move |asked, stream| {
        if asked.header("authorization").is_none() {
            answer(stream, "401 Unauthorized", &[("WWW-Authenticate", "Basic realm=\"x\"")], b"");
            return true;
        }
        let is_blob = asked.path.ends_with(&blob_digest);
        if is_blob {
            answer(stream, "307 Temporary Redirect", &[("Location", &location)], b"");
        }
        is_blob
    });
    fs::write(&file, format!(r#"{{"auths":{{"{}":{{"auth":"YW5uOnMzY3JldA=="}}}}}}"#, server.address))
        .unwrap();
    pull(&store, &format!("{}/app:1", server.address), &options).unwrap();
    assert!(storage.asked.lock().unwrap().iter().all(|asked| asked.header("authorization").is_none()));
}

#[test]
fn a_token_is_fetched_where_the_registry_says() {
    let layer = Tar::default().file("a", "x").end();
    let tokens = Server::start(|asked, stream| {
        let is_ours = asked.header("authorization") == Some("Basic YW5uOnMzY3JldA==")
            && asked.path.contains("service=here")
            && asked.path.contains("scope=repository%3Aapp%3Apull");
        let body: &[u8] = if is_ours { br#"{"access_token":"abc"}"# } else { br#"{"token":""}"# };
        answer(stream, "200 OK", &[], body);
    });
    let realm = format!("Bearer realm=\"http://{}/token\",service=\"here\"", tokens.address);
    let (server, _) = served(&layer, move |asked, stream| {
        let is_in = asked.header("authorization") == Some("Bearer abc");
        if !is_in {
            answer(stream, "401 Unauthorized", &[("WWW-Authenticate", &realm)], b"");
        }
        !is_in
    });
    let (folder, store) = store();
    let file = folder.path().join("config.json");
    fs::write(&file, format!(r#"{{"auths":{{"{}":{{"auth":"YW5uOnMzY3JldA=="}}}}}}"#, server.address))
        .unwrap();
    let name = format!("{}/app:1", server.address);
    assert!(matches!(pull(&store, &name, &PullOptions::default()), Err(ImageError::Unauthorized { .. })));
    pull(&store, &name, &PullOptions { credentials: Some(file), ..Default::default() }).unwrap();
    assert_eq!(tokens.paths().len(), 2, "one for each pull");
}

#[test]
fn mirrors_are_asked_first_and_the_registry_if_they_fail() {
    let layer = Tar::default().file("a", "x").end();
    let (registry, _) = served(&layer, |_, _| false);
    let (mirror, _) = served(&layer, |_, _| false);
    let broken = Server::start(|_, stream| answer(stream, "404 Not Found", &[], b""));
    let to =
        |place: String| Mirror { registry: registry.address.clone(), place, transport: Default::default() };
    let name = format!("{}/app:1", registry.address);
    let (_one, one) = store();
    let mirrors = vec![to(format!("{}/cache", broken.address)), to(mirror.address.clone())];
    pull(&one, &name, &PullOptions { mirrors, ..Default::default() }).unwrap();
    assert_eq!(broken.paths(), ["/v2/cache/app/manifests/1"]);
    assert!(registry.paths().is_empty() && mirror.paths().len() == 3);
    let (_two, two) = store();
    let mirrors = vec![to(broken.address.clone())];
    pull(&two, &name, &PullOptions { mirrors, ..Default::default() }).unwrap();
    assert_eq!(registry.paths().len(), 3);
}

#[test]
fn pulls_at_the_same_time_fetch_a_layer_once() {
    let layer = Tar::default().file("a", "x".repeat(100_000)).end();
    let (server, _) = served(&layer, |_, _| false);
    let (_folder, store) = store();
    let name = format!("{}/app:1", server.address);
    let lowers: Vec<_> = std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| pull(&store, &name, &PullOptions::default()).unwrap().lowers))
            .collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    assert!(lowers.iter().all(|one| *one == lowers[0]));
    let blob = Digest::of(&gzip(&layer)).to_string();
    assert_eq!(server.paths().iter().filter(|path| path.ends_with(&blob)).count(), 1);
}

#[test]
fn a_registry_that_sends_nothing_keeps_nobody_else_waiting() {
    let layer = Tar::default().file("a", "x".repeat(1000)).end();
    let blob = Digest::of(&gzip(&layer)).to_string();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let is_asked = blob.clone();
    // It says that it has the same layer.
    let (slow, _) = served(&layer, move |asked, _| {
        if asked.path.ends_with(&is_asked) {
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
        drop(go_on);
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
    let told = belljar_spec::SandboxError::from(error);
    assert!(told.hint.unwrap_or_default().contains("images gc"));
    assert_eq!(fs::read_dir(folder.path().join("images/blobs")).unwrap().count(), 0);
    let blob = Digest::of(&gzip(&layer)).to_string();
    assert!(!server.paths().iter().any(|path| path.ends_with(&blob)), "not even asked for");
}

#[test]
fn a_token_server_that_is_busy_is_asked_again_and_is_no_refusal() {
    let layer = Tar::default().file("a", "x").end();
    for (patience, is_enough) in [(2, true), (usize::MAX, false)] {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let tokens = Server::start(move |_, stream| {
            let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (status, body): (_, &[u8]) =
                if number < patience { ("503 Busy", b"") } else { ("200 OK", br#"{"token":"abc"}"#) };
            answer(stream, status, &[], body);
        });
        let realm = format!("Bearer realm=\"http://{}/token\"", tokens.address);
        let (server, _) = served(&layer, move |asked, stream| {
            let is_in = asked.header("authorization") == Some("Bearer abc");
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

#[test]
fn a_registry_in_the_clear_leads_nobody_to_this_machine_and_hears_nothing_from_there() {
    let layer = Tar::default().file("a", "x").end();
    let inner = Server::start(|_, stream| answer(stream, "400 Bad Request", &[], b"inner secret"));
    let location = format!("http://{}/admin", inner.address);
    let (server, _) = served(&layer, move |_, stream| {
        answer(stream, "307 Temporary Redirect", &[("Location", &location)], b"");
        true
    });
    let (_folder, store) = store();
    // Another machine, for all that its name says.
    let strange = server.address.replace("127.0.0.1", "0.0.0.0");
    let options = PullOptions { plain_http: vec![strange.clone()], ..Default::default() };
    let error = pull(&store, &format!("{strange}/app:1"), &options).unwrap_err();
    assert!(matches!(error, ImageError::Downgrade { .. }), "{error}");
    assert_eq!(inner.paths(), [""; 0]);
    // Where it may lead to, what is said there stays there.
    let error = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Answer { status: 400, .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn a_layer_is_had_by_who_brings_it_and_not_by_who_names_it() {
    let layer = Tar::default().file("private", "x").end();
    let (owner, _) = served(&layer, |_, _| false);
    let (_folder, store) = store();
    pull(&store, &format!("{}/app:1", owner.address), &PullOptions::default()).unwrap();
    // Another image says that it has this layer, and brings something else.
    let config = config(&[&layer]);
    let blob = gzip(&Tar::default().file("other", "y").end());
    let manifest = manifest(&config, &[&blob]);
    let is_config = Digest::of(config.as_bytes()).to_string();
    let thief = Server::start(move |asked, stream| {
        let body: &[u8] = match () {
            () if asked.path.contains("/manifests/") => manifest.as_bytes(),
            () if asked.path.ends_with(&is_config) => config.as_bytes(),
            () => &blob,
        };
        answer(stream, "200 OK", &[], body);
    });
    let error = pull(&store, &format!("{}/app:1", thief.address), &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Mismatch { what: "layer's content", .. }), "{error}");
    // Who brings the same in another wrapping has it, and it is here once.
    let (other, _) = served_as(&layer, zstd(&layer), |_, _| false);
    let one = pull(&store, &format!("{}/app:1", other.address), &PullOptions::default()).unwrap();
    let two = pull(&store, &format!("{}/app:1", owner.address), &PullOptions::default()).unwrap();
    assert_eq!(one.lowers, two.lowers);
    let is_blob = Digest::of(&gzip(&layer)).to_string();
    let fetched = owner.paths().iter().filter(|path| path.ends_with(&is_blob)).count();
    assert_eq!(fetched, 1, "what was fetched once is not fetched again");
}

#[test]
fn an_image_that_could_not_be_mounted_is_refused_before_anything_is_fetched() {
    let layers: Vec<Vec<u8>> =
        (0..101).map(|number| Tar::default().file(number.to_string(), "").end()).collect();
    let slices: Vec<&[u8]> = layers.iter().map(Vec::as_slice).collect();
    for (count, is_taken) in [(100, true), (101, false)] {
        let mut layers = slices[..count].to_vec();
        // One that is twice there, and one with nothing in it, are not mounted.
        layers.extend([slices[0], &[0; 1024]]);
        let config = config(&layers);
        let manifest = manifest(&config, &layers);
        let bodies: Vec<Vec<u8>> = layers.iter().map(|layer| layer.to_vec()).collect();
        let server = Server::start(move |asked, stream| {
            let is = |bytes: &[u8]| asked.path.ends_with(&Digest::of(bytes).to_string());
            let body: &[u8] = match bodies.iter().find(|body| is(body)) {
                Some(body) => body,
                None if asked.path.contains("/manifests/") => manifest.as_bytes(),
                None => config.as_bytes(),
            };
            answer(stream, "200 OK", &[], body);
        });
        let (_folder, store) = store();
        let pulled = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default());
        assert_eq!(pulled.is_ok(), is_taken, "{pulled:?}");
        assert_eq!(server.paths().len() > 2, is_taken);
    }
}

#[test]
fn nobody_is_asked_for_what_docker_built_here() {
    let (_folder, store) = store();
    let error = pull(&store, "belljar-web-f0177f751386:latest", &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Dockers(_)), "{error}");
    assert!(belljar_spec::SandboxError::from(error).hint.unwrap().contains("--backend docker"));
}
