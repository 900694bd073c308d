//! JSON-RPC 2.0 as MCP uses it: messages read and written, versions agreed on. No I/O.

use serde_json::{Map, Value, json};

/// A message of the client.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer. This server asks nothing, so it belongs to no request.
    Answer,
}

/// Why a request is not answered as it wished.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    code: i64,
    message: String,
}

impl Fault {
    pub(crate) fn unknown_method(method: &str) -> Fault {
        Fault { code: METHOD_NOT_FOUND, message: format!("there is no method `{method}`") }
    }

    pub(crate) fn arguments(why: impl Into<String>) -> Fault {
        Fault { code: INVALID_PARAMS, message: why.into() }
    }
}

impl Message {
    /// What a line says, or the answer to a line that says nothing.
    pub(crate) fn read(line: &[u8]) -> Result<Message, Value> {
        let value: Value = serde_json::from_slice(line).map_err(|error| {
            failed(&Value::Null, &Fault { code: PARSE_ERROR, message: format!("not valid JSON: {error}") })
        })?;
        let wrong = |id: &Value, why: &str| {
            Err(failed(id, &Fault { code: INVALID_REQUEST, message: why.to_string() }))
        };
        let Value::Object(mut message) = value else {
            return wrong(&Value::Null, "a message is one JSON object");
        };
        let id = message.remove("id");
        let known = id.clone().filter(|id| id.is_string() || id.is_number());
        let shown = known.clone().unwrap_or_default();
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return wrong(&shown, "`jsonrpc` is \"2.0\" in each message");
        }
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            Some(_) => return wrong(&shown, "`method` is text"),
            None if message.contains_key("result") || message.contains_key("error") => {
                return Ok(Message::Answer);
            }
            None => return wrong(&shown, "there is no `method`"),
        };
        let params = match message.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return wrong(&shown, "`params` is one JSON object"),
        };
        match (id, known) {
            (None, _) => Ok(Message::Notification { method, params }),
            (Some(_), Some(id)) => Ok(Message::Request { id, method, params }),
            (Some(_), None) => wrong(&Value::Null, "`id` is text or a number"),
        }
    }
}

/// The answer to a request.
pub(crate) fn answer(id: &Value, outcome: Result<Value, Fault>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(fault) => failed(id, &fault),
    }
}

fn failed(id: &Value, fault: &Fault) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": fault.code, "message": fault.message } })
}

/// The version to speak with a client that wants this one: the same if it is known here, else the newest, which the client may refuse.
pub(crate) fn version(requested: Option<&str>) -> &'static str {
    VERSIONS.into_iter().find(|known| Some(*known) == requested).unwrap_or(VERSIONS[0])
}

/// The newest first. They differ in nothing that a server of tools alone says.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

// JSON-RPC 2.0, section 5.1.
const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_requests_notifications_or_answers() {
        let read = |text: &str| Message::read(text.as_bytes());
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#),
            Ok(Message::Request { id: json!("a"), method: "tools/list".into(), params: Map::new() })
        );
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#),
            Ok(Message::Notification { method: "notifications/initialized".into(), params: Map::new() })
        );
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Ok(Message::Answer));
    }

    #[test]
    fn a_line_that_is_no_message_has_an_answer_that_says_why() {
        for (line, id, code) in [
            ("{", Value::Null, PARSE_ERROR),
            ("\u{feff}{}", Value::Null, PARSE_ERROR),
            ("[]", Value::Null, INVALID_REQUEST),
            (r#"{"id":3,"method":"ping"}"#, json!(3), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":3}"#, json!(3), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":3,"method":7}"#, json!(3), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":[]}"#, json!(3), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null, INVALID_REQUEST),
        ] {
            let answer = Message::read(line.as_bytes()).expect_err(line);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{line}");
        }
    }

    #[test]
    fn a_client_gets_its_own_version_if_it_is_known() {
        for (requested, expected) in [
            (Some("2025-06-18"), "2025-06-18"),
            (Some("2024-11-05"), "2024-11-05"),
            (Some("2099-01-01"), "2025-11-25"),
            (None, "2025-11-25"),
        ] {
            assert_eq!(version(requested), expected);
        }
    }
}
