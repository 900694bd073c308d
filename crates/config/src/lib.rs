//! From files and flags to settings, and from a request and settings to a spec ([`resolve`]).
//!
//! ```text
//! paths ──> read ─> file (as written) ─> layer (parsed) ─────┐
//!                     repository: only after trust ──────────┼─> merge ─> policy + notes
//!                                                    flags ──┘
//! ```
//!
//! Three layers: the operator's file, the user's, and the repository's, which counts only after the user trusted that very content.
//! No layer can restore what a higher one removed. Each file is read once; the same bytes are checked, hashed and used. Where there
//! are no files, three opens fail and that is all. Called by the command line and by programs that want a user's settings; making a
//! sandbox reads no configuration by itself.

mod allow;
mod authorities;
mod credential_table;
mod credentials;
mod daemon_table;
mod e2b_table;
mod fault;
mod file;
mod flags;
mod git_table;
mod github_table;
mod golden_table;
mod images_table;
mod layer;
mod llm;
mod load;
mod machine;
mod merge;
mod origin;
mod profile_table;
mod read;
mod request;
mod rule_table;
mod sample;
mod sandbox_table;
mod schema;
mod secret_files;
mod toml_text;
mod trust;

pub use allow::{Allowed, RuleFile, RuleList, RulesProposal, add_rule, add_rule_in, propose_rules};
pub use authorities::AuthorityFile;
pub use credentials::CredentialFlags;
pub use daemon_table::{DaemonSettings, daemon};
pub use e2b_table::{E2bSettings, e2b_service};
pub use fault::nearest;
pub use flags::EgressFlags;
pub use git_table::GitSettings;
pub use golden_table::{GoldenSettings, golden};
pub use images_table::{ImageSettings, pull_options, pull_options_from};
pub use layer::{Layer, Settings};
pub use llm::prices;
pub use llm::{LlmLayers, LlmLoaded, LlmSettings};
pub use load::{ChosenProfile, Loaded, Note, check, load, load_for_command, load_from};
pub use machine::machine;
pub use merge::Origins;
pub use origin::{At, ConfigPaths, Origin, Position};
pub use profile_table::{Profile, profiles, profiles_from};
pub use request::{DefaultProfile, Surroundings, UsersNetwork, resolve, resolve_with};
pub use sample::sample;
pub use sandbox_table::SandboxSettings;
pub use schema::schema;
pub use secret_files::{SECRET_VISIBLE, SECRET_VISIBLE_MESSAGE};
pub use toml_text::TomlText;
pub use trust::{Proposal, Standing, propose, propose_from, revoke, revoke_from};
