//! Records as people read them: one line each, and below it what belongs to it.
//!
//! Another version of belljar may have written them, or a program that is not belljar at all: what this version does not know is
//! shown as it is in the file, and nothing reaches the terminal that moves it.

use belljar_audit::{Event, Logged, Record};
use belljar_spec::egress::{Printable, Reason};
use std::fmt::{Display, Write};

/// With its line break.
pub(super) fn of(record: &Record) -> String {
    let Some(time) = &record.time else {
        return format!("line {} is not a record (`belljar audit verify` says more)\n", record.line);
    };
    let (what, sentence, below) = match &record.event {
        Logged::Known(event) => of_event(event),
        Logged::Other(event) => ("other".to_string(), event.to_string(), Vec::new()),
    };
    let time = printable(&moment(time));
    let mut lines = format!("{time:<23}  {:<10}  {}\n", printable(&what), printable(&sentence));
    for line in below {
        // As far in as the sentence.
        let _ = writeln!(lines, "{:37}{}", "", printable(&line));
    }
    lines
}

/// `2026-11-15T06:00:00.123456Z` as `2026-11-15 06:00:00.123`.
pub(in crate::commands) fn moment(time: &str) -> String {
    time.chars().take(23).map(|character| if character == 'T' { ' ' } else { character }).collect()
}

/// What a file says, fit for a terminal. Letters stay, quotes and escapes too; what cannot be seen is escaped.
pub(in crate::commands) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// A word, a sentence, and lines that belong to it.
fn of_event(event: &Event) -> (String, String, Vec<String>) {
    let (what, sentence) = match event {
        Event::SandboxStarted {
            backend,
            mode,
            rules,
            inspect,
            loosened,
            policy,
            folder,
            name,
            uid,
            belljar,
        } => {
            let seen = if *inspect { ", TLS is looked into" } else { "" };
            let loosened = loosened.iter().map(|what| format!("loosened: {what}"));
            let policy = policy.iter().map(|digest| format!("policy {digest}"));
            let whose = uid.iter().map(|uid| format!("by the user {uid}"));
            let folder = folder.iter().map(|folder| format!("folder {}", printable(folder)));
            let name = name.iter().map(|name| format!("name {name}"));
            let below = folder
                .chain(name)
                .chain(whose)
                .chain(loosened)
                .chain(rules.iter().map(|rule| format!("rule {rule}")))
                .chain(policy);
            return (
                "started".into(),
                format!("{backend}, {mode}{seen}, belljar {belljar}"),
                below.collect(),
            );
        }
        Event::CommandStarted { command, words } => {
            let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
            (format!("command {command}"), words.join(" "))
        }
        Event::CommandEnded { command, exit_code, limit, millis } => {
            let code = exit_code.map_or("lost".to_string(), |code| format!("exit code {code}"));
            let limit = limit.as_ref().map(|limit| format!(", {limit}")).unwrap_or_default();
            (format!("command {command}"), format!("{code}{limit}, {}", seconds(*millis)))
        }
        Event::PolicyChanged { change, rule, lasting, by, policy, ended } => {
            let connections =
                if *ended == 0 { String::new() } else { format!(", {ended} connections ended") };
            let sentence = format!("{} `{rule}` ({lasting}), by {by}{connections}", change.words());
            return ("policy".into(), sentence, vec![format!("policy {policy}")]);
        }
        Event::ApprovalRequested { question, name, port, times: _, why } => {
            let why = why.as_ref().map(|why| format!(" \"{why}\"")).unwrap_or_default();
            (
                "question".into(),
                format!("#{question}: may {} be reached?{why}", host_and_port(name, Some(*port))),
            )
        }
        Event::ApprovalAnswered { question, name, port, answer, by } => {
            let host_and_port = host_and_port(name, Some(*port));
            ("answer".into(), format!("#{question}: {host_and_port} was {}, by {by}", answer.words()))
        }
        Event::FolderShared { folder, with, egress_differs } => {
            let differs = if *egress_differs { ", which may reach something else" } else { "" };
            ("shared".to_string(), format!("{folder} with sandbox {with}{differs}"))
        }
        Event::SnapshotTaken { snapshot, copied: true } => {
            ("snapshot".into(), format!("{snapshot}: its files were copied while it was paused"))
        }
        Event::SnapshotTaken { snapshot, copied: false } => {
            ("snapshot".into(), format!("{snapshot}: its files are a layer now, and it was started again"))
        }
        Event::SnapshotRestored { snapshot } => {
            ("restored".into(), format!("its files are those of {snapshot}"))
        }
        Event::SandboxEnded {} => ("ended".into(), "the sandbox is gone".into()),
        Event::CredentialUsed { credential, name, port, method, path, times: _ } => (
            "secret".into(),
            format!("{credential} went with {method} {} {path}", host_and_port(name, Some(*port))),
        ),
        Event::PlaceholderElsewhere { credential, destination, port, part, times: _ } => {
            let host_and_port = host_and_port(destination, Some(*port));
            let sentence =
                format!("the placeholder of {credential} was in {part}, on its way to {host_and_port}");
            ("INCIDENT".into(), sentence)
        }
        Event::SecretForwarded { variable, source } => {
            ("forwarded".into(), format!("the real value of {source} is inside, in {variable}"))
        }
        Event::TokenMinted { profile, permissions, repositories: _, expires: _ } => {
            ("minted".into(), format!("a token for GitHub: {profile} ({permissions})"))
        }
        Event::TokenRevoked { error: None } => {
            ("revoked".into(), "the token for GitHub was given back".into())
        }
        Event::TokenRevoked { error: Some(error) } => {
            ("revoked".into(), format!("the token for GitHub was not given back: {error}"))
        }
        Event::HostFetched { sent } => ("fetched".into(), format!("the repository here, {}", bytes(*sent))),
        Event::HostPushed { reference, landed, old: _, new } => {
            let beside = if reference == landed { String::new() } else { format!(", beside it at {landed}") };
            let sentence = format!("{reference} of the repository here to {}{beside}", short(new));
            ("pushed".into(), sentence)
        }
        Event::HostPushRefused { reference, reason: _, detail } => {
            ("refused".into(), format!("push of {reference} here: {detail}"))
        }
        Event::HostRelayBroken { detail } => {
            ("relay".into(), format!("the repository here was not served: {detail}"))
        }
        Event::ConnectionOpened { connection, name, port, protocol, rule, address, proxy } => {
            let host_and_port = host_and_port(name, Some(*port));
            let to = address.map(|address| format!(" -> {address}")).unwrap_or_default();
            let through = proxy.as_ref().map(|proxy| format!(" through {proxy}")).unwrap_or_default();
            (format!("opened #{connection}"), format!("{host_and_port} {protocol}{to}{through} by {rule}"))
        }
        Event::ConnectionClosed { connection, sent, received, millis, address, ending } => {
            let (sent, received) = (bytes(*sent), bytes(*received));
            let answered = address.map(|address| format!(", {address} answered")).unwrap_or_default();
            let (time, ending) = (seconds(*millis), ending.words());
            let sentence = format!("{sent} sent, {received} received, {time}, {ending}{answered}");
            (format!("closed #{connection}"), sentence)
        }
        Event::ConnectionRefused { destination, port, protocol: _, reason, detail, remedy, times } => {
            let target = host_and_port(destination, *port);
            return refused(&target, *reason, detail.as_ref(), *times, remedy.as_deref());
        }
        Event::RequestRefused { name, port, method, path, reason, detail, rule: _, remedy, times } => {
            let target = format!("{method} {}{path}", host_and_port(name, *port));
            return refused(&target, *reason, detail.as_ref(), *times, remedy.as_deref());
        }
        Event::NameRefused { name, record_type, reason, times } => {
            return refused(&format!("{name} {record_type}"), *reason, None, *times, None);
        }
        Event::Fetched { name, port, method, status, received, rule } => {
            let (host_and_port, size) = (host_and_port(name, Some(*port)), bytes(*received));
            ("fetched".into(), format!("{method} {host_and_port}: {status}, {size}, by {rule}"))
        }
        Event::FetchRefused { destination, port, method, reason, detail, remedy } => {
            let target = format!("{method} {}", host_and_port(destination, *port));
            return refused(&target, *reason, detail.as_ref(), 1, remedy.as_deref());
        }
        Event::RouteOpened { upstream, server, account, models, budget } => {
            let models = if models.is_empty() { "any model".to_string() } else { models.join(" and ") };
            ("route".into(), format!("{upstream} ({server}), {models}, billed to {account}, {budget}"))
        }
        Event::ModelAsked { call, model, path, streamed: _ } => {
            (format!("asked #{call}"), format!("{} {path}", named(model.as_ref())))
        }
        Event::ModelCalled { call, .. } => (format!("model #{call}"), called(event)),
        Event::ModelRefused { model, path, reason, detail, times } => {
            let target = format!("{} {path}", named(model.as_ref()));
            return refused(&target, *reason, detail.as_ref(), *times, None);
        }
        Event::PushSent { name, port, repository, reference, old, new } => {
            let to = format!("{reference} to {}{repository}", host_and_port(name, Some(*port)));
            ("pushed".into(), format!("{to} {} -> {}", short(old), short(new)))
        }
        Event::PushRefused { name, port, repository, reference, reason: _, detail, times: _ } => {
            let to = format!("{reference} to {}{repository}", host_and_port(name, Some(*port)));
            ("refused".into(), format!("push of {to}: {detail}"))
        }
        Event::RecordsStopped { of } => ("stopped".into(), format!("no more lines about {of}")),
        Event::RecordsSuppressed { count } => ("suppressed".into(), format!("{count} more of the same")),
        Event::RecordsLost { count } => ("lost".into(), format!("{count} records could not be written")),
    };
    (what, sentence, Vec::new())
}

fn called(event: &Event) -> String {
    let Event::ModelCalled {
        model,
        status,
        input_tokens,
        output_tokens,
        cache_read,
        cache_write,
        estimated,
        cost_usd,
        millis,
        ending,
        ..
    } = event
    else {
        return String::new();
    };
    let estimated = if *estimated { " (estimated)" } else { "" };
    let cost = cost_usd.map_or("cost not known".to_string(), |cost| format!("{cost} USD"));
    format!(
        "{}: {status}, {input_tokens} in, {output_tokens} out, {cache_read} read from a cache, {cache_write} written to \
         it{estimated}, {cost}, {}, {}",
        named(model.as_ref()),
        seconds(*millis),
        ending.words()
    )
}

fn refused(
    request: &str,
    reason: Reason,
    detail: Option<&Printable>,
    times: u64,
    remedy: Option<&str>,
) -> (String, String, Vec<String>) {
    let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
    let times = if times > 1 { format!(", {times} times so far") } else { String::new() };
    let below = remedy.map(|remedy| format!("-> {remedy}")).into_iter().collect();
    ("refused".into(), format!("{request}: {}{detail}{times}", reason.sentence()), below)
}

fn named(model: Option<&Printable>) -> &str {
    model.map_or("no model", Printable::as_str)
}

fn host_and_port(host: impl Display, port: Option<u16>) -> String {
    let host = host.to_string();
    match port {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

fn seconds(millis: u64) -> String {
    format!("{:.3} s", millis as f64 / 1000.0)
}

fn bytes(count: u64) -> String {
    let count_f = count as f64;
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count_f / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", count_f / 1_048_576.0),
        _ => format!("{:.1} GiB", count_f / 1_073_741_824.0),
    }
}

/// As much of an object's name as people compare.
fn short(id: &Printable) -> String {
    id.as_str().chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(event: &str) -> String {
        let event = match serde_json::from_str(event) {
            Ok(event) => Logged::Known(event),
            Err(_) => Logged::Other(serde_json::from_str(event).unwrap()),
        };
        let time = Some("2026-11-15T06:00:00.123456Z".to_string());
        of(&Record { line: 1, raw: String::new(), time, event })
    }

    #[test]
    fn records_are_told_in_a_line() {
        let cases = [
            (
                r#"{"kind":"connection_refused","destination":"x.com","port":443,"reason":"name_not_allowed","detail":null,"remedy":"--allow x.com","times":2}"#,
                "2026-11-15 06:00:00.123  refused     x.com:443: no rule allows this name, 2 times so far\n                                     -> --allow x.com\n",
            ),
            (
                r#"{"kind":"connection_refused","destination":"::1","port":80,"reason":"direct_address","times":1}"#,
                "2026-11-15 06:00:00.123  refused     [::1]:80: an address was dialled; only names can be\n",
            ),
            (
                r#"{"kind":"connection_closed","connection":7,"sent":10,"received":2048,"millis":1500,"ending":"reset_outside"}"#,
                "2026-11-15 06:00:00.123  closed #7   10 B sent, 2.0 KiB received, 1.500 s, reset outside\n",
            ),
            (
                r#"{"kind":"model_called","call":2,"model":"m","path":"/v1/messages","status":200,"upstream_id":"r","message_id":null,"input_tokens":100,"output_tokens":30,"cache_read":7,"cache_write":2000,"estimated":false,"cost_usd":8252,"cost_source":"prices","millis":1500,"streamed":true,"ending":"finished"}"#,
                "2026-11-15 06:00:00.123  model #2    m: 200, 100 in, 30 out, 7 read from a cache, 2000 written to it, 0.008252 USD, 1.500 s, finished\n",
            ),
            (
                r#"{"kind":"model_refused","model":"gpt-5","path":"/v1/responses","reason":"budget_spent","detail":"2 of 2 calls are used","times":1}"#,
                "2026-11-15 06:00:00.123  refused     gpt-5 /v1/responses: the budget for the model is spent (2 of 2 calls are used)\n",
            ),
            (
                r#"{"kind":"push_sent","name":"github.com","port":443,"repository":"/acme/widgets","ref":"refs/heads/x","old":"0000000000000000000000000000000000000000","new":"ccaf1094fc47312a900ced43b069cb0de8c22942"}"#,
                "2026-11-15 06:00:00.123  pushed      refs/heads/x to github.com:443/acme/widgets 0000000000 -> ccaf1094fc\n",
            ),
            (
                r#"{"kind":"push_refused","name":"github.com","port":443,"repository":"/acme/widgets","ref":"refs/heads/main","reason":"push_branch","detail":"branch main may not be pushed from a sandbox","times":1}"#,
                "2026-11-15 06:00:00.123  refused     push of refs/heads/main to github.com:443/acme/widgets: branch main may not be pushed from a sandbox\n",
            ),
            (
                r#"{"kind":"request_refused","name":"x.com","port":443,"method":"POST","path":"/a","reason":"request_not_allowed","detail":null,"rule":null,"remedy":"paths = [\"/a\"]","times":1}"#,
                "2026-11-15 06:00:00.123  refused     POST x.com:443/a: the host is allowed, but not this request\n                                     -> paths = [\"/a\"]\n",
            ),
            (
                r#"{"kind":"from_the_future","what":"ever"}"#,
                "2026-11-15 06:00:00.123  other       {\"kind\":\"from_the_future\",\"what\":\"ever\"}\n",
            ),
            (
                r#"{"kind":"name_refused","reason":"new_one"}"#,
                "2026-11-15 06:00:00.123  other       {\"kind\":\"name_refused\",\"reason\":\"new_one\"}\n",
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(shown(event), expected);
        }
    }

    #[test]
    fn a_forged_record_does_not_move_the_terminal() {
        let shown =
            shown("{\"kind\":\"fetched\",\"name\":\"a\\u001b[2J\\nb\\u202e\",\"method\":\"\\u009b1m\"}");
        assert_eq!(shown.matches('\n').count(), 1);
        assert!(!shown.trim_end().chars().any(|character| character.is_control() || character == '\u{202e}'));
    }

    #[test]
    fn what_is_no_record_is_said() {
        let record =
            Record { line: 4, raw: "x".into(), time: None, event: Logged::Other(serde_json::Value::Null) };
        assert_eq!(of(&record), "line 4 is not a record (`belljar audit verify` says more)\n");
    }
}
