//! Sandboxes that live: who may have one, which one a key means, who holds it, where it is in its life, and what becomes of it.
//!
//! Knows nothing of HTTP and starts no sandbox itself: a living sandbox is held by a process of its own, its keeper, which goes on
//! when the daemon is killed. How keepers are started and spoken to is behind [`Keepers`].

mod admit;
mod caller;
mod command;
mod door;
mod fleet;
mod folder;
mod grants;
mod identity;
mod info;
mod keeper;
mod lease;
mod machine;
mod made;
mod name;
mod permission;
mod place;
mod profiles;
mod record;
mod refusal;
mod registry;
pub mod request;
mod reserve;
mod settings;
mod sweep;
mod task;
mod unknown;
mod wake;
mod wanted;

pub use caller::Caller;
pub use door::InUse;
pub use fleet::{Filter, Fleet, sweep_alone};
pub use folder::FolderId;
pub use grants::{GrantStore, LoneGrants, Shown};
pub use identity::{Identity, Key, Parent, Persistence, Role};
pub use keeper::{Alive, Future, Keeper, Keepers, KeptPlan, Status, Stop};
pub use made::{Made, made};
pub use name::{is_name, name_of};
pub use permission::{OWNER, Owner, Permission};
pub use place::Place;
pub use profiles::{Profile, Profiles};
pub use registry::RunSeat;
pub use settings::{Clock, Settings};
pub use wanted::{Idempotency, Wanted};
