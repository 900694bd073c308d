//! The latest egress decisions of each sandbox that was looked at. The log is read on from where it was, and not from its beginning
//! with each look.

use belljar_api::AuditRecord;
use belljar_api::client::{Client, ClientError};
use std::collections::{HashMap, VecDeque};
use tokio::sync::Mutex;

#[derive(Default)]
pub(crate) struct Decisions(Mutex<HashMap<String, Known>>);

#[derive(Default)]
struct Known {
    /// The life that the lines are of.
    id: Option<String>,
    last: u64,
    latest: VecDeque<AuditRecord>,
}

impl Decisions {
    /// The latest ones, the newest first.
    pub(crate) async fn of(
        &self,
        client: &Client,
        name: &str,
        id: Option<&str>,
    ) -> Result<Vec<AuditRecord>, ClientError> {
        let mut all = self.0.lock().await;
        if all.len() >= MAX_SANDBOXES && !all.contains_key(name) {
            all.clear();
        }
        let known = all.entry(name.to_string()).or_default();
        if known.id.as_deref() != id {
            *known = Known { id: id.map(String::from), ..Known::default() };
        }
        let new = client.sandbox(name).egress_after(known.last).await?;
        for record in new {
            known.last = known.last.max(record.line);
            if known.latest.len() == SHOWN {
                known.latest.pop_back();
            }
            known.latest.push_front(record);
        }
        Ok(known.latest.iter().cloned().collect())
    }
}

const SHOWN: usize = 100;
const MAX_SANDBOXES: usize = 64;
