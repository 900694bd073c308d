//! The vault: encrypted values of secrets, in a file of the user.
//!
//! ```text
//! <state>/vault/              0700
//!     secrets.json            the values, each encrypted for its name  (contents.rs)
//!     key                     their key, unless it is elsewhere        (key.rs)
//!     lock                    locked by a writer                       (vault_dir.rs)
//! ```
//!
//! [`Vault`] changes and reads it; the gateway uses [`HostSecrets`], which also reads variables and files of the host. [`Secret`]
//! is the only type that holds a value in memory. Nothing here prints, and no message contains a value. No sandbox can be given the
//! folder.

mod check;
mod contents;
mod error;
mod host;
mod keep;
mod key;
mod secret;
mod vault_dir;

pub use check::{Finding, Part, Report};
pub use contents::{Contents, Damage, Entry};
pub use error::VaultError;
pub use host::HostSecrets;
pub use keep::{Listed, SetOutcome, Vault};
pub use key::{Key, KeySource, named_key_file};
pub use secret::{MAX, Secret, SecretError, SecretStore};
