//! The words about secrets. A value is never one of them: arguments are seen by every process of the machine, and stay
//! in the history of a shell.

use belljar_spec::secret::SecretName;
use clap::{Args as ClapArgs, Subcommand};
use std::ffi::OsString;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Keep a value under a name; it is asked for, or read from standard input
    #[command(
        after_help = "The value is asked for without showing it, or, if standard input is no terminal, read from there to \
        its end; a line break behind it does not belong to it. A value that was there before is replaced, and running \
        sandboxes use the new one.\n\n\
        The vault is $XDG_STATE_HOME/belljar/vault (~/.local/state/belljar/vault). Its key is BELLJAR_VAULT_KEY, or in \
        the file that BELLJAR_VAULT_KEY_FILE names, or in the file `key` beside it, which the first secret makes.\n\n\
        Examples:\n  \
        belljar secrets set anthropic\n  \
        pass show github/token | belljar secrets set github\n  \
        belljar secrets set app-key < app.pem"
    )]
    Set(SecretsSetArgs),
    /// List the secrets by name; no value is shown
    #[command(alias = "ls")]
    List(SecretsListArgs),
    /// Remove secrets from the vault
    #[command(after_help = "A copy of the value still works: revoke it at the service that issued it.\n\n\
        Example:\n  belljar secrets rm github anthropic")]
    Rm(SecretsRmArgs),
    /// Look whether every secret can be opened, and whether the vault is yours alone
    #[command(after_help = "Exit codes: 0 all is well; 1 something is not.")]
    Check(SecretsCheckArgs),
}

impl SecretsCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            SecretsCommand::List(options) => options.json,
            SecretsCommand::Check(options) => options.json,
            SecretsCommand::Set(_) | SecretsCommand::Rm(_) => false,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SecretsSetArgs {
    /// What it is called: letters, digits, `-`, `_` and `.`
    // Understood later: what stands here by mistake may be the value, and must not be repeated.
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// What should not be there.
    #[arg(hide = true)]
    pub(crate) more: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SecretsListArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SecretsRmArgs {
    /// What they are called
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<SecretName>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SecretsCheckArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
