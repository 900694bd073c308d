//! A part of an answer, where answers are searched for secrets. A server that is asked for a part cuts where the sandbox says,
//! and half of a value is not found. So it is asked for the whole, and the part is taken out of what was searched. Pure.

use super::body::{Body, BodyError};
use crate::credentials::RANGE_HEADERS;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED};
use hyper::http::response::Parts;
use hyper::{Method, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The part that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RangeRequest {
    span: Span,
    /// Only if the whole is still this one.
    only_if: Option<HeaderValue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    /// From here to the end.
    From(u64),
    /// From the first to the last, with both.
    Between(u64, u64),
    /// So many at the end.
    Last(u64),
}

impl RangeRequest {
    /// What a request asks for. What is no single part in bytes is not understood: then the whole is the answer, as a server
    /// may always give it (RFC 9110, 14.2).
    pub(super) fn by(method: &Method, headers: &HeaderMap) -> Option<RangeRequest> {
        let mut ranges = RANGE_HEADERS.iter().flat_map(|name| headers.get_all(name));
        let (Some(one), None, &Method::GET) = (ranges.next(), ranges.next(), method) else { return None };
        Some(RangeRequest { span: parse(one.to_str().ok()?)?, only_if: headers.get(IF_RANGE).cloned() })
    }

    /// The part of an answer that was requested, if it is available.
    pub(super) fn of(&self, head: &mut Parts, body: Body) -> Body {
        let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (StatusCode::OK, Some(length), true) = (head.status, length, self.is_current(&head.headers))
        else {
            return body;
        };
        let length: u64 = length;
        match self.span.within(length) {
            Some((first, last)) => {
                let range = format!("bytes {first}-{last}/{length}");
                set(head, StatusCode::PARTIAL_CONTENT, &range, last - first + 1);
                Part { body, skip: first, left: last - first + 1 }.boxed_unsync()
            }
            None => {
                set(head, StatusCode::RANGE_NOT_SATISFIABLE, &format!("bytes */{length}"), 0);
                Part { body, skip: 0, left: 0 }.boxed_unsync()
            }
        }
    }

    /// Compared strongly (RFC 9110, 13.1.5).
    fn is_current(&self, headers: &HeaderMap) -> bool {
        let Some(only_if) = &self.only_if else { return true };
        let is_weak = only_if.as_bytes().starts_with(b"W/");
        let now = if only_if.as_bytes().starts_with(b"\"") {
            headers.get(ETAG)
        } else {
            headers.get(LAST_MODIFIED)
        };
        !is_weak && now == Some(only_if)
    }
}

impl Span {
    /// The first and the last byte, if there are any.
    fn within(self, length: u64) -> Option<(u64, u64)> {
        let last = length.checked_sub(1)?;
        match self {
            Span::From(first) => (first <= last).then_some((first, last)),
            Span::Between(first, end) => (first <= last).then_some((first, end.min(last))),
            Span::Last(count) => (count > 0).then(|| (length.saturating_sub(count), last)),
        }
    }
}

fn parse(text: &str) -> Option<Span> {
    let (unit, span) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match span.trim().split_once('-')? {
        ("", count) => number(count).map(Span::Last),
        (first, "") => number(first).map(Span::From),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Span::Between(first, last))
        }
    }
}

fn set(head: &mut Parts, status: StatusCode, range: &str, length: u64) {
    head.status = status;
    head.headers.insert(CONTENT_LENGTH, length.into());
    if let Ok(range) = HeaderValue::from_str(range) {
        head.headers.insert(CONTENT_RANGE, range);
    }
}

/// Some bytes of a body. What follows them is not waited for.
struct Part {
    body: Body,
    skip: u64,
    left: u64,
}

impl HttpBody for Part {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while self.left > 0 {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            // What comes behind a whole is not said of a part.
            let Ok(mut data) = frame?.into_data() else { continue };
            let skipped = self.skip.min(data.len() as u64);
            self.skip -= skipped;
            let _ = data.split_to(skipped as usize);
            data.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= data.len() as u64;
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::whole;
    use super::*;
    use hyper::Response;
    use hyper::header::RANGE;

    fn parsed(range: &str, only_if: Option<&str>) -> Option<RangeRequest> {
        let mut headers = HeaderMap::from_iter([(RANGE, range.parse().unwrap())]);
        if let Some(only_if) = only_if {
            headers.insert(IF_RANGE, only_if.parse().unwrap());
        }
        RangeRequest::by(&Method::GET, &headers)
    }

    async fn answer(requested: Option<RangeRequest>) -> (u16, Option<String>, String) {
        let response = Response::builder().header(CONTENT_LENGTH, 10).header(ETAG, "\"one\"");
        let (mut head, body) = response.body(whole("0123456789")).unwrap().into_parts();
        let body = requested.expect("a part").of(&mut head, body);
        let text = body.collect().await.unwrap().to_bytes();
        assert_eq!(head.headers[CONTENT_LENGTH], text.len().to_string());
        let range = head.headers.get(CONTENT_RANGE).map(|range| range.to_str().unwrap().to_string());
        (head.status.as_u16(), range, String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_part_is_taken_out_of_the_whole() {
        for (range, status, content_range, text) in [
            ("bytes=0-3", 206, "bytes 0-3/10", "0123"),
            ("bytes=4-", 206, "bytes 4-9/10", "456789"),
            ("Bytes=4-4", 206, "bytes 4-4/10", "4"),
            ("bytes=8-99999999999999999999999", 206, "bytes 8-9/10", "89"),
            ("bytes=-3", 206, "bytes 7-9/10", "789"),
            ("bytes=-30", 206, "bytes 0-9/10", "0123456789"),
            ("bytes=10-", 416, "bytes */10", ""),
            ("bytes=-0", 416, "bytes */10", ""),
        ] {
            assert_eq!(
                answer(parsed(range, None)).await,
                (status, Some(content_range.into()), text.into()),
                "{range}"
            );
        }
    }

    #[tokio::test]
    async fn a_part_of_what_changed_is_the_whole() {
        assert_eq!(answer(parsed("bytes=4-", Some("\"one\""))).await.0, 206);
        for other in ["\"two\"", "W/\"one\"", "Tue, 17 Nov 2026 20:00:00 GMT"] {
            let (status, range, text) = answer(parsed("bytes=4-", Some(other))).await;
            assert_eq!((status, range, text.len()), (200, None, 10), "{other}");
        }
    }

    #[test]
    fn what_is_not_one_part_is_not_understood() {
        for range in
            ["bytes=0-1,3-4", "bytes=", "bytes=-", "bytes=5-4", "lines=1-2", "bytes=a-b", "bytes=+1-2"]
        {
            assert_eq!(parsed(range, None), None, "{range}");
        }
        let headers = HeaderMap::from_iter([(RANGE, "bytes=0-1".parse().unwrap())]);
        assert_eq!(RangeRequest::by(&Method::POST, &headers), None);
    }

    #[test]
    fn a_part_is_asked_for_by_other_names_too() {
        let part = || "bytes=0-1".parse().unwrap();
        for name in &RANGE_HEADERS {
            let headers = HeaderMap::from_iter([(name.clone(), part())]);
            assert_eq!(RangeRequest::by(&Method::GET, &headers), parsed("bytes=0-1", None), "{name}");
        }
        let two = RANGE_HEADERS.iter().take(2).map(|name| (name.clone(), part()));
        assert_eq!(
            RangeRequest::by(&Method::GET, &two.collect()),
            None,
            "two servers could choose two parts"
        );
    }
}
