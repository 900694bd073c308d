//! What the defaults of limits depend on.

use belljar_spec::{ByteSize, Machine};
use belljar_sys::rustix::system::sysinfo;
use std::thread;

/// This machine.
pub fn machine() -> Machine {
    let info = sysinfo();
    let memory = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
    let cpus = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    Machine { memory: ByteSize::bytes(memory), cpus }
}
