//! How an answer ended: a word that each provider puts in another place. Only the places near the top are looked at: what is deeper
//! is the model's to choose. Nothing is kept in memory but the word.

use belljar_spec::llm::AnswerEnd;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Whether a part of an answer is there, whatever it is, and how it says that the answer ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) is_there: bool,
    pub(super) end: Option<AnswerEnd>,
}

impl Ending {
    /// What a provider's word means. One that is not known is no reason to distrust an answer.
    pub(super) fn of(word: &str) -> AnswerEnd {
        match word {
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_context_window_exceeded"
            | "MAX_TOKENS" => AnswerEnd::Length,
            "refusal" | "content_filter" | "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT"
            | "SPII" | "IMAGE_SAFETY" | "LANGUAGE" => AnswerEnd::Refusal,
            _ => AnswerEnd::Finished,
        }
    }

    fn and(self, other: Option<AnswerEnd>) -> Ending {
        Ending { end: [self.end, other].into_iter().flatten().max_by_key(|end| *end as u8), ..self }
    }
}

impl<'de> Deserialize<'de> for Ending {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Ending, D::Error> {
        let end = Part::<MAPS>::deserialize(from)?.0;
        Ok(Ending { is_there: true, end })
    }
}

/// A value so many objects above what is no longer looked at.
struct Part<const LEFT: usize>(Option<AnswerEnd>);

/// Everything that has nothing in it.
macro_rules! plain {
    ($nothing:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($nothing)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($nothing)
        }
    };
}

macro_rules! parts {
    ($($left:literal => $below:literal)*) => {
        $(impl<'de> Deserialize<'de> for Part<$left> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(Look::<$left>)
            }
        }

        impl<'de> Visitor<'de> for Look<$left> {
            type Value = Part<$left>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = Ending::default();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "finish_reason" | "finishReason" | "stop_reason" | "blockReason" => {
                            let word = map.next_value::<Word>()?.0;
                            found = found.and(word.as_deref().map(Ending::of));
                        }
                        "type" => {
                            let word = map.next_value::<Word>()?.0;
                            found = found.and((word.as_deref() == Some("refusal")).then_some(AnswerEnd::Refusal));
                        }
                        "refusal" => {
                            let word = map.next_value::<Word>()?.0;
                            let is_given = word.is_some_and(|word| !word.is_empty());
                            found = found.and(is_given.then_some(AnswerEnd::Refusal));
                        }
                        _ => found = found.and(map.next_value::<Part<$below>>()?.0),
                    }
                }
                Ok(Part(found.end))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut found = Ending::default();
                while let Some(one) = list.next_element::<Part<$left>>()? {
                    found = found.and(one.0);
                }
                Ok(Part(found.end))
            }

            plain!(Part(None));
        })*
    };
}

/// Looks at a value.
struct Look<const LEFT: usize>;

parts! { 2 => 1 1 => 0 }

impl<'de> Deserialize<'de> for Part<0> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Part(None))
    }
}

/// A word, if it is one and short.
struct Word(Option<String>);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
        from.deserialize_any(Read)
    }
}

struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = Word;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Word, E> {
        Ok(Word(None))
    }
    fn visit_i64<E>(self, _: i64) -> Result<Word, E> {
        Ok(Word(None))
    }
    fn visit_u64<E>(self, _: u64) -> Result<Word, E> {
        Ok(Word(None))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Word, E> {
        Ok(Word(None))
    }
    fn visit_str<E>(self, word: &str) -> Result<Word, E> {
        Ok(Word(Some(word.chars().take(MAX_WORD_CHARS).collect())))
    }
    fn visit_unit<E>(self) -> Result<Word, E> {
        Ok(Word(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Word, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Word(None))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Word, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Word(None))
    }
}

/// `choices[].message.refusal`, `output[].content[].type`, `candidates[].finishReason`.
const MAPS: usize = 2;
/// Longer than any word of a provider.
const MAX_WORD_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(json: &str) -> Option<AnswerEnd> {
        serde_json::from_str::<Ending>(json).expect("JSON").end
    }

    #[test]
    fn the_word_is_found_where_each_provider_puts_it() {
        for (json, expected) in [
            (r#"[{"finish_reason":"stop"}]"#, Some(AnswerEnd::Finished)),
            (r#"[{"finish_reason":"length","message":{"refusal":null}}]"#, Some(AnswerEnd::Length)),
            (r#"[{"finish_reason":"stop","message":{"refusal":"no"}}]"#, Some(AnswerEnd::Refusal)),
            (r#"[{"finish_reason":"stop"},{"finish_reason":"length"}]"#, Some(AnswerEnd::Length)),
            (r#"[{"content":{"parts":[]},"finishReason":"MAX_TOKENS"}]"#, Some(AnswerEnd::Length)),
            (r#"{"blockReason":"SAFETY"}"#, Some(AnswerEnd::Refusal)),
            (
                r#"[{"type":"message","content":[{"type":"refusal","refusal":"no"}]}]"#,
                Some(AnswerEnd::Refusal),
            ),
            (r#"{"stop_reason":"refusal"}"#, Some(AnswerEnd::Refusal)),
            (r#"{"stop_reason":null}"#, None),
            (r#"[{"type":"message","content":[{"type":"output_text","text":"x"}]}]"#, None),
            // What a model chooses is deeper.
            (r#"[{"content":{"parts":[{"functionCall":{"args":{"finishReason":"SAFETY"}}}]}}]"#, None),
            (r#"[{"message":{"tool_calls":[{"function":{"refusal":"x"}}]}}]"#, None),
            (r#"[{"finish_reason":["length"]},3,null,"length",true,1.5,-1]"#, None),
            ("null", None),
        ] {
            assert_eq!(end(json), expected, "{json}");
        }
    }
}
