//! `belljar audit prune`.

use super::Stop;
use super::teller::{Teller, plural};
use crate::args::AuditPruneArgs;
use belljar_audit::Pruning;
use belljar_spec::ByteSize;
use std::io::Write;
use std::time::SystemTime;

pub(super) fn prune(out: &mut impl Write, options: &AuditPruneArgs) -> Result<u8, Stop> {
    let before = SystemTime::now().checked_sub(options.older_than).unwrap_or(SystemTime::UNIX_EPOCH);
    let pruning = if options.dry_run { Pruning::Imagined } else { Pruning::Real };
    let mut teller = Teller::new();
    let pruned =
        belljar_audit::prune(&belljar_audit::directory()?, before, pruning, |progress| teller.tell(progress));
    teller.finish();
    let pruned = pruned?;
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &pruned)?;
        writeln!(out)?;
    } else {
        if options.dry_run {
            pruned.removed.iter().try_for_each(|sandbox| writeln!(out, "{sandbox}"))?;
        }
        let logs = plural(pruned.removed.len() as u64, "log");
        let done = if options.dry_run { "would be removed" } else { "removed" };
        writeln!(out, "{logs}, {}: {done}", ByteSize::bytes(pruned.bytes))?;
    }
    for sandbox in &pruned.doubtful {
        eprintln!("belljar: the log of {sandbox} is not as it was written, and stays");
        eprintln!("  hint: `belljar audit verify {sandbox}` says where");
    }
    Ok(u8::from(!pruned.doubtful.is_empty()))
}
