//! Secrets, as far as anybody but the gateway knows them: by name, by where their value is kept, and by what they are
//! good for. No value of a secret is ever in one of these.

mod credential;
mod name;
mod reference;

pub use credential::{Bodies, Carrier, CarrierError, Credential, CredentialPlace, SecretSource};
pub use name::{SecretName, SecretNameError};
pub use reference::{SecretRef, SecretRefError};
