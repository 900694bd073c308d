//! What a log costs: `cargo run --release -p belljar-audit --example cost [DIRECTORY]`.

#![expect(clippy::print_stdout, reason = "this is a program")]

use belljar_audit::{AuditError, Ending, Event, Log};
use belljar_spec::SandboxId;
use belljar_spec::egress::{Reason, Refusal, Rule, RuleSource};
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn main() -> Result<(), AuditError> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = base.join(format!("belljar-audit-cost-{}", std::process::id()));
    let outcome = measure(&directory);
    // Only a measurement; leftovers are visible.
    let _ = std::fs::remove_dir_all(&directory);
    outcome
}

fn measure(directory: &std::path::Path) -> Result<(), AuditError> {
    let id = |number: u64| SandboxId::from_random(number.to_be_bytes());
    let (mut create, mut first, mut end) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..5000 {
        let log = timed(&mut create, || Log::create(directory, id(number)))?;
        timed(&mut first, || log.append(&Event::RecordsSuppressed { count: 1 }))?;
        timed(&mut end, || log.end(&Event::SandboxEnded {}))?;
    }
    say("create", &mut create);
    say("first append", &mut first);
    say("end", &mut end);

    let (mut swept, mut killed) = (Vec::new(), None);
    for number in 10_000..11_000 {
        drop(killed.take());
        killed = Some(timed(&mut swept, || Log::create(directory, id(number)))?);
    }
    say("create, one killed log swept", &mut swept);

    let log = Log::create(directory, id(20_000))?;
    let name: belljar_spec::egress::HostName = "api.example.com".parse().expect("a name");
    let rule = Rule::allow("example.com", RuleSource::Flag).expect("a rule").label;
    let refused = Event::refused(&Refusal::new(name.clone(), Some(443), Reason::NameNotAllowed), 1);
    let (protocol, address) = (belljar_spec::egress::Protocol::Tls, [93, 184, 216, 34].into());
    let opened = Event::ConnectionOpened {
        connection: 1,
        name,
        port: 443,
        protocol,
        rule: rule.to_string(),
        address: Some(address),
        proxy: None,
    };
    let closed = Event::ConnectionClosed {
        connection: 1,
        sent: 1,
        received: 2,
        millis: 3,
        address: None,
        ending: Ending::Finished,
    };
    let mut append = Vec::new();
    for _ in 0..100_000 {
        for event in [&opened, &closed, &refused] {
            timed(&mut append, || log.append(event))?;
        }
    }
    say("append", &mut append);
    log.end(&Event::SandboxEnded {})?;

    let start = Instant::now();
    let report = belljar_audit::verify(directory, None, None, |_| {})?;
    let lines: u64 = report.ledger_lines + report.logs.iter().map(|log| log.lines).sum::<u64>();
    let took = start.elapsed();
    println!("verify {} logs, {lines} lines: {took:?}, fine: {}", report.logs.len(), report.is_fine());
    Ok(())
}

fn timed<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = work();
    times.push(start.elapsed());
    outcome
}

fn say(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{what:<30} p50 {:>10?}  p99 {:>10?}  max {:>10?}", at(0.5), at(0.99), at(1.0));
}
