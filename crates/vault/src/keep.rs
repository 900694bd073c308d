//! The operations on the vault.

use super::contents::{Contents, MAX_FILE};
use super::key::{Key, KeySource};
use super::vault_dir::{self, Held, VaultDir};
use super::{Damage, VaultError};
use crate::Secret;
use crate::secret::MAX;
use belljar_audit::Stamp;
use belljar_spec::secret::SecretName;
use std::path::{Path, PathBuf};

/// The secrets of one user, encrypted on the disk.
#[derive(Clone)]
pub struct Vault {
    pub(super) place: VaultDir,
    pub(super) key: KeySource,
}

/// The result of setting a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOutcome {
    /// There was no secret of this name.
    New,
    /// There was one of this name; its old value is gone.
    Replaced,
}

/// The public facts of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: SecretName,
    pub set: Stamp,
}

impl Vault {
    /// The user's vault, with the key that the environment names.
    pub fn real() -> Result<Vault, VaultError> {
        let place = VaultDir::real()?;
        let key = KeySource::real(&place);
        Ok(Vault { place, key })
    }

    /// A vault in this folder, with its key beside it.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Vault {
        let place = VaultDir { folder: folder.into() };
        let key = KeySource::Beside(place.key());
        Vault { place, key }
    }

    /// The same with a key from elsewhere.
    #[must_use]
    pub fn with_key(mut self, key: KeySource) -> Vault {
        self.key = key;
        self
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// Stores a value under a name. The first one in a vault also makes the key, if none was given.
    pub fn set(&self, name: &SecretName, value: &Secret) -> Result<SetOutcome, VaultError> {
        if value.is_empty() {
            return Err(VaultError::Empty { name: name.clone() });
        }
        if value.len() > MAX {
            return Err(VaultError::TooLong { name: name.clone() });
        }
        let held = self.place.hold()?;
        let mut contents = self.contents()?;
        let key = match self.key_of(&contents) {
            Err(VaultError::KeyGone { .. }) if contents.entries.is_empty() => self.make_key(&held)?,
            other => other?,
        };
        let entry = key.seal(name, Stamp::now().second(), value)?;
        let before = contents.entries.insert(name.clone(), entry);
        contents.key = Some(key.id());
        self.write(&contents, &held)?;
        Ok(if before.is_some() { SetOutcome::Replaced } else { SetOutcome::New })
    }

    /// Removes secrets: all of these, or none if one of them does not exist. Needs no key.
    pub fn remove(&self, names: &[SecretName]) -> Result<(), VaultError> {
        if !self.place.is_there()? {
            return names.first().map_or(Ok(()), |name| Err(VaultError::NoSuchSecret { name: name.clone() }));
        }
        let held = self.place.hold()?;
        let mut contents = self.contents()?;
        if let Some(name) = names.iter().find(|name| !contents.entries.contains_key(name)) {
            return Err(VaultError::NoSuchSecret { name: name.clone() });
        }
        contents.entries.retain(|name, _| !names.contains(name));
        self.write(&contents, &held)
    }

    /// The secrets, by name. Needs no key.
    pub fn list(&self) -> Result<Vec<Listed>, VaultError> {
        let listed = |(name, entry): (&SecretName, &super::Entry)| Listed {
            name: name.clone(),
            set: Stamp::at(entry.set),
        };
        Ok(self.contents()?.entries().map(listed).collect())
    }

    /// The value of a secret.
    pub fn read(&self, name: &SecretName) -> Result<Secret, VaultError> {
        self.open(name, &self.contents()?)
    }

    pub(super) fn open(&self, name: &SecretName, contents: &Contents) -> Result<Secret, VaultError> {
        let entry = contents.entries.get(name);
        let entry = entry.ok_or_else(|| VaultError::NoSuchSecret { name: name.clone() })?;
        let key = self.key_of(contents)?;
        key.open(name, entry).ok_or_else(|| VaultError::Changed { name: name.clone() })
    }

    /// The present content of the file; empty if there is no file.
    pub(super) fn contents(&self) -> Result<Contents, VaultError> {
        if !self.place.is_there()? {
            return Ok(Contents::default());
        }
        self.contents_in(&self.place.secrets())
    }

    /// The same, without checking the folder.
    pub(super) fn contents_in(&self, path: &Path) -> Result<Contents, VaultError> {
        match vault_dir::read_private(path, MAX_FILE)? {
            None => Ok(Contents::default()),
            Some(bytes) => {
                Contents::read(&bytes).map_err(|damage| VaultError::Damaged { path: path.into(), damage })
            }
        }
    }

    /// The key, if it is the one that encrypted the present secrets.
    pub(super) fn key_of(&self, contents: &Contents) -> Result<Key, VaultError> {
        let key = self.key.read()?.ok_or_else(|| VaultError::KeyGone { path: self.place.key() })?;
        match &contents.key {
            Some(sealed_with) if !contents.entries.is_empty() && *sealed_with != key.id() => {
                Err(VaultError::WrongKey { from: self.key.to_string() })
            }
            _ => Ok(key),
        }
    }

    fn make_key(&self, held: &Held) -> Result<Key, VaultError> {
        let key = Key::random()?;
        // On disk before any value is encrypted with it.
        self.place.replace(&self.place.key(), key.text().as_bytes(), held)?;
        Ok(key)
    }

    fn write(&self, contents: &Contents, held: &Held) -> Result<(), VaultError> {
        let (path, bytes) = (self.place.secrets(), contents.written());
        if bytes.len() > MAX_FILE {
            return Err(VaultError::Damaged { path, damage: Damage::TooLong });
        }
        self.place.replace(&path, &bytes, held)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;
    use belljar_sys::rustix::process::geteuid;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};
    use tempfile::TempDir;
    use zeroize::Zeroizing;

    fn vault() -> (TempDir, Vault) {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::in_folder(folder.path().join("state/vault"));
        (folder, vault)
    }

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn set(vault: &Vault, called: &str, value: &str) -> Result<SetOutcome, VaultError> {
        vault.set(&name(called), &Secret::new(value.into()))
    }

    fn reads(vault: &Vault, called: &str, value: &str) -> bool {
        vault.read(&name(called)).is_ok_and(|read| read.reveal() == value.as_bytes())
    }

    /// The error; also checks that no message contains a value.
    fn failure<T>(outcome: Result<T, VaultError>) -> VaultError {
        let error = outcome.err().expect("it fails");
        assert!(!format!("{error} {} {error:?}", error.hint()).contains("hunter2"), "{error}");
        error
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_set_is_read_until_it_is_removed() {
        let (_folder, vault) = vault();
        assert_eq!(vault.list().unwrap(), []);
        assert_eq!(set(&vault, "b", "hunter2 1").unwrap(), SetOutcome::New);
        assert_eq!(set(&vault, "a", "hunter2 2").unwrap(), SetOutcome::New);
        assert_eq!(set(&vault, "b", "hunter2 3").unwrap(), SetOutcome::Replaced);
        assert!(reads(&vault, "a", "hunter2 2") && reads(&vault, "b", "hunter2 3"));
        let listed: Vec<String> =
            vault.list().unwrap().iter().map(|listed| listed.name.to_string()).collect();
        assert_eq!(listed, ["a", "b"]);
        let error = failure(vault.remove(&[name("a"), name("c")]));
        assert!(matches!(error, VaultError::NoSuchSecret { name } if name.as_str() == "c"));
        assert!(reads(&vault, "a", "hunter2 2"), "all or none");
        vault.remove(&[name("a"), name("b")]).unwrap();
        assert_eq!(vault.list().unwrap(), []);
        assert!(matches!(failure(vault.read(&name("a"))), VaultError::NoSuchSecret { .. }));
    }

    #[test]
    fn nothing_on_the_disk_holds_a_value_and_all_of_it_is_ours_alone() {
        let (_folder, vault) = vault();
        set(&vault, "a", "hunter2, and more of it").unwrap();
        assert_eq!(mode(vault.folder()), 0o700);
        let files: Vec<_> =
            fs::read_dir(vault.folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 3, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
            let bytes = fs::read(&file).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"hunter2"), "{}", file.display());
        }
    }

    #[test]
    fn a_value_is_something_and_not_a_document() {
        let (_folder, vault) = vault();
        assert!(matches!(failure(set(&vault, "a", "")), VaultError::Empty { .. }));
        assert!(matches!(failure(set(&vault, "a", &"v".repeat(MAX + 1))), VaultError::TooLong { .. }));
        assert!(!vault.folder().exists());
        set(&vault, "a", &"v".repeat(MAX)).unwrap();
        assert!(reads(&vault, "a", &"v".repeat(MAX)));
    }

    #[test]
    fn another_key_opens_nothing_and_seals_nothing_beside_it() {
        let (_folder, vault) = vault();
        set(&vault, "a", "hunter2").unwrap();
        let other = Key::random().unwrap();
        let other =
            vault.clone().with_key(KeySource::Variable(Zeroizing::new(other.text().as_bytes().to_vec())));
        assert!(matches!(failure(other.read(&name("a"))), VaultError::WrongKey { .. }));
        assert!(matches!(failure(set(&other, "b", "hunter2")), VaultError::WrongKey { .. }));
        let no_key = vault.clone().with_key(KeySource::Variable(Zeroizing::new(b"hunter2".to_vec())));
        assert!(matches!(failure(no_key.read(&name("a"))), VaultError::NotAKey { .. }));
        let nowhere = vault.clone().with_key(KeySource::Named("/nowhere/key".into()));
        assert!(matches!(failure(nowhere.read(&name("a"))), VaultError::NoKeyFile { .. }));
        // Without secrets any key fits.
        vault.remove(&[name("a")]).unwrap();
        set(&other, "b", "hunter2 of b").unwrap();
        assert!(reads(&other, "b", "hunter2 of b"));
        assert!(matches!(failure(vault.read(&name("b"))), VaultError::WrongKey { .. }));
    }

    #[test]
    fn a_lost_key_is_said_and_never_replaced() {
        let (_folder, vault) = vault();
        set(&vault, "a", "hunter2").unwrap();
        fs::remove_file(vault.place.key()).unwrap();
        assert!(matches!(failure(vault.read(&name("a"))), VaultError::KeyGone { .. }));
        assert!(matches!(failure(set(&vault, "b", "hunter2")), VaultError::KeyGone { .. }));
        assert!(!vault.place.key().exists());
    }

    #[test]
    fn a_swapped_or_changed_entry_is_said() {
        let (_folder, vault) = vault();
        set(&vault, "one", "hunter2 1").unwrap();
        set(&vault, "two", "hunter2 2").unwrap();
        let file = vault.place.secrets();
        let text = fs::read_to_string(&file).unwrap();
        let swapped = text.replace("one", "three").replace("two", "one").replace("three", "two");
        fs::write(&file, &swapped).unwrap();
        for called in ["one", "two"] {
            assert!(matches!(failure(vault.read(&name(called))), VaultError::Changed { .. }), "{called}");
        }
        fs::write(&file, &text[..text.len() / 2]).unwrap();
        assert!(matches!(failure(vault.read(&name("one"))), VaultError::Damaged { .. }));
        assert!(matches!(failure(set(&vault, "one", "hunter2")), VaultError::Damaged { .. }));
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            text[..text.len() / 2],
            "what is there is not overwritten"
        );
    }

    #[test]
    fn what_others_can_reach_is_not_used() {
        let (_folder, vault) = vault();
        set(&vault, "a", "hunter2").unwrap();
        for (path, right) in
            [(vault.place.key(), 0o600), (vault.place.secrets(), 0o600), (vault.place.folder.clone(), 0o700)]
        {
            for open in [0o040, 0o004, 0o020] {
                fs::set_permissions(&path, Permissions::from_mode(right | open)).unwrap();
                let error = failure(vault.read(&name("a")));
                assert!(matches!(&error, VaultError::OpenToOthers { path: named, .. } if *named == path));
                assert!(matches!(failure(set(&vault, "b", "hunter2")), VaultError::OpenToOthers { .. }));
            }
            fs::set_permissions(&path, Permissions::from_mode(right)).unwrap();
            assert!(reads(&vault, "a", "hunter2"));
        }
    }

    #[test]
    fn what_belongs_to_another_user_is_not_used() {
        let (_folder, vault) = vault();
        set(&vault, "a", "hunter2").unwrap();
        if !geteuid().is_root() {
            // Only root can change a file's owner; for an ordinary user, root is another user.
            let theirs = Vault::in_folder("/etc");
            assert!(matches!(failure(theirs.read(&name("a"))), VaultError::NotOurs { owner: 0, .. }));
            return;
        }
        for path in [vault.place.key(), vault.place.secrets(), vault.place.folder.clone()] {
            chown(&path, Some(65534), None).unwrap();
            let error = failure(vault.read(&name("a")));
            assert!(matches!(&error, VaultError::NotOurs { path: named, owner: 65534 } if *named == path));
            assert!(matches!(failure(set(&vault, "b", "hunter2")), VaultError::NotOurs { .. }));
            chown(&path, Some(0), None).unwrap();
        }
        assert!(reads(&vault, "a", "hunter2"));
    }

    #[test]
    fn secrets_that_are_set_at_once_are_all_kept() {
        let (_folder, vault) = vault();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let vault = &vault;
                scope.spawn(move || set(vault, &format!("s{number}"), &format!("hunter2 {number}")).unwrap());
            }
        });
        for number in 0..8 {
            assert!(reads(&vault, &format!("s{number}"), &format!("hunter2 {number}")));
        }
    }

    #[test]
    fn leftovers_of_a_killed_writer_do_no_harm() {
        let (_folder, vault) = vault();
        set(&vault, "a", "hunter2").unwrap();
        fs::write(vault.folder().join("secrets.new"), "half a fi").unwrap();
        fs::write(vault.folder().join("key.new"), "half a k").unwrap();
        assert!(reads(&vault, "a", "hunter2"));
        set(&vault, "b", "hunter2 of b").unwrap();
        assert!(reads(&vault, "a", "hunter2") && reads(&vault, "b", "hunter2 of b"));
    }

    #[test]
    fn a_check_says_all_that_is_wrong() {
        let (_folder, vault) = vault();
        assert!(vault.check().is_fine() && vault.check().findings.is_empty());
        set(&vault, "a", "hunter2").unwrap();
        set(&vault, "b", "hunter2").unwrap();
        assert!(vault.check().is_fine());
        assert_eq!(vault.check().findings.len(), 5, "the folder, the key, the file, two secrets");
        let file = vault.place.secrets();
        let text = fs::read_to_string(&file).unwrap().replacen(r#""a""#, r#""c""#, 1);
        fs::write(&file, text).unwrap();
        fs::set_permissions(vault.folder(), Permissions::from_mode(0o755)).unwrap();
        let report = vault.check();
        let wrong: Vec<&Part> = report
            .findings
            .iter()
            .filter(|finding| finding.outcome.is_err())
            .map(|finding| &finding.part)
            .collect();
        assert_eq!(wrong, [&Part::Folder(vault.folder().into()), &Part::Secret(name("c"))]);
    }
}
