//! Sandboxes that live: who may have one, which one a key means, who holds it, where it is in its life, and what becomes of it.
//!
//! Knows nothing of HTTP and starts no sandbox itself: a living sandbox is held by a process of its own, its shim, which
//! continues when the daemon is killed. How shims are started and spoken to is behind [`Shims`].

mod access;
mod admit;
mod caller;
mod command;
mod fleet;
mod folder;
mod grants;
mod identity;
mod info;
mod lease;
mod lease_request;
mod machine;
mod made;
mod name;
mod permission;
mod pool;
mod profiles;
mod record;
mod refusal;
mod registry;
pub mod request;
mod reserve;
mod sandbox_dir;
mod settings;
mod shim;
pub mod snapshots;
mod sweep;
mod task;
mod unknown;
mod wake;

pub use access::InUse;
pub use caller::Caller;
pub use fleet::{Filter, Fleet, sweep_alone};
pub use folder::FolderId;
pub use grants::{GrantStore, LoneGrants, Shown};
pub use identity::{Identity, Key, Parent, Persistence, Role};
pub use lease_request::{Idempotency, LeaseRequest};
pub use made::{Made, made};
pub use name::{is_name, name_of};
pub use permission::{OWNER, Owner, Permission};
pub use profiles::{BUILT_IN, Profile, Profiles, known_profiles};
pub use registry::RunSeat;
pub use sandbox_dir::SandboxDir;
pub use settings::{Clock, Settings};
pub use shim::{Alive, Future, Shim, ShimPlan, Shims, Status, Stop};
