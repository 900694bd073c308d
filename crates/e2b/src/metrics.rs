//! What a sandbox uses, measured inside it at the moment when a client asks: the processes of the sandbox are all that are seen there.

use crate::api::shapes::rfc3339;
use crate::facts::{Facts, now_ms};
use crate::fault::Fault;
use crate::http::{Answer, json};
use crate::server::E2b;
use belljar_api::{CommandInfo, StartCommand};
use hyper::StatusCode;
use serde_json::{Value, json};

/// One measurement.
pub(crate) async fn measure(e2b: &E2b, facts: &Facts) -> Result<Value, Fault> {
    let argv = ["/bin/sh", "-c", SCRIPT].map(Into::into).into();
    let command =
        StartCommand { argv, cwd: Some("/".into()), timeout_s: Some(10), ..StartCommand::default() };
    let CommandInfo { result, .. } = e2b.sandbox(facts).run(&command).await?;
    let text = result.and_then(|result| result.stdout).unwrap_or_default();
    let measured = Measured::of(&text).ok_or_else(|| Fault::internal("the sandbox could not be measured"))?;
    let now = now_ms();
    let mebibyte = 1 << 20;
    Ok(json!({
        "timestamp": rfc3339(now),
        "timestampUnix": now / 1000,
        "cpuCount": facts.size.cpus,
        "cpuUsedPct": measured.cpu_percent,
        "memUsed": measured.memory,
        "memTotal": facts.size.memory_mb * mebibyte,
        "memCache": 0,
        "diskUsed": measured.disk_used,
        "diskTotal": measured.disk_total,
    }))
}

/// What the data plane answers.
pub(crate) async fn now(e2b: &E2b, facts: &Facts) -> Answer {
    let of_api = measure(e2b, facts).await?;
    Ok(json(
        StatusCode::OK,
        &json!({
            "ts": of_api["timestampUnix"], "cpu_count": of_api["cpuCount"], "cpu_used_pct": of_api["cpuUsedPct"],
            "mem_used": of_api["memUsed"], "mem_total": of_api["memTotal"], "mem_cache": of_api["memCache"],
            "disk_used": of_api["diskUsed"], "disk_total": of_api["diskTotal"],
        }),
    ))
}

#[derive(Debug, PartialEq)]
struct Measured {
    /// Of one processor: 200 is two of them.
    cpu_percent: f64,
    /// In bytes.
    memory: u64,
    disk_used: u64,
    disk_total: u64,
}

impl Measured {
    /// From what the script prints. A process inside may have written into it: a number that is none counts as nothing.
    fn of(text: &str) -> Option<Measured> {
        let mut parts = text.split("--\n");
        let (first, second, disk) = (parts.next()?, parts.next()?, parts.next()?);
        let ((before, ticks_before, _), (after, ticks_after, memory)) = (sample(first)?, sample(second)?);
        let seconds = (after - before).max(0.01);
        let ticks = ticks_after.saturating_sub(ticks_before);
        let percent = (ticks as f64 / TICKS_PER_SECOND / seconds * 100.0 * 100.0).round() / 100.0;
        let mut disk =
            disk.lines().last()?.split_whitespace().skip(1).map(|number| number.parse::<u64>().ok());
        let (total, used) = (disk.next()??, disk.next()??);
        Some(Measured { cpu_percent: percent, memory, disk_used: used << 10, disk_total: total << 10 })
    }
}

/// Seconds since the machine began, ticks that all processes used, and their resident memory (proc_pid_stat(5)).
fn sample(text: &str) -> Option<(f64, u64, u64)> {
    let (uptime, processes) = text.split_once('\n')?;
    let uptime = uptime.split(' ').next()?.parse().ok()?;
    let (mut ticks, mut pages) = (0_u64, 0_u64);
    for line in processes.lines() {
        // A name may have spaces and brackets in it.
        let Some((_, rest)) = line.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        ticks = ticks.saturating_add(number(11)).saturating_add(number(12));
        pages = pages.saturating_add(number(21));
    }
    Some((uptime, ticks, pages.saturating_mul(PAGE_BYTES)))
}

/// Two looks a tenth of a second apart, and the disk that the home is on.
const SCRIPT: &str = "look() { cat /proc/uptime; cat /proc/[0-9]*/stat 2>/dev/null; echo --; }; look; sleep 0.1; look; df -kP \"$HOME\"";
/// USER_HZ of every kernel that belljar runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Likewise on x86_64; where pages are larger, memory is told as too little.
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_the_sum_over_all_processes() {
        let process = |ticks: u32, pages: u32| {
            format!("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 {ticks} 0 0 0 20 0 1 0 5 1000 {pages} 1 1\n")
        };
        let text = format!(
            "100.00 1.0\n{}--\n100.50 1.0\n{}{}--\nFilesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 1000 400 600 40% /home\n",
            process(10, 1),
            process(20, 3),
            process(5, 2)
        );
        let expected = Measured {
            cpu_percent: 30.0,
            memory: 5 * PAGE_BYTES,
            disk_used: 400 << 10,
            disk_total: 1000 << 10,
        };
        assert_eq!(Measured::of(&text), Some(expected));
        assert_eq!(Measured::of("garbage"), None);
        assert_eq!(Measured::of("1 2\n--\n1 2\n--\nx y z\n"), None);
    }
}
