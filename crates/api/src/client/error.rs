//! Why a request came to nothing.

use crate::ApiError;
use belljar_spec::{CommandLine, ErrorCode, Hint, hint};
use std::io;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said no, and why.
    #[error("{}", .0.message)]
    Api(Box<ApiError>, u16),
    /// No daemon listens.
    #[error("no daemon answers at {address}: {source}")]
    NoDaemon {
        address: String,
        source: io::Error,
        /// What to do next.
        hint: Hint,
    },
    /// The connection ended before the answer did: the daemon ended.
    #[error("the connection to the daemon ended: {0}")]
    Gone(String),
    /// What was answered is not the API's language, or what was asked cannot be said in it.
    #[error("the daemon was not understood: {0}")]
    Protocol(String),
    /// What was to be sent could not be read.
    #[error("cannot read what is sent: {0}")]
    Source(io::Error),
}

impl ClientError {
    /// Stable, for programs.
    pub fn code(&self) -> ErrorCode {
        match self {
            ClientError::Api(error, _) => error.code(),
            ClientError::NoDaemon { .. } | ClientError::Gone(_) | ClientError::Protocol(_) => {
                ErrorCode::DaemonUnreachable
            }
            ClientError::Source(_) => ErrorCode::StreamFailed,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            ClientError::Api(error, _) => error.hint(),
            ClientError::NoDaemon { hint, .. } => Some(hint.clone()),
            ClientError::Gone(_) => Some("say it again; the daemon is started if there is none".into()),
            ClientError::Protocol(_) => Some(hint!(
                "an older daemon may still run: {} of this version takes its place",
                CommandLine::Serve
            )),
            ClientError::Source(_) => None,
        }
    }

    /// The status of an answer that was no success.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Api(_, status) => Some(*status),
            _ => None,
        }
    }

    /// Whether asking again may help, because the daemon may come back.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, ClientError::NoDaemon { .. } | ClientError::Gone(_))
    }
}

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> ClientError {
        // Hyper's own sentence says less than what is behind it.
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        if error.is_parse() { ClientError::Protocol(why) } else { ClientError::Gone(why) }
    }
}
