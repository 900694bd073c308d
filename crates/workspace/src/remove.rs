//! Removes a directory with all that is in it, however deep, and whatever its modes say to its owner.

pub use belljar_sys::remove_tree::remove;
pub(crate) use belljar_sys::remove_tree::remove_at;
