//! The machine's size, on which the default limits depend.

use belljar_spec::{ByteSize, Machine};
use belljar_sys::rustix::system::sysinfo;
use belljar_sys::rustix::thread::sched_getaffinity;

/// This machine.
pub fn machine() -> Machine {
    let info = sysinfo();
    let memory = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
    let cpus = sched_getaffinity(None).map_or(1, |set| set.count().max(1));
    Machine { memory: ByteSize::bytes(memory), cpus }
}
