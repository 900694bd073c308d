//! git's own formats: packet lines, pushes and how they are judged, config files. Pure: bytes in, values out.
//!
//! Used where a push arrives: by the relay on this machine, and by the gateway on the way to a git host. An agent wrote all input:
//! anything that cannot be parsed to the last byte is an error, never a guess.

pub mod advertisement;
mod capabilities;
pub mod config;
pub mod daemon;
pub mod fetch;
pub mod judge;
mod object_id;
mod pack_judge;
pub mod pkt;
pub mod push;
mod ref_name;
mod refusal;
pub mod report;

pub use capabilities::Capabilities;
pub use object_id::{NotAnObjectId, ObjectFormat, ObjectId};
pub use pack_judge::{PackJudge, TakenPack};
pub use ref_name::{NotARefName, RefName};
pub use refusal::PushRefusal;
