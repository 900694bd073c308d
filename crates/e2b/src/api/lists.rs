//! Lists of sandboxes, with their filters and pages.

use super::shapes::{Listed, from_rfc3339};
use crate::facts::Facts;
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Answer, Query, json, set};
use crate::metrics;
use crate::server::{Caller, E2b};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use hyper::{Request, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Map, json};

pub(super) fn sandboxes(e2b: &E2b, caller: &Caller, request: &Request<Incoming>, version: &str) -> Answer {
    let query = Query::of(request.uri().query());
    let wanted = Wanted::of(&query, version)?;
    let own: Vec<Facts> = e2b
        .book
        .there()
        .iter()
        .map(|entry| entry.facts())
        .filter(|facts| facts.grant == caller.grant)
        .collect();
    let running = own.iter().filter(|facts| !facts.is_paused()).count();
    let (page, next) = wanted.page(own);
    let listed: Vec<Listed> = page.iter().map(Listed::from).collect();
    let mut response = json(StatusCode::OK, &listed);
    set(&mut response, "x-total-running", &running.to_string());
    if let Some(next) = next {
        set(&mut response, "x-next-token", &next);
    }
    Ok(response)
}

/// Which sandboxes are wanted, and in which order.
struct Wanted {
    metadata: Vec<(String, String)>,
    running: bool,
    paused: bool,
    started_after: Option<i64>,
    template: Option<String>,
    limit: usize,
    is_ascending: bool,
    /// The last one of the page before.
    after: Option<(i64, String)>,
}

impl Wanted {
    fn of(query: &Query, version: &str) -> Result<Wanted, Fault> {
        let inner = Query::of(query.get("metadata"));
        // Clients encode names and values once more by themselves.
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let states: Vec<&str> = query.all("state").flat_map(|states| states.split(',')).collect();
        if let Some(other) = states.iter().find(|state| !["running", "paused"].contains(state)) {
            return Err(Fault::bad_request(format!("`state`: `{other}` is neither running nor paused")));
        }
        let is_wanted =
            |state| (states.is_empty() && (version == "v2" || state == "running")) || states.contains(&state);
        let time = |text: &str| {
            from_rfc3339(text)
                .ok_or_else(|| Fault::bad_request("`startedAfter` is not a time as in RFC 3339"))
        };
        let limit = query.number::<usize>("limit")?.unwrap_or(MAX_PAGE);
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Fault::bad_request(format!("`limit` is from 1 to {MAX_PAGE}")));
        }
        let after = query.get("nextToken").filter(|token| !token.is_empty()).map(from_token);
        Ok(Wanted {
            metadata: inner.pairs().map(|(name, value)| (decoded(name), decoded(value))).collect(),
            running: is_wanted("running"),
            paused: is_wanted("paused"),
            started_after: query.get("startedAfter").map(time).transpose()?,
            template: query.get("template").map(String::from),
            limit: if version == "v1" { usize::MAX } else { limit },
            is_ascending: match query.get("order") {
                None | Some("desc") => false,
                Some("asc") => true,
                Some(_) => return Err(Fault::bad_request("`order` is asc or desc")),
            },
            after: after.transpose()?,
        })
    }

    fn is_wanted(&self, facts: &Facts) -> bool {
        let state = if facts.is_paused() { self.paused } else { self.running };
        let has = |(name, value): &(String, String)| facts.metadata.get(name) == Some(value);
        state
            && self.metadata.iter().all(has)
            && self.started_after.is_none_or(|time| facts.started_ms >= time)
            && self.template.as_ref().is_none_or(|template| *template == facts.template)
    }

    /// A page, and the token of the next one.
    fn page(&self, mut all: Vec<Facts>) -> (Vec<Facts>, Option<String>) {
        let place = |facts: &Facts| (facts.started_ms, facts.id.clone());
        all.retain(|facts| self.is_wanted(facts));
        all.sort_by_key(place);
        if !self.is_ascending {
            all.reverse();
        }
        if let Some(after) = &self.after {
            all.retain(|facts| if self.is_ascending { place(facts) > *after } else { place(facts) < *after });
        }
        let is_more = all.len() > self.limit;
        all.truncate(self.limit);
        let next = all.last().filter(|_| is_more).map(|last| to_token(last.started_ms, &last.id));
        (all, next)
    }
}

pub(super) fn to_token(started_ms: i64, id: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{started_ms}:{id}"))
}

pub(super) fn from_token(token: &str) -> Result<(i64, String), Fault> {
    let invalid = || Fault::bad_request("`nextToken` is not one of a list");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
    let text = String::from_utf8(bytes).map_err(|_| invalid())?;
    let (started, id) = text.split_once(':').ok_or_else(invalid)?;
    Ok((started.parse().map_err(|_| invalid())?, id.to_string()))
}

/// Of several sandboxes at once; one that is not the caller's is left out.
pub(super) async fn metrics(e2b: &E2b, caller: &Caller, request: &Request<Incoming>) -> Answer {
    let query = Query::of(request.uri().query());
    let ids: Vec<&str> = query.all("sandbox_ids").flat_map(|ids| ids.split(',')).collect();
    if ids.len() > MAX_PAGE {
        return Err(Fault::bad_request(format!("`sandbox_ids` are at most {MAX_PAGE}")));
    }
    let mut measured = Map::new();
    for id in ids {
        let Ok(entry) = e2b.own(caller, id) else { continue };
        let facts = entry.facts();
        if !facts.is_paused() {
            measured.insert(id.to_string(), metrics::measure(e2b, &facts).await?);
        }
    }
    Ok(json(StatusCode::OK, &json!({ "sandboxes": measured })))
}

pub(super) const MAX_PAGE: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Standing, sample};

    fn ids(query: &str, version: &str) -> (String, Option<String>) {
        let made = |id: &str, started_ms: i64, app: &str, standing| Facts {
            started_ms,
            standing,
            metadata: [("app".to_string(), app.to_string())].into(),
            ..sample(id)
        };
        let all = vec![
            made("a", 1, "x y", Standing::Running),
            made("b", 2, "x y", Standing::Paused),
            made("c", 2, "z", Standing::Running),
            made("d", 3, "z", Standing::Stopped),
        ];
        let (page, next) = Wanted::of(&Query::of(Some(query)), version).unwrap().page(all);
        (page.into_iter().map(|facts| facts.id).collect(), next)
    }

    #[test]
    fn a_list_is_filtered_ordered_and_paged() {
        for (query, version, expected) in [
            ("", "v2", "dcba"),
            ("", "v1", "ca"),
            ("order=asc", "v2", "abcd"),
            ("state=paused", "v2", "db"),
            ("state=paused&state=running", "v2", "dcba"),
            ("state=paused,running", "v2", "dcba"),
            ("metadata=app%3Dx%252520y", "v2", "ba"),
            ("metadata=app%3Dx%2520y", "v2", "ba"),
            ("startedAfter=1970-01-01T00:00:00.002Z", "v2", "dcb"),
            ("template=other", "v2", ""),
        ] {
            assert_eq!(ids(query, version).0, expected, "{query}");
        }
        let (first, next) = ids("limit=2", "v2");
        let (second, end) = ids(&format!("limit=2&nextToken={}", next.unwrap()), "v2");
        assert_eq!((first.as_str(), second.as_str(), end), ("dc", "ba", None));
        for query in ["limit=0", "limit=101", "order=up", "state=x", "nextToken=%25", "startedAfter=x"] {
            assert!(Wanted::of(&Query::of(Some(query)), "v2").is_err(), "{query}");
        }
    }
}
