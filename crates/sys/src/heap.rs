//! Memory that was freed and that the C library keeps for the next allocation.

/// Gives it back to the kernel. glibc keeps whole pages between blocks that are in use; other C libraries give them back by themselves,
/// or not at all.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call it at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0)
    };
}
