//! `[llm]`: the route to a model, from files and flags. From the operator and the user only: a repository can choose neither the
//! server that gets a key nor the account that pays.
//!
//! | setting | who wins |
//! | --- | --- |
//! | `url` with `kind`, `key`, `admin_key`, `authority` | flag, else user, else operator; a key is never sent to another server than the one it was given for |
//! | `models` | the lists of all layers apply |
//! | `budget` | flag, else user, else operator; never above the operator's |
//! | `price` | the operator's first, then the user's, then the built-in list |
//! | billing | the operator's first |
//! | `port` | user, else operator, else 14180 |

mod merge;
pub mod prices;
mod table;

pub use merge::{LlmLayers, LlmLoaded};
pub use table::LlmSettings;
pub(crate) use table::LlmTable;
