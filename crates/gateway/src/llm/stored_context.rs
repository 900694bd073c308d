//! Whether a request refers to what the upstream keeps or fetches: an earlier answer, a conversation, a file, a picture behind a URL.
//! Its bytes say nothing of what goes in then.
//!
//! Pure; called by `route` where tokens or money are limited.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// What a request refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoredContext {
    /// Everything is in it.
    Nothing,
    /// The answer of this name, and nothing else.
    Answer(String),
    /// Something else, or several things.
    Something,
}

impl StoredContext {
    /// By a body that was judged.
    pub(super) fn by(body: &[u8]) -> StoredContext {
        let (Ok(found), Ok(top)) =
            (serde_json::from_slice::<Found>(body), serde_json::from_slice::<Top>(body))
        else {
            return StoredContext::Something;
        };
        let refers = found.references > 0
            || [top.conversation, top.prompt, top.container, top.cached_content, top.cached_content_snake]
                .iter()
                .any(Option::is_some);
        match (refers, top.previous_response_id) {
            (false, None) => StoredContext::Nothing,
            (false, Some(answer)) => StoredContext::Answer(answer),
            (true, _) => StoredContext::Something,
        }
    }
}

/// Where the APIs name what they keep. Arguments and schemas of tools, further down, have such names too.
#[derive(Deserialize)]
struct Top {
    previous_response_id: Option<String>,
    conversation: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
    container: Option<IgnoredAny>,
    #[serde(rename = "cachedContent")]
    cached_content: Option<IgnoredAny>,
    #[serde(rename = "cached_content")]
    cached_content_snake: Option<IgnoredAny>,
}

/// What a value holds, at any depth.
#[derive(Debug, Default)]
struct Found {
    references: u64,
    text: Text,
}

/// What a text is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Text {
    /// No text, and not nothing.
    #[default]
    None,
    Null,
    /// The thing itself: a `data:` URL.
    Inline,
    /// The word for something that is elsewhere, where it is the value of `type`.
    Elsewhere,
    Other,
}

impl<'de> Deserialize<'de> for Found {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Found, E> {
        Ok(Found { references: 0, text: Text::Null })
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Found, E> {
        let text = match text {
            _ if text.starts_with("data:") => Text::Inline,
            "url" | "file" | "item_reference" => Text::Elsewhere,
            _ => Text::Other,
        };
        Ok(Found { references: 0, text })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        let mut found = Found::default();
        while let Some(one) = list.next_element::<Found>()? {
            found.references += one.references;
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = Found::default();
        while let Some((name, value)) = map.next_entry::<String, Found>()? {
            let refers = match value.text {
                Text::Null | Text::Inline => false,
                Text::Elsewhere if name == "type" => true,
                Text::None | Text::Elsewhere | Text::Other => REFERENCES.contains(&name.as_str()),
            };
            // A picture is an object with a URL in it.
            found.text = if name == "url" && value.text == Text::Inline { Text::Inline } else { found.text };
            found.references += value.references + u64::from(refers);
        }
        Ok(found)
    }
}

/// Where the APIs name a file or a picture that is elsewhere.
const REFERENCES: [&str; 7] =
    ["file_id", "file_ids", "file_uri", "fileUri", "file_url", "image_url", "vector_store_ids"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_elsewhere_is_noticed_at_any_depth() {
        for (body, expected) in [
            (r#"{"model":"m","messages":[{"role":"user","content":"a url"}]}"#, StoredContext::Nothing),
            (r#"{"previous_response_id":"resp_1","input":"x"}"#, StoredContext::Answer("resp_1".into())),
            (r#"{"previous\u005fresponse_id":"resp_1"}"#, StoredContext::Answer("resp_1".into())),
            (r#"{"previous_response_id":null,"conversation":null}"#, StoredContext::Nothing),
            (r#"{"previous_response_id":"resp_1","conversation":"conv_1"}"#, StoredContext::Something),
            (r#"{"conversation":{"id":"conv_1"}}"#, StoredContext::Something),
            (r#"{"prompt":{"id":"pmpt_1"}}"#, StoredContext::Something),
            (
                r#"{"input":[{"content":[{"type":"input_file","file_id":"file_1"}]}]}"#,
                StoredContext::Something,
            ),
            (
                r#"{"messages":[{"content":[{"image_url":{"url":"https://x/y.png"}}]}]}"#,
                StoredContext::Something,
            ),
            (
                r#"{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#,
                StoredContext::Nothing,
            ),
            (
                r#"{"messages":[{"content":[{"source":{"type":"url","url":"https://x/y"}}]}]}"#,
                StoredContext::Something,
            ),
            (
                r#"{"messages":[{"content":[{"type":"tool_use","input":{"url":"https://x"}}]}]}"#,
                StoredContext::Nothing,
            ),
            (r#"{"contents":[{"parts":[{"fileData":{"fileUri":"gs://x"}}]}]}"#, StoredContext::Something),
            (r#"{"cachedContent":"cachedContents/1"}"#, StoredContext::Something),
            (
                r#"{"tools":[{"input_schema":{"properties":{"prompt":{"type":"string"}}}}]}"#,
                StoredContext::Nothing,
            ),
        ] {
            assert_eq!(StoredContext::by(body.as_bytes()), expected, "{body}");
        }
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(
            StoredContext::by(deep.as_bytes()),
            StoredContext::Something,
            "what is too deep to look at"
        );
    }
}
