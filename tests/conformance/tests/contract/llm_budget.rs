//! How much of a model may be used: calls, tokens and money, counted from the upstream's answers alone.

use belljar_spec::BackendName;
use belljar_spec::llm::{Budget, LlmRoute, Price, Rates, UpstreamKind};
use belljar_tests_conformance::*;
use belljar_tests_hosts::Response;

for_every_isolated_backend! {
    everywhere:
        the_budget_stops_the_next_call;
    once:
        calls_at_once_are_no_more_than_the_budget,
        turns_are_answers_and_not_calls,
        turns_at_once_are_no_more_than_the_budget,
        tokens_are_counted_from_answers,
        few_calls_at_once_go_above_a_limit_on_tokens,
        money_is_counted_by_prices,
        money_is_counted_as_litellm_tells_it,
        a_limit_on_money_needs_to_know_the_price,
        a_stream_that_is_broken_off_counts,
        a_call_that_is_given_up_before_its_answer_counts,
        other_models_are_refused;
}

fn budget(text: &str) -> Budget {
    text.parse().unwrap()
}

fn price(route: &mut LlmRoute, model: &str) {
    let each = |dollars| Rates::per_million(dollars).ok();
    let rates = Rates {
        input: each(3.0),
        output: each(15.0),
        cache_read: each(0.3),
        cache_write: each(3.75),
        cache_write_1h: each(6.0),
    };
    route.prices.push((model.parse().unwrap(), Price::flat(rates)));
}

/// 100 in, 30 out, 7 read, 2000 written: 300 + 450 + 2.1 + 7500 millionths, rounded up.
const COST: u64 = 8253;

async fn the_budget_stops_the_next_call(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |route| route.budget = budget("calls=2")).await;
    let printed = to
        .ask(
            "
for number in range(3): status, text = ask('/v1/messages', message(stream=True)); print(status, end=' ')
print(ask('/v1/messages/count_tokens', message())[0], json.loads(text)['error']['type'], text)",
        )
        .await;
    assert!(printed.starts_with("200 200 400 400 invalid_request_error "), "{printed}");
    assert!(printed.contains("2 of 2 calls are used") && printed.contains("--llm-budget"), "{printed}");
    assert_eq!(to.model.requests().len(), 2);
    let refused = to.events("model_refused");
    assert_eq!((refused.len(), &refused[0]["reason"]), (2, &"budget_spent".into()));
}

async fn calls_at_once_are_no_more_than_the_budget(backend: BackendName) {
    let to = routed(backend, UpstreamKind::OpenAi, |route| route.budget = budget("calls=5")).await;
    let printed = to
        .ask(
            "
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(30) as pool:
    statuses = list(pool.map(lambda _: ask('/v1/chat/completions', message(stream=True))[0], range(30)))
print(statuses.count(200), statuses.count(400))",
        )
        .await;
    assert_eq!((printed.as_str(), to.model.requests().len()), ("5 25", 5));
    assert_eq!(to.fixture.llm().map(|totals| (totals.calls, totals.refused)), Some((5, 25)));
}

async fn turns_are_answers_and_not_calls(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |route| route.budget = budget("turns=2")).await;
    let failing = std::sync::atomic::AtomicUsize::new(3);
    to.model.instead(move |_| {
        let left = failing.load(std::sync::atomic::Ordering::Relaxed);
        failing.store(left.saturating_sub(1), std::sync::atomic::Ordering::Relaxed);
        (left > 0).then(|| Response::status(529))
    });
    let printed = to
        .ask(
            "
for stream in [True, False, True, True, False, True]: status, text = ask('/v1/messages', message(stream=stream)); print(status, end=' ')
print(text)",
        )
        .await;
    assert!(printed.starts_with("529 529 529 200 200 400 "), "{printed}");
    assert!(printed.contains("2 of 2 turns are used") && printed.contains("--llm-budget"), "{printed}");
    let totals = to.fixture.llm().unwrap();
    assert_eq!((totals.calls, totals.turns, totals.refused), (5, 2, 1));
}

async fn turns_at_once_are_no_more_than_the_budget(backend: BackendName) {
    let to = routed(backend, UpstreamKind::OpenAi, |route| route.budget = budget("turns=5")).await;
    let printed = to
        .ask(
            "
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(30) as pool:
    statuses = list(pool.map(lambda _: ask('/v1/chat/completions', message(stream=True))[0], range(30)))
print(statuses.count(200), statuses.count(400))",
        )
        .await;
    assert_eq!((printed.as_str(), to.model.requests().len()), ("5 25", 5));
    assert_eq!(to.fixture.llm().map(|totals| totals.turns), Some(5));
}

async fn tokens_are_counted_from_answers(backend: BackendName) {
    let to = routed(backend, UpstreamKind::OpenAi, |route| route.budget = budget("tokens=4000")).await;
    // What the client says of usage does not count.
    let script = "print([ask('/v1/chat/completions', message(usage={'prompt_tokens': 0}, stream=True, stream_options={'include_usage': False}))[0] for _ in range(3)])";
    assert_eq!(to.ask(script).await, "[200, 200, 400]");
    assert_eq!(to.fixture.llm().map(|totals| totals.tokens()), Some(2 * 2137));
}

async fn few_calls_at_once_go_above_a_limit_on_tokens(backend: BackendName) {
    let to = routed(backend, UpstreamKind::OpenAi, |route| route.budget = budget("tokens=1")).await;
    // Long enough for all of them to be there before the first answer.
    to.model.instead(|_| {
        std::thread::sleep(std::time::Duration::from_secs(2));
        None
    });
    let printed = to
        .ask(
            "
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(20) as pool:
    statuses = list(pool.map(lambda _: ask('/v1/chat/completions', message(stream=True))[0], range(20)))
print(statuses.count(200) + statuses.count(400))",
        )
        .await;
    let passed = to.model.requests().len();
    assert!(printed == "20" && (1..=4).contains(&passed), "{printed}, {passed} passed");
}

async fn money_is_counted_by_prices(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |route| {
        route.budget = budget("usd=0.016");
        price(route, "claude-*");
    })
    .await;
    let printed = to.ask("print([ask('/v1/messages', message(stream=True))[0] for _ in range(3)])").await;
    assert_eq!(printed, "[200, 200, 400]");
    let calls = to.events("model_called");
    assert!(
        calls.iter().all(|call| call["cost_usd"] == COST && call["cost_source"] == "prices"),
        "{calls:?}"
    );
    assert_eq!(to.fixture.llm().map(|totals| totals.cost_usd.as_micros()), Some(2 * COST));
}

async fn money_is_counted_as_litellm_tells_it(backend: BackendName) {
    let to = routed(backend, UpstreamKind::LiteLlm, |route| route.budget = budget("usd=0.5")).await;
    to.model.instead(|request| {
        let cost = if request.body.windows(4).any(|word| word == b"none") { "None" } else { "0.25" };
        let body = r#"{"id":"chatcmpl-9","usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
        let headers = [("x-litellm-response-cost", cost), ("x-litellm-call-id", "call-9")];
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_string())).into();
        Some(Response { headers, ..Response::ok(body) })
    });
    let printed = to.ask("print([ask('/v1/chat/completions', message())[0] for _ in range(3)])").await;
    assert_eq!(printed, "[200, 200, 400]");
    let call = &to.events("model_called")[1];
    assert_eq!((&call["cost_usd"], &call["cost_source"]), (&250_000.into(), &"upstream".into()));
    assert_eq!((&call["upstream_id"], &call["message_id"]), (&"call-9".into(), &"chatcmpl-9".into()));
}

async fn a_limit_on_money_needs_to_know_the_price(backend: BackendName) {
    let to = routed(backend, UpstreamKind::LiteLlm, |route| route.budget = budget("usd=5")).await;
    // LiteLLM does not say what a stream costs, so it does not leave; of other calls it does, until it does not.
    let printed = to
        .ask(
            "
print(*ask('/v1/chat/completions', message(stream=True)))
print(ask('/v1/chat/completions', message())[0], *ask('/v1/chat/completions', message()))",
        )
        .await;
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("400 ") && lines[0].contains("[llm.price]"), "{printed}");
    assert!(lines[1].starts_with("200 400 ") && lines[1].contains("not known"), "{printed}");
    assert_eq!(to.model.requests().len(), 1);
}

async fn a_stream_that_is_broken_off_counts(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |route| {
        route.budget = budget("usd=1");
        price(route, "*");
    })
    .await;
    to.model.hold();
    // The head of the message, that of its text, and the first word.
    to.model.release(3);
    to.ask(
        "
s = dial('127.0.0.1', 14180)
body = json.dumps(message(stream=True)).encode()
s.sendall(b'POST /v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body))
said = b''
while b'one' not in said: said += s.recv(100)
s.close()",
    )
    .await;
    wait_until("the call to be written down", || !to.events("model_called").is_empty());
    let call = &to.events("model_called")[0];
    assert_eq!((&call["ending"], &call["estimated"]), (&"broken_off_inside".into(), &true.into()));
    assert_eq!((&call["input_tokens"], &call["cache_write"]), (&100.into(), &2000.into()));
    assert!(
        call["output_tokens"].as_u64().unwrap() > 1 && call["cost_usd"].as_u64().unwrap() > 7800,
        "{call}"
    );
    assert_eq!(to.fixture.llm().map(|totals| totals.calls_estimated), Some(1));
}

async fn a_call_that_is_given_up_before_its_answer_counts(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |route| {
        route.budget = budget("usd=1");
        price(route, "*");
    })
    .await;
    to.model.instead(|_| {
        std::thread::sleep(std::time::Duration::from_secs(5));
        None
    });
    to.ask(
        "
s = dial('127.0.0.1', 14180)
body = json.dumps(message(max_tokens=5000)).encode()
s.sendall(b'POST /v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body))
time.sleep(2.5)
s.close()",
    )
    .await;
    wait_until("the call to be written down", || !to.events("model_called").is_empty());
    let call = &to.events("model_called")[0];
    assert_eq!((&call["ending"], &call["estimated"]), (&"broken_off_inside".into(), &true.into()));
    // It was no stream, so the upstream continues to the end of the requested answer.
    assert_eq!(call["output_tokens"], 5000, "{call}");
}

async fn other_models_are_refused(backend: BackendName) {
    let to = routed(backend, UpstreamKind::LiteLlm, |route| {
        route.models =
            vec![vec!["claude-*".parse().unwrap()], vec!["*-test".parse().unwrap(), "x".parse().unwrap()]];
    })
    .await;
    let printed = to
        .ask(
            "
for model in ['claude-test', 'claude-other', 'gpt-test', 'x']:
    print(ask('/v1/messages', {**message(), 'model': model})[0], end=' ')
print(ask('/v1beta/models/gemini:generateContent', {})[0], *ask('/v1/chat/completions', {'model': 'gpt-5'}))",
        )
        .await;
    assert!(printed.starts_with("200 400 400 400 400 400 ") && printed.contains("gpt-5"), "{printed}");
    assert_eq!(to.model.requests().len(), 1);
    assert_eq!(
        to.events("model_refused").iter().filter(|event| event["reason"] == "model_not_allowed").count(),
        5
    );
}
