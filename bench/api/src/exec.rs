//! `true` in a live sandbox, through the daemon, beside `docker exec`.

use crate::Outcome;
use crate::docker::Docker;
use belljar_bench_sample::{Case, Figures, print_tails};
use belljar_tests_daemon::{Connection, Home, Sandbox};
use serde_json::json;
use std::process::{Command, Stdio};

pub(crate) fn run(home: &Home, runs: usize, figures: &mut Figures) -> Outcome<()> {
    let client = home.client();
    let sandbox = Sandbox::create(&client, &json!({}));
    let docker = Docker::find();
    let mut kept = Connection::open(client.address())?;
    let mut dockers = docker.as_ref().map(Docker::connect).transpose()?;
    let mut cases = [API, API_NEW, CLI, BWRAP, DOCKER_CLI, DOCKER_API].map(Case::new);
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
    let mut peer = bwrap();
    for round in 0..runs + WARM_UP {
        let mut discarded = [API, API_NEW, CLI, BWRAP, DOCKER_CLI, DOCKER_API].map(Case::new);
        let [api, api_new, cli, bwrap, docker_cli, docker_api] =
            if round < WARM_UP { &mut discarded } else { &mut cases };
        api.time(|| exec(&mut kept))?;
        api_new.time(|| exec(&mut Connection::open(client.address())?))?;
        if by_line {
            cli.time(|| works(&mut line));
        }
        if let Some(command) = &mut peer
            && !bwrap.time(|| works(command))
        {
            peer = None;
        }
        // The slow ones need not be asked as often.
        if round % 10 != 0 {
            continue;
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
    let [api, _, cli, bwrap, docker_cli, docker_api] = &cases;
    println!("  belljar exec / bwrap, p50: {:.2} (wanted: at most 0.6)", cli.median() / bwrap.median());
    figures.add("api_exec_ms", api.median());
    figures.add("cli_exec_ms", cli.median());
    figures.add("cli_exec_x_bwrap", cli.median() / bwrap.median());
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

/// One start of bubblewrap, with all namespaces; nothing where it is not installed.
pub(crate) fn bwrap() -> Option<Command> {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "true"]);
    works(&mut command).then_some(command)
}

pub(crate) fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

const WARM_UP: usize = 20;
const API: &str = "belljar API";
const API_NEW: &str = "belljar API, a connection each";
const CLI: &str = "belljar exec";
const BWRAP: &str = "bwrap --unshare-all, a new sandbox";
const DOCKER_CLI: &str = "docker exec";
const DOCKER_API: &str = "docker API";
