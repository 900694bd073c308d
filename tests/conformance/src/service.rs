//! The service of the backend `e2b`: belljar's own server, in a process of its own for as long as a test runs. The client is belljar's
//! too, and shares no code with it.

use belljar_engine::{RemoteService, service_at};
use belljar_tests_daemon::{Home, Started};
use belljar_tests_hosts::own_address;
use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

thread_local! {
    /// Of the thread that runs a test.
    static SERVICE: RefCell<Option<RemoteService>> = const { RefCell::new(None) };
}

/// A service that runs. Dropped, nothing of it is left.
pub(crate) struct Elsewhere {
    home: Home,
    started: Option<Started>,
}

impl Elsewhere {
    pub(crate) fn begin() -> Elsewhere {
        let address = own_address().to_string();
        let home = Home::new().args(&["--e2b", &address]);
        let started = home.start();
        let words = [
            "daemon",
            "grants",
            "create",
            "conformance",
            "--e2b",
            "--egress",
            "open",
            "--egress",
            "strict",
            "--host",
            "*",
        ];
        let made = home.belljar().args(words).output().expect("belljar runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let key = String::from_utf8(made.stdout).expect("a key is text");
        let url = format!("http://{address}");
        let service = service_at(&url, &url, key.trim()).expect("a service");
        SERVICE.set(Some(service));
        PLACES.set(Some(home.places()));
        Elsewhere { home, started: Some(started) }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        SERVICE.set(None);
        PLACES.set(None);
        drop(self.started.take());
        let _ = &self.home;
    }
}

thread_local! {
    static PLACES: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// The service of this test.
pub fn service() -> Option<RemoteService> {
    SERVICE.with_borrow(Clone::clone)
}

/// The workspace with this file in it: the service runs on this machine, and keeps it in a folder.
pub(crate) fn workspace_with(name: &str) -> Option<PathBuf> {
    let places = PLACES.with_borrow(Clone::clone)?;
    let folders = fs::read_dir(places).ok()?.flatten().map(|place| place.path().join("home/workspace"));
    folders.into_iter().find(|folder| folder.join(name).exists())
}
