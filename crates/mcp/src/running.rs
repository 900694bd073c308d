//! Requests that run, by their ids: a client may cancel one, and a client that goes away cancels all.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Requests that run.
#[derive(Debug, Default, Clone)]
pub(crate) struct Running {
    all: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
}

/// Tells a request that its client no longer wants it.
#[derive(Debug, Clone)]
pub(crate) struct Cancelled {
    requested: watch::Receiver<bool>,
}

/// A request that runs. Dropped with it.
pub(crate) struct Entry {
    running: Running,
    id: String,
    pub(crate) cancelled: Cancelled,
}

impl Running {
    pub(crate) fn enter(&self, id: &Value) -> Entry {
        let (tell, requested) = watch::channel(false);
        let id = id.to_string();
        self.locked().insert(id.clone(), tell);
        Entry { running: self.clone(), id, cancelled: Cancelled { requested } }
    }

    pub(crate) fn cancel(&self, id: &Value) {
        if let Some(tell) = self.locked().get(&id.to_string()) {
            tell.send_replace(true);
        }
    }

    pub(crate) fn cancel_all(&self) {
        for tell in self.locked().values() {
            tell.send_replace(true);
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<String, watch::Sender<bool>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cancelled {
    /// Waits until it is cancelled, for ever if it never is.
    pub(crate) async fn wait(&mut self) {
        if self.requested.wait_for(|requested| *requested).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.locked().remove(&self.id);
    }
}
