//! Runs of one command behind the API. Each is a process of its own, as an agent's is:
//!
//! ```text
//!   front ──start──> `belljar once-job`: a job on its standard input, which stays open
//!     │                   └─ makes the sandbox, runs the command, takes the sandbox away
//!     ├──<── how long the result is, and the result, piece by piece as the client takes it
//!     └──the client hangs up, or the daemon dies: standard input ends ──> the job takes its sandbox away and ends
//! ```
//! It counts, among all runs and for its grant, until its process has ended.

mod asked;
mod job;
mod result;

pub(crate) use asked::{Terms, ask};
pub(crate) use job::Job;
pub use job::run as run_job;
pub use result::result;
