//! The built-in profiles for Docker, without any configuration file.

use belljar_tests_docker::{Dockerd, Work};
use serde_json::Value;
use std::process::Command;

#[test]
fn the_docker_profiles_work_where_a_daemon_answers_and_are_not_offered_elsewhere() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    for (profile, backend) in [("docker", "docker"), ("gvisor", "docker+runsc")] {
        let mut run = work.belljar();
        run.args(["run", "--profile", profile, "--json", "--workspace"])
            .arg(work.folder())
            .args(["--", "true"]);
        let result = object(&mut run);
        assert_eq!((&result["exitCode"], &result["backend"]), (&0.into(), &backend.into()), "{result}");
    }
    let offered = |host: &str| -> Vec<String> {
        let mut profiles = work.belljar();
        profiles.args(["config", "profiles", "--json"]).env("DOCKER_HOST", host);
        let list = object(&mut profiles);
        let of_docker = |profile: &&Value| profile["backend"].as_str().unwrap().starts_with("docker");
        let line = |profile: &Value| {
            format!("{} {}", profile["name"].as_str().unwrap(), profile["source"].as_str().unwrap())
        };
        list.as_array().unwrap().iter().filter(of_docker).map(line).collect()
    };
    assert_eq!(offered(&daemon.host()), ["docker built-in", "gvisor built-in"]);
    assert_eq!(offered("unix:///nonexistent/docker.sock"), Vec::<String>::new());
}

fn object(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
