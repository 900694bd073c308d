//! Files in a sandbox.

use crate::client::body::{self, Download};
use crate::client::error::ClientError;
use crate::client::events::Events;
use crate::client::sandbox::Sandbox;
use crate::{Fetch, Fetched, FileEntry, FileStat, MakeFolder, MoveFile, Page, SetAttributes, WatchEvent};
use hyper::Method;
use hyper::body::Bytes;
use tokio::io::AsyncRead;

impl Sandbox {
    /// Makes an HTTP request under the sandbox's egress policy.
    pub async fn fetch(&self, request: &Fetch) -> Result<Fetched, ClientError> {
        self.call(Method::POST, "/fetch").json(request).answer().await
    }

    /// A file's bytes as they come.
    pub async fn read_file(&self, path: &str) -> Result<Download, ClientError> {
        Ok(self.call(Method::GET, "/files").query("path", path).send().await?.1)
    }

    /// All of a file, if it is no larger than `most`.
    pub async fn file(&self, path: &str, most: usize) -> Result<Vec<u8>, ClientError> {
        self.read_file(path).await?.collect(most).await
    }

    /// Makes a file of these bytes; what was there is replaced.
    pub async fn write_file(&self, path: &str, bytes: impl Into<Bytes>) -> Result<(), ClientError> {
        self.call(Method::PUT, "/files").query("path", path).raw(body::bytes(bytes)).done().await
    }

    /// The same, of what a reader gives, however much that is. A length that is said is kept to.
    pub async fn write_file_from(
        &self,
        path: &str,
        reader: impl AsyncRead + Send + Unpin + 'static,
        length: Option<u64>,
    ) -> Result<(), ClientError> {
        self.call(Method::PUT, "/files").query("path", path).raw(body::streamed(reader, length)).done().await
    }

    pub async fn remove_file(&self, path: &str, recursive: bool) -> Result<(), ClientError> {
        self.call(Method::DELETE, "/files").query("path", path).query("recursive", recursive).done().await
    }

    pub async fn stat(&self, path: &str) -> Result<FileStat, ClientError> {
        self.call(Method::GET, "/files/stat").query("path", path).answer().await
    }

    /// What is in a folder, however much that is.
    pub async fn list(&self, path: &str) -> Result<Vec<FileEntry>, ClientError> {
        let mut all = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let call = self.call(Method::GET, "/files/list").query("path", path);
            let page: Page<FileEntry> = call.maybe_query("after", after.as_deref()).answer().await?;
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Gives a file or folder another name.
    pub async fn move_file(&self, from: &str, to: &str) -> Result<(), ClientError> {
        let request = MoveFile { from: from.into(), to: to.into() };
        self.call(Method::POST, "/files/move").json(&request).done().await
    }

    pub async fn make_folder(&self, path: &str, recursive: bool) -> Result<(), ClientError> {
        let request = MakeFolder { path: path.into(), recursive };
        self.call(Method::POST, "/files/folder").json(&request).done().await
    }

    /// Gives a file attributes, in the place of those whose names begin with the prefix.
    pub async fn set_attributes(&self, request: &SetAttributes) -> Result<(), ClientError> {
        self.call(Method::PUT, "/files/attributes").json(request).done().await
    }

    /// What happens to a path from now on.
    pub async fn watch(&self, path: &str, recursive: bool) -> Result<Events<WatchEvent>, ClientError> {
        let call = self.call(Method::GET, "/files/watch").wants_events();
        let (_, download) = call.query("path", path).query("recursive", recursive).send().await?;
        Ok(Events::new(download))
    }
}
