//! What a template starts in each of its sandboxes, and how it is known to be ready.

use super::recipe::{HOME, Surroundings};
use super::record::Built;
use crate::fault::Fault;
use belljar_api::StartCommand;
use belljar_api::client::Sandbox;
use belljar_spec::OsText;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How a sandbox of a template begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// Where commands start and relative paths begin; nothing for the home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ready: Option<String>,
}

impl Built {
    pub(crate) fn begin(&self) -> Begin {
        let Surroundings { workdir, .. } = self.surroundings.clone();
        Begin { workdir, start: self.start.clone(), ready: self.ready.clone() }
    }
}

/// Starts what is to run, with these variables beside those of the sandbox, and waits until it is ready.
pub(crate) async fn begin(
    sandbox: &Sandbox,
    begin: &Begin,
    env: &BTreeMap<String, String>,
    most: Duration,
) -> Result<(), Fault> {
    let line = |line: &str| StartCommand {
        argv: ["/bin/bash", "-l", "-c", line].map(OsText::from).into(),
        cwd: Some(begin.workdir.as_deref().unwrap_or(HOME).into()),
        env: variables(env),
        ..StartCommand::default()
    };
    if let Some(start) = &begin.start {
        sandbox.start(&StartCommand { timeout_s: Some(NO_TIMEOUT_S), ..line(start) }).await?;
    }
    let Some(ready) = &begin.ready else { return Ok(()) };
    let until = Instant::now() + most;
    let mut pause = Duration::from_millis(20);
    loop {
        let asked = sandbox.run(&StartCommand { timeout_s: Some(most.as_secs()), ..line(ready) }).await?;
        if asked.result.is_some_and(|result| result.exit_code == Some(0)) {
            return Ok(());
        }
        if Instant::now() >= until {
            let message = format!(
                "what the template starts was not ready within {} s: `{ready}` fails",
                most.as_secs()
            );
            return Err(Fault::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// As a command takes them.
pub(crate) fn variables(env: &BTreeMap<String, String>) -> BTreeMap<String, OsText> {
    env.iter().map(|(name, value)| (name.clone(), OsText::from(value.as_str()))).collect()
}

/// The longest that the daemon knows.
const NO_TIMEOUT_S: u64 = 31_536_000;
