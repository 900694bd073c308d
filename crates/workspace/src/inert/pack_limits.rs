//! What `git index-pack` may use for one pack, cgroup or not.

use belljar_sys::rustix::process::Resource;

/// The kernel's limits for a pack of this size. Deltas expand a pack of kilobytes to gigabytes: index-pack stores none of that, on
/// disk or in memory, but computes all of it, so only processor time bounds the expanded size meanwhile.
pub(crate) fn pack_limits(bytes: u64) -> [(Resource, u64); 4] {
    let written = bytes.saturating_add(BESIDE_PACK);
    let mapped = MAX_DATA_BYTES.saturating_add(written.saturating_mul(2));
    [
        (Resource::Cpu, MAX_SECONDS),
        (Resource::Data, MAX_DATA_BYTES),
        (Resource::As, mapped),
        (Resource::Fsize, written),
    ]
}

/// The largest push that is allowed by default takes a tenth of it.
pub(super) const MAX_SECONDS: u64 = 120;
/// Private memory of every git on a leash, cgroup or not: a few objects of the largest size that is held in memory (a delta, its
/// base, its result), or a list of two million files. Packs and indexes are mapped, and do not count.
pub(super) const MAX_DATA_BYTES: u64 = 1 << 30;
/// The index beside the pack.
const BESIDE_PACK: u64 = 64 << 20;
