use super::*;

fn read(api: Dialect, shape: Shape, body: &str, step: usize) -> Usage {
    let mut reader = Reader::new(api, shape);
    for piece in body.as_bytes().chunks(step) {
        reader.feed(piece);
    }
    reader.finish()
}

fn counts(usage: &Usage) -> [u64; 4] {
    [usage.input, usage.output, usage.cache_read, usage.cache_write]
}

const ANTHROPIC: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":100,\"cache_creation_input_tokens\":2000,\"cache_read_input_tokens\":7,\"output_tokens\":1}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\":{\\\"output_tokens\\\":9}\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":30}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
const CHAT: &str = "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\ndata: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":2107,\"prompt_tokens_details\":{\"cached_tokens\":7,\"cache_write_tokens\":2000},\"completion_tokens\":30,\"cost\":0.0042}}\n\ndata: [DONE]\n\n";
const RESPONSES: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"usage\":null}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"output\":[{\"content\":[]}],\"usage\":{\"input_tokens\":2107,\"input_tokens_details\":{\"cached_tokens\":7},\"output_tokens\":30}}}\n\n";
const GEMINI: &str = "data: {\"candidates\":[],\"responseId\":\"g_1\"}\n\ndata: {\"responseId\":\"g_1\",\"usageMetadata\":{\"promptTokenCount\":2107,\"cachedContentTokenCount\":7,\"candidatesTokenCount\":25,\"thoughtsTokenCount\":5}}\n\n";

#[test]
fn streams_are_read_whatever_they_are_cut_into() {
    let cases = [
        (Dialect::Anthropic, ANTHROPIC, "msg_1", [100, 30, 7, 2000]),
        (Dialect::OpenAi, CHAT, "chatcmpl-1", [100, 30, 7, 2000]),
        (Dialect::OpenAi, RESPONSES, "resp_1", [2100, 30, 7, 0]),
        (Dialect::Gemini, GEMINI, "g_1", [2100, 30, 7, 0]),
    ];
    for (api, body, id, expected) in cases {
        for body in [body.to_string(), body.replace('\n', "\r\n"), body.replace('\n', "\r")] {
            for step in [1, 2, 3, 7, 100, 10_000] {
                let usage = read(api, Shape::Events, &body, step);
                assert_eq!((usage.id.as_deref(), counts(&usage)), (Some(id), expected), "{api:?} {step}");
                assert!(usage.counted && usage.complete && usage.ended == (api != Dialect::Gemini));
            }
        }
    }
    assert_eq!(read(Dialect::OpenAi, Shape::Events, CHAT, 9).cost, Some(Usd::micros(4200)));
}

#[test]
fn a_stream_that_breaks_off_says_what_was_seen() {
    let usage = read(Dialect::Anthropic, Shape::Events, &ANTHROPIC[..300], 10);
    assert_eq!((counts(&usage), usage.counted, usage.complete), ([100, 1, 7, 2000], true, false));
    let usage = read(Dialect::OpenAi, Shape::Events, &CHAT[..90], 10);
    assert_eq!((counts(&usage), usage.counted), ([0; 4], false));
}

#[test]
fn an_answer_is_told_from_something_else() {
    let chat = r#"{"choices":[]}"#;
    for (api, shape, body, expected) in [
        // Servers that do not count answer all the same.
        (Dialect::OpenAi, Shape::Json, chat, true),
        (Dialect::OpenAi, Shape::Events, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", true),
        (Dialect::OpenAi, Shape::Events, "data: {\"choices\":[]}\n\n", false),
        (Dialect::OpenAi, Shape::Json, r#"{"error":{"message":"choices"}}"#, false),
        (Dialect::OpenAi, Shape::Json, "<html>welcome</html>", false),
        (Dialect::OpenAi, Shape::Json, &chat[..9], false),
        (Dialect::Anthropic, Shape::Json, r#"{"type":"message","content":[]}"#, true),
        (Dialect::Anthropic, Shape::Json, chat, false),
        (Dialect::Anthropic, Shape::Events, "data: {\"type\":\"message_stop\"}\n\n", true),
        (Dialect::Anthropic, Shape::Events, "data: {\"text\":\"\\\"message_stop\\\"\"}\n\n", false),
        (Dialect::Gemini, Shape::Json, r#"[{"candidates":[]}]"#, true),
        (Dialect::Gemini, Shape::Events, "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n", true),
    ] {
        assert_eq!(read(api, shape, body, 5).ended, expected, "{api:?} {shape:?} {body}");
    }
}

#[test]
fn how_an_answer_ended_and_which_model_gave_it_is_told() {
    use AnswerEnd::{Finished, Length, Refusal};
    let message = |reason: &str| {
        format!(
            "data: {{\"type\":\"message_start\",\"message\":{{\"id\":\"m\",\"model\":\"claude-x\"}}}}\n\n\
             data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}},\"usage\":{{\"output_tokens\":1}}}}\n\n"
        )
    };
    let chat = |reason: &str| {
        format!(
            "data: {{\"id\":\"c\",\"model\":\"gpt-x\",\"choices\":[{{\"delta\":{{}},\"finish_reason\":null}}]}}\n\n\
             data: {{\"id\":\"c\",\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n"
        )
    };
    let response = |more: &str| {
        format!(
            "data: {{\"type\":\"response.completed\",\"response\":{{\"id\":\"r\",\"model\":\"gpt-x\",{more}\"usage\":{{\"input_tokens\":1}}}}}}\n\n"
        )
    };
    let google = |reason: &str| {
        format!(
            "data: {{\"modelVersion\":\"gemini-x\",\"responseId\":\"g\",\"candidates\":[{{\"finishReason\":\"{reason}\"}}]}}\n\n"
        )
    };
    for (api, body, model, expected) in [
        (Dialect::Anthropic, message("end_turn"), "claude-x", Some(Finished)),
        (Dialect::Anthropic, message("tool_use"), "claude-x", Some(Finished)),
        (Dialect::Anthropic, message("max_tokens"), "claude-x", Some(Length)),
        (Dialect::Anthropic, message("refusal"), "claude-x", Some(Refusal)),
        (Dialect::OpenAi, chat("stop"), "gpt-x", Some(Finished)),
        (Dialect::OpenAi, chat("length"), "gpt-x", Some(Length)),
        (Dialect::OpenAi, chat("content_filter"), "gpt-x", Some(Refusal)),
        (
            Dialect::OpenAi,
            response(r#""incomplete_details":{"reason":"max_output_tokens"},"#),
            "gpt-x",
            Some(Length),
        ),
        (
            Dialect::OpenAi,
            response(r#""output":[{"content":[{"type":"refusal"}]}],"#),
            "gpt-x",
            Some(Refusal),
        ),
        (
            Dialect::OpenAi,
            response(r#""output":[{"content":[{"type":"output_text"}]}],"incomplete_details":null,"#),
            "gpt-x",
            None,
        ),
        (Dialect::Gemini, google("STOP"), "gemini-x", Some(Finished)),
        (Dialect::Gemini, google("MAX_TOKENS"), "gemini-x", Some(Length)),
        (Dialect::Gemini, google("PROHIBITED_CONTENT"), "gemini-x", Some(Refusal)),
    ] {
        let usage = read(api, Shape::Events, &body, 7);
        assert_eq!((usage.end, usage.model.as_deref()), (expected, Some(model)), "{body}");
    }
    let whole = r#"{"type":"message","model":"claude-x","content":[],"stop_reason":"max_tokens"}"#;
    assert_eq!(read(Dialect::Anthropic, Shape::Json, whole, 9).end, Some(Length));
}

#[test]
fn whole_answers_are_read_at_their_end() {
    for (api, body, expected) in [
        (
            Dialect::Anthropic,
            r#"{"id":"msg_1","type":"message","usage":{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":4}}"#,
            [1, 2, 3, 4],
        ),
        (Dialect::OpenAi, r#"{"id":"x","usage":{"prompt_tokens":5,"completion_tokens":2}}"#, [5, 2, 0, 0]),
        (
            Dialect::OpenAi,
            r#"{"object":"list","data":[],"usage":{"prompt_tokens":5,"total_tokens":5}}"#,
            [5, 0, 0, 0],
        ),
        (
            Dialect::Gemini,
            r#"{"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2}}"#,
            [5, 2, 0, 0],
        ),
        (
            Dialect::Gemini,
            r#"[{"usageMetadata":{"promptTokenCount":5}},{"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":9}}]"#,
            [5, 9, 0, 0],
        ),
    ] {
        let usage = read(api, Shape::Json, body, 3);
        assert_eq!((counts(&usage), usage.complete), (expected, true), "{body}");
    }
}

#[test]
fn numbers_that_are_none_are_passed_over() {
    for body in [
        r#"{"usage":{"prompt_tokens":-5,"completion_tokens":"2"}}"#,
        r#"{"usage":{"prompt_tokens":1e300,"completion_tokens":18446744073709551615}}"#,
        r#"{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":99}},"id":7}"#,
    ] {
        let usage = read(Dialect::OpenAi, Shape::Json, body, 100);
        assert!(usage.input + usage.output + usage.cache_read <= 1, "{usage:?}");
    }
    for body in ["", "[]", "null", "{", r#"{"usage":[]}"#, "\u{0}", r#"{"error":{"message":"x"}}"#] {
        assert!(!read(Dialect::OpenAi, Shape::Json, body, 100).counted, "{body}");
    }
}

#[test]
fn an_endless_line_takes_bounded_memory_and_the_next_event_is_read() {
    let mut reader = Reader::new(Dialect::OpenAi, Shape::Events);
    let piece = vec![b'x'; 1 << 20];
    reader.feed(b"data: ");
    for _ in 0..40 {
        reader.feed(&piece);
    }
    reader.feed(b"\n\n");
    reader.feed(CHAT.as_bytes());
    assert!(reader.finish().complete);
    let mut reader = Reader::new(Dialect::OpenAi, Shape::Json);
    for _ in 0..40 {
        reader.feed(&piece);
    }
    assert!(!reader.finish().counted);
}

proptest::proptest! {
    #[test]
    fn any_bytes_in_any_cut_say_the_same(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), cut in 1usize..40) {
        for api in [Dialect::Anthropic, Dialect::OpenAi, Dialect::Gemini] {
            for shape in [Shape::Json, Shape::Events] {
                let whole = { let mut reader = Reader::new(api, shape); reader.feed(&bytes); reader.finish() };
                let mut reader = Reader::new(api, shape);
                bytes.chunks(cut).for_each(|piece| reader.feed(piece));
                proptest::prop_assert_eq!(reader.finish(), whole);
            }
        }
    }

    #[test]
    fn hostile_events_do_not_hide_the_count(noise in "(data: ?[\\{\\}\\[\\]\":a-z0-9\\\\]{0,20}\r?\n){0,5}\n", cut in 1usize..40) {
        let body = format!("{noise}{CHAT}");
        let mut reader = Reader::new(Dialect::OpenAi, Shape::Events);
        body.as_bytes().chunks(cut).for_each(|piece| reader.feed(piece));
        proptest::prop_assert_eq!(counts(&reader.finish()), [100, 30, 7, 2000]);
    }
}
