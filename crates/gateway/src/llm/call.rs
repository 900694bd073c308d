//! One call, from when it leaves until it is written down. However it ends, it is counted: dropped before its end, with
//! what was seen of it.

use super::ledger::{Charge, Ledger, Spent, Takes};
use super::paths::{ApiCall, Purpose};
use super::stored_context::StoredContext;
use super::usage::{Reader, Shape, Usage};
use super::{headers, route};
use crate::record::Recorder;
use belljar_audit::{CallEnding, CostSource, Event};
use belljar_spec::egress::{Printable, Reason};
use belljar_spec::llm::{CostUnknown, LlmOutcome, Price, PriceOrigin, Tokens, Usd};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct Call {
    pub(super) number: u64,
    pub(super) ledger: Arc<Ledger>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) api_call: ApiCall,
    pub(super) model: Option<Printable>,
    pub(super) streamed: bool,
    /// Whether the question offers tools.
    pub(super) offers_tools: bool,
    /// How many tokens the answers may have together, if the question says so.
    pub(super) longest: Option<u64>,
    /// The most that it can come to, where tokens or money are limited.
    pub(super) most: Option<Most>,
    /// What the model costs, if that is known.
    pub(super) price: Option<(Price, PriceOrigin)>,
    /// The second at which it was sent, counted from 1970: some prices depend on it.
    pub(super) second: u64,
    pub(super) since: Instant,
    /// Bytes of the question.
    pub(super) sent: usize,
    pub(super) seen: Option<Seen>,
    pub(super) over: bool,
}

/// The most tokens that a call can come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) input: u64,
    pub(super) output: u64,
    /// What goes in is not only what was sent.
    pub(super) refers: bool,
}

impl Most {
    /// Of a question with this many bytes, for this many answers of this many tokens. Text has no more tokens than bytes, and no
    /// model takes in more than its context.
    pub(super) fn of(
        sent: usize,
        stored: &StoredContext,
        longest: Option<u64>,
        answers: u64,
        ledger: &Ledger,
    ) -> Most {
        let sent = (sent as u64).min(LARGEST_CONTEXT);
        let input = match stored {
            StoredContext::Nothing => sent,
            StoredContext::Answer(answer) => ledger
                .tokens_of(answer)
                .map_or(LARGEST_CONTEXT, |tokens| tokens.saturating_add(sent).min(LARGEST_CONTEXT)),
            StoredContext::Something => LARGEST_CONTEXT,
        };
        let output = longest.unwrap_or(LARGEST_ANSWER).min(LARGEST_CONTEXT).saturating_mul(answers);
        Most { input, output, refers: *stored != StoredContext::Nothing }
    }
}

/// How a call comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All that the upstream had to say was heard.
    Finished,
    /// The program went away.
    HungUp,
    /// The upstream went away.
    BrokenOff,
    /// It was not even reached: nothing left.
    Unreachable,
    /// It said nothing for too long.
    TooSlow,
    /// The sandbox has used up its bytes.
    ByteLimit,
}

impl End {
    /// As the record says it.
    fn ending(self) -> CallEnding {
        match self {
            End::Finished => CallEnding::Finished,
            End::HungUp => CallEnding::BrokenOffInside,
            End::BrokenOff | End::Unreachable | End::TooSlow | End::ByteLimit => CallEnding::BrokenOffOutside,
        }
    }
}

/// What there is of an answer.
pub(super) struct Seen {
    status: StatusCode,
    upstream_id: Option<Printable>,
    upstream_cost: Option<Usd>,
    reader: Reader,
    received: u64,
}

impl Call {
    /// The head of the answer is there.
    pub(super) fn answered(&mut self, status: StatusCode, head: &HeaderMap) {
        let id = ["x-litellm-call-id", "request-id", "x-request-id"];
        let is_events = headers::text(head, CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"));
        let cost = headers::text(head, "x-litellm-response-cost").and_then(|cost| cost.parse().ok());
        self.seen = Some(Seen {
            status,
            upstream_id: id.iter().find_map(|name| headers::text(head, name)).map(Printable::from),
            upstream_cost: cost.and_then(Usd::from_dollars),
            reader: Reader::new(
                self.api_call.api.into(),
                if is_events { Shape::Events } else { Shape::Json },
            ),
            received: 0,
        });
    }

    /// Some of its body.
    pub(super) fn saw(&mut self, bytes: &[u8]) {
        if let Some(seen) = &mut self.seen {
            seen.reader.feed(bytes);
            seen.received += bytes.len() as u64;
        }
    }

    /// It was refused at the last moment, which is written elsewhere.
    pub(super) fn forget(&mut self) {
        self.over = true;
        self.ledger.give_back(Takes::from(&self.api_call));
    }

    /// It is over; only the first word on it counts.
    pub(super) fn end(&mut self, end: End) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let usage = self.seen.as_mut().map(|seen| seen.reader.finish()).unwrap_or_default();
        let (spent, source) = self.spent(&usage, end);
        if let (Some(id), true, false) = (&usage.id, self.most.is_some(), spent.estimated) {
            self.ledger.answered(id, spent);
        }
        let left = (end != End::Unreachable).then_some(spent);
        let took = self.since.elapsed();
        let outcome = self.outcome(&usage, end);
        if outcome == LlmOutcome::Answered && Takes::from(&self.api_call) == Takes::Turn {
            let model = usage.model.as_deref().or(self.model.as_ref().map(Printable::as_str));
            self.ledger.note_answer(model, usage.end.filter(|_| self.offers_tools));
        }
        self.ledger.over(Takes::from(&self.api_call), left, outcome, took);
        let seen = self.seen.as_ref();
        let _ = self.recorder.write(&Event::ModelCalled {
            call: self.number,
            model: self.model.clone(),
            path: self.api_call.path.as_str().into(),
            status: seen.map_or(0, |seen| seen.status.as_u16()),
            upstream_id: seen.and_then(|seen| seen.upstream_id.clone()),
            message_id: usage.id.as_deref().map(Printable::from),
            input_tokens: spent.input,
            output_tokens: spent.output,
            cache_read: spent.cache_read,
            cache_write: spent.cache_write,
            estimated: spent.estimated,
            cost_usd: spent.cost.exact(),
            cost_source: source,
            millis: took.as_millis() as u64,
            streamed: self.streamed,
            ending: end.ending(),
        });
    }

    fn outcome(&self, usage: &Usage, end: End) -> LlmOutcome {
        let status = self.seen.as_ref().map(|seen| seen.status);
        match (end, status) {
            (_, Some(status)) if !status.is_success() => LlmOutcome::Status { status: status.as_u16() },
            // Many clients hang up once they have heard the last word, and before the end of the body.
            (_, Some(_)) if usage.ended => LlmOutcome::Answered,
            (End::Finished, Some(_)) if usage.complete => LlmOutcome::Answered,
            (End::Finished, status) => {
                LlmOutcome::Garbage { status: status.map_or(0, |status| status.as_u16()) }
            }
            (End::HungUp, _) => LlmOutcome::HungUp,
            (End::BrokenOff, _) => LlmOutcome::BrokenOff,
            (End::Unreachable, _) => LlmOutcome::Unreachable,
            (End::TooSlow, _) => LlmOutcome::TooSlow,
            (End::ByteLimit, _) => LlmOutcome::refused(Reason::ByteLimit),
        }
    }

    fn spent(&self, usage: &Usage, end: End) -> (Spent, Option<CostSource>) {
        let free = Spent::default();
        if end == End::Unreachable {
            return (free, Some(CostSource::Free));
        }
        let Some(seen) = &self.seen else {
            // It may have arrived all the same.
            return self.estimated(usage, 0, end);
        };
        if self.api_call.purpose != Purpose::Call || (!seen.status.is_success() && !usage.counted) {
            return (free, Some(CostSource::Free));
        }
        if !usage.complete {
            return self.estimated(usage, seen.received, end);
        }
        let Usage { input, output, cache_read, cache_write, .. } = *usage;
        let (priced, source) = self.priced(usage, input, output);
        // LiteLLM does not know what a stream costs when it begins.
        let reported =
            seen.upstream_cost.filter(|cost| !self.streamed || cost.as_micros() > 0).or(usage.cost);
        let (cost, source) = match (reported, priced) {
            (Some(reported), Charge::Exactly(priced)) if self.streamed && usage.cost.is_none() => {
                (Charge::Exactly(reported.max(priced)), Some(CostSource::Upstream))
            }
            (Some(reported), _) => (Charge::Exactly(reported), Some(CostSource::Upstream)),
            (None, priced) => (priced, source),
        };
        (Spent { input, output, cache_read, cache_write, estimated: false, cost }, source)
    }

    /// What the tokens cost by the price of the model; for the source there has to be a cost.
    fn priced(&self, usage: &Usage, input: u64, output: u64) -> (Charge, Option<CostSource>) {
        let Some((price, origin)) = &self.price else {
            return (Charge::Unknown(CostUnknown::NoPrice), None);
        };
        let cache_write_1h = usage.cache_write_1h.min(usage.cache_write);
        let cache_write = usage.cache_write - cache_write_1h;
        let tokens = Tokens { input, output, cache_read: usage.cache_read, cache_write, cache_write_1h };
        let charge = Charge::from(price.cost(&tokens, self.second));
        let source = match origin {
            PriceOrigin::Configured => CostSource::Prices,
            PriceOrigin::Listed => CostSource::ListPrices,
        };
        (charge, charge.exact().map(|_| source))
    }

    /// The upstream counted nothing, or not to the end: no less than what bytes usually come to. Events are mostly
    /// wrapping, so that this is more than it was. A model that is no stream, or that thinks, works without a word: that
    /// time counts, each second that began, for a program that went away and for an upstream that did, which may bill it
    /// all the same; for the latter no more than was ordered. Where tokens or money are limited, nothing is gained by
    /// hanging up: an answer that was cut short from inside counts as the most that it could come to, since upstreams may
    /// continue it.
    fn estimated(&self, usage: &Usage, received: u64, end: End) -> (Spent, Option<CostSource>) {
        let is_cut = match end {
            End::HungUp | End::TooSlow | End::ByteLimit => true,
            End::Finished | End::BrokenOff | End::Unreachable => false,
        };
        let input = match self.most {
            _ if usage.counted => usage.input,
            Some(most) if is_cut || most.refers => most.input,
            Some(_) | None => (self.sent as u64).div_ceil(route::BYTES_OF_A_TOKEN),
        };
        let unheard = match end {
            End::HungUp => unheard(self.since.elapsed(), self.longest.filter(|_| !self.streamed)),
            End::BrokenOff => unheard(self.since.elapsed(), None).min(self.longest.unwrap_or(LARGEST_ANSWER)),
            End::Finished | End::Unreachable | End::TooSlow | End::ByteLimit => 0,
        };
        let most = self.most.filter(|_| is_cut).map_or(0, |most| most.output);
        let output = usage.output.max(received.div_ceil(route::BYTES_OF_A_TOKEN)).max(unheard).max(most);
        let Usage { cache_read, cache_write, .. } = *usage;
        let (cost, source) = self.priced(usage, input, output);
        (Spent { input, output, cache_read, cache_write, estimated: true, cost }, source)
    }
}

/// What a model may have sent to a client that went away.
fn unheard(took: Duration, longest: Option<u64>) -> u64 {
    let seconds = took.as_secs() + 1;
    (seconds * route::TOKENS_OF_A_SECOND).max(longest.unwrap_or(0))
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(End::HungUp);
    }
}

/// What models take in: few take more, none of those that agents use.
const LARGEST_CONTEXT: u64 = 1_000_000;
/// What models say at most, where a request does not.
const LARGEST_ANSWER: u64 = 128_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::paths;
    use belljar_spec::llm::UpstreamKind;
    use hyper::Method;

    fn call(
        budget: &str,
        longest: Option<u64>,
        answers: u64,
        streamed: bool,
        stored: &StoredContext,
    ) -> Call {
        let ledger = Arc::new(Ledger::new(budget.parse().unwrap()));
        ledger.answered("resp_1", Spent { input: 5_000, output: 200, ..Spent::default() });
        let target = "/v1/responses".parse().unwrap();
        let most = ledger.limits_tokens().then(|| Most::of(400, stored, longest, answers, &ledger));
        Call {
            number: 1,
            api_call: paths::understand(UpstreamKind::OpenAi, &Method::POST, &target).unwrap(),
            recorder: Arc::new(Recorder::new(None)),
            model: None,
            streamed,
            offers_tools: false,
            longest: longest.map(|longest| longest * answers),
            most,
            price: None,
            second: 0,
            since: Instant::now(),
            sent: 400,
            seen: None,
            over: false,
            ledger,
        }
    }

    #[test]
    fn hanging_up_is_no_cheaper_than_hearing_all() {
        for (longest, answers, streamed, stored, expected) in [
            (Some(4_000), 128, false, StoredContext::Nothing, (400, 512_000)),
            (Some(4_000), 1, true, StoredContext::Nothing, (400, 4_000)),
            (None, 1, true, StoredContext::Nothing, (400, LARGEST_ANSWER)),
            (Some(10), 1, true, StoredContext::Answer("resp_1".into()), (5_600, 100)),
            (Some(10), 1, true, StoredContext::Answer("resp_2".into()), (LARGEST_CONTEXT, 100)),
            (Some(10), 1, true, StoredContext::Something, (LARGEST_CONTEXT, 100)),
        ] {
            let mut call = call("tokens=4300", longest, answers, streamed, &stored);
            call.end(End::HungUp);
            let totals = call.ledger.totals();
            assert_eq!((totals.input_tokens, totals.output_tokens), expected, "{stored:?}");
        }
        // Where tokens are not limited it is what it usually comes to.
        let mut call = call("calls=5", Some(4_000), 1, true, &StoredContext::Something);
        call.end(End::HungUp);
        assert_eq!((call.ledger.totals().input_tokens, call.ledger.totals().output_tokens), (100, 100));
    }

    #[test]
    fn an_upstream_that_breaks_off_costs_the_time_that_it_took() {
        for (seconds, expected) in [(0, 100), (10, 1_100), (100, 4_000)] {
            let mut call = call("tokens=4300", Some(4_000), 1, true, &StoredContext::Nothing);
            call.since -= Duration::from_secs(seconds);
            call.end(End::BrokenOff);
            let totals = call.ledger.totals();
            assert_eq!((totals.input_tokens, totals.output_tokens), (100, expected), "{seconds} s");
        }
    }

    #[test]
    fn who_goes_away_pays_for_each_second_that_began_and_for_what_was_ordered() {
        for (millis, longest, expected) in [
            (0, None, 100),
            (900, None, 100),
            (1_100, None, 200),
            (1_100, Some(150), 200),
            (900, Some(4096), 4096),
        ] {
            assert_eq!(unheard(Duration::from_millis(millis), longest), expected, "{millis} {longest:?}");
        }
    }
}
