//! One long stream without cryptography.

use crate::Outcome;
use crate::stage::{BELLJAR, NAME, NGINX, Stage};
use crate::table::{Expected, Table};

pub(crate) async fn run(stage: &Stage, rounds: usize) -> Outcome<()> {
    let mut table = Table::new("Bulk: one stream of 1 GiB, MB/s", &[COPIED, LENT]);
    for _ in 0..rounds {
        for way in stage.ways() {
            for (column, measure) in [(COPIED, "copied"), (LENT, "lent")] {
                let target = way.plain.to_string();
                let found = way.whence.measure(&["client", measure, BYTES, NAME, &target]).await?;
                found.iter().for_each(|speed| table.add(way.name, column, *speed));
            }
        }
    }
    table.print(NGINX);
    table.judge(BELLJAR, NGINX, COPIED, &Expected::AtLeast(1.5));
    table.judge(BELLJAR, NGINX, LENT, &Expected::AtLeast(1.5));
    Ok(())
}

/// The server writes, which takes a share of the processors that all processes of the benchmark use.
const COPIED: &str = "server writes";
/// The server is as cheap as one on another machine.
const LENT: &str = "server sends a file";
const BYTES: &str = "1073741824";
