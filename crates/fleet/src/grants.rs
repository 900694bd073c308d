//! Grants: tokens, and what they allow. Kept in `grants.json`, readable by its user alone; of a token only the hash of its secret part.
//!
//! One process writes at a time: the daemon, or another process that holds its lock. A token is `bjt_<id>_<secret>`: the id finds
//! the grant, and the secret is compared by its hash, so that what a file or a log shows opens nothing.

use crate::sweep::Ground;
use crate::{Caller, admit};
use belljar_api::{GrantInfo, NewGrant, NewToken, TOKEN_ID_DIGITS, TOKEN_PREFIX};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_state::{Survives, write_atomic};
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The grants of one state directory.
#[derive(Debug)]
pub struct GrantStore {
    path: PathBuf,
    grants: Mutex<Grants>,
}

/// What is in the file.
#[derive(Debug)]
enum Grants {
    Known(Vec<StoredGrant>),
    /// The file exists and cannot be parsed. Every token is refused, the owner of this machine needs none, and the file is left as it is
    /// until the owner repairs or moves it.
    Damaged,
}

/// A grant as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredGrant {
    #[serde(flatten)]
    info: GrantInfo,
    /// SHA-256 of the token's secret part, in hexadecimal.
    hash: String,
}

impl StoredGrant {
    fn counts(&self, now_ms: i64) -> bool {
        self.info.expires_ms.is_none_or(|expires| now_ms < expires)
    }

    fn shown(&self) -> Shown {
        let caller = Caller::granted(&self.info.id, self.info.rules.clone());
        Shown { caller, expires_ms: self.info.expires_ms }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Written {
    version: u32,
    grants: Vec<StoredGrant>,
}

/// A caller that showed a token, and until when it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub caller: Caller,
    pub expires_ms: Option<i64>,
}

impl GrantStore {
    /// Those of `grants.json` in this directory; none, if there is no such file. A file that is damaged keeps nothing down: see
    /// [`GrantStore::damage`].
    pub fn open(directory: &Path) -> GrantStore {
        let path = directory.join("grants.json");
        let grants = read(&path).map_or(Grants::Damaged, Grants::Known);
        GrantStore { path, grants: Mutex::new(grants) }
    }

    /// Why no grant counts, if the file is not understood.
    pub fn damage(&self) -> Option<SandboxError> {
        self.known().err()
    }

    /// Makes one. The token is in the answer and nowhere else.
    pub fn create(&self, new: NewGrant) -> Result<NewToken, SandboxError> {
        if new.name.is_empty() || new.name.len() > MAX_NAME_BYTES || new.name.chars().any(char::is_control) {
            return Err(ErrorCode::RequestValue.error("`name`: a grant needs a name of at most 100 letters"));
        }
        admit::can_be_held(&new.rules.limits)?;
        let (id, secret) = (random::<{ TOKEN_ID_DIGITS / 2 }>()?, random::<32>()?);
        let created_ms = now_ms();
        let expires_ms = new.valid_s.map(|valid| {
            created_ms.saturating_add(i64::try_from(valid.saturating_mul(1000)).unwrap_or(i64::MAX))
        });
        let grant = GrantInfo {
            id: id.clone(),
            name: new.name,
            rules: new.rules,
            created_ms,
            expires_ms,
            last_used_ms: None,
        };
        let mut grants = self.known()?;
        let mut after = grants.clone();
        after.push(StoredGrant { info: grant.clone(), hash: hash(&secret) });
        self.write(&after, Survives::PowerCut)?;
        *grants = after;
        Ok(NewToken { grant, token: format!("{TOKEN_PREFIX}{id}_{secret}") })
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> Result<Vec<GrantInfo>, SandboxError> {
        Ok(self.known()?.iter().map(|stored| stored.info.clone()).collect())
    }

    /// From now on its token is one of nothing.
    pub fn revoke(&self, id: &str) -> Result<GrantInfo, SandboxError> {
        let mut grants = self.known()?;
        let Some(at) = grants.iter().position(|stored| stored.info.id == id) else {
            return Err(ErrorCode::NameUnknown
                .error(format!("there is no grant `{id}`"))
                .hint(hint!("{} shows those there are", Term::ListGrants)));
        };
        let mut after = grants.clone();
        let revoked = after.remove(at);
        self.write(&after, Survives::PowerCut)?;
        *grants = after;
        Ok(revoked.info)
    }

    /// The caller that has this token. `None` for one that was never made, was revoked, or has expired: a caller learns no more than
    /// that. An error where no grant counts at all.
    pub fn caller(&self, token: &str) -> Result<Option<Shown>, SandboxError> {
        let mut grants = self.known()?;
        Ok(self.shown(&mut grants, token))
    }

    /// The holder of a grant, for the owner of this machine, who asks in its place. `None` where the grant does not count any more.
    pub fn holder(&self, id: &str) -> Result<Option<Shown>, SandboxError> {
        let grants = self.known()?;
        let stored = grants.iter().find(|stored| stored.info.id == id && stored.counts(now_ms()));
        Ok(stored.map(StoredGrant::shown))
    }

    fn shown(&self, grants: &mut [StoredGrant], token: &str) -> Option<Shown> {
        let (id, secret) = token.strip_prefix(TOKEN_PREFIX)?.split_once('_')?;
        let shown = hash(secret);
        let now = now_ms();
        let stored = grants.iter_mut().find(|stored| stored.info.id == id)?;
        if !same(stored.hash.as_bytes(), shown.as_bytes()) || !stored.counts(now) {
            return None;
        }
        let shown = stored.shown();
        if stored.info.last_used_ms.is_none_or(|used| now - used >= COARSE_MS) {
            stored.info.last_used_ms = Some(now);
            // For people who clean up; no caller is refused because it could not be written.
            let _ = self.write(grants, Survives::Kill);
        }
        Some(shown)
    }

    fn write(&self, grants: &[StoredGrant], survives: Survives) -> Result<(), SandboxError> {
        let written = Written { version: VERSION, grants: grants.to_vec() };
        let text = serde_json::to_vec_pretty(&written).map_err(io::Error::from);
        text.and_then(|text| write_atomic(&self.path, &text, survives)).map_err(|error| {
            ErrorCode::StateFailed
                .error(format!("cannot write {}: {error}", self.path.display()))
                .caused_by(error)
        })
    }

    /// The grants, or why there are none. A file that was damaged is read again: the owner may have repaired it.
    fn known(&self) -> Result<Known<'_>, SandboxError> {
        // Every change is one assignment after the write: a panic leaves it right.
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*grants, Grants::Damaged) {
            *grants = Grants::Known(read(&self.path)?);
        }
        Ok(Known(grants))
    }
}

/// Grants that are understood.
struct Known<'a>(MutexGuard<'a, Grants>);

impl Deref for Known<'_> {
    type Target = Vec<StoredGrant>;

    fn deref(&self) -> &Vec<StoredGrant> {
        match &*self.0 {
            Grants::Known(grants) => grants,
            Grants::Damaged => panic!("only grants that are understood are given out"),
        }
    }
}

impl DerefMut for Known<'_> {
    fn deref_mut(&mut self) -> &mut Vec<StoredGrant> {
        match &mut *self.0 {
            Grants::Known(grants) => grants,
            Grants::Damaged => panic!("only grants that are understood are given out"),
        }
    }
}

/// The grants of a directory that no daemon has; none can be started as long as this is there.
#[derive(Debug)]
pub struct LoneGrants {
    store: GrantStore,
    _ground: Ground,
}

impl LoneGrants {
    /// Refused while a daemon has the directory.
    pub fn open(directory: &Path) -> Result<LoneGrants, SandboxError> {
        let ground = Ground::take(directory)?;
        Ok(LoneGrants { store: GrantStore::open(directory), _ground: ground })
    }
}

impl Deref for LoneGrants {
    type Target = GrantStore;

    fn deref(&self) -> &GrantStore {
        &self.store
    }
}

fn read(path: &Path) -> Result<Vec<StoredGrant>, SandboxError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(path, error)),
    };
    let written: Written = serde_json::from_slice(&bytes).map_err(|error| unreadable(path, error.into()))?;
    if written.version != VERSION {
        let other = io::Error::other(format!("it is of version {}, and {VERSION} is known", written.version));
        return Err(unreadable(path, other));
    }
    Ok(written.grants)
}

fn unreadable(path: &Path, error: io::Error) -> SandboxError {
    ErrorCode::StateFailed
        .error(format!("cannot read {}: {error}", path.display()))
        .hint("repair it, or move it away: then there are no grants, and every token is refused")
        .caused_by(error)
}

fn random<const BYTES: usize>() -> Result<String, SandboxError> {
    let mut bytes = [0; BYTES];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| {
        ErrorCode::Internal.error(format!("the kernel gives no random bytes: {error}")).caused_by(error)
    })?;
    Ok(HEXLOWER.encode(&bytes))
}

fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret.as_bytes()))
}

/// In a time that does not depend on where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

const VERSION: u32 = 1;
const MAX_NAME_BYTES: usize = 100;
/// `last_used_ms` is for people: a write for each request would be too much for that.
const COARSE_MS: i64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::GrantRules;
    use std::os::unix::fs::PermissionsExt;

    fn new(name: &str) -> NewGrant {
        let rules = GrantRules { allow_sandbox: true, ..GrantRules::default() };
        NewGrant { name: name.into(), rules, valid_s: None }
    }

    #[test]
    fn a_token_is_told_once_and_kept_as_a_hash() {
        let folder = tempfile::tempdir().unwrap();
        let store = GrantStore::open(folder.path());
        let made = store.create(new("ci")).unwrap();
        let secret = made.token.rsplit('_').next().unwrap();
        let file = folder.path().join("grants.json");
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains(secret) && text.contains(&hash(secret)));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = GrantStore::open(folder.path());
        let shown = again.caller(&made.token).unwrap().expect("it counts after a restart");
        assert_eq!(shown.caller.id(), made.grant.id);
        assert!(!shown.caller.is_owner());
    }

    #[test]
    fn what_is_not_quite_the_token_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = GrantStore::open(folder.path());
        let NewToken { grant, token } = store.create(new("a")).unwrap();
        let other = store.create(new("b")).unwrap();
        let (_, secret) = token.rsplit_once('_').unwrap();
        let crossed = format!("bjt_{}_{secret}", other.grant.id);
        for wrong in [
            "",
            "bjt_",
            "bjt__",
            &format!("bjt_{}_", grant.id),
            &format!("{token}0"),
            &crossed,
            "owner",
            &hash(secret),
        ] {
            assert_eq!(store.caller(wrong).unwrap(), None, "{wrong}");
        }
        assert_eq!(store.caller(&token[..token.len() - 1]).unwrap(), None);
        assert!(store.caller(&token).unwrap().is_some());
    }

    #[test]
    fn a_grant_that_was_revoked_or_ended_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = GrantStore::open(folder.path());
        let made = store.create(new("a")).unwrap();
        let holder = store.holder(&made.grant.id).unwrap().expect("it counts");
        assert_eq!((holder.caller.id(), holder.caller.is_owner()), (made.grant.id.as_str(), false));
        assert_eq!(store.revoke(&made.grant.id).unwrap().id, made.grant.id);
        assert_eq!(store.caller(&made.token).unwrap(), None);
        assert_eq!(store.holder(&made.grant.id).unwrap(), None);
        assert_eq!(store.revoke(&made.grant.id).unwrap_err().code, ErrorCode::NameUnknown);
        let ended = store.create(NewGrant { valid_s: Some(0), ..new("b") }).unwrap();
        assert_eq!(store.caller(&ended.token).unwrap(), None);
        assert_eq!(store.holder(&ended.grant.id).unwrap(), None);
        assert_eq!(GrantStore::open(folder.path()).list().unwrap().len(), 1);
    }

    #[test]
    fn a_grant_that_makes_no_sense_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let store = GrantStore::open(folder.path());
        assert_eq!(store.create(new("")).unwrap_err().code, ErrorCode::RequestValue);
        assert!(store.list().unwrap().is_empty());
    }

    #[test]
    fn a_damaged_file_admits_no_caller_and_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants.json");
        let made = GrantStore::open(folder.path()).create(new("a")).unwrap();
        let whole = fs::read(&file).unwrap();
        for damage in ["", "{", "{\"version\":9,\"grants\":[]}"] {
            fs::write(&file, damage).unwrap();
            let store = GrantStore::open(folder.path());
            let code = ErrorCode::StateFailed;
            let found = store.damage().expect("it is damaged");
            assert_eq!(found.code, code);
            assert!(found.message.contains(file.to_str().unwrap()), "{}", found.message);
            assert_eq!(store.caller(&made.token).unwrap_err().code, code);
            assert_eq!(store.create(new("b")).unwrap_err().code, code);
            assert_eq!(store.revoke(&made.grant.id).unwrap_err().code, code);
            assert_eq!(store.list().unwrap_err().code, code);
            assert_eq!(fs::read_to_string(&file).unwrap(), damage, "nothing was written over it");
            fs::write(&file, &whole).unwrap();
            assert!(store.caller(&made.token).unwrap().is_some(), "a file that was repaired counts at once");
        }
    }

    #[test]
    fn grants_of_the_previous_version_count() {
        let folder = tempfile::tempdir().unwrap();
        let old = include_str!("../tests/records/grants.json");
        fs::write(folder.path().join("grants.json"), old).unwrap();
        let rules = &GrantStore::open(folder.path()).list().unwrap()[0].rules;
        assert_eq!(rules.limits.timeout, Some(std::time::Duration::from_secs(600)));
        assert_eq!(rules.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["*", "example.com"]);
    }
}
