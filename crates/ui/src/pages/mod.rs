//! The pages. Each is whole without the script.

mod approvals;
mod sandbox;
mod sandboxes;

use crate::access::Closed;
use crate::actions::decoded;
use crate::html::Text;
use crate::serve::{Shared, page as respond};
use belljar_api::SandboxQuestion;
use belljar_api::client::ClientError;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) async fn page(shared: &Shared, path: &str) -> Result<Response<Full<Bytes>>, Closed> {
    let questions = shared.client.questions().await;
    let body = match (&questions, path.split('/').collect::<Vec<_>>().as_slice()) {
        (Err(error), _) => Err(failed(error)),
        (Ok(questions), ["", ""]) => sandboxes::body(shared, questions).await.map_err(|error| failed(&error)),
        (Ok(questions), ["", "approvals"]) => Ok(approvals::body(questions)),
        (Ok(questions), ["", "sandbox", name]) => {
            sandbox::body(shared, &decoded(name), questions).await.map_err(|error| failed(&error))
        }
        (Ok(_), _) => return Err(Closed(StatusCode::NOT_FOUND, "there is no such page")),
    };
    let waiting = questions.as_ref().map_or(0, Vec::len);
    Ok(match body {
        Ok(body) => respond(StatusCode::OK, whole(path, &body, Some(waiting))),
        Err((status, body)) => respond(status, whole(path, &body, None)),
    })
}

/// The page that the link leads to: from here on the browser has its cookie.
pub(crate) fn entered() -> String {
    let body = r#"<section class="notice"><h1>You are in</h1><p>This browser can use the dashboard until <code>belljar ui</code> ends.</p>
<p><a class="primary" href="/" id="onward">Show the sandboxes</a></p></section>"#;
    whole("/enter", body, None)
}

pub(crate) fn error(status: StatusCode, why: &str, hint: Option<&str>) -> String {
    whole("", &error_body(status, why, hint), None)
}

fn error_body(status: StatusCode, why: &str, hint: Option<&str>) -> String {
    let hint = hint.map(|hint| format!(r#"<p class="hint">{}</p>"#, Text(hint))).unwrap_or_default();
    format!(
        r#"<section class="notice"><h1>{}</h1><p>{}</p>{hint}<p><a href="/">All sandboxes</a></p></section>"#,
        Text(status.canonical_reason().unwrap_or("It did not work")),
        Text(why)
    )
}

fn failed(error: &ClientError) -> (StatusCode, String) {
    let status = error.status().and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let hint = error.hint().map(|hint| hint.to_string());
    (status, error_body(status, &error.to_string(), hint.as_deref()))
}

fn whole(path: &str, body: &str, waiting: Option<usize>) -> String {
    let here = |to: &str| if to == path { r#" aria-current="page""# } else { "" };
    let waiting_now = waiting.unwrap_or(0);
    let badge = match waiting_now {
        0 => String::new(),
        count => format!(r#" <span class="badge">{count}</span>"#),
    };
    let title = match waiting_now {
        0 => "belljar".to_string(),
        count => format!("({count}) belljar"),
    };
    // What cannot change by itself is not asked for again.
    let live = if waiting.is_some() { r#" data-live"# } else { "" };
    format!(
        r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="/style.css">
<script src="/script.js" defer></script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<a class="brand" href="/">belljar</a>
<nav aria-label="Pages">
<a href="/"{sandboxes}>Sandboxes</a>
<a href="/approvals"{approvals}>Approvals{badge}</a>
</nav>
<span class="state" id="connection" role="status"></span>
</header>
<main id="main"{live}>
{body}
</main>
</body>
</html>
"##,
        sandboxes = here("/"),
        approvals = here("/approvals"),
    )
}

/// One question with its answers.
fn question(asked: &SandboxQuestion, back: &str, named: bool) -> String {
    let number = asked.question.id.to_string();
    let action = format!("/sandbox/{}/answer", asked.sandbox);
    let answer = |verdict: &str, label: &str, class: &str| {
        let fields =
            [("question", number.as_str()), ("about", asked.question.rule.as_str()), ("verdict", verdict)];
        crate::html::button(&action, back, &fields, label, class)
    };
    let sandbox = match named {
        true => format!(
            r#"<p class="quiet"><a href="/sandbox/{0}">{0}</a>{1}</p>"#,
            Text(&asked.sandbox),
            asked.folder.as_ref().map(|folder| format!(" · {}", Text(folder))).unwrap_or_default()
        ),
        false => String::new(),
    };
    let waiting = match asked.question.waiting {
        1 => "1 connection waits".to_string(),
        more => format!("{more} connections wait"),
    };
    let why = asked.question.why.as_ref();
    let why = why.map(|why| format!(r#"<p class="why">The program says: <q>{}</q></p>"#, Text(why)));
    let why = why.unwrap_or_default();
    format!(
        r#"<li class="question"><div><p class="host">{}:{}</p>{why}{sandbox}<p class="quiet">{waiting}, for {}; a minute at most</p></div>
<div class="actions">{}{}{}</div></li>"#,
        Text(&asked.question.name),
        asked.question.port,
        crate::html::age(asked.question.since_ms, now_ms()),
        answer("once", "Once", ""),
        answer("sandbox", "Allow", "primary"),
        answer("deny", "Deny", "danger"),
    )
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
