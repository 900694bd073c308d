//! Pulls from registries that send something else, too much, or lead astray.

use crate::archive::{Tar, config, gzip};
use crate::served::{manifest, pull, remains, served, served_as, store, zstd};
use crate::server::{Request, Server, answer};
use belljar_images::{Digest, ImageError, Limits, PullOptions};
use std::fs;
use std::io::Write;
use std::net::TcpStream;

#[test]
fn what_is_not_what_it_should_be_is_refused_and_leaves_nothing() {
    let layer = Tar::default().file("a", "x").end();
    type Change = fn(&Request, &mut TcpStream) -> bool;
    let changes: [(&str, Change); 5] = [
        ("a manifest without end", |request, stream| {
            if request.path.contains("/manifests/") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[b' '; 65536]).is_ok() {}
            }
            request.path.contains("/manifests/")
        }),
        ("a manifest that nests", |request, stream| {
            if request.path.contains("/manifests/") {
                answer(stream, "200 OK", &[], "[".repeat(1 << 20).as_bytes());
            }
            request.path.contains("/manifests/")
        }),
        ("a refusal without end", |request, stream| {
            if request.path.contains("/manifests/") {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[b' '; 65536]).is_ok() {}
            }
            request.path.contains("/manifests/")
        }),
        ("a circle", |request, stream| {
            answer(stream, "307 Temporary Redirect", &[("Location", &request.path)], b"");
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
fn another_blob_or_configuration_is_refused_and_leaves_nothing() {
    let layer = Tar::default().file("a", "x").end();
    let (blob, config) = (gzip(&layer), config(&[&layer]).into_bytes());
    for (what, right) in [("blob", &blob), ("configuration", &config)] {
        let damaged: Vec<u8> = right.iter().map(|byte| byte ^ 1).collect();
        let longer = [&right[..], b"x"].concat();
        for sent in [damaged, longer, right[1..].to_vec()] {
            let own_digest = Digest::of(right).to_string();
            let (server, _) = served(&layer, move |request, stream| {
                let is_it = request.path.ends_with(&own_digest);
                if is_it {
                    answer(stream, "200 OK", &[], &sent);
                }
                is_it
            });
            let (folder, store) = store();
            let error = pull(&store, &format!("{}/app:1", server.address), &PullOptions::default());
            let error = error.unwrap_err();
            assert!(matches!(&error, ImageError::Mismatch { what: found, .. } if *found == what), "{error}");
            assert_eq!(remains(folder.path()), [""; 0], "{what}: {error}");
        }
    }
}

#[test]
fn a_blob_that_is_right_and_unpacks_to_something_else_is_refused() {
    let (good, evil) = (Tar::default().file("a", "good").end(), Tar::default().file("a", "evil").end());
    let config = config(&[&good]);
    let blob = gzip(&evil);
    let manifest = manifest(&config, &[&blob]);
    let server = Server::start(move |request, stream| {
        let body = match request.path.rsplit('/').next().unwrap() {
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
fn no_redirect_leads_to_the_clear_and_no_password_to_a_stranger() {
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
    let (server, _) = served(&layer, move |request, stream| {
        if request.header("authorization").is_none() {
            answer(stream, "401 Unauthorized", &[("WWW-Authenticate", "Basic realm=\"x\"")], b"");
            return true;
        }
        let is_blob = request.path.ends_with(&blob_digest);
        if is_blob {
            answer(stream, "307 Temporary Redirect", &[("Location", &location)], b"");
        }
        is_blob
    });
    fs::write(&file, format!(r#"{{"auths":{{"{}":{{"auth":"YW5uOnMzY3JldA=="}}}}}}"#, server.address))
        .unwrap();
    pull(&store, &format!("{}/app:1", server.address), &options).unwrap();
    assert!(storage.requests.lock().unwrap().iter().all(|request| request.header("authorization").is_none()));
}

#[test]
fn a_host_that_a_registry_redirects_to_names_no_token_server() {
    let layer = Tar::default().file("a", "x").end();
    let thief = Server::start(|_, stream| answer(stream, "200 OK", &[], br#"{"token":"t"}"#));
    for challenge in [format!("Bearer realm=\"http://{}/token\"", thief.address), "Basic".to_string()] {
        let storage = Server::start(move |_, stream| {
            answer(stream, "401 Unauthorized", &[("WWW-Authenticate", &challenge)], b"");
        });
        let location = format!("http://{}/blob", storage.address);
        let (server, _) = served(&layer, move |request, stream| {
            let is_blob = request.path.contains("/blobs/");
            if is_blob {
                answer(stream, "307 Temporary Redirect", &[("Location", &location)], b"");
            }
            is_blob
        });
        let (folder, store) = store();
        let file = folder.path().join("config.json");
        fs::write(&file, format!(r#"{{"auths":{{"{}":{{"auth":"YW5uOnMzY3JldA=="}}}}}}"#, server.address))
            .unwrap();
        let options = PullOptions { credentials: Some(file), ..Default::default() };
        let error = pull(&store, &format!("{}/app:1", server.address), &options).unwrap_err();
        assert!(matches!(error, ImageError::Answer { status: 401, .. }), "{error}");
        assert_eq!(thief.paths(), [""; 0]);
        for request in
            [&storage, &server].into_iter().flat_map(|server| server.requests.lock().unwrap().clone())
        {
            assert_eq!(request.header("authorization"), None, "{}", request.path);
        }
    }
}

#[test]
fn a_registry_in_the_clear_does_not_lead_to_this_machine_and_hears_nothing_from_there() {
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
    let thief = Server::start(move |request, stream| {
        let body: &[u8] = match () {
            () if request.path.contains("/manifests/") => manifest.as_bytes(),
            () if request.path.ends_with(&is_config) => config.as_bytes(),
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
        let server = Server::start(move |request, stream| {
            let is = |bytes: &[u8]| request.path.ends_with(&Digest::of(bytes).to_string());
            let body: &[u8] = match bodies.iter().find(|body| is(body)) {
                Some(body) => body,
                None if request.path.contains("/manifests/") => manifest.as_bytes(),
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
