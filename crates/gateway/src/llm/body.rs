//! What a request to a model says: which model, whether its answer is to be a stream, and how long it may be. It is taken apart one level
//! deep and put together again, so that the upstream reads what was judged, and no second `model` hides in it.

use super::fields::{Fate, fate};
use super::paths::{Api, ApiCall};
use belljar_spec::llm::UpstreamKind;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A request's body, judged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) model: String,
    pub(crate) streamed: bool,
    /// How many tokens an answer may have, if it says so.
    pub(crate) longest: Option<u64>,
    /// How many answers there may be.
    pub(crate) answers: u64,
    /// Whether the model may call tools: then it works at the task.
    pub(crate) offers_tools: bool,
    /// What goes upstream.
    pub(crate) bytes: Vec<u8>,
}

impl Question {
    /// Or why it cannot be passed on.
    pub(crate) fn understand(
        kind: UpstreamKind,
        api_call: &ApiCall,
        body: &[u8],
    ) -> Result<Question, String> {
        let Fields(mut fields) = serde_json::from_slice(body)
            .map_err(|error| format!("the body is not a JSON object: {error}"))?;
        if let Some((name, _)) = fields.iter().find(|(name, _)| fate(kind, name) == Fate::Refused) {
            return Err(format!("`{name}` is not for a program inside to say"));
        }
        fields.retain(|(name, _)| fate(kind, name) == Fate::Passes);
        let in_body = model(&fields)?;
        let wants_stream = flag(&fields, "stream")?;
        if flag(&fields, "background")? {
            return Err("`background` lets a model continue after usage is no longer counted".into());
        }
        let model = match (api_call.model.clone(), in_body) {
            // Google's clients say it twice.
            (Some(path), Some(body)) if body.strip_prefix("models/").unwrap_or(&body) != path => {
                return Err("the path and the body name different models".into());
            }
            (Some(path), _) => path,
            (None, Some(body)) => body,
            (None, None) => return Err("the body names no `model`".into()),
        };
        let streamed = api_call.streams || wants_stream;
        let usage = match (api_call.api, streamed) {
            (Api::Chat, true) => Some(with_usage(&mut fields)?),
            _ => None,
        };
        let more = usage.as_deref().map(|options| ("stream_options", options));
        let answers = answers(&fields)?;
        let longest = longest(&fields);
        let offers_tools = offers_tools(api_call.api, &fields);
        let bytes = together(&fields, more).into_bytes();
        Ok(Question { model, streamed, longest, answers, offers_tools, bytes })
    }
}

type Field<'a> = (String, &'a RawValue);

/// Whether tools are offered. Codex puts its own among what was said, and asks little on the side.
fn offers_tools(api: Api, fields: &[Field<'_>]) -> bool {
    let has_some = |value: &RawValue| !matches!(value.get(), "null" | "[]");
    api == Api::Responses || fields.iter().any(|(name, value)| name == "tools" && has_some(value))
}

/// Whether something is wanted. An upstream may take `1` or `"true"` for a yes, so only the plain words are passed on.
fn flag(fields: &[Field<'_>], key: &str) -> Result<bool, String> {
    let mut values = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key));
    match (values.next().map(|(name, value)| (name == key, value.get())), values.next()) {
        (None | Some((true, "false" | "null")), None) => Ok(false),
        (Some((true, "true")), None) => Ok(true),
        _ => Err(format!("`{key}` is neither true nor false")),
    }
}

/// The one model; a string without anything that could be something else elsewhere. To LiteLLM a comma means several.
fn model(fields: &[Field<'_>]) -> Result<Option<String>, String> {
    let Some((_, value)) = fields.iter().find(|(name, _)| name == "model") else { return Ok(None) };
    let model: String =
        serde_json::from_str(value.get()).map_err(|_| "`model` is not a string".to_string())?;
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    if model.is_empty() || model.len() > MAX_MODEL_BYTES || !model.bytes().all(fits) {
        return Err("`model` is not the name of a model".into());
    }
    Ok(Some(model))
}

/// How long an answer may be, in the words of any API; the largest if there are several. What is no length says nothing: to llama.cpp
/// and LM Studio `-1` means without end.
fn longest(fields: &[Field<'_>]) -> Option<u64> {
    let limits = numbers(fields, &MAX_ANSWER_BYTES).into_iter();
    let lengths: Option<Vec<u64>> =
        limits.map(|limits| limits.filter(|tokens| *tokens >= 0.0).map(|tokens| tokens as u64)).collect();
    lengths?.into_iter().max()
}

/// How many answers are wanted. Each of them is paid for; what is no number of answers could be any to an upstream.
fn answers(fields: &[Field<'_>]) -> Result<u64, String> {
    let mut most = 1;
    for number in numbers(fields, &ANSWERS) {
        match number {
            Some(count) if count.fract() == 0.0 && (1.0..=MAX_ANSWERS).contains(&count) => {
                most = most.max(count as u64);
            }
            _ => return Err("`n` is not a number of answers".into()),
        }
    }
    Ok(most)
}

/// What fields of these names say, in any case; `None` for one that is no number. Gemini says it one level below; what is deeper
/// is not looked at. A number may be written `4e3`.
fn numbers(fields: &[Field<'_>], names: &[&str]) -> Vec<Option<f64>> {
    let is_one_of = |name: &str, names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let mut found = Vec::new();
    let mut all = fields.to_vec();
    for (_, value) in fields.iter().filter(|(name, _)| is_one_of(name, &BELOW)) {
        match serde_json::from_str::<Option<Fields<'_>>>(value.get()) {
            Ok(below) => all.extend(below.into_iter().flat_map(|Fields(below)| below)),
            // Two readers could understand it in two ways.
            Err(_) => found.push(None),
        }
    }
    let matching = all.iter().filter(|(name, value)| is_one_of(name, names) && value.get() != "null");
    found.extend(matching.map(|(_, value)| value.get().parse::<f64>().ok()));
    found
}

/// Streams of chat completions count tokens only when asked to. Takes out what was said of it, and gives what to say. It
/// is not read any deeper: values in memory are many times as large as their text.
fn with_usage(fields: &mut Vec<Field<'_>>) -> Result<String, String> {
    let mut options = Vec::new();
    if let Some(at) = fields.iter().position(|(name, _)| name == "stream_options") {
        let (_, written) = fields.remove(at);
        let written = serde_json::from_str::<Option<Fields<'_>>>(written.get())
            .map_err(|_| "`stream_options` is not an object".to_string())?;
        options = written.map(|Fields(options)| options).unwrap_or_default();
    }
    options.retain(|(name, _)| name != "include_usage");
    Ok(together(&options, Some(("include_usage", "true"))))
}

fn together(fields: &[Field<'_>], more: Option<(&str, &str)>) -> String {
    let known = fields.iter().map(|(name, value)| (name.as_str(), value.get()));
    let mut text = String::from("{");
    for (number, (name, value)) in known.chain(more).enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&serde_json::Value::from(name).to_string());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text
}

const MAX_MODEL_BYTES: usize = 200;
const MAX_ANSWER_BYTES: [&str; 4] =
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"];

/// The objects in which Gemini has these.
const BELOW: [&str; 2] = ["generationConfig", "generation_config"];
const ANSWERS: [&str; 4] = ["n", "best_of", "candidateCount", "candidate_count"];
/// More than any API has.
const MAX_ANSWERS: f64 = 1024.0;

/// The fields of an object, in order; none twice.
struct Fields<'a>(Vec<Field<'a>>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'de>, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields: Vec<Field<'de>> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if fields.len() >= MAX_FIELDS {
                        return Err(A::Error::custom("it has too many fields"));
                    }
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom("a field is given twice"));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Once)
    }
}

/// Far more than any API has.
const MAX_FIELDS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::paths::understand;
    use hyper::Method;

    fn question(kind: UpstreamKind, target: &str, body: &str) -> Result<Question, String> {
        let api_call = understand(kind, &Method::POST, &target.parse().unwrap()).unwrap();
        Question::understand(kind, &api_call, body.as_bytes())
    }

    #[test]
    fn what_is_said_is_passed_on_as_it_was() {
        let body = r#"{ "model":"m", "temperature":1.0000000000000000001, "messages":[{"role":"user"}],"x":"\u00e4" }"#;
        let question = question(UpstreamKind::OpenAi, "/v1/chat/completions", body).unwrap();
        assert_eq!((question.model.as_str(), question.streamed), ("m", false));
        assert_eq!(
            String::from_utf8(question.bytes).unwrap(),
            r#"{"model":"m","temperature":1.0000000000000000001,"messages":[{"role":"user"}],"x":"\u00e4"}"#
        );
    }

    #[test]
    fn a_stream_of_chat_is_asked_to_count() {
        for (fields, expected) in [
            ("", r#"{"include_usage":true}"#),
            (r#","stream_options":null"#, r#"{"include_usage":true}"#),
            (r#","stream_options":{"include_usage":false,"x":1}"#, r#"{"x":1,"include_usage":true}"#),
            (r#","stream_options":{"x":[[ 1.00 ]]}"#, r#"{"x":[[ 1.00 ]],"include_usage":true}"#),
        ] {
            let body = format!(r#"{{"model":"m","stream":true{fields}}}"#);
            let question = question(UpstreamKind::OpenAi, "/chat/completions", &body).unwrap();
            assert!(question.streamed);
            assert_eq!(
                String::from_utf8(question.bytes).unwrap(),
                format!(r#"{{"model":"m","stream":true,"stream_options":{expected}}}"#)
            );
        }
        let body = r#"{"model":"m","stream":true}"#;
        let question = question(UpstreamKind::Anthropic, "/v1/messages", body).unwrap();
        assert_eq!((question.streamed, question.bytes.as_slice()), (true, body.as_bytes()));
    }

    #[test]
    fn how_long_an_answer_may_be_is_read_in_every_api() {
        let chat = "/v1/chat/completions";
        let gemini = "/v1beta/models/a:generateContent";
        for (target, fields, expected) in [
            (chat, r#""max_tokens":4096"#, Some(4096)),
            (chat, r#""max_tokens":1,"max_completion_tokens":4.096e3"#, Some(4096)),
            ("/v1/responses", r#""max_output_tokens":7"#, Some(7)),
            (gemini, r#""generationConfig":{"temperature":1,"maxOutputTokens":8192}"#, Some(8192)),
            (chat, r#""max_tokens":null"#, None),
            (chat, r#""max_tokens":"9""#, None),
            (chat, r#""max_tokens":-1"#, None),
            (chat, r#""max_tokens":-1,"max_completion_tokens":7"#, None),
            (chat, r#""max_tokens":0"#, Some(0)),
            (chat, r#""n":1"#, None),
        ] {
            let (kind, body) = (UpstreamKind::LiteLlm, format!(r#"{{"model":"a",{fields}}}"#));
            assert_eq!(question(kind, target, &body).unwrap().longest, expected, "{fields}");
        }
    }

    #[test]
    fn no_second_model_hides_in_a_body() {
        for body in [
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","mod\u0065l":"b"}"#,
            r#"{"model":"a","Model":"b"}"#,
            r#"{"MODEL":"a"}"#,
            r#"{"model":["a"]}"#,
            r#"{"model":null}"#,
            r#"{"model":""}"#,
            r#"{"model":"a b"}"#,
            r#"{"model":"a,b"}"#,
            "{\"model\":\"a\\nb\"}",
            r#"{"model":"a","models":["b"]}"#,
            r#"{"model":"a","fallbacks":["b"]}"#,
            r#"{"model":"a"}{"model":"b"}"#,
            r#"[{"model":"a"}]"#,
            r#""model""#,
            "",
            "\u{feff}{\"model\":\"a\"}",
            "model=a",
            r#"{"model":"a","stream":true,"stream_options":[]}"#,
            r#"{"model":"a","stream":true,"stream_options":{"x":1,"x":2}}"#,
        ] {
            assert!(question(UpstreamKind::OpenAi, "/v1/chat/completions", body).is_err(), "{body}");
        }
        let gemini = "/v1beta/models/a:generateContent";
        assert!(question(UpstreamKind::Gemini, gemini, r#"{"model":"models/b"}"#).is_err());
        assert_eq!(question(UpstreamKind::Gemini, gemini, r#"{"model":"models/a"}"#).unwrap().model, "a");
        assert_eq!(question(UpstreamKind::Gemini, gemini, "{}").unwrap().model, "a");
    }

    #[test]
    fn a_yes_that_only_some_understand_is_none() {
        for body in [
            r#"{"model":"a","stream":1}"#,
            r#"{"model":"a","stream":"true"}"#,
            r#"{"model":"a","stream":[0]}"#,
            r#"{"model":"a","Stream":true}"#,
            r#"{"model":"a","background":true}"#,
            r#"{"model":"a","background":1}"#,
        ] {
            assert!(question(UpstreamKind::OpenAi, "/v1/responses", body).is_err(), "{body}");
        }
        let plain = r#"{"model":"a","stream":false,"background":null}"#;
        let passed = question(UpstreamKind::OpenAi, "/v1/responses", plain).unwrap();
        assert_eq!((passed.streamed, passed.bytes.as_slice()), (false, plain.as_bytes()));
    }

    #[test]
    fn what_litellm_would_bill_by_is_not_the_clients_to_say() {
        let body = r#"{"model":"m","user":"other","metadata":{"spend_logs_metadata":{"run_id":"x"}},"tags":["x"],"new":1}"#;
        let passed = question(UpstreamKind::LiteLlm, "/v1/chat/completions", body).unwrap();
        assert_eq!(passed.bytes, br#"{"model":"m"}"#);
        let fields =
            question(UpstreamKind::LiteLlm, "/v1/chat/completions", r#"{"model":"m","api_base":"x"}"#);
        assert!(fields.unwrap_err().contains("api_base"));
        let passed = question(UpstreamKind::Anthropic, "/v1/messages", body).unwrap();
        assert_eq!(passed.bytes, body.as_bytes());
    }

    #[test]
    fn every_answer_that_is_wanted_counts() {
        let (chat, gemini) = ("/v1/chat/completions", "/v1beta/models/a:generateContent");
        for (kind, target, fields, expected) in [
            (UpstreamKind::OpenAi, chat, r#""n":128"#, Some(128)),
            (UpstreamKind::OpenAi, chat, r#""N":128"#, Some(128)),
            (UpstreamKind::OpenAi, chat, r#""n":2,"best_of":1e1"#, Some(10)),
            (UpstreamKind::OpenAi, chat, r#""n":null"#, Some(1)),
            (UpstreamKind::OpenAi, chat, r#""x":7"#, Some(1)),
            (UpstreamKind::Gemini, gemini, r#""generationConfig":{"candidateCount":8}"#, Some(8)),
            (UpstreamKind::Gemini, gemini, r#""generation_config":{"candidate_count":8}"#, Some(8)),
            (
                UpstreamKind::Gemini,
                gemini,
                r#""generationConfig":{"candidateCount":8,"candidateCount":1}"#,
                None,
            ),
            (UpstreamKind::OpenAi, chat, r#""n":"128""#, None),
            (UpstreamKind::OpenAi, chat, r#""n":[128]"#, None),
            (UpstreamKind::OpenAi, chat, r#""n":0"#, None),
            (UpstreamKind::OpenAi, chat, r#""n":-5"#, None),
            (UpstreamKind::OpenAi, chat, r#""n":1.5"#, None),
            (UpstreamKind::OpenAi, chat, r#""n":1e9"#, None),
        ] {
            let body = format!(r#"{{"model":"a",{fields}}}"#);
            let found = question(kind, target, &body).ok().map(|question| question.answers);
            assert_eq!(found, expected, "{fields}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_goes_out_names_the_model_that_was_judged(body in "\\{(\"[a-z\\\\u0-9]{0,6}\":(1|\"a\"|null|\\{\\}),?){0,5}\\}") {
            if let Ok(question) = question(UpstreamKind::OpenAi, "/v1/responses", &body) {
                let read: serde_json::Value = serde_json::from_slice(&question.bytes).unwrap();
                proptest::prop_assert_eq!(read["model"].as_str(), Some(question.model.as_str()));
            }
        }
    }
}
