//! Holds a sandbox with many connections, in a process that does nothing else: what it costs is what they cost.

use super::usage;
use crate::Outcome;
use crate::stage::{NAME, Ports, inside, policy};
use belljar_engine::{Engine, Input, Output, Running};
use belljar_spec::{Command, LimitsRequest, SandboxSpec, Stdin};
use std::fs;

/// How many, the server's ports, where to keep records. Prints how many were opened, how many answered, and the kibibytes
/// of memory (PSS before, PSS with the connections, RSS with them).
pub(crate) fn run(words: &[&str]) -> Outcome<()> {
    let &[count, ports, records] = words else { return usage("holder") };
    let (count, ports): (u32, Ports) = (count.parse()?, ports.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(hold(count, ports, records))
}

async fn hold(count: u32, ports: Ports, records: &str) -> Outcome<()> {
    let mut policy = policy(ports)?;
    policy.limits.connections = 4096;
    let spec = SandboxSpec {
        egress: Some(policy),
        limits: LimitsRequest { open_files: Some(8192), ..LimitsRequest::default() },
        ..inside()?
    };
    let sandbox = Engine::new().with_records(records).create(spec).await?;
    let before = memory("Pss:")?;
    let me = std::env::current_exe()?.display().to_string();
    let target = format!("once={NAME}:{}", ports.plain);
    let mut command = Command::new([&me, "held", &count.to_string(), NAME, &target])?;
    command.stdin = Stdin::Stream;
    let mut running = sandbox.spawn(&command).await?;
    let opened = line_of(&mut running).await?;
    let (pss, rss) = (memory("Pss:")?, memory("Rss:")?);
    running.inputs.send(Input::Bytes(vec![1])).await?;
    let answered = line_of(&mut running).await?;
    println!("{} {} {before} {pss} {rss}", opened.trim(), answered.trim());
    sandbox.dispose().await;
    Ok(())
}

/// The next thing that the command says.
async fn line_of(running: &mut Running) -> Outcome<String> {
    let mut next = running.events.next().await?;
    if let Output::Started(_) = next {
        next = running.events.next().await?;
    }
    match next {
        Output::Started(_) => Err("it started twice".into()),
        Output::Stdout(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Output::Stderr(bytes) => Err(String::from_utf8_lossy(&bytes).into()),
        Output::Stopped => Err("it was stopped".into()),
        Output::Ended(ended) => Err(format!("it ended: {ended:?}").into()),
    }
}

/// What this process costs, in KiB. Sockets' own buffers are the kernel's, and in no process's count.
fn memory(kind: &str) -> Outcome<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup
        .lines()
        .find(|line| line.starts_with(kind))
        .ok_or("the kernel does not say what a process costs")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure")?.parse()?)
}
