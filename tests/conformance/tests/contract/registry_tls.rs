//! A registry with TLS that tries to redirect a client to plain HTTP.

use belljar_images::{ImageError, Mirror, PullOptions, Silent, Store, Transport};
use belljar_tests_conformance::LOOPBACK;
use belljar_tests_hosts::{Authority, HttpServer, Response};
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

/// What a pull from a registry with TLS that answers so comes to, and how often it was asked.
fn pull(clear: &str, answer: impl Fn() -> Response + Send + Sync + 'static) -> (ImageError, usize) {
    let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
    let registry = HttpServer::start_tls(LOOPBACK, &authority.leaf(["127.0.0.1"]), move |_| answer());
    let address = format!("127.0.0.1:{}", registry.port());
    let (trusted, passwords) = (folder.path().join("authority.pem"), folder.path().join("config.json"));
    fs::write(&trusted, authority.pem()).unwrap();
    fs::write(&passwords, format!(r#"{{"auths":{{"{address}":{{"auth":"YW5uOnMzY3JldA=="}}}}}}"#)).unwrap();
    let options = PullOptions {
        mirrors: vec![Mirror { registry: "registry.test".into(), place: address, transport: Transport::Tls }],
        // Also where plain HTTP is allowed, no registry with TLS can redirect to it.
        plain_http: vec![clear.into()],
        authorities: vec![trusted],
        credentials: Some(passwords),
        ..PullOptions::default()
    };
    let store = Store::open(&folder.path().join("images")).unwrap();
    let name = "registry.test/app:1".parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(store.pull(&name, &options, Arc::new(Silent))).unwrap_err();
    (error, registry.requests().len())
}

#[test]
fn a_registry_with_tls_cannot_redirect_to_plain_http() {
    let thief = HttpServer::start(LOOPBACK, |_| Response::ok(r#"{"token":"t"}"#));
    let clear = format!("127.0.0.1:{}", thief.port());
    let to = format!("http://{clear}/x");
    let realm = format!("Bearer realm=\"{to}\"");
    let (error, requested) = pull(&clear, move || Response::redirect(307, &to));
    assert!(matches!(error, ImageError::Downgrade { .. }) && requested == 1, "{error}, {requested}");
    let (error, requested) = pull(&clear, move || {
        let mut refused = Response::status(401);
        refused.headers.push(("WWW-Authenticate".into(), realm.clone()));
        refused
    });
    assert!(matches!(error, ImageError::Downgrade { .. }) && requested == 1, "{error}, {requested}");
    assert!(thief.requests().is_empty(), "a client was redirected there");
}
