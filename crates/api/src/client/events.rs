//! A stream of typed events.

use crate::client::body::Download;
use crate::client::error::ClientError;
use crate::client::sse::{Event, Reader};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// Events as they happen.
pub struct Events<T> {
    download: Download,
    reader: Reader,
    what: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Events<T> {
    pub(crate) fn new(download: Download) -> Events<T> {
        Events { download, reader: Reader::default(), what: PhantomData }
    }

    /// The next one; nothing when there will be no more. May be dropped while it waits, and nothing is lost.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        match self.next_raw().await? {
            Some(event) => Ok(Some(decoded(&event)?)),
            None => Ok(None),
        }
    }

    pub(crate) async fn next_raw(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.reader.next() {
                return Ok(Some(event));
            }
            match self.download.next().await? {
                Some(bytes) => self.reader.feed(&bytes),
                None => return Ok(None),
            }
        }
    }
}

pub(crate) fn decoded<T: DeserializeOwned>(event: &Event) -> Result<T, ClientError> {
    serde_json::from_str(&event.data)
        .map_err(|error| ClientError::Protocol(format!("an event that is not valid: {error}")))
}
