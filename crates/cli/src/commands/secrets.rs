//! `belljar secrets`: what is kept in the vault. Values come in by prompt or by standard input, and none comes out.

mod check;
pub(super) mod value;

use super::print;
use crate::args::{SecretsCommand, SecretsListArgs, SecretsRmArgs, SecretsSetArgs};
use belljar_config::{self as config, EgressFlags};
use belljar_spec::secret::{Credential, SecretName, SecretRef, SecretSource};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_vault::{Listed, SetOutcome, Vault, VaultError};
use serde_json::json;
use std::fmt::Write;

pub(crate) fn secrets(command: SecretsCommand) -> Result<u8, SandboxError> {
    // Nothing better can be done where it fails.
    let _ = belljar_sys::core_dump::leave_none();
    let vault = Vault::real()?;
    match command {
        SecretsCommand::Set(options) => set(&vault, &options),
        SecretsCommand::List(options) => list(&vault, &options),
        SecretsCommand::Rm(options) => remove(&vault, &options),
        SecretsCommand::Check(options) => check::check(&vault, &options),
    }
}

fn set(vault: &Vault, options: &SecretsSetArgs) -> Result<u8, SandboxError> {
    let name = name_of(options)?;
    let value = value::read(&name)?;
    match vault.set(&name, &value)? {
        SetOutcome::New => eprintln!("belljar: `{name}` is set"),
        SetOutcome::Replaced => {
            eprintln!("belljar: `{name}` is set anew; running sandboxes use the new value")
        }
    }
    Ok(0)
}

/// The name alone. Nothing that was written is repeated: it may be the value.
fn name_of(options: &SecretsSetArgs) -> Result<SecretName, SandboxError> {
    let name = options.name.to_str().unwrap_or_default();
    if !options.more.is_empty() || name.contains('=') {
        let message = "a value cannot be an argument: every process of this machine can read it there, and it is now in \
                       the history of your shell";
        return Err(ErrorCode::RequestValue.error(message).hint(
            "take it out of the history, consider a new value, and say `belljar secrets set NAME`: it is asked for",
        ));
    }
    name.parse().map_err(|_| {
        let message =
            "this is not the name of a secret, which has up to 64 letters, digits, `-`, `_` and `.`";
        ErrorCode::RequestValue.error(message).hint("say `belljar secrets set NAME`; the value is asked for")
    })
}

fn list(vault: &Vault, options: &SecretsListArgs) -> Result<u8, SandboxError> {
    let (listed, credentials) = (vault.list()?, configured());
    let rows = listed.iter().map(|Listed { name, set }| (name, set, good_for(name, &credentials)));
    if options.json {
        let row = |(name, set, credentials)| json!({ "name": name, "set": set, "credentials": credentials });
        return print(format!("{:#}\n", rows.map(row).collect::<serde_json::Value>()).as_bytes());
    }
    if listed.is_empty() {
        eprintln!("belljar: there are no secrets in {}", vault.folder().display());
        return Ok(0);
    }
    let width = listed.iter().map(|listed| listed.name.as_str().len()).max().unwrap_or(0).max(4);
    let mut text = format!("{:<width$}  {:<19}  CREDENTIALS\n", "NAME", "SET");
    for (name, set, credentials) in rows {
        // To the second; more is not kept.
        let set: String = set.to_string().chars().take(19).collect();
        let credentials: Vec<&str> = credentials.iter().map(|credential| credential.as_str()).collect();
        let credentials = if credentials.is_empty() { "-".into() } else { credentials.join(", ") };
        // A string can always be written to.
        let _ = writeln!(text, "{name:<width$}  {}  {credentials}", set.replace('T', " "));
    }
    print(text.as_bytes())
}

/// The credentials that a run can ask for. A file that makes no sense is told by who runs something.
fn configured() -> Vec<Credential> {
    let loaded = config::load(None, EgressFlags::default()).unwrap_or_default();
    loaded.known_credentials().into_iter().cloned().collect()
}

/// Those of the credentials that use this secret.
fn good_for<'a>(name: &SecretName, credentials: &'a [Credential]) -> Vec<&'a SecretName> {
    let uses = |credential: &&Credential| match &credential.source {
        SecretSource::Stored(SecretRef::Vault(kept)) => kept == name,
        SecretSource::Stored(SecretRef::Env(_) | SecretRef::File(_)) | SecretSource::GitHubApp => false,
    };
    credentials.iter().filter(uses).map(|credential| &credential.name).collect()
}

fn remove(vault: &Vault, options: &SecretsRmArgs) -> Result<u8, SandboxError> {
    vault.remove(&options.names).map_err(|error| match error {
        VaultError::NoSuchSecret { .. } => {
            SandboxError::from(error).hint("`belljar secrets list` lists what there is; nothing was removed")
        }
        error => error.into(),
    })?;
    for name in &options.names {
        eprintln!("belljar: `{name}` is removed");
    }
    Ok(0)
}
