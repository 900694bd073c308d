//! What the guest could not do, as an error that a person understands.

pub(crate) use belljar_backend::guest_gone;
use belljar_overlay::quote;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::errno;
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::Fault;

/// A file operation that failed.
pub(crate) fn file(fault: &Fault) -> SandboxError {
    let errno = errno::parse(fault.errno).unwrap_or(Errno::IO);
    // It names paths that a command may have chosen.
    let doing = quote::visible(fault.doing.as_bytes());
    match errno {
        Errno::XDEV => ErrorCode::PermissionDenied
            .error(format!("cannot {doing}: it leads out of the workspace"))
            .hint("use a path inside the workspace, and no link that leaves it"),
        Errno::NOENT => ErrorCode::NotFound.error(format!("cannot {doing}: there is no such file or folder")),
        Errno::EXIST => ErrorCode::AlreadyExists.error(format!("cannot {doing}: it exists already")),
        Errno::ISDIR => ErrorCode::FileOperation
            .error(format!("cannot {doing}: it is a folder"))
            .hint("ask for it recursively, or name a file"),
        Errno::NOTDIR => ErrorCode::FileOperation.error(format!("cannot {doing}: a part of it is no folder")),
        Errno::NOTEMPTY => {
            ErrorCode::AlreadyExists.error(format!("cannot {doing}: there is a folder with something in it"))
        }
        Errno::ACCESS | Errno::PERM if reads(&doing) => ErrorCode::PermissionDenied
            .error(format!("cannot {doing}: the user of the sandbox may not read it"))
            .hint("its mode, or that of a folder above it, does not allow that"),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorCode::PermissionDenied
            .error(format!("cannot {doing}: the sandbox may not write there"))
            .hint(hint!("share the path with {}, or use the workspace or /tmp", Term::Rw)),
        Errno::NOSPC | Errno::DQUOT => ErrorCode::DiskFull
            .error(format!("cannot {doing}: the disk is full"))
            .hint(hint!("free some space, or allow the sandbox more with {}", Term::Disk)),
        other => ErrorCode::FileOperation.error(format!("cannot {doing}: {other}")),
    }
}

/// An error with its causes, in one line.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Whether an operation changes nothing: the guest's words for those that do not.
fn reads(doing: &str) -> bool {
    ["read ", "list ", "look at ", "watch ", "enter "].iter().any(|word| doing.starts_with(word))
}

/// An operation on what is not there any more.
pub(crate) fn disposed() -> SandboxError {
    ErrorCode::SandboxNotAlive.error("the sandbox was disposed of").hint("make a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_read_is_told_from_what_may_not_be_written() {
        for (doing, errno) in [
            ("read /x", Errno::ACCESS),
            ("list /x", Errno::PERM),
            ("write /x", Errno::ACCESS),
            ("write /x", Errno::ROFS),
            ("remove /x", Errno::PERM),
        ] {
            let error = file(&Fault { doing: doing.into(), errno: errno.raw_os_error() });
            assert_eq!(error.code, ErrorCode::PermissionDenied, "{doing}: {errno}");
            let hint = error.hint.unwrap_or_default().to_string();
            assert_eq!(hint.contains("`workspace.rw`"), !reads(doing), "{doing}: {hint}");
        }
    }
}
