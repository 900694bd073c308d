//! Secrets, as far as all code but the gateway knows them: by name, by where their value is kept, and by what they are
//! good for. No value of a secret is ever in one of these.

mod built_in;
mod credential;
mod github;
mod name;
mod reference;

pub use built_in::{BuiltIn, built_in, built_ins, searches};
pub use credential::{
    Bodies, Credential, CredentialBinding, CredentialLocation, Forwarded, Inject, LocationError, SecretSource,
};
pub use github::{
    GitHubApp, GitHubGrant, GitHubProfile, RepositoryName, RepositoryNameError, UnknownProfile,
};
pub use name::{SecretName, SecretNameError};
pub use reference::{SecretRef, SecretRefError};
