//! What a daemon tells of itself in numbers: `GET /metrics`, in OpenMetrics text.
//!
//! ```text
//!   shim: engine ──Observed──> Counters ──> `counters`, a file of its directory     (count, file)
//!   daemon: holds each file open ──> Metrics adds them up at each scrape ──> text   (sum, text)
//! ```
//! Labels come from closed lists ([`Family`]), so there are as many series as the table says, whatever runs inside; a value that is
//! in no list is not counted. Why it is done by a file: docs/decisions/0026-metrics.md.

mod count;
mod family;
mod file;
mod sum;
mod text;

pub(crate) use count::observer;
pub(crate) use sum::Metrics;
pub(crate) use text::{CONTENT_TYPE, Machine};

/// One value for each series of each family, in the order of the table.
type Values = Vec<u64>;

fn zeros() -> Values {
    vec![0; family::size()]
}
