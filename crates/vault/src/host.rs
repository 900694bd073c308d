//! Reads secrets by reference: from the vault, a variable of the host, or a file of the host.

use super::contents::Contents;
use super::{Vault, VaultError, vault_dir};
use crate::secret::MAX;
use crate::{Secret, SecretError, SecretStore};
use belljar_spec::EnvName;
use belljar_spec::secret::{SecretName, SecretRef};
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The secrets of this host. Read at every use: a changed value counts at once.
///
/// It caches only the encrypted vault; no value and no key is kept from one read to the next.
pub struct HostSecrets {
    vault: Option<Vault>,
    seen: Mutex<Option<Seen>>,
}

/// The vault's file when it was last read.
struct Seen {
    at: Instant,
    state: State,
    contents: Contents,
}

/// Identifies a version of a file: inode, length, modification time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64, u64, i64, i64);

impl HostSecrets {
    /// The user's own vault. Never fails: a read fails if something cannot be read. A process that has one writes no core dump.
    pub fn open() -> HostSecrets {
        HostSecrets::new(Vault::real().ok())
    }

    /// With this vault.
    pub fn with_vault(vault: Vault) -> HostSecrets {
        HostSecrets::new(Some(vault))
    }

    fn new(vault: Option<Vault>) -> HostSecrets {
        // There is no remedy if it fails; it needs no privilege that a process could lack.
        let _ = belljar_sys::core_dump::leave_none();
        HostSecrets { vault, seen: Mutex::new(None) }
    }

    fn vault(&self, name: &SecretName) -> Result<Secret, SecretError> {
        let vault = self.vault.as_ref().ok_or(VaultError::NoHome)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // The metadata is taken before reading: a change in between is seen the next time.
        let state = fs::metadata(vault.place.secrets()).ok().map(|found| State::of(&found));
        let current =
            seen.as_ref().filter(|seen| Some(seen.state) == state && seen.at.elapsed() < REMEMBERED);
        if let Some(current) = current {
            return Ok(vault.open(name, &current.contents)?);
        }
        *seen = None;
        let contents = vault.contents()?;
        let value = vault.open(name, &contents);
        *seen = state.map(|state| Seen { at: Instant::now(), state, contents });
        Ok(value?)
    }
}

impl SecretStore for HostSecrets {
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        match reference {
            SecretRef::Vault(name) => self.vault(name),
            SecretRef::Env(name) => variable(name),
            SecretRef::File(path) => file(path).map_err(|(problem, hint)| SecretError {
                message: format!("the secret `{reference}` cannot be used: {problem}"),
                hint: hint.into(),
            }),
        }
    }
}

impl State {
    fn of(found: &Metadata) -> State {
        State(found.ino(), found.size(), found.mtime(), found.mtime_nsec())
    }
}

fn variable(name: &EnvName) -> Result<Secret, SecretError> {
    let refused = |problem: &str, hint: String| {
        Err(SecretError {
            message: format!("the secret `env:{name}` cannot be used: {problem}"),
            hint: hint.into(),
        })
    };
    let value = std::env::var_os(name.as_str()).map(|value| Secret::new(value.into_vec()));
    match value {
        None => refused("the variable is not set", format!("set `{name}` where belljar is started")),
        Some(value) if value.is_empty() => {
            refused("the variable is empty", format!("set `{name}` where belljar is started"))
        }
        Some(value) => Ok(value),
    }
}

fn file(path: &Path) -> Result<Secret, (String, String)> {
    let look = format!("`ls -lL {}` says whose it is", path.display());
    let unreadable = |error: std::io::Error| (error.to_string(), look.clone());
    let Some((file, found)) = vault_dir::open_file(path).map_err(unreadable)? else {
        return Err(("there is no such file".into(), format!("put the value into {}", path.display())));
    };
    // A user who can write to it chooses what we send as our secret.
    if found.uid() != geteuid().as_raw() && found.uid() != ROOT {
        let problem = format!("the file belongs to the user {}, who can change it", found.uid());
        return Err((problem, "use a file of your own".into()));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(("others can write the file".into(), format!("`chmod go-w {}`", path.display())));
    }
    let value = Secret::read_from(file).map_err(unreadable)?;
    if value.len() > MAX {
        let problem = format!("the file is longer than {} KiB", MAX >> 10);
        return Err((problem, "a secret is a key or a token, not a document".into()));
    }
    if value.is_empty() {
        return Err(("the file is empty".into(), format!("put the value into {}", path.display())));
    }
    Ok(value)
}

/// How long the cache of an unchanged file is used. Two changes within one tick of the filesystem's clock look alike.
const REMEMBERED: Duration = Duration::from_secs(1);
const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn refused(outcome: Result<Secret, SecretError>) -> String {
        outcome.err().map(|error| error.message).expect("it is refused")
    }

    fn reads(store: &HostSecrets, reference: &str, value: &str) -> bool {
        store.read(&reference.parse().unwrap()).is_ok_and(|read| read.reveal() == value.as_bytes())
    }

    #[test]
    fn a_secret_that_was_set_anew_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::in_folder(folder.path().join("vault"));
        let store = HostSecrets::with_vault(vault.clone());
        let name: SecretName = "github".parse().unwrap();
        let set = |value: &str| vault.set(&name, &Secret::new(value.into())).unwrap();
        assert!(refused(store.read(&"secret:github".parse().unwrap())).contains("no secret `github`"));
        for value in ["one", "two", "three, which is longer"] {
            set(value);
            assert!(
                reads(&store, "secret:github", value) && reads(&store, "secret:github", value),
                "{value}"
            );
        }
        vault.remove(&[name]).unwrap();
        assert!(refused(store.read(&"secret:github".parse().unwrap())).contains("no secret `github`"));
    }

    #[test]
    fn a_variable_of_the_host_is_a_secret() {
        let store = HostSecrets::new(None);
        let path = std::env::var("PATH").unwrap();
        assert!(reads(&store, "env:PATH", &path));
        assert!(refused(store.read(&"env:BELLJAR_TEST_NOT_SET".parse().unwrap())).contains("is not set"));
        assert!(refused(store.read(&"secret:x".parse().unwrap())).contains("no place for the vault"));
    }

    #[test]
    fn a_host_file_is_a_secret_if_no_other_user_can_write_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (store, reference) = (HostSecrets::new(None), SecretRef::File(path.clone()));
        let mode = |mode: u32| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refused(store.read(&reference)).contains("no such file"));
        for value in ["one", "two"] {
            fs::write(&path, format!("{value}\n")).unwrap();
            mode(0o644);
            assert!(reads(&store, &reference.to_string(), value));
        }
        for open in [0o666, 0o620] {
            mode(open);
            assert!(refused(store.read(&reference)).contains("others can write"));
        }
        fs::write(&path, "\n").unwrap();
        mode(0o600);
        assert!(refused(store.read(&reference)).contains("empty"));
        fs::write(&path, vec![b'x'; MAX + 1]).unwrap();
        assert!(refused(store.read(&reference)).contains("longer than 64 KiB"));
        let no_file = SecretRef::File(PathBuf::from(folder.path()));
        assert!(refused(store.read(&no_file)).contains("not a file"));
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        use belljar_sys::rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(refused(HostSecrets::new(None).read(&SecretRef::File(path))).contains("not a file"));
    }
}
