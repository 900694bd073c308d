//! Sandboxes that live: who may have one, which one a key means, who holds it, where it is in its life, and what becomes of it.
//!
//! Knows nothing of HTTP and starts no sandbox itself: a living sandbox is held by a process of its own, its keeper, which goes on
//! when the daemon is killed. How keepers are started and spoken to is behind [`Keepers`].

mod admit;
mod caller;
mod grants;
mod keeper;
mod place;
mod profiles;
pub mod request;

pub use caller::{Caller, OWNER};
pub use grants::{GrantStore, Shown};
pub use keeper::{Alive, Future, Keeper, Keepers, KeptPlan, Status, Stop};
pub use place::{Held, Place};
pub use profiles::{Profile, Profiles};
