//! One call, from when it leaves until it is written down. However it ends, it is counted: dropped before its end, with
//! what was seen of it.

use super::ledger::{Ledger, Spent};
use super::paths::{Asked, Purpose};
use super::usage::{Reader, Shape, Usage};
use super::{headers, route};
use crate::record::Recorder;
use belljar_audit::{CallEnding, CostSource, Event};
use belljar_spec::egress::Printable;
use belljar_spec::llm::{Price, Usd};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Call {
    pub(super) number: u64,
    pub(super) ledger: Arc<Ledger>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) asked: Asked,
    pub(super) model: Option<Printable>,
    pub(super) streamed: bool,
    /// What the model costs, if anybody said so.
    pub(super) price: Option<Price>,
    pub(super) since: Instant,
    /// Bytes of the question.
    pub(super) sent: usize,
    pub(super) seen: Option<Seen>,
    /// Whether it may have arrived.
    pub(super) left: bool,
    pub(super) over: bool,
}

/// What there is of an answer.
pub(super) struct Seen {
    status: StatusCode,
    upstream_id: Option<Printable>,
    told_cost: Option<Usd>,
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
            told_cost: cost.and_then(Usd::from_dollars),
            reader: Reader::new(self.asked.api.into(), if is_events { Shape::Events } else { Shape::Json }),
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

    /// Nothing of it was sent.
    pub(super) fn never_left(&mut self) {
        self.left = false;
    }

    /// It was refused at the last moment, which is written elsewhere.
    pub(super) fn forget(&mut self) {
        self.over = true;
        if self.asked.purpose == Purpose::Call {
            self.ledger.give_back();
        }
    }

    /// It is over; only the first word on it counts.
    pub(super) fn end(&mut self, ending: CallEnding) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let usage = self.seen.as_mut().map(|seen| seen.reader.finish()).unwrap_or_default();
        let (spent, source) = self.spent(&usage, ending);
        match (self.asked.purpose, self.left) {
            (Purpose::Call, true) => self.ledger.add(spent),
            (Purpose::Call, false) => self.ledger.give_back(),
            (Purpose::Count | Purpose::List, _) => {}
        }
        let seen = self.seen.as_ref();
        let _ = self.recorder.write(&Event::ModelCalled {
            call: self.number,
            model: self.model.clone(),
            path: self.asked.path.as_str().into(),
            status: seen.map_or(0, |seen| seen.status.as_u16()),
            upstream_id: seen.and_then(|seen| seen.upstream_id.clone()),
            message_id: usage.id.as_deref().map(Printable::from),
            input_tokens: spent.input,
            output_tokens: spent.output,
            cache_read: spent.cache_read,
            cache_write: spent.cache_write,
            estimated: spent.estimated,
            cost_usd: spent.cost,
            cost_source: source,
            millis: self.since.elapsed().as_millis() as u64,
            streamed: self.streamed,
            ending,
        });
    }

    fn spent(&self, usage: &Usage, ending: CallEnding) -> (Spent, Option<CostSource>) {
        let free = Spent { cost: Some(Usd::default()), ..Spent::default() };
        if !self.left {
            return (free, Some(CostSource::Free));
        }
        let Some(seen) = &self.seen else {
            // It may have arrived all the same.
            return self.estimated(usage, 0, ending);
        };
        if self.asked.purpose != Purpose::Call || (!seen.status.is_success() && !usage.counted) {
            return (free, Some(CostSource::Free));
        }
        if !usage.complete {
            return self.estimated(usage, seen.received, ending);
        }
        let Usage { input, output, cache_read, cache_write, .. } = *usage;
        let priced = self.price.map(|price| price.of(input, output, cache_read, cache_write));
        // LiteLLM does not know what a stream costs when it begins.
        let told = seen.told_cost.filter(|cost| !self.streamed || cost.as_micros() > 0).or(usage.cost);
        let (cost, source) = match (told, priced) {
            (Some(told), Some(priced)) if self.streamed => (Some(told.max(priced)), CostSource::Upstream),
            (Some(told), _) => (Some(told), CostSource::Upstream),
            (None, priced) => (priced, CostSource::Prices),
        };
        let spent = Spent { input, output, cache_read, cache_write, estimated: false, cost };
        (spent, cost.map(|_| source))
    }

    /// Nobody counted, or not to the end: no less than what bytes usually come to. Events are mostly wrapping, so that
    /// this is more than it was, and nothing is gained by breaking off. A model that is no stream, or that thinks, works
    /// without a word: who went away pays for that time.
    fn estimated(&self, usage: &Usage, received: u64, ending: CallEnding) -> (Spent, Option<CostSource>) {
        let input = match usage.counted {
            true => usage.input,
            false => (self.sent as u64).div_ceil(route::BYTES_OF_A_TOKEN),
        };
        let unheard = match ending {
            CallEnding::BrokenOffInside => self.since.elapsed().as_secs() * route::TOKENS_OF_A_SECOND,
            CallEnding::BrokenOffOutside | CallEnding::Finished => 0,
        };
        let output = usage.output.max(received.div_ceil(route::BYTES_OF_A_TOKEN)).max(unheard);
        let Usage { cache_read, cache_write, .. } = *usage;
        let cost = self.price.map(|price| price.of(input, output, cache_read, cache_write));
        let spent = Spent { input, output, cache_read, cache_write, estimated: true, cost };
        (spent, cost.map(|_| CostSource::Prices))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(CallEnding::BrokenOffInside);
    }
}
