//! The public error codes, in one table: text, kind, HTTP status and meaning. docs/exit-codes.md shows the same table, and a test
//! compares them. Codes are grouped by what a caller can do about the error. A new error takes one of these codes; the message says
//! what is particular about it (docs/decisions/0024-error-codes.md).

use crate::ErrorKind;
use crate::exit_code::REFUSED;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

macro_rules! error_codes {
    ($($group:literal { $($variant:ident $text:literal $kind:ident $status:literal $meaning:literal)* })*) => {
        /// What a program can rely on: stable, and few.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[doc = $meaning] $variant,)*)*
        }

        impl ErrorCode {
            /// All of them, in the order of the table.
            pub const ALL: &[ErrorCode] = &[$($(ErrorCode::$variant,)*)*];

            /// As it is written in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $($(ErrorCode::$variant => $text,)*)* }
            }

            pub fn kind(self) -> ErrorKind {
                match self { $($(ErrorCode::$variant => ErrorKind::$kind,)*)* }
            }

            /// The exit code of belljar. What was named and does not exist has one, whatever it is.
            pub fn exit_code(self) -> u8 {
                match self {
                    ErrorCode::NotFound => REFUSED,
                    other => other.kind().exit_code(),
                }
            }

            /// The HTTP status. What a request can cause is a 4xx; a 5xx is a fault of belljar that an operator has to look at.
            pub fn status(self) -> u16 {
                match self { $($(ErrorCode::$variant => $status,)*)* }
            }

            /// One line of documentation.
            pub fn meaning(self) -> &'static str {
                match self { $($(ErrorCode::$variant => $meaning,)*)* }
            }

            /// What a caller can do about it.
            pub fn remedy(self) -> &'static str {
                match self { $($(ErrorCode::$variant => $group,)*)* }
            }
        }
    };
}

error_codes! {
    "correct the request" {
        RequestInvalid "request_invalid" Policy 400 "the body, the query, a header or the command line is not what belljar takes"
        RequestValue "request_value" Policy 422 "a value is not valid; the message names the field, the flag or the file"
        RequestConflict "request_conflict" Policy 422 "two parts of the request contradict each other, or one needs another that is missing"
        IdempotencyMismatch "idempotency_mismatch" Policy 422 "this idempotency key was used for another request"
        BodyTooLarge "body_too_large" Policy 413 "the body is longer than the limit"
        MethodNotAllowed "method_not_allowed" Policy 405 "the path exists and does not have this method"
        PathInvalid "path_invalid" Policy 422 "a path does not exist, cannot be read or cannot be written as text"
        PathRefused "path_refused" Policy 422 "a path that would undo the isolation, is protected, or that others could change"
        WorkspaceMissing "workspace_missing" Policy 422 "the workspace is not a folder that can be used"
        ConfigInvalid "config_invalid" Policy 422 "a configuration file, a key in it, or its owner or mode is not valid; the message begins with file and line"
        ImageRefused "image_refused" Policy 422 "an image, a root or a download is not what was named, or is not accepted"
        ProfileUnknown "profile_unknown" Policy 422 "no such profile"
    }
    "ask the user who may allow it" {
        TokenInvalid "token_invalid" Policy 401 "the token is missing or not known"
        NotGranted "not_granted" Policy 403 "the grant, the profile or the operator does not allow this; the owner of the machine can"
        QuotaExceeded "quota_exceeded" Policy 403 "the grant has as many sandboxes or leases as it may have"
        PermissionDenied "permission_denied" Policy 403 "the sandbox does not allow access to this file, folder or port"
        EgressRefused "egress_refused" Policy 422 "the egress policy refused the connection; the message has the reason"
        CredentialMissing "credential_missing" Policy 422 "a credential, secret or login that is needed is not configured"
    }
    "name something that exists" {
        NotFound "not_found" Runtime 404 "no such file, log, run or API path"
        SandboxNotFound "sandbox_not_found" Policy 404 "no such sandbox"
        NameUnknown "name_unknown" Policy 404 "no such command, agent, grant or lease"
        WorkNotFound "work_not_found" Policy 422 "no such layer, branch, clone or change, or nothing in it"
    }
    "change the state of the sandbox, the file or the work first" {
        NameTaken "name_taken" Policy 409 "the name or key belongs to something else"
        SandboxDiffers "sandbox_differs" Policy 409 "the sandbox of this key was made with other settings"
        PathMoved "path_moved" Policy 409 "a folder or file was replaced since it was checked"
        WorkUnsaved "work_unsaved" Policy 422 "changes or commits would be lost, or conflict with those on the host"
        SandboxNotAlive "sandbox_not_alive" Unavailable 409 "the sandbox is stopped or being stopped"
        SandboxPaused "sandbox_paused" Policy 409 "the sandbox is paused"
        CommandEnded "command_ended" Runtime 409 "the command has ended, or its input or terminal is not open"
        OutputDropped "output_dropped" Policy 410 "this part of the output is no longer kept"
        InUse "in_use" Unavailable 409 "another process or sandbox uses it"
        AlreadyExists "already_exists" Runtime 409 "the file exists, or the folder is not empty"
        FileOperation "file_operation" Runtime 422 "a file operation failed: wrong type, or another filesystem"
    }
    "try again later" {
        TooManyRequests "too_many_requests" Unavailable 429 "too many requests, commands or terminals at once"
        ChangedMeanwhile "changed_meanwhile" Runtime 409 "something changed during the operation"
        DaemonUnreachable "daemon_unreachable" Unavailable 409 "the daemon, or the shim of the sandbox, does not answer or is stopping"
        RegistryFailed "registry_failed" Unavailable 409 "a registry, a mirror or a git server cannot be reached or does not answer as expected"
        ConnectionFailed "connection_failed" Runtime 409 "a fetch, or a connection to a port inside, failed"
        Aborted "aborted" Unavailable 409 "the client closed the connection, or the run was cancelled, before the sandbox was ready"
    }
    "change this machine, or use another" {
        BackendUnavailable "backend_unavailable" Unavailable 409 "the backend does not work on this machine, or no backend does"
        AssuranceTooLow "assurance_too_low" Unavailable 409 "the backend is weaker than the assurance that was asked for"
        ProfileUnavailable "profile_unavailable" Unavailable 422 "the profile does not work on this machine, or not any more"
        NotSupported "not_supported" Unavailable 409 "this backend, kernel or filesystem cannot do it"
        LimitUnavailable "limit_unavailable" Unavailable 409 "a limit cannot be enforced on this machine"
        ProgramMissing "program_missing" Unavailable 409 "git, or the program of an agent, is missing or not usable"
        ImageMissing "image_missing" Unavailable 409 "the image is not on this machine, or the registry does not have it for this caller"
        DiskFull "disk_full" Runtime 409 "the disk, or the limit of the sandbox, is full"
        PidsExhausted "pids_exhausted" Runtime 409 "no process is left to run a command with"
    }
    "nothing but read the message and report it" {
        StartFailed "start_failed" Runtime 409 "the sandbox could not be started, or Docker failed"
        NotReady "not_ready" Runtime 409 "the sandbox was not ready in time"
        GuestGone "guest_gone" Runtime 409 "the first process of the sandbox has ended"
        GuestUnresponsive "guest_unresponsive" Runtime 409 "the sandbox stopped responding and was ended"
        GuestStream "guest_stream" Runtime 409 "no stream to the sandbox could be opened"
        SupervisorKilled "supervisor_killed" Runtime 409 "a command killed its own supervisor, and every command was ended"
        ImageFailed "image_failed" Runtime 409 "an image or a root cannot be built, stored, read or mounted"
        WorkspaceFailed "workspace_failed" Runtime 409 "git, a layer, a branch, a clone or a volume failed"
        SecretFailed "secret_failed" Runtime 409 "the vault or a secret in it cannot be read or written"
        StreamFailed "stream_failed" Runtime 409 "belljar's own standard input or output failed"
        StateFailed "state_failed" Runtime 500 "belljar's own records, audit logs or directories cannot be read or written"
        Internal "internal" Runtime 500 "belljar failed; the log of the daemon has the details"
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A code that this version does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown error code")]
pub struct UnknownErrorCode;

impl FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    fn from_str(text: &str) -> Result<ErrorCode, UnknownErrorCode> {
        ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text).ok_or(UnknownErrorCode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn a_code_is_read_as_it_is_written() {
        for code in ErrorCode::ALL {
            assert_eq!(code.as_str().parse(), Ok(*code));
        }
        assert_eq!("of_a_newer_version".parse::<ErrorCode>(), Err(UnknownErrorCode));
    }

    #[test]
    fn there_are_few_enough_codes_to_know() {
        assert!((40..=60).contains(&ErrorCode::ALL.len()), "{}", ErrorCode::ALL.len());
    }

    #[test]
    fn the_documentation_has_this_table() {
        let mut table = String::new();
        let mut remedy = "";
        for code in ErrorCode::ALL {
            let new = if code.remedy() == remedy { "" } else { code.remedy() };
            remedy = code.remedy();
            let line = (new, code, code.kind(), code.status(), code.meaning());
            writeln!(table, "| {} | `{}` | {} | {} | {} |", line.0, line.1, line.2, line.3, line.4).unwrap();
        }
        let page = include_str!("../../../docs/exit-codes.md");
        assert!(page.contains(&table), "docs/exit-codes.md should have:\n{table}");
    }
}
