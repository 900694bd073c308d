//! One command in a sandbox that lives already, through the library.

use crate::peers::{Peers, works};
use belljar_bench_sample::{Case, print};
use belljar_engine::Engine;
use belljar_spec::{Command, SandboxSpec};
use std::error::Error;
use std::time::Instant;

pub(crate) async fn run(peers: &Peers, runs: usize) -> Result<(), Box<dyn Error>> {
    let sandbox = Engine::new().create(SandboxSpec::default()).await?;
    let command = Command::new(["/usr/bin/true"])?;
    let mut cases = vec![Case::new("fork+exec"), Case::new("belljar exec"), Case::new("docker exec")];
    let plain = vec!["/usr/bin/true".to_string()];
    for round in 0..runs * 3 {
        if !cases[0].time(|| works(&plain)) {
            return Err("a plain command failed".into());
        }
        let start = Instant::now();
        let result = sandbox.exec(&command).await?;
        cases[1].add(start.elapsed());
        assert_eq!(result.exit_code, Some(0), "the sandbox runs the command");
        if let Some(container) = &peers.container
            && round % 10 == 0
        {
            let words: Vec<String> = ["docker", "exec", &container.0, "true"].map(str::to_string).to_vec();
            if !cases[2].time(|| works(&words)) {
                return Err("docker exec failed".into());
            }
        }
    }
    sandbox.dispose().await;
    print("One command in a live sandbox", &cases, "fork+exec");
    Ok(())
}
