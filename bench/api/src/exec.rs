//! `true` in a live sandbox, through the daemon, beside `docker exec`.

use crate::Outcome;
use crate::docker::Docker;
use belljar_bench_sample::{Case, print_tails};
use belljar_tests_daemon::{Connection, Home, Sandbox};
use serde_json::json;

pub(crate) fn run(home: &Home, runs: usize) -> Outcome<()> {
    let client = home.client();
    let sandbox = Sandbox::create(&client, &json!({}));
    let docker = Docker::find();
    let mut kept = Connection::open(client.address())?;
    let mut dockers = docker.as_ref().map(Docker::connect).transpose()?;
    let mut cases = [API, API_NEW, CLI, DOCKER_CLI, DOCKER_API].map(Case::new);
    let path = sandbox.path("/commands");
    let body = json!({ "argv": ["true"] }).to_string();
    let headers = [("content-type".to_string(), "application/json".to_string())];
    let exec = |connection: &mut Connection| -> Outcome<()> {
        let done = connection.ask("POST", &path, &headers, body.as_bytes())?;
        match done.json()["result"]["exit_code"].as_i64() {
            Some(0) => Ok(()),
            _ => Err(format!("belljar did not run it: {}", done.text()).into()),
        }
    };
    let mut line = home.belljar();
    line.args(["exec", &sandbox.name, "--", "true"]);
    let by_line = works(&mut line);
    for round in 0..runs + WARM_UP {
        let mut discarded = [API, API_NEW, CLI, DOCKER_CLI, DOCKER_API].map(Case::new);
        let [api, api_new, cli, docker_cli, docker_api] =
            if round < WARM_UP { &mut discarded } else { &mut cases };
        api.time(|| exec(&mut kept))?;
        api_new.time(|| exec(&mut Connection::open(client.address())?))?;
        // The slow ones need not be asked as often.
        if round % 10 != 0 {
            continue;
        }
        if by_line {
            cli.time(|| works(&mut line));
        }
        if let (Some(docker), Some(connection)) = (&docker, &mut dockers) {
            let mut command = docker.exec();
            let worked = docker_cli.time(|| works(&mut command));
            if !worked {
                return Err("`docker exec` failed".into());
            }
            docker_api.time(|| docker.exec_by_api(connection))?;
        }
    }
    sandbox.delete();
    print_tails("`true` in a live sandbox", &cases, API);
    let [api, _, cli, docker_cli, docker_api] = &cases;
    if docker.is_some() {
        println!(
            "  docker exec / belljar API, p50: {:.1} (wanted: at least 20)",
            docker_cli.median() / api.median()
        );
        println!("  docker API / belljar API, p50: {:.1}", docker_api.median() / api.median());
        println!("  docker exec / belljar exec, p50: {:.1}", docker_cli.median() / cli.median());
    }
    Ok(())
}

fn works(command: &mut std::process::Command) -> bool {
    use std::process::Stdio;
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

const WARM_UP: usize = 20;
const API: &str = "belljar API";
const API_NEW: &str = "belljar API, a connection each";
const CLI: &str = "belljar exec";
const DOCKER_CLI: &str = "docker exec";
const DOCKER_API: &str = "docker API";
