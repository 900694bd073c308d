//! The content of files, over plain HTTP: read whole or in part, and written as one body or as a form.

use super::compression::{Decoder, Encoder, Encoding};
use super::multipart::{FormReader, Piece, boundary};
use super::route::Context;
use super::{filesystem, paths};
use crate::connect::{Code, RpcError};
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Answer, Query, header, json, nothing, set, streamed};
use crate::pieces;
use belljar_api::client::Download;
use belljar_api::{FileKind, SetAttributes};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::sync::mpsc;

/// Sends a file.
pub(crate) async fn read(context: &Context, request: Request<Incoming>) -> Answer {
    let query = Query::of(request.uri().query());
    let path = context.absolute(query.get("path").unwrap_or_default());
    let stat = match filesystem::entry(context, &path).await {
        Ok(entry) => entry,
        Err(error) if error.code == Code::NotFound => {
            return Err(Fault::not_found(format!("path '{path}' does not exist")));
        }
        Err(error) => return Err(plain(error)),
    };
    match stat["type"].as_str() {
        Some("FILE_TYPE_DIRECTORY") => {
            return Err(Fault::bad_request(format!("path '{path}' is a directory")));
        }
        Some("FILE_TYPE_FILE") => {}
        _ => return Err(Fault::bad_request(format!("path '{path}' is not a regular file"))),
    }
    let size = context
        .sandbox
        .stat(&path)
        .await
        .ok()
        .filter(|stat| stat.kind == FileKind::File)
        .map(|stat| stat.size);
    let modified = stat["modifiedTime"].as_str().and_then(crate::api::shapes::from_rfc3339).unwrap_or(0);
    let accepted = header(&request, "accept-encoding");
    let encoding = Encoding::accepted(accepted).ok_or_else(|| {
        Fault::new(StatusCode::NOT_ACCEPTABLE, "a file is sent as it is or as gzip, and neither is accepted")
    })?;
    let told = http_date(modified);
    if header(&request, "if-modified-since")
        .and_then(from_http_date)
        .is_some_and(|since| modified / 1000 <= since)
    {
        let mut response = nothing(StatusCode::NOT_MODIFIED);
        set(&mut response, "last-modified", &told);
        return Ok(response);
    }
    // A file of the kernel has no size that could be trusted.
    let length = size.filter(|size| *size > 0);
    let asked =
        header(&request, "range").filter(|_| header(&request, "if-range").is_none_or(|date| date == told));
    let range = match (asked.map(|asked| Range::parse(asked, length.unwrap_or(0))), length) {
        (Some(Some(Err(()))), Some(length)) => {
            let mut response = nothing(StatusCode::RANGE_NOT_SATISFIABLE);
            set(&mut response, "content-range", &format!("bytes */{length}"));
            return Ok(response);
        }
        (Some(Some(Ok(range))), Some(_)) => Some(range),
        _ => None,
    };
    let download = context.sandbox.read_file(&path).await.map_err(|error| context.fault(error))?;
    let encoding = if range.is_some() { Encoding::Identity } else { encoding };
    let (to, pieces) = mpsc::channel(PIECES);
    tokio::spawn(send(download, range, encoding, to));
    let mut response = Response::new(streamed(pieces));
    set(&mut response, "content-type", "application/octet-stream");
    set(&mut response, "last-modified", &told);
    set(&mut response, "vary", "accept-encoding");
    set(&mut response, "accept-ranges", "bytes");
    match (range, encoding, length) {
        (Some(range), _, Some(length)) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            set(&mut response, "content-range", &format!("bytes {}-{}/{length}", range.first, range.last));
            set(&mut response, "content-length", &(range.last - range.first + 1).to_string());
        }
        (_, Encoding::Gzip, _) => set(&mut response, "content-encoding", "gzip"),
        (_, Encoding::Identity, Some(length)) => set(&mut response, "content-length", &length.to_string()),
        _ => {}
    }
    Ok(response)
}

/// Passes a file's content on, until it ends or the client has gone.
async fn send(
    mut file: Download,
    range: Option<Range>,
    encoding: Encoding,
    to: mpsc::Sender<io::Result<Bytes>>,
) {
    let (mut skip, mut left) =
        range.map_or((0, u64::MAX), |range| (range.first, range.last - range.first + 1));
    let mut encoder = (encoding == Encoding::Gzip).then(Encoder::new);
    while left > 0 {
        let mut bytes = match file.next().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break,
            // The client must not take this for the whole file.
            Err(error) => return drop(to.send(Err(io::Error::other(error.to_string()))).await),
        };
        let before = usize::try_from(skip).unwrap_or(usize::MAX).min(bytes.len());
        skip -= before as u64;
        let _ = bytes.split_to(before);
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= bytes.len() as u64;
        for part in pieces::split(bytes) {
            let encoded: Bytes = match &mut encoder {
                Some(encoder) => encoder.push(&part).into(),
                None => part,
            };
            for piece in pieces::split(encoded) {
                if to.send(Ok(piece)).await.is_err() {
                    return;
                }
            }
        }
    }
    if let Some(encoder) = encoder {
        for piece in pieces::split(encoder.finish().into()) {
            if to.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    }
}

/// A part of a file, both ends within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u64,
    last: u64,
}

impl Range {
    /// `None` for what is to be ignored: other units, several ranges. An error for one outside of the file.
    fn parse(text: &str, length: u64) -> Option<Result<Range, ()>> {
        let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
        if last.contains(',') {
            return None;
        }
        let end = length.checked_sub(1);
        let range = match (first.trim(), last.trim()) {
            ("", suffix) => {
                let suffix: u64 = suffix.parse().ok()?;
                let first = length.saturating_sub(suffix);
                end.filter(|_| suffix > 0).map(|last| Range { first, last })
            }
            (first, last) => {
                let first: u64 = first.parse().ok()?;
                let asked: u64 = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
                end.filter(|end| first <= *end && first <= asked)
                    .map(|end| Range { first, last: asked.min(end) })
            }
        };
        Some(range.ok_or(()))
    }
}

/// Takes files, in one of the two ways that clients send them.
pub(crate) async fn write(context: &Context, request: Request<Incoming>) -> Answer {
    let query = Query::of(request.uri().query());
    let asked = query.get("path").map(String::from);
    let decoder = Decoder::of(header(&request, "content-encoding"))?;
    let metadata = metadata(&request)?;
    let content_type = header(&request, "content-type").unwrap_or_default().to_string();
    let mut body = Body { body: request.into_body(), decoder };
    let mut written = Vec::new();
    if let Some(boundary) = boundary(&content_type) {
        let mut form = Form { reader: FormReader::new(&boundary), body };
        while let Some(file) = form.next_file().await? {
            let path = asked.clone().or(file).filter(|path| !path.is_empty());
            let path = path.ok_or_else(|| {
                Fault::bad_request("a file of the form has no name, and there is no `path`")
            })?;
            written.push(take(context, &path, &metadata, &mut form).await?);
        }
        if written.is_empty() {
            return Err(Fault::bad_request("there is no file in the form"));
        }
    } else if content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(OCTETS)) {
        let path = asked.filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| Fault::bad_request("`path` is missing"))?;
        written.push(take(context, &path, &metadata, &mut body).await?);
    } else {
        let message = format!("a file is sent as multipart/form-data or {OCTETS}");
        return Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(json(StatusCode::OK, &written))
}

/// Writes one file, and says so. A body that is cut changes nothing.
async fn take(
    context: &Context,
    path: &str,
    metadata: &BTreeMap<String, String>,
    content: &mut impl Content,
) -> Result<Value, Fault> {
    let path = context.absolute(path);
    context.sandbox.make_folder(paths::parent(&path), true).await.map_err(|error| context.fault(error))?;
    let (to, reader) = pieces::channel();
    let writing = context.sandbox.write_file_from(&path, reader, None);
    let feeding = async move {
        // The sender is dropped with this: that is the end of the file.
        let to = to;
        loop {
            match content.next().await {
                Ok(Some(bytes)) => {
                    for piece in pieces::split(bytes.into()) {
                        if to.send(Ok(piece)).await.is_err() {
                            // The daemon refused the rest, and says why.
                            return Ok(());
                        }
                    }
                }
                Ok(None) => return Ok(()),
                Err(fault) => {
                    let _ = to.send(Err(io::Error::other(fault.message.clone()))).await;
                    return Err(fault);
                }
            }
        }
    };
    let (written, fed) = tokio::join!(writing, feeding);
    fed?;
    written.map_err(|error| context.fault(error))?;
    let mut told = json!({ "name": paths::name(&path), "path": path, "type": "file" });
    // Every upload replaces all of it; most files have none, before and after.
    let had = context.sandbox.stat(&path).await.map_err(|error| context.fault(error))?;
    if !metadata.is_empty() || had.attributes.keys().any(|name| name.starts_with(filesystem::METADATA)) {
        let named =
            metadata.iter().map(|(name, value)| (format!("{}{name}", filesystem::METADATA), value.clone()));
        let (prefix, attributes) = (filesystem::METADATA.into(), named.collect());
        let asked = SetAttributes { path, prefix, attributes };
        context.sandbox.set_attributes(&asked).await.map_err(|error| context.fault(error))?;
    }
    if !metadata.is_empty() {
        told["metadata"] = json!(metadata);
    }
    Ok(told)
}

/// What clients write on a file beside its content, from the headers of its upload.
fn metadata(request: &Request<Incoming>) -> Result<BTreeMap<String, String>, Fault> {
    let mut found = BTreeMap::new();
    for (name, value) in request.headers() {
        let Some(name) = name.as_str().strip_prefix(METADATA) else { continue };
        let value = value
            .to_str()
            .map_err(|_| Fault::bad_request(format!("the metadata `{name}` is not ASCII text")))?;
        found.insert(name.to_string(), value.to_string());
    }
    Ok(found)
}

/// Bytes of one file, as they come.
trait Content {
    /// Nothing: the file ends.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Fault>;
}

struct Body {
    body: Incoming,
    decoder: Decoder,
}

impl Content for Body {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        loop {
            // All of it, before more is read.
            let piece = self.decoder.next_piece()?;
            if piece.is_some() || self.decoder.is_over() {
                return Ok(piece);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.decoder.push(bytes);
                    }
                }
                Some(Err(_)) => return Err(Fault::bad_request("the body did not come whole")),
                None => self.decoder.end(),
            }
        }
    }
}

struct Form {
    reader: FormReader,
    body: Body,
}

impl Form {
    /// Up to the next file: the name that the form gives it.
    async fn next_file(&mut self) -> Result<Option<Option<String>>, Fault> {
        let mut is_other = false;
        loop {
            match self.piece().await? {
                Some(Piece::Begin { field, file }) if field == "file" => return Ok(Some(file)),
                Some(Piece::Begin { .. }) => is_other = true,
                Some(Piece::Data(_)) if is_other => {}
                Some(Piece::End | Piece::Data(_)) => is_other = false,
                None => return Ok(None),
            }
        }
    }

    async fn piece(&mut self) -> Result<Option<Piece>, Fault> {
        loop {
            let piece = self.reader.next_piece().map_err(|error| Fault::bad_request(error.message()))?;
            if piece.is_some() {
                return Ok(piece);
            }
            match self.body.next().await? {
                Some(bytes) => self.reader.push(&bytes),
                None if self.reader.is_over() => return Ok(None),
                None => return Err(Fault::bad_request("the form ends before its last boundary")),
            }
        }
    }
}

impl Content for Form {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        match self.piece().await? {
            Some(Piece::Data(bytes)) => Ok(Some(bytes)),
            Some(Piece::End) => Ok(None),
            Some(Piece::Begin { .. }) | None => Err(Fault::bad_request("the form ends within a file")),
        }
    }
}

fn plain(error: RpcError) -> Fault {
    Fault::new(error.code.status(), error.message)
}

/// RFC 9110, 5.6.7.
fn http_date(ms: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(ms.div_euclid(1000)).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc2822).unwrap_or_default().replace("+0000", "GMT")
}

/// In seconds.
fn from_http_date(text: &str) -> Option<i64> {
    let text = text.trim().replace("GMT", "+0000");
    OffsetDateTime::parse(&text, &Rfc2822).ok().map(OffsetDateTime::unix_timestamp)
}

const OCTETS: &str = "application/octet-stream";
const METADATA: &str = "x-metadata-";
const PIECES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_file_or_refused() {
        let range = |first, last| Some(Ok(Range { first, last }));
        for (text, length, expected) in [
            ("bytes=0-3", 10, range(0, 3)),
            ("bytes=8-", 10, range(8, 9)),
            ("bytes=8-99", 10, range(8, 9)),
            ("bytes=-3", 10, range(7, 9)),
            ("bytes=-99", 10, range(0, 9)),
            ("bytes=10-", 10, Some(Err(()))),
            ("bytes=5-4", 10, Some(Err(()))),
            ("bytes=-0", 10, Some(Err(()))),
            ("bytes=0-", 0, Some(Err(()))),
            ("bytes=0-1,3-4", 10, None),
            ("lines=0-1", 10, None),
            ("bytes=x-1", 10, None),
        ] {
            assert_eq!(Range::parse(text, length), expected, "{text} of {length}");
        }
    }

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(http_date(784_111_777_500), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(from_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
    }
}
