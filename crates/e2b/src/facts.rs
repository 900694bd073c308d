//! What this protocol knows of a sandbox beyond the sandbox itself: whose it is, how long it lives, what its maker wrote on it. One
//! small file for each, written before an answer tells of it, so that a daemon that is killed finds all of it again.

use crate::template::start::Begin;
use belljar_api::CreateSandbox;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What is kept of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) version: u32,
    /// Its id in this protocol: small letters and digits, since it is a part of host names.
    pub(crate) id: String,
    /// What its tokens follow from beside its id: one that is made later by the same idempotency key has the same id, and other tokens.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) salt: String,
    /// The grant that made it.
    pub(crate) grant: String,
    /// Its name, key and lease at the daemon; empty while it is being made.
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) lease: String,
    pub(crate) standing: Standing,
    pub(crate) template: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// When its present life began: the first, or the last one that was resumed.
    pub(crate) started_ms: i64,
    pub(crate) ends_ms: i64,
    /// How long it was to live at first; so long it lives again when a request wakes it.
    pub(crate) timeout_s: u64,
    pub(crate) on_timeout: OnTimeout,
    pub(crate) auto_resume: bool,
    pub(crate) allow_internet_access: Option<bool>,
    /// As its maker wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<serde_json::Value>,
    /// Whether its ports are open without a token.
    pub(crate) public_traffic: bool,
    /// What a server inside sees as `Host`; `${PORT}` stands for the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mask_request_host: Option<String>,
    pub(crate) size: Size,
    /// How each of its lives begins, as its template says.
    #[serde(default)]
    pub(crate) begin: Begin,
    /// What the daemon is asked for. After a crash before its answer it is asked again, under the same name; and for a fork.
    pub(crate) request: Box<CreateSandbox>,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// The daemon is making it.
    Making,
    Running,
    /// All processes inside are paused.
    Paused,
    /// Only its files are there.
    Stopped,
    /// It is being removed.
    Ending,
}

/// What happens to a sandbox when its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnTimeout {
    Kill,
    /// With its memory.
    Pause,
    /// Its files alone are kept.
    Stop,
}

/// How large a sandbox is, as its listing says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) cpus: u32,
    pub(crate) memory_mb: u64,
    pub(crate) disk_mb: u64,
}

impl Facts {
    /// What its tokens are for.
    pub(crate) fn bearer(&self) -> String {
        // Neither has a dot. Older ones have no salt.
        if self.salt.is_empty() { self.id.clone() } else { format!("{}.{}", self.id, self.salt) }
    }

    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.standing, Standing::Paused | Standing::Stopped)
    }

    /// Whether there is a sandbox that its maker knows of.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.standing, Standing::Making | Standing::Ending)
    }
}

/// The files.
pub(crate) struct FactsDir(PathBuf);

impl FactsDir {
    /// Makes the directory, and reads what is in it. A file that cannot be understood is left as it is and reported.
    pub(crate) fn open(directory: &Path) -> io::Result<(FactsDir, Vec<Facts>)> {
        belljar_state::create_private(directory)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<Facts>(&text)?));
            match read {
                Ok(facts) if facts.version == VERSION => found.push(facts),
                Ok(facts) => {
                    tracing::warn!("{} is of version {}, and is left", path.display(), facts.version)
                }
                Err(error) => tracing::warn!("{} is not understood, and is left: {error}", path.display()),
            }
        }
        Ok((FactsDir(directory.to_path_buf()), found))
    }

    pub(crate) fn write(&self, facts: &Facts) -> io::Result<()> {
        let text = serde_json::to_vec(facts).expect("plain data can be written as JSON");
        belljar_state::write_atomic(&self.path(&facts.id), &text, belljar_state::Survives::Kill)
    }

    pub(crate) fn remove(&self, id: &str) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// So many seconds after a time.
pub(crate) fn after(now_ms: i64, seconds: u64) -> i64 {
    now_ms.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

pub(crate) const VERSION: u32 = 1;

#[cfg(test)]
pub(crate) fn sample(id: &str) -> Facts {
    Facts {
        version: VERSION,
        id: id.into(),
        salt: String::new(),
        grant: "g".into(),
        name: "bj-a".into(),
        key: "a".into(),
        lease: "lease_1".into(),
        standing: Standing::Running,
        template: "base".into(),
        metadata: BTreeMap::new(),
        started_ms: 1000,
        ends_ms: 2000,
        timeout_s: 1,
        on_timeout: OnTimeout::Kill,
        auto_resume: false,
        allow_internet_access: None,
        network: None,
        public_traffic: true,
        mask_request_host: None,
        size: Size { cpus: 2, memory_mb: 512, disk_mb: 1024 },
        begin: Begin::default(),
        request: Box::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_found_again_and_what_is_damaged_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sandboxes");
        let (files, found) = FactsDir::open(&place).unwrap();
        assert!(found.is_empty());
        let facts = sample("abc");
        files.write(&facts).unwrap();
        fs::write(place.join("x.json"), "{").unwrap();
        assert_eq!(FactsDir::open(&place).unwrap().1, [facts]);
        files.remove("abc").unwrap();
        files.remove("abc").unwrap();
        assert!(FactsDir::open(&place).unwrap().1.is_empty());
        assert!(place.join("x.json").exists());
    }
}
