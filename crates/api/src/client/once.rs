//! One call, one run.

use crate::client::Client;
use crate::client::error::ClientError;
use crate::{RunOnce, RunResult};
use hyper::Method;

impl Client {
    /// Runs one command in a sandbox of its own, and waits for its end. Dropping the future ends the run.
    pub async fn run_once(&self, run: &RunOnce) -> Result<RunResult, ClientError> {
        self.call(Method::POST, "/run-once").json(run).answer().await
    }
}
