//! `belljar changes publish`: commits of a clone, pushed because the user said so.

use super::print;
use crate::args::PublishArgs;
use belljar_config as config;
use belljar_engine::{Publication, publish as push};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_vault::HostSecrets;
use belljar_workspace::clone::PullRequest;
use serde_json::json;

pub(crate) fn publish(options: PublishArgs) -> Result<u8, SandboxError> {
    let state = belljar_state::state_directory().map_err(|error| {
        ErrorCode::StateFailed
            .error(format!("there are no clones: {error}"))
            .hint(error.hint())
            .caused_by(error)
    })?;
    let PublishArgs { clone, to, token, pull_request, body, base, api, json: as_json } = options;
    let request =
        pull_request.map(|title| PullRequest { title, body, base: base.map(|base| base.to_string()), api });
    let policy = config::load(None, config::EgressFlags::default())?.policy;
    let trust = policy.map(|policy| policy.authorities).unwrap_or_default();
    let publication = Publication { clone, to, token, request };
    let published = push(&state, &publication, &HostSecrets::open(), &trust)?;
    let pushed = &published.pushed;
    if as_json {
        let report = json!({
            "url": pushed.url,
            "branch": pushed.branch,
            "commit": pushed.commit.as_str(),
            "pull_request": published.request,
        });
        return print(format!("{report:#}\n").as_bytes());
    }
    let mut text =
        format!("pushed {} to branch {} of {}\n", &pushed.commit.as_str()[..10], pushed.branch, pushed.url);
    if let Some(page) = &published.request {
        text.push_str(&format!("pull request: {page}\n"));
    }
    print(text.as_bytes())
}
