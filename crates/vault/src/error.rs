//! The errors of the vault, by the step that failed. No message contains a value.

use crate::Damage;
use crate::SecretError;
use belljar_spec::secret::SecretName;
use belljar_spec::{CommandLine, ErrorCode, Hint, SandboxError, hint};
use std::io;
use std::path::{Path, PathBuf};

/// The vault could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// There is no state directory.
    #[error("there is no place for the vault: neither `HOME` nor `XDG_STATE_HOME` is an absolute path")]
    NoHome,
    /// A part of it belongs to another user.
    #[error("{} belongs to the user {owner}, not to you", path.display())]
    NotOurs { path: PathBuf, owner: u32 },
    /// Other users can read or write a part of it.
    #[error("{} is open to others (mode {mode:03o}), and the vault is for you alone", path.display())]
    OpenToOthers { path: PathBuf, mode: u32, right: u32 },
    /// A file or the folder could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file could not be written; the old one is unchanged.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Another process holds the lock for longer than an instant.
    #[error("the vault has been held by another process for {seconds} seconds: {}", path.display())]
    Held { path: PathBuf, seconds: u64 },
    /// The file is damaged.
    #[error("the vault {} cannot be understood: {damage}", path.display())]
    Damaged { path: PathBuf, damage: Damage },
    /// There are secrets, and no key.
    #[error("the key of the vault is missing: there is no {}", path.display())]
    KeyGone { path: PathBuf },
    /// The named key file does not exist.
    #[error("there is no {}, which BELLJAR_VAULT_KEY_FILE names", path.display())]
    NoKeyFile { path: PathBuf },
    /// The text is not a key.
    #[error("{from} holds no key: a key is 64 hexadecimal digits, or 32 bytes as base64")]
    NotAKey { from: String },
    /// The secrets were encrypted with another key.
    #[error("the vault was sealed with another key than the one in {from}")]
    WrongKey { from: String },
    /// An encrypted value was changed.
    #[error("the secret `{name}` cannot be opened: it was changed since it was set")]
    Changed { name: SecretName },
    /// There is no such secret.
    #[error("there is no secret `{name}` in the vault")]
    NoSuchSecret { name: SecretName },
    /// The value is empty.
    #[error("the secret `{name}` was not set: its value is empty")]
    Empty { name: SecretName },
    /// The value is longer than any key.
    #[error("the secret `{name}` was not set: its value is longer than {} KiB", crate::secret::MAX >> 10)]
    TooLong { name: SecretName },
    /// The kernel gives no random bytes, or the cipher does not work.
    #[error("nothing can be encrypted: no random bytes are available")]
    NoRandomness,
}

impl VaultError {
    /// What to do next.
    pub fn hint(&self) -> Hint {
        match self {
            VaultError::NoHome => "set `HOME`, or `XDG_STATE_HOME` to a folder of yours".into(),
            VaultError::NotOurs { path, .. } => format!(
                "run belljar as that user, or set `XDG_STATE_HOME` to a folder of yours; `ls -ld {}` says whose it is",
                path.display()
            ).into(),
            VaultError::OpenToOthers { path, right, .. } => format!(
                "`chmod {right:o} {}`; if another user may have read the key, renew the secrets where they were issued",
                path.display()
            ).into(),
            VaultError::Read { path, .. } => format!("`ls -ld {}` says whose it is", path.display()).into(),
            VaultError::Write { path, .. } => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                format!(
                    "nothing was changed; `df {0}` and `ls -ld {0}` say whether there is room and whose it is",
                    folder.display()
                )
                .into()
            }
            VaultError::Held { path, .. } => {
                format!("`fuser {}` says by which; it may be stopped", path.display()).into()
            }
            VaultError::Damaged { damage: Damage::Newer(_), .. } => "use the belljar that wrote it".into(),
            VaultError::Damaged { path, .. } => hint!(
                "put back a copy, or move {} away and set the secrets again: {}",
                path.display().to_string(), CommandLine::SecretsSet.of("NAME")
            ),
            VaultError::KeyGone { path } => format!(
                "put it back, or say where it is with BELLJAR_VAULT_KEY_FILE; without it no secret can be opened: \
                 then move {} away and set the secrets again",
                path.with_file_name("secrets.json").display()
            ).into(),
            VaultError::NoKeyFile { .. } => {
                "put the key there, or unset the variable to use the one beside the vault".into()
            }
            VaultError::NotAKey { .. } => "`openssl rand -hex 32` makes one".into(),
            VaultError::WrongKey { .. } => {
                "give the key that the secrets were set with: BELLJAR_VAULT_KEY, BELLJAR_VAULT_KEY_FILE, or the \
                 file `key` beside the vault; or remove the secrets and set them again"
                    .into()
            }
            VaultError::Changed { name } | VaultError::NoSuchSecret { name } => {
                hint!(
                    "{} sets it; {} says what there is",
                    CommandLine::SecretsSet.of(name), CommandLine::SecretsList
                )
            }
            VaultError::Empty { .. } => {
                hint!(
                    "type or paste the value, or give it by a pipe: {}",
                    CommandLine::SecretsSet.of("NAME < FILE")
                )
            }
            VaultError::TooLong { .. } => "a secret is a key or a token, not a document".into(),
            VaultError::NoRandomness => "see whether getrandom(2) works here".into(),
        }
    }

    /// Stable, for programs.
    pub fn code(&self) -> ErrorCode {
        match self {
            VaultError::NotOurs { .. } | VaultError::OpenToOthers { .. } => ErrorCode::PathRefused,
            VaultError::Empty { .. } | VaultError::TooLong { .. } => ErrorCode::RequestValue,
            VaultError::Read { .. }
            | VaultError::Damaged { .. }
            | VaultError::NoHome
            | VaultError::Write { .. }
            | VaultError::Held { .. }
            | VaultError::NoRandomness
            | VaultError::KeyGone { .. }
            | VaultError::NoKeyFile { .. }
            | VaultError::NotAKey { .. }
            | VaultError::WrongKey { .. }
            | VaultError::Changed { .. } => ErrorCode::SecretFailed,
            VaultError::NoSuchSecret { .. } => ErrorCode::CredentialMissing,
        }
    }
}

impl From<VaultError> for SandboxError {
    fn from(error: VaultError) -> SandboxError {
        error.code().error(error.to_string()).hint(error.hint()).caused_by(error)
    }
}

impl From<VaultError> for SecretError {
    fn from(error: VaultError) -> SecretError {
        SecretError { message: error.to_string(), hint: error.hint() }
    }
}
