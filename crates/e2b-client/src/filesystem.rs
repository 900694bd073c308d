//! Files of a remote sandbox.

use crate::http::Failure;
use crate::rpc::{CallError, Envd, Messages, refusal};
use belljar_wire::message::{Bytes as Raw, ChangeKind, EntryKind, Metadata};
use futures_util::Stream;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What is known of a path.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EntryInfo {
    pub(crate) name: String,
    #[serde(rename = "type")]
    kind: String,
    /// A number as text: the protocol's 64 bits.
    size: Value,
    mode: u32,
    pub(crate) owner: String,
    pub(crate) group: String,
    modified_time: String,
    symlink_target: Option<String>,
    metadata: BTreeMap<String, String>,
}

impl EntryInfo {
    pub(crate) fn kind(&self) -> EntryKind {
        match self.kind.as_str() {
            // Said of what it leads to, where it leads anywhere.
            _ if self.symlink_target.is_some() => EntryKind::Symlink,
            "FILE_TYPE_FILE" => EntryKind::File,
            "FILE_TYPE_DIRECTORY" => EntryKind::Directory,
            "FILE_TYPE_SYMLINK" => EntryKind::Symlink,
            _ => EntryKind::Other,
        }
    }

    /// In the guest's words; users have numbers there.
    pub(crate) fn metadata(&self, owner: (u32, u32)) -> Metadata {
        let size = self.size.as_str().and_then(|size| size.parse().ok()).or_else(|| self.size.as_u64());
        let modified =
            OffsetDateTime::parse(&self.modified_time, &Rfc3339).map(OffsetDateTime::unix_timestamp_nanos);
        let attribute = |(name, value): (&String, &String)| {
            (Raw(format!("{METADATA}{name}").into_bytes()), Raw(value.clone().into_bytes()))
        };
        Metadata {
            kind: self.kind(),
            size: size.unwrap_or(0),
            mtime_ms: modified
                .ok()
                .and_then(|nanos| i64::try_from(nanos.div_euclid(1_000_000)).ok())
                .unwrap_or(0),
            mode: self.mode & 0o7777,
            owner,
            link: self.symlink_target.as_ref().map(|target| Raw(target.clone().into_bytes())),
            attributes: self.metadata.iter().map(attribute).collect(),
        }
    }
}

/// The content of a file, as it comes.
pub(crate) struct Content {
    body: Incoming,
    _connection: Box<dyn Send>,
}

impl Content {
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(_) => {}
                },
                Some(Err(error)) => return Err(Failure::Broken(error.to_string())),
                None => return Ok(None),
            }
        }
    }
}

/// What changes in a folder.
pub(crate) struct Changes(Messages);

impl Changes {
    /// What happened, and to which path below the folder; nothing behind the last.
    pub(crate) async fn next(&mut self) -> Result<Option<(ChangeKind, String)>, CallError> {
        loop {
            let Some(message) = self.0.next().await? else { return Ok(None) };
            let Some(event) = message.get("filesystem") else { continue };
            let kind = match event["type"].as_str() {
                Some("EVENT_TYPE_CREATE") => ChangeKind::Created,
                Some("EVENT_TYPE_WRITE" | "EVENT_TYPE_CHMOD") => ChangeKind::Modified,
                Some("EVENT_TYPE_REMOVE" | "EVENT_TYPE_RENAME") => ChangeKind::Removed,
                _ => continue,
            };
            return Ok(Some((kind, event["name"].as_str().unwrap_or_default().to_string())));
        }
    }
}

impl Envd {
    pub(crate) async fn stat(&self, path: &str) -> Result<EntryInfo, CallError> {
        let mut answer = self.unary("filesystem.Filesystem/Stat", &json!({ "path": path })).await?;
        read(answer["entry"].take())
    }

    pub(crate) async fn list(&self, path: &str) -> Result<Vec<EntryInfo>, CallError> {
        let mut answer =
            self.unary("filesystem.Filesystem/ListDir", &json!({ "path": path, "depth": 1 })).await?;
        match answer["entries"].take() {
            Value::Null => Ok(Vec::new()),
            entries => read(entries),
        }
    }

    /// Makes a folder and those above it.
    pub(crate) async fn make_folder(&self, path: &str) -> Result<(), CallError> {
        self.unary("filesystem.Filesystem/MakeDir", &json!({ "path": path })).await.map(drop)
    }

    /// Removes a path and all below it.
    pub(crate) async fn remove(&self, path: &str) -> Result<(), CallError> {
        self.unary("filesystem.Filesystem/Remove", &json!({ "path": path })).await.map(drop)
    }

    /// Says what changes in a folder; returns when every later change is told.
    pub(crate) async fn watch(&self, path: &str, recursive: bool) -> Result<Changes, CallError> {
        let message = json!({ "path": path, "recursive": recursive });
        let mut messages = self.stream("filesystem.Filesystem/WatchDir", &message).await?;
        match messages.next().await? {
            Some(first) if first.get("start").is_some() => Ok(Changes(messages)),
            _ => Err(CallError::Failed(Failure::Invalid("a folder is watched without a start".into()))),
        }
    }

    pub(crate) async fn read(&self, user: &str, path: &str) -> Result<Content, CallError> {
        let (base, call) = self.of_files(Method::GET, &query(user, path));
        let (response, connection) =
            self.shared.http.streamed(base, &call).await.map_err(CallError::Failed)?;
        let status = response.status();
        if status.is_success() {
            return Ok(Content { body: response.into_body(), _connection: Box::new(connection) });
        }
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Err(refusal(status, &body))
    }

    /// Makes a file with this content, and the folders above it. A body that ends with an error may leave a part of it.
    pub(crate) async fn write(
        &self,
        user: &str,
        path: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), CallError> {
        let (base, mut call) = self.of_files(Method::POST, &query(user, path));
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        let (status, body) = self.shared.http.upload(base, &call, body).await.map_err(CallError::Failed)?;
        if status.is_success() { Ok(()) } else { Err(refusal(status, &body)) }
    }
}

fn query(user: &str, path: &str) -> String {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    format!("path={}&username={}", encode(path), encode(user))
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, CallError> {
    serde_json::from_value(value).map_err(|error| CallError::Failed(Failure::Invalid(error.to_string())))
}

/// What clients write on a file is `user.e2b.NAME`.
const METADATA: &str = "e2b.";
