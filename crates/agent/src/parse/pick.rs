//! Takes single values out of events. What is missing, or of another kind than it should be, is not there.

use crate::entry::Tokens;
use serde_json::Value;

/// A string.
pub(super) fn text<'e>(event: &'e Value, path: &str) -> Option<&'e str> {
    event.pointer(path)?.as_str()
}

/// A string that is not empty.
pub(super) fn words<'e>(event: &'e Value, path: &str) -> Option<&'e str> {
    text(event, path).filter(|text| !text.trim().is_empty())
}

/// The elements of an array; none if it is none.
pub(super) fn each<'e>(event: &'e Value, path: &str) -> &'e [Value] {
    event.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A number of things.
pub(super) fn count(event: &Value, path: &str) -> Option<u64> {
    let number = event.pointer(path)?;
    number.as_u64().or_else(|| {
        // Some programs write every number with a point. Beyond 64 bits a cast gives the largest.
        number.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64)
    })
}

/// An amount in dollars. A larger one than any run costs is not valid.
pub(super) fn dollars(event: &Value, path: &str) -> Option<f64> {
    event.pointer(path)?.as_f64().filter(|amount| (0.0..=MAX_DOLLARS).contains(amount))
}

/// Tokens, from where each kind of them stands: input without cache, output, read from cache, written to it.
pub(super) fn tokens(event: &Value, [input, output, read, write]: [&str; 4]) -> Tokens {
    let number = |path| count(event, path).unwrap_or(0);
    Tokens {
        input: number(input),
        output: number(output),
        cache_read: number(read),
        cache_write: number(write),
    }
}

/// What stands in the content of a message or of a tool's result: a string, a list of blocks, or something of its own.
pub(super) fn flat(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(flat_block).collect::<Vec<_>>().join("\n"),
        other => flat_block(other),
    }
}

fn flat_block(block: &Value) -> String {
    match (text(block, "/text"), text(block, "/type")) {
        (Some(text), _) => text.into(),
        (None, Some("image")) => "[image]".into(),
        (None, _) => block.as_str().map_or_else(|| block.to_string(), str::to_string),
    }
}

/// What went wrong, for people: `400 {"error":{"message":"no","type":"bad"}}` is `400 no (bad)`.
pub(super) fn plain(error: &str) -> String {
    let as_it_is = || error.trim().to_string();
    let Some(at) = error.find('{').filter(|_| error.len() <= MAX_ERROR) else {
        return as_it_is();
    };
    let mut values = serde_json::Deserializer::from_str(&error[at..]).into_iter::<Value>();
    let Some(Ok(body)) = values.next() else {
        return as_it_is();
    };
    let Some(message) = words(&body, "/error/message").or_else(|| words(&body, "/message")) else {
        return as_it_is();
    };
    let rest = &error[at + values.byte_offset()..];
    let kind = words(&body, "/error/type").or_else(|| words(&body, "/error/status"));
    let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
    format!("{}{message}{kind}{rest}", &error[..at]).trim().to_string()
}

const MAX_DOLLARS: f64 = 1e9;

/// The longest error that is looked into.
const MAX_ERROR: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_make_no_sense_are_none() {
        let cases = [
            (json!(3), Some(3)),
            (json!(3.0), Some(3)),
            (json!(-1), None),
            (json!(-0.5), None),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(1e300), Some(u64::MAX)),
            (json!("3"), None),
            (json!(null), None),
        ];
        for (value, expected) in cases {
            assert_eq!(count(&json!({ "n": value }), "/n"), expected, "{value}");
        }
        let amounts =
            [(json!(0.5), Some(0.5)), (json!(-0.5), None), (json!(1e300), None), (json!("1"), None)];
        for (value, expected) in amounts {
            assert_eq!(dollars(&json!({ "n": value }), "/n"), expected, "{value}");
        }
    }

    #[test]
    fn contents_of_every_shape_are_text() {
        let cases = [
            (json!("a"), "a"),
            (json!([{"type": "text", "text": "a"}, {"type": "image", "data": "…"}, "b"]), "a\n[image]\nb"),
            (json!({"output": 1}), r#"{"output":1}"#),
            (json!(null), ""),
            (json!(5), "5"),
        ];
        for (content, expected) in cases {
            assert_eq!(flat(&content), expected);
        }
    }

    #[test]
    fn an_error_is_said_plainly() {
        let cases = [
            ("connection refused", "connection refused"),
            (r#"400 {"type":"error","error":{"type":"bad","message":"no"}}"#, "400 no (bad)"),
            (r#"[API Error: {"error":{"code":400,"message":"no","status":"BAD"}}]"#, "[API Error: no (BAD)]"),
            (r#"{"message":"no"}"#, "no"),
            (r#"{"other":"no"}"#, r#"{"other":"no"}"#),
            ("a { b", "a { b"),
        ];
        for (error, expected) in cases {
            assert_eq!(plain(error), expected);
        }
    }
}
