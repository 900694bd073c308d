//! What the service says of a call that came to nothing, as the kernel would have said it.

use crate::rpc::{CallError, RpcError};
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::Fault;

pub(super) const EXISTS: Errno = Errno::EXIST;
pub(super) const NOT_SUPPORTED: Errno = Errno::OPNOTSUPP;

pub(super) fn fault(doing: impl Into<String>, errno: Errno) -> Fault {
    Fault { doing: doing.into(), errno: errno.raw_os_error() }
}

/// A call that came to nothing.
pub(super) fn failed(doing: impl Into<String>, error: &CallError) -> Fault {
    fault(doing, errno(error))
}

/// The sentence says more than the code: services have one code for most of what goes wrong with a file.
pub(super) fn errno(error: &CallError) -> Errno {
    match error {
        CallError::Rpc(RpcError { code, message }) => of_sentence(message).unwrap_or(match code.as_str() {
            "not_found" => Errno::NOENT,
            "already_exists" => Errno::EXIST,
            "permission_denied" | "unauthenticated" => Errno::ACCESS,
            "resource_exhausted" => Errno::NOSPC,
            "invalid_argument" => Errno::INVAL,
            "unimplemented" => Errno::OPNOTSUPP,
            _ => Errno::IO,
        }),
        // Of a sandbox that is paused, or is about to be known as gone.
        CallError::NoSandbox => Errno::AGAIN,
        CallError::Failed(_) => Errno::IO,
    }
}

/// The error that a sentence of a program or a service means.
pub(super) fn of_sentence(sentence: &str) -> Option<Errno> {
    let sentence = sentence.to_ascii_lowercase();
    SENTENCES.iter().find(|(words, _)| sentence.contains(words)).map(|(_, errno)| *errno)
}

/// For a person.
pub(super) fn describe(error: &CallError) -> String {
    match error {
        CallError::Rpc(RpcError { code, message }) => format!("{message} ({code})"),
        CallError::NoSandbox => "the service knows no such sandbox".into(),
        CallError::Failed(failure) => format!("the service {failure}"),
    }
}

/// Of the C library (strerror(3)), of shells, of Go, and of a belljar. The first that fits counts.
const SENTENCES: [(&str, Errno); 26] = [
    ("no such file or directory", Errno::NOENT),
    ("no such file or folder", Errno::NOENT),
    ("does not exist", Errno::NOENT),
    ("nonexistent", Errno::NOENT),
    ("executable file not found", Errno::NOENT),
    ("was not found inside", Errno::NOENT),
    ("is not executable", Errno::ACCESS),
    ("names its interpreter", Errno::NOEXEC),
    ("not a directory", Errno::NOTDIR),
    ("is no folder", Errno::NOTDIR),
    ("is a directory", Errno::ISDIR),
    ("is a folder", Errno::ISDIR),
    ("directory not empty", Errno::NOTEMPTY),
    ("folder with something in it", Errno::NOTEMPTY),
    ("already exists", Errno::EXIST),
    ("exists already", Errno::EXIST),
    ("file exists", Errno::EXIST),
    ("read-only file system", Errno::ROFS),
    ("permission denied", Errno::ACCESS),
    ("may not", Errno::ACCESS),
    ("operation not permitted", Errno::PERM),
    ("no space left", Errno::NOSPC),
    ("disk is full", Errno::NOSPC),
    ("exec format error", Errno::NOEXEC),
    ("argument list too long", Errno::TOOBIG),
    ("too many levels of symbolic links", Errno::LOOP),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_counts_before_a_code() {
        let rpc = |code: &str, message: &str| {
            CallError::Rpc(RpcError { code: code.into(), message: message.into() })
        };
        for (code, message, expected) in [
            ("invalid_argument", "mkdir: cannot create directory 'x': File exists", Errno::EXIST),
            ("internal", "rename a b: not a directory", Errno::NOTDIR),
            ("not_found", "gone", Errno::NOENT),
            ("internal", "gone", Errno::IO),
            ("invalid_argument", "sh: 1: cannot create a/b: Directory nonexistent", Errno::NOENT),
        ] {
            assert_eq!(errno(&rpc(code, message)), expected, "{message}");
        }
    }
}
