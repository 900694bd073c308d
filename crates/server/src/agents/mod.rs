//! Runs of agents behind the API. Each is a process of its own, so that nothing that goes wrong in it is the daemon's:
//!
//! ```text
//!   front ──start──> `belljar agent job`: a job on its standard input, which stays open
//!     │                   │  answers with the run's id, or why there is none
//!     │                   └─ writes the run's log
//!     ├──follows the log ──> events ──> client
//!     └──the client hangs up, or the daemon dies: standard input ends ──> the job stops, its work so far kept
//! ```
//! The log is a file, read at the client's own pace: nobody has to read for a run to go on.

mod job;
mod story;
mod watched;

pub(crate) use job::Job;
pub use job::run as run_job;
pub(crate) use story::name as event_name;
pub(crate) use watched::Watched;
