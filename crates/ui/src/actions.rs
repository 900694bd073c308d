//! What the buttons do: each is one call of the daemon's API, as the owner.

use crate::pages;
use crate::serve::{Shared, on_to, page};
use belljar_api::client::ClientError;
use belljar_api::{AnswerQuestion, ChangePolicy, CreateSandbox, WorkspaceRequest};
use belljar_spec::ErrorCode;
use belljar_spec::egress::{RuleEffect, Verdict};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use std::collections::HashMap;

pub(crate) async fn carry_out(shared: &Shared, path: &str, form: &[u8]) -> Response<Full<Bytes>> {
    let form: HashMap<String, String> = url::form_urlencoded::parse(form).into_owned().collect();
    let field = |name: &str| form.get(name).map(|value| value.trim()).unwrap_or_default();
    let back = field("back");
    let outcome = match path {
        "/new" => create(shared, field("folder"), field("profile"), field("egress")).await,
        _ => match path.split('/').collect::<Vec<_>>().as_slice() {
            ["", "sandbox", name, action] => change(shared, &decoded(name), action, &field).await,
            _ => Err(Failed::Unknown),
        },
    };
    match outcome {
        Ok(Some(onward)) => on_to(&onward),
        Ok(None) => on_to(back),
        Err(Failed::Unknown) => {
            page(StatusCode::NOT_FOUND, pages::error(StatusCode::NOT_FOUND, "there is no such action", None))
        }
        Err(Failed::Refused(error)) => {
            let status = error.status().and_then(|status| StatusCode::from_u16(status).ok());
            let status = status.unwrap_or(StatusCode::BAD_GATEWAY);
            let hint = error.hint().map(|hint| hint.to_string());
            page(
                status,
                pages::error(
                    status,
                    &error.to_string(),
                    hint.as_deref().or(Some("")).filter(|hint| !hint.is_empty()),
                ),
            )
        }
    }
}

enum Failed {
    Unknown,
    Refused(ClientError),
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Failed {
        Failed::Refused(error)
    }
}

async fn change<'f>(
    shared: &Shared,
    name: &str,
    action: &str,
    field: &impl Fn(&str) -> &'f str,
) -> Result<Option<String>, Failed> {
    let sandbox = shared.client.sandbox(name);
    match action {
        "stop" => drop(sandbox.stop().await?),
        "pause" => drop(sandbox.pause().await?),
        "resume" => drop(sandbox.resume().await?),
        "remove" => {
            sandbox.delete().await?;
            return Ok(Some("/".into()));
        }
        "allow" | "deny" => {
            let effect = if action == "deny" { RuleEffect::Deny } else { RuleEffect::Allow };
            let for_s = field("for").parse().ok();
            let once = field("for") == "once" && effect == RuleEffect::Allow;
            let rule = field("rule").to_string();
            sandbox.change_policy(&ChangePolicy { effect, rule, for_s, once }).await?;
        }
        "answer" => {
            let verdict = match field("verdict") {
                "once" => Verdict::Once,
                "sandbox" => Verdict::Sandbox,
                "deny" => Verdict::Deny,
                _ => return Err(Failed::Unknown),
            };
            let question = field("question").parse().map_err(|_| Failed::Unknown)?;
            // The question that the page showed: a sandbox that was started again counts its own from the beginning.
            let answer = AnswerQuestion { rule: Some(field("about").to_string()), verdict };
            match sandbox.answer(question, &answer).await {
                // Another person was quicker, or its time was over: the page shows it.
                Err(ClientError::Api(error, _)) if error.code() == ErrorCode::NameUnknown => {}
                outcome => drop(outcome?),
            }
        }
        _ => return Err(Failed::Unknown),
    }
    Ok(None)
}

async fn create(
    shared: &Shared,
    folder: &str,
    profile: &str,
    egress: &str,
) -> Result<Option<String>, Failed> {
    let mut request = CreateSandbox {
        persistent: Some(true),
        profile: Some(profile.to_string()).filter(|profile| !profile.is_empty()),
        lease_s: Some(LONG_S),
        ..CreateSandbox::default()
    };
    request.sandbox.egress.mode = egress.parse().ok();
    if !folder.is_empty() {
        // The same key as `belljar start` has: the same sandbox.
        request.key = Some(format!("repo:{folder}"));
        let path = folder.parse().ok();
        request.sandbox.workspace = WorkspaceRequest { folder: path, ..WorkspaceRequest::default() };
    }
    let created = shared.client.create(&request).await?;
    Ok(Some(format!("/sandbox/{}", created.sandbox.name)))
}

/// Of a path: names of sandboxes have only plain letters.
pub(crate) fn decoded(name: &str) -> String {
    name.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-_.#@".contains(*letter)).collect()
}

/// Until a person stops it.
const LONG_S: u64 = 31_536_000;
