//! What became of calls to a model, told by the gateway: from this, and not from what an agent says of itself, follows why
//! a run ended.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_spec::llm::UpstreamKind;
use belljar_spec::llm::{LlmOutcome, LlmOutcomes};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Response, Server};
use std::io::{Read, Write};

for_every_isolated_backend! {
    once:
        what_the_upstream_said_is_told,
        an_answer_that_is_none_is_told_from_a_good_one,
        an_upstream_that_hangs_up_is_told_from_one_that_is_not_there,
        a_refusal_is_told_with_its_reason,
        a_program_that_hangs_up_is_told,
        what_programs_ask_on_the_side_is_no_call;
}

async fn what_the_upstream_said_is_told(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    assert_eq!(to.fixture.llm_outcomes(), Some(LlmOutcomes::default()));
    for stream in ["True", "False"] {
        assert_eq!(last(&to, stream).await, LlmOutcome::Answered);
    }
    for status in [400, 401, 404, 429, 500, 529, 302] {
        to.model.instead(move |_| Some(Response { body: b"{}".to_vec(), ..Response::status(status) }));
        assert_eq!(last(&to, "True").await, LlmOutcome::Status { status });
    }
    let all = to.fixture.llm_outcomes().unwrap();
    assert_eq!((all.answered, all.status_4xx, all.status_5xx, all.status_other), (2, 4, 2, 1));
    let totals = to.fixture.llm().unwrap();
    assert_eq!((totals.calls, totals.turns), (9, 2));
    let millis: u64 = to.events("model_called").iter().map(|call| call["millis"].as_u64().unwrap()).sum();
    assert_eq!(totals.millis, millis);
}

async fn an_answer_that_is_none_is_told_from_a_good_one(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    for (kind, body) in [
        ("text/html", "<html>Welcome to the hotel's network</html>"),
        ("application/json", ""),
        ("application/json", "{\"type\":\"message\",\"content\":[{\"type\":\"te"),
        (
            "text/event-stream",
            "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":1}}}\n\n",
        ),
        ("text/event-stream", error),
    ] {
        let headers = vec![("content-type".to_string(), kind.to_string())];
        to.model.instead(move |_| Some(Response { headers: headers.clone(), ..Response::ok(body) }));
        assert_eq!(last(&to, "True").await, LlmOutcome::Garbage { status: 200 }, "{body}");
    }
    assert_eq!(to.fixture.llm().map(|totals| totals.turns), Some(0));
}

async fn an_upstream_that_hangs_up_is_told_from_one_that_is_not_there(backend: BackendName) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"content";
    for printed in ["", head] {
        let server = Server::start(LOOPBACK, move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(printed.as_bytes());
        });
        let url = format!("http://{}", server.address());
        let to =
            routed(backend, UpstreamKind::Anthropic, |route| route.upstream = url.parse().unwrap()).await;
        assert_eq!(last(&to, "False").await, LlmOutcome::BrokenOff, "{printed}");
    }
    let unreachable =
        |route: &mut belljar_spec::llm::LlmRoute| route.upstream = "http://127.0.0.1:9".parse().unwrap();
    let to = routed(backend, UpstreamKind::Anthropic, unreachable).await;
    assert_eq!(last(&to, "True").await, LlmOutcome::Unreachable);
}

async fn a_refusal_is_told_with_its_reason(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |route| {
        route.budget = "turns=1".parse().unwrap();
        route.models = vec![vec!["claude-*".parse().unwrap()]];
    })
    .await;
    to.ask("ask('/v1/messages', {**message(), 'model': 'gpt-5'})").await;
    let reason = Reason::ModelNotAllowed;
    assert_eq!(to.fixture.llm_outcomes().unwrap().last, Some(LlmOutcome::Refused { reason }));
    assert_eq!(last(&to, "True").await, LlmOutcome::Answered);
    assert_eq!(last(&to, "True").await, LlmOutcome::BudgetSpent);
    let all = to.fixture.llm_outcomes().unwrap();
    assert_eq!((all.answered, all.refused, all.refused_budget), (1, 1, 1));
}

async fn a_program_that_hangs_up_is_told(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    to.model.hold();
    // The head of the message, that of its text, and the first word.
    to.model.release(3);
    let half = |until: &str| {
        format!(
            "
s = dial('127.0.0.1', 14180)
body = json.dumps(message(stream=True)).encode()
s.sendall(b'POST /v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body))
said = b''
while b'{until}' not in said: said += s.recv(100)
s.close()"
        )
    };
    to.ask(&half("one")).await;
    wait_until("the call to end", || to.fixture.llm_outcomes().unwrap().last == Some(LlmOutcome::HungUp));
    // A client that hangs up after the last event has received all of it. The answer that no client waits for takes some of these.
    to.model.release(20);
    to.ask(&half("message_stop\"}")).await;
    wait_until("the call to end", || to.fixture.llm_outcomes().unwrap().answered == 1);
    assert_eq!(to.fixture.llm().map(|totals| totals.turns), Some(1));
}

async fn what_programs_ask_on_the_side_is_no_call(backend: BackendName) {
    let to = routed(backend, UpstreamKind::Anthropic, |_| {}).await;
    to.model.instead(|request| (!request.target.ends_with("/messages")).then(|| Response::status(500)));
    let before = last(&to, "True").await;
    let printed = to.ask("print([ask('/v1/models')[0], ask('/v1/messages/count_tokens', message())[0], ask('/api/event_logging', {})[0]])");
    assert_eq!(printed.await, "[500, 500, 400]");
    let all = to.fixture.llm_outcomes().unwrap();
    assert_eq!((before, all.last, all.answered), (LlmOutcome::Answered, Some(LlmOutcome::Answered), 1));
    assert_eq!((all.status_5xx, all.refused), (0, 0));
}

/// What becomes of a call.
async fn last(to: &RouteTo, stream: &str) -> LlmOutcome {
    let script = format!(
        "
try: ask('/v1/messages', message(stream={stream}))
except (OSError, http.client.HTTPException): pass"
    );
    to.ask(&script).await;
    to.fixture.llm_outcomes().unwrap().last.unwrap()
}
