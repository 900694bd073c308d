//! The words about work that leaves this machine.

use belljar_spec::SandboxId;
use belljar_spec::git::BranchName;
use belljar_spec::secret::SecretRef;
use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct PublishArgs {
    /// The clone, as `belljar run --clone` and `belljar changes list` name it
    #[arg(value_name = "CLONE", value_parser = clone)]
    pub(crate) clone: SandboxId,
    /// The branch there [default: the one that was worked on]
    #[arg(long, value_name = "BRANCH")]
    pub(crate) to: Option<BranchName>,
    /// What the remote asks for: secret:NAME, env:NAME or file:/PATH
    #[arg(long, value_name = "REF")]
    pub(crate) token: Option<SecretRef>,
    /// Open a pull request with this title
    #[arg(long, value_name = "TITLE", requires = "token")]
    pub(crate) pull_request: Option<String>,
    /// Its text
    #[arg(long, value_name = "TEXT", requires = "pull_request", default_value = "")]
    pub(crate) body: String,
    /// The branch that it is for [default: the remote's own choice]
    #[arg(long, value_name = "BRANCH", requires = "pull_request")]
    pub(crate) base: Option<BranchName>,
    /// Where the API is, if that does not follow from the remote's host
    #[arg(long, value_name = "URL", requires = "pull_request")]
    pub(crate) api: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn clone(text: &str) -> Result<SandboxId, String> {
    SandboxId::parse(text).ok_or_else(|| {
        "a clone has a name of sixteen digits; `belljar changes list` shows what there is".to_string()
    })
}
