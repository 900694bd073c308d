//! What a sandbox may use.

use super::field::request;
use crate::{ByteSize, Cpus};
use std::time::Duration;

request! {
    /// What may be used. Words as on the command line.
    pub struct LimitsRequest {
        #[serde(with = "crate::text::exact")]
        memory: Option<ByteSize> as Option<String>, anyone;
        #[serde(with = "crate::text::exact")]
        cpus: Option<Cpus> as Option<String>, anyone;
        pids: Option<u32>, anyone;
        open_files: Option<u64>, anyone;
        #[serde(with = "crate::text::exact")]
        disk: Option<ByteSize> as Option<String>, anyone;
        /// How long one command may run: `90s`, `10m`.
        #[serde(with = "crate::text::exact")]
        timeout: Option<Duration> as Option<String>, anyone;
        #[serde(with = "crate::text::exact")]
        output: Option<ByteSize> as Option<String>, anyone;
        /// How long the sandbox itself may take to be ready, 10 minutes at most. Left out: 15 seconds.
        #[serde(with = "crate::text::exact")]
        ready: Option<Duration> as Option<String>, anyone;
    }
}
