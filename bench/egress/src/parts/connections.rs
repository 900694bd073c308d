//! New connections without cryptography: how long one takes, and how many there are in a second.

use crate::Outcome;
use crate::stage::{BELLJAR, NAME, NGINX, Stage};
use crate::table::{Expected, Table};
use crate::target::Target;
use crate::way::{Way, Whence};

pub(crate) async fn run(stage: &Stage, rounds: usize) -> Outcome<()> {
    let title = "New connections: dialled, a TLS hello, one byte back; one at a time, and 32 at a time";
    let mut table = Table::new(title, &[P50, P99, RATE]);
    let mut ways = stage.ways();
    let mut asking = Way::named(ASKING, Whence::Inside(&stage.sandbox), stage.ports());
    asking.plain = Target::Each(NAME.into(), stage.ports().plain);
    ways.push(asking);
    for _ in 0..rounds {
        for way in &ways {
            let target = way.plain.to_string();
            let found = way.whence.measure(&["client", "latency", COUNT, NAME, &target]).await?;
            if let &[p50, p99] = found.as_slice() {
                table.add(way.name, P50, p50);
                table.add(way.name, P99, p99);
            }
            let found = way.whence.measure(&["client", "rate", SECONDS, NAME, &target]).await?;
            if let &[rate, failed] = found.as_slice() {
                table.add(way.name, RATE, rate);
                if failed > 0.0 {
                    println!("warning: {failed} connections failed: {}", way.name);
                }
            }
        }
    }
    table.print(NGINX);
    table.judge(BELLJAR, NGINX, P50, &Expected::AtMost(1.2));
    table.judge(BELLJAR, NGINX, RATE, &Expected::AtLeast(0.8));
    Ok(())
}

const P50: &str = "p50 us";
const P99: &str = "p99 us";
const RATE: &str = "connections/s";
/// The same, but the name is asked for before every connection, as most programs do.
const ASKING: &str = "belljar, name asked each time";
const COUNT: &str = "2000";
const SECONDS: &str = "1";
