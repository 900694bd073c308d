//! The words about secrets that a run may use.

use belljar_spec::secret::{GitHubProfile, RepositoryName, SecretName};
use clap::Args as ClapArgs;

#[derive(Debug, Default, Clone, ClapArgs)]
#[command(next_help_heading = "Secrets")]
pub(crate) struct CredentialArgs {
    /// Let the sandbox use a credential without holding it: anthropic, openai, openrouter, github, or one of your
    /// belljar.toml. Its variables hold a placeholder, its hosts can be reached, and only there, by TLS, does the real
    /// value take the placeholder's place; may be repeated
    #[arg(long = "secret", value_name = "NAME")]
    pub(super) secrets: Vec<SecretName>,
    /// Let it search the web with the key of tavily, exa or brave [default: the first that you keep]
    #[arg(long, value_name = "PROVIDER", num_args = 0..=1, require_equals = true)]
    pub(super) web_search: Option<Option<SecretName>>,
    /// Give it a token of your GitHub App, good for this and no more: read, issues-write, review-write or repo-write
    #[arg(long, value_name = "PROFILE")]
    pub(super) github: Option<GitHubProfile>,
    /// Make the token good for this repository only; may be repeated [default: all that the App is installed for]
    #[arg(long, value_name = "OWNER/NAME", requires = "github")]
    pub(super) github_repo: Vec<RepositoryName>,
    /// Put the real value of this secret where `--env NAME=secret:KEY` says. The sandbox then holds it and can send it
    /// anywhere it reaches; recorded; may be repeated
    #[arg(long, value_name = "KEY")]
    pub(super) forward_secret: Vec<SecretName>,
    /// Put the private key of the GitHub App into GITHUB_APP_PRIVATE_KEY. Its holder can do all that the App can,
    /// for as long as the key lives; only with `--github repo-write`; recorded
    #[arg(long, requires = "github")]
    pub(super) danger_forward_app_key: bool,
}
