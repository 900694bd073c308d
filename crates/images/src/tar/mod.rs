//! Tape archives, as layers are: POSIX (ustar and pax) and GNU's long names.
//!
//! Our own reader, because every length in here comes from an untrusted source: extensions are bounded before they are
//! read, an attribute that changes a size changes it for every reader, and what other readers guess at is refused. What an
//! entry means for a filesystem is not decided here.

mod archive;
mod header;
mod pax;

pub(crate) use archive::{Archive, Entry};
pub(crate) use header::Kind;

/// Why an archive is none.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("the archive ends in the middle of an entry")]
    Truncated,
    #[error("a header of the archive is damaged: {0}")]
    Header(&'static str),
    #[error("a header of the archive is followed by too much about one entry")]
    Extension,
    #[error("the archive holds a sparse file, which is not taken")]
    Sparse,
    #[error("the archive holds an entry of the unknown kind {0:?}")]
    Unknown(char),
    #[error("cannot read the archive")]
    Io(#[source] std::io::Error),
}
