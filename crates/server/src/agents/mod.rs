//! Runs of agents as the daemon tells of them: the shim of a run writes its log, the daemon follows the log, and the client gets events. The
//! log is a file, read at the client's own pace: a run continues without a reader, and no line is lost when its shim is killed.

mod story;
mod watched;

pub(crate) use story::name as event_name;
pub(crate) use watched::events;
