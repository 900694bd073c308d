//! Records as people read them: one line each, and below it what belongs to it.
//!
//! By their fields as they are in the file, not by our types: another version of belljar may have written them, or
//! somebody who is not belljar at all. So nothing is taken on trust, and nothing reaches the terminal that moves it.

use belljar_audit::Record;
use belljar_spec::egress::Reason;
use belljar_spec::llm::Usd;
use serde_json::Value;
use std::fmt::Write;

/// With its line break.
pub(super) fn of(record: &Record) -> String {
    let Some(time) = &record.time else {
        return format!("line {} is not a record (`belljar audit verify` says more)\n", record.line);
    };
    let event = Event(&record.event);
    let (what, sentence, below) = event.told();
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

/// An event's fields.
struct Event<'a>(&'a Value);

impl Event<'_> {
    /// A word, a sentence, and lines that belong to it.
    fn told(&self) -> (String, String, Vec<String>) {
        let kind = self.text("kind");
        let (what, sentence, below) = match kind.as_str() {
            "sandbox_started" => ("started", self.started(), self.rules()),
            "folder_shared" => {
                let differs =
                    if self.0["egress_differs"] == true { ", which may reach something else" } else { "" };
                let sentence = format!("{} with sandbox {}{differs}", self.text("folder"), self.text("with"));
                ("shared", sentence, vec![])
            }
            "sandbox_ended" => ("ended", "the sandbox is gone".into(), vec![]),
            "credential_used" => {
                let (method, path) = (self.text("method"), self.text("path"));
                (
                    "secret",
                    format!("{} went with {method} {} {path}", self.text("credential"), self.place("name")),
                    vec![],
                )
            }
            "placeholder_elsewhere" => {
                let (name, part) = (self.text("credential"), self.text("where"));
                let sentence = format!(
                    "the placeholder of {name} was in {part}, on its way to {}",
                    self.place("destination")
                );
                ("INCIDENT", sentence, vec![])
            }
            "secret_forwarded" => {
                let sentence = format!(
                    "the real value of {} is inside, in {}",
                    self.text("source"),
                    self.text("variable")
                );
                ("forwarded", sentence, vec![])
            }
            "token_minted" => {
                let sentence =
                    format!("a token for GitHub: {} ({})", self.text("profile"), self.text("permissions"));
                ("minted", sentence, vec![])
            }
            "host_fetched" => {
                let sent = self.0["sent"].as_u64().unwrap_or_default();
                ("fetched", format!("the repository here, {}", bytes(sent)), vec![])
            }
            "host_pushed" => {
                let (asked, landed) = (self.text("ref"), self.text("landed"));
                let beside = if asked == landed { String::new() } else { format!(", beside it at {landed}") };
                let new: String = self.text("new").chars().take(10).collect();
                ("pushed", format!("{asked} of the repository here to {new}{beside}"), vec![])
            }
            "host_push_refused" => {
                let sentence = format!("push of {} here: {}", self.text("ref"), self.text("detail"));
                ("refused", sentence, vec![])
            }
            "host_relay_broken" => {
                ("relay", format!("the repository here was not served: {}", self.text("detail")), vec![])
            }
            "token_revoked" => {
                let sentence = match self.0["error"].as_str() {
                    None => "the token for GitHub was given back".to_string(),
                    Some(error) => format!("the token for GitHub was not given back: {error}"),
                };
                ("revoked", sentence, vec![])
            }
            "connection_opened" => {
                let what = format!("opened #{}", self.text("connection"));
                let (place, rule) = (self.place("name"), self.text("rule"));
                let sentence =
                    format!("{place} {} -> {} by {rule}", self.text("protocol"), self.text("address"));
                return (what, sentence, vec![]);
            }
            "connection_closed" => {
                let what = format!("closed #{}", self.text("connection"));
                return (what, self.closed(), vec![]);
            }
            "connection_refused" => ("refused", self.refused(&self.place("destination")), self.remedy()),
            "request_refused" => {
                let (method, path) = (self.text("method"), self.text("path"));
                let asked = format!("{method} {}{path}", self.place("name"));
                ("refused", self.refused(&asked), self.remedy())
            }
            "name_refused" => {
                let asked = format!("{} {}", self.text("name"), self.text("record_type"));
                ("refused", self.refused(&asked), vec![])
            }
            "fetched" => {
                let (place, size) = (self.place("name"), bytes(self.number("received")));
                let sentence = format!("{} {place}: {}, {size}", self.text("method"), self.text("status"));
                ("fetched", format!("{sentence}, by {}", self.text("rule")), vec![])
            }
            "fetch_refused" => {
                let asked = format!("{} {}", self.text("method"), self.place("destination"));
                ("refused", self.refused(&asked), self.remedy())
            }
            "route_opened" => ("route", self.route(), vec![]),
            "model_asked" => {
                let what = format!("asked #{}", self.text("call"));
                return (what, format!("{} {}", self.model(), self.text("path")), vec![]);
            }
            "model_called" => {
                let what = format!("model #{}", self.text("call"));
                return (what, self.called(), vec![]);
            }
            "model_refused" => {
                let asked = format!("{} {}", self.model(), self.text("path"));
                ("refused", self.refused(&asked), vec![])
            }
            "push_sent" => {
                let (old, new) = (self.text("old"), self.text("new"));
                let sentence = format!("{} {} -> {}", self.pushed(), short(&old), short(&new));
                ("pushed", sentence, vec![])
            }
            "push_refused" => {
                let sentence = format!("push of {}: {}", self.pushed(), self.text("detail"));
                ("refused", sentence, vec![])
            }
            "records_stopped" => ("stopped", format!("no more lines about {}", self.text("of")), vec![]),
            "records_suppressed" => {
                ("suppressed", format!("{} more of the same", self.text("count")), vec![])
            }
            "records_lost" => {
                ("lost", format!("{} records could not be written", self.text("count")), vec![])
            }
            _ => ("other", self.0.to_string(), vec![]),
        };
        (what.into(), sentence, below)
    }

    /// A ref, and where it is.
    fn pushed(&self) -> String {
        format!("{} to {}{}", self.text("ref"), self.place("name"), self.text("repository"))
    }

    fn started(&self) -> String {
        let seen = if self.0["inspect"] == true { ", TLS is looked into" } else { "" };
        format!("{}, {}{seen}, belljar {}", self.text("backend"), self.text("mode"), self.text("belljar"))
    }

    fn rules(&self) -> Vec<String> {
        let list = |name: &str| self.0[name].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let loosened =
            list("loosened").iter().map(|value| format!("loosened: {}", text(value))).collect::<Vec<_>>();
        loosened
            .into_iter()
            .chain(list("rules").iter().map(|value| format!("rule {}", text(value))))
            .collect()
    }

    fn closed(&self) -> String {
        let (sent, received) = (bytes(self.number("sent")), bytes(self.number("received")));
        let seconds = self.number("millis") as f64 / 1000.0;
        let ending = self.text("ending").replace('_', " ");
        let answered = match self.0["address"].as_str() {
            Some(address) => format!(", {address} answered"),
            None => String::new(),
        };
        format!("{sent} sent, {received} received, {seconds:.3} s, {ending}{answered}")
    }

    fn route(&self) -> String {
        let models = self.0["models"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let models = models.collect::<Vec<_>>().join(" and ");
        let models = if models.is_empty() { "any model".to_string() } else { models };
        let (upstream, server) = (self.text("upstream"), self.text("server"));
        format!(
            "{upstream} ({server}), {models}, billed to {}, {}",
            self.text("account"),
            self.text("budget")
        )
    }

    fn model(&self) -> String {
        self.0["model"].as_str().unwrap_or("no model").to_string()
    }

    fn called(&self) -> String {
        let tokens = |name: &str| self.number(name);
        let mut sentence = format!(
            "{}: {}, {} in, {} out, {} read from a cache, {} written to it",
            self.model(),
            self.text("status"),
            tokens("input_tokens"),
            tokens("output_tokens"),
            tokens("cache_read"),
            tokens("cache_write")
        );
        if self.0["estimated"] == true {
            sentence.push_str(" (estimated)");
        }
        match self.0["cost_usd"].as_u64() {
            Some(cost) => sentence.push_str(&format!(", {} USD", Usd::micros(cost))),
            None => sentence.push_str(", cost not known"),
        }
        let seconds = self.number("millis") as f64 / 1000.0;
        sentence.push_str(&format!(", {seconds:.3} s, {}", self.text("ending").replace('_', " ")));
        sentence
    }

    fn refused(&self, asked: &str) -> String {
        let reason = serde_json::from_value(self.0["reason"].clone());
        let reason = reason.map_or_else(|_| self.text("reason"), |reason: Reason| reason.sentence().into());
        let times = match self.number("times") {
            0 | 1 => String::new(),
            times => format!(", {times} times so far"),
        };
        match self.0["detail"].as_str() {
            Some(detail) => format!("{asked}: {reason} ({detail}){times}"),
            None => format!("{asked}: {reason}{times}"),
        }
    }

    fn remedy(&self) -> Vec<String> {
        self.0["remedy"].as_str().map(|remedy| format!("-> {remedy}")).into_iter().collect()
    }

    fn place(&self, name: &str) -> String {
        let host = self.text(name);
        match self.0["port"].as_u64() {
            Some(port) if host.contains(':') => format!("[{host}]:{port}"),
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    fn text(&self, name: &str) -> String {
        match &self.0[name] {
            Value::String(text) => text.clone(),
            Value::Null => "?".into(),
            other => other.to_string(),
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or(0)
    }
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
fn short(id: &str) -> String {
    id.chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(event: &str) -> String {
        let event = serde_json::from_str(event).unwrap();
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
                "2026-11-15 06:00:00.123  refused     ? ?: new_one\n",
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(told(event), expected);
        }
    }

    #[test]
    fn every_kind_of_record_has_a_sentence() {
        for kind in belljar_audit::Event::KINDS {
            let event = serde_json::json!({ "kind": kind });
            assert_ne!(Event(&event).told().0, "other", "{kind}");
        }
    }

    #[test]
    fn a_forged_record_does_not_move_the_terminal() {
        let shown =
            told("{\"kind\":\"fetched\",\"name\":\"a\\u001b[2J\\nb\\u202e\",\"method\":\"\\u009b1m\"}");
        assert_eq!(shown.matches('\n').count(), 1);
        assert!(!shown.trim_end().chars().any(|character| character.is_control() || character == '\u{202e}'));
    }

    #[test]
    fn what_is_no_record_is_said() {
        let record = Record { line: 4, raw: "x".into(), time: None, event: Value::Null };
        assert_eq!(of(&record), "line 4 is not a record (`belljar audit verify` says more)\n");
    }
}
