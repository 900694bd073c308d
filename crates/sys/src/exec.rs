//! Becoming another program.

use crate::caps::last_errno;
use crate::launch::pointers;
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Replaces this process by a program, with this environment as it is. Comes back only with the reason why not.
pub fn replace(program: &CStr, argv: &[CString]) -> Errno {
    let argv = pointers(&argv.iter().map(CString::as_c_str).collect::<Vec<_>>());
    // SAFETY: every pointer is to a string that ends in a zero byte and lives until the call returns, the list ends in
    // a null, and no other thread changes the environment: this process has one. Rust has SIGPIPE ignored at its start,
    // which a program that comes after it would inherit.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::execv(program.as_ptr(), argv.as_ptr());
    }
    last_errno()
}
