//! Files that clients upload for the steps of their templates, as the archives that they send: nothing on the host looks into one. Each is
//! read inside a sandbox, by its own programs.

use super::recipe::FilesHash;
use crate::fault::Fault;
use crate::http::Incoming;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Bytes;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// Where they are, by grant.
pub(crate) struct Uploads(PathBuf);

impl Uploads {
    pub(crate) fn open(directory: &Path) -> io::Result<Uploads> {
        belljar_state::create_private(directory)?;
        let uploads = Uploads(directory.to_path_buf());
        uploads.forget_old();
        Ok(uploads)
    }

    /// The file, if it is there.
    pub(crate) fn find(&self, grant: &str, files: &FilesHash) -> Option<PathBuf> {
        let path = self.path(grant, files);
        path.is_file().then_some(path)
    }

    fn path(&self, grant: &str, files: &FilesHash) -> PathBuf {
        self.0.join(grant).join(files.as_str())
    }

    /// Keeps what a client sends.
    pub(crate) async fn take(&self, grant: &str, files: &FilesHash, mut body: Incoming) -> Result<(), Fault> {
        self.forget_old();
        let kept = self.bytes_of(grant);
        let directory = self.0.join(grant);
        belljar_state::create_private(&directory).map_err(unkept)?;
        let name = crate::token::random::<8>().map_err(unkept)?;
        let part = directory.join(format!("{}.part", data_encoding::HEXLOWER.encode(&name)));
        let has_room = || self.bytes_of(grant) <= MAX_BYTES;
        let written = write(&part, &mut body, MAX_BYTES.saturating_sub(kept), &has_room).await;
        // Others may have come at the same time, and each had seen room for itself.
        let written = written.and_then(|()| if has_room() { Ok(()) } else { Err(no_room()) });
        match written.and_then(|()| fs::rename(&part, self.path(grant, files)).map_err(unkept)) {
            Ok(()) => Ok(()),
            Err(fault) => {
                let _ = fs::remove_file(&part);
                Err(fault)
            }
        }
    }

    fn bytes_of(&self, grant: &str) -> u64 {
        let files = fs::read_dir(self.0.join(grant)).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// Removes what no build has used for a day.
    fn forget_old(&self) {
        let grants = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for file in grants.flat_map(|grant| fs::read_dir(grant.path()).into_iter().flatten().flatten()) {
            let age = file.metadata().and_then(|file| file.modified()).ok();
            let age = age.and_then(|changed| SystemTime::now().duration_since(changed).ok());
            if age.is_some_and(|age| age > KEPT_FOR) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// A thread of its own writes, since writing to a disk blocks.
async fn write(
    path: &Path,
    body: &mut Incoming,
    most: u64,
    has_room: &(dyn Fn() -> bool + Sync),
) -> Result<(), Fault> {
    let path = path.to_path_buf();
    let (to, mut pieces) = mpsc::channel::<Bytes>(PIECES);
    let writing = tokio::task::spawn_blocking(move || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        while let Some(piece) = pieces.blocking_recv() {
            file.write_all(&piece)?;
        }
        Ok(())
    });
    let fed = feed(body, to, most, has_room).await;
    let written = writing.await.unwrap_or_else(|_| Err(io::Error::other("the writing thread ended")));
    written.map_err(unkept)?;
    fed
}

/// Stops early where the disk does; the writer says why.
async fn feed(
    body: &mut Incoming,
    to: mpsc::Sender<Bytes>,
    most: u64,
    has_room: &(dyn Fn() -> bool + Sync),
) -> Result<(), Fault> {
    let (mut left, mut unseen) = (most, 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Fault::bad_request("the files did not come whole"))?;
        let Ok(bytes) = frame.into_data() else { continue };
        left = left.checked_sub(bytes.len() as u64).ok_or_else(no_room)?;
        unseen += bytes.len() as u64;
        if unseen >= LOOK_EVERY_BYTES {
            unseen = 0;
            if !has_room() {
                return Err(no_room());
            }
        }
        if to.send(bytes).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn no_room() -> Fault {
    let message = format!("this API key has {} MiB for files of templates", MAX_BYTES >> 20);
    Fault::new(StatusCode::INSUFFICIENT_STORAGE, message)
}

fn unkept(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Fault::new(StatusCode::INSUFFICIENT_STORAGE, format!("cannot keep the files: {error}"))
        }
        _ => Fault::internal(format!("cannot keep the files: {error}")),
    }
}

/// Of one grant, all together.
const MAX_BYTES: u64 = 4 << 30;
/// How much of one upload comes between two looks at what the grant has.
const LOOK_EVERY_BYTES: u64 = 16 << 20;
const PIECES: usize = 8;
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
