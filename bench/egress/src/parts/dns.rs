//! Names: how many are answered in a second, and how long one takes.

use crate::Outcome;
use crate::children::Dnsmasq;
use crate::stage::{NAME, Stage, loopback};
use crate::table::Table;
use crate::way::Whence;

pub(crate) async fn run(stage: &Stage, rounds: usize) -> Outcome<()> {
    let title = "Names: questions for one address, 16 at a time, and one at a time";
    let mut table = Table::new(title, &[RATE, AVERAGE, ALONE]);
    let dnsmasq = Dnsmasq::start()?;
    let inside = Whence::Inside(&stage.sandbox);
    let mut servers = vec![
        ("belljar, 127.0.0.1 inside", inside, "127.0.0.1:53".to_string()),
        ("belljar, 8.8.8.8 inside", inside, "8.8.8.8:53".to_string()),
    ];
    if let Some(dnsmasq) = &dnsmasq {
        servers.insert(0, (DNSMASQ, Whence::Host, loopback(dnsmasq.port).to_string()));
    }
    for _ in 0..rounds {
        for (name, whence, server) in &servers {
            let found = whence.measure(&["dns-client", SECONDS, server, NAME]).await?;
            if let &[rate, average, alone, lost] = found.as_slice() {
                table.add(name, RATE, rate);
                table.add(name, AVERAGE, average);
                table.add(name, ALONE, alone);
                if lost > 0.0 {
                    println!("warning: {lost} questions got no answer: {name}");
                }
            }
        }
    }
    table.print(DNSMASQ);
    Ok(())
}

const DNSMASQ: &str = "dnsmasq";
const RATE: &str = "answers/s";
const AVERAGE: &str = "average us";
const ALONE: &str = "one at a time us";
const SECONDS: &str = "1";
