//! Checks the vault. Every part is checked, even if another one is wrong.

use super::{Vault, VaultError};
use belljar_spec::secret::SecretName;
use std::path::PathBuf;

/// The result of a check.
pub struct Report {
    /// In the order in which they were checked.
    pub findings: Vec<Finding>,
}

/// A part of the vault, and its problem.
pub struct Finding {
    pub part: Part,
    pub outcome: Result<(), VaultError>,
}

/// The part that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Folder(PathBuf),
    /// The source of the key, as text.
    Key(String),
    File(PathBuf),
    Secret(SecretName),
}

impl Report {
    /// Is nothing wrong?
    pub fn is_fine(&self) -> bool {
        self.findings.iter().all(|finding| finding.outcome.is_ok())
    }
}

impl Vault {
    /// Checks the folder, the key and the file, and decrypts every secret.
    pub fn check(&self) -> Report {
        let mut findings = Vec::new();
        let mut found =
            |part: Part, outcome: Result<(), VaultError>| findings.push(Finding { part, outcome });
        let folder = self.place.is_there();
        let is_there = !matches!(folder, Ok(false));
        if is_there {
            found(Part::Folder(self.place.folder.clone()), folder.map(drop));
        }
        let path = self.place.secrets();
        let contents = self.contents_in(&path);
        let has_secrets = contents.as_ref().is_ok_and(|contents| !contents.entries.is_empty());
        let key = match self.key.read() {
            // No secret needs a key yet.
            Ok(None) if !has_secrets => None,
            Ok(None) => Some(Err(VaultError::KeyGone { path: self.place.key() })),
            Ok(Some(_)) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        let has_key = matches!(key, Some(Ok(())));
        if let Some(key) = key {
            found(Part::Key(self.key.to_string()), key);
        }
        match contents {
            Err(error) => found(Part::File(path), Err(error)),
            Ok(contents) => {
                if is_there && path.exists() {
                    found(Part::File(path), Ok(()));
                }
                // Without a key they cannot be checked further.
                for (name, _) in contents.entries().filter(|_| has_key) {
                    found(Part::Secret(name.clone()), self.open(name, &contents).map(drop));
                }
            }
        }
        Report { findings }
    }
}
