//! The same with real cryptography at both ends.

use crate::Outcome;
use crate::children::installed;
use crate::stage::{NAME, NGINX, Stage};
use crate::table::Table;

pub(crate) async fn run(stage: &Stage, rounds: usize) -> Outcome<()> {
    let title = "Real TLS: a download of 512 MiB by curl, and new connections, 32 at a time";
    let mut table = Table::new(title, &[DOWNLOAD, RATE]);
    let certificate = stage.certificate();
    let curl = installed("curl").is_some();
    for _ in 0..rounds {
        for way in stage.ways() {
            if curl {
                table.add(way.name, DOWNLOAD, way.download(&certificate, BYTES).await?);
            }
            let words = ["tls-client", SECONDS, &certificate, NAME, &way.secure.to_string()];
            if let &[rate, failed] = way.whence.measure(&words).await?.as_slice() {
                table.add(way.name, RATE, rate);
                if failed > 0.0 {
                    println!("warning: {failed} TLS connections failed: {}", way.name);
                }
            }
        }
    }
    table.print(NGINX);
    Ok(())
}

const DOWNLOAD: &str = "download MB/s";
const RATE: &str = "TLS connections/s";
const BYTES: u64 = 512 * 1024 * 1024;
const SECONDS: &str = "1";
