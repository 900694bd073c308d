//! Pulls: from a real registry, from its mirrors, and several at once.

use crate::archive::{Tar, gzip};
use crate::registry::{GZIP, INDEX, MANIFEST, PLAIN, Registry, ZSTD};
use crate::served::{pull, remains, served, store, zstd};
use crate::server::{Server, answer};
use belljar_images::{Digest, GcOptions, ImageError, Mirror, Platform, PullOptions, PullPolicy};
use std::fs;

#[test]
fn layers_of_every_kind_come_from_a_real_registry() {
    let Some(registry) = Registry::start() else { return };
    let layers = [
        Tar::default().file("a", "gzip").end(),
        Tar::default().file("b", "zstd".repeat(1000)).end(),
        Tar::default().file("c", "plain").file(".wh.a", "").end(),
    ];
    let (digest, _) = registry.push(
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
    let (ours, size) = registry.push("app", "ours", &[(&layer, gzip(&layer), GZIP)]);
    let here = Platform::here();
    let sized = |size: usize, os: &str, architecture: &str| {
        format!(
            r#"{{"mediaType":"{MANIFEST}","digest":"{ours}","size":{size},"platform":{{"os":"{os}","architecture":"{architecture}"}}}}"#
        )
    };
    let entry = |os: &str, architecture: &str| sized(size, os, architecture);
    let index = |entries: &[String]| {
        format!(r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{}]}}"#, entries.join(","))
    };
    let both = index(&[entry("windows", &here.architecture), entry("linux", &here.architecture)]);
    let listed = registry.push_manifest("app", "both", INDEX, &both);
    registry.push_manifest("app", "foreign", INDEX, &index(&[entry("linux", "s390x")]));
    registry.push_manifest("app", "lying", INDEX, &index(&[sized(size + 1, "linux", &here.architecture)]));
    let (_folder, store) = store();
    let image = pull(&store, &format!("{}/app:both", registry.address), &PullOptions::default()).unwrap();
    assert_eq!(image.digest, ours);
    assert!(pull(&store, &format!("{}/app@{listed}", registry.address), &PullOptions::default()).is_ok());
    let error =
        pull(&store, &format!("{}/app:foreign", registry.address), &PullOptions::default()).unwrap_err();
    assert!(matches!(&error, ImageError::Platform { there, .. } if there == "linux/s390x"), "{error}");
    let error =
        pull(&store, &format!("{}/app:lying", registry.address), &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Mismatch { what: "manifest", .. }), "{error}");
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

#[test]
fn a_token_is_fetched_where_the_registry_says() {
    let layer = Tar::default().file("a", "x").end();
    let tokens = Server::start(|request, stream| {
        let is_ours = request.header("authorization") == Some("Basic YW5uOnMzY3JldA==")
            && request.path.contains("service=here")
            && request.path.contains("scope=repository%3Aapp%3Apull");
        let body: &[u8] = if is_ours { br#"{"access_token":"abc"}"# } else { br#"{"token":""}"# };
        answer(stream, "200 OK", &[], body);
    });
    let realm = format!("Bearer realm=\"http://{}/token\",service=\"here\"", tokens.address);
    let (server, _) = served(&layer, move |request, stream| {
        let is_in = request.header("authorization") == Some("Bearer abc");
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
    let images: Vec<_> = std::thread::scope(|scope| {
        let pulls: Vec<_> =
            (0..6).map(|_| scope.spawn(|| pull(&store, &name, &PullOptions::default()).unwrap())).collect();
        pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
    });
    for image in &images {
        assert_eq!(image.lowers, images[0].lowers);
        assert_eq!(fs::read(image.lowers[0].join("a")).unwrap().len(), 100_000);
    }
    // Each of them has it for as long as it is held, whichever came first.
    store.remove(&name.parse().unwrap()).unwrap();
    for image in images {
        assert!(store.gc(&GcOptions::default()).unwrap().layers.is_empty());
        assert!(image.lowers[0].join("a").exists());
    }
    assert_eq!(store.gc(&GcOptions::default()).unwrap().layers.len(), 1);
    let blob = Digest::of(&gzip(&layer)).to_string();
    assert_eq!(server.paths().iter().filter(|path| path.ends_with(&blob)).count(), 1);
}

#[test]
fn no_registry_is_asked_for_what_docker_built_here() {
    let (_folder, store) = store();
    let error = pull(&store, "belljar-web-f0177f751386:latest", &PullOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Dockers(_)), "{error}");
    assert!(belljar_spec::SandboxError::from(error).hint.unwrap().to_string().contains("backend: docker"));
}
