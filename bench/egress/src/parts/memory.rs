//! What a gateway costs that holds many connections of one sandbox, and whether they still work.

use crate::Outcome;
use crate::stage::Stage;
use crate::way::Whence;

pub(crate) async fn run(stage: &Stage) -> Outcome<()> {
    let records = stage.directory().join("held").display().to_string();
    let words = ["hold", COUNT, &stage.ports().to_string(), &records];
    let found = Whence::Host.measure(&words).await?;
    let &[opened, answered, before, pss, rss] = found.as_slice() else { return Err("no figures".into()) };
    println!("\n{COUNT} open connections of one sandbox");
    println!("  opened: {opened}; still answering: {answered}");
    if opened.to_string() != COUNT {
        println!("  the gateway gives no more; it goes by the descriptors that it may have (`ulimit -Hn`)");
    }
    println!("  gateway's process before: {:.1} MiB PSS", before / 1024.0);
    println!("  gateway's process with them: {:.1} MiB PSS, {:.1} MiB RSS", pss / 1024.0, rss / 1024.0);
    println!("  a connection: {:.2} KiB", (pss - before) / answered);
    let good = rss / 1024.0 <= MAX_MEBIBYTES && answered.to_string() == COUNT;
    let verdict = if good { "as wanted" } else { "NOT AS WANTED" };
    println!("  all of it within {MAX_MEBIBYTES} MiB is wanted: {verdict}");
    Ok(())
}

const COUNT: &str = "2000";
/// Mebibytes.
const MAX_MEBIBYTES: f64 = 64.0;
