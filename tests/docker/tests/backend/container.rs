//! What Docker itself says of a container of ours: nothing that a later `docker exec` could use.

use belljar_tests_docker::{Dockerd, Work};
use serde_json::{Value, json};

#[test]
fn a_container_has_no_capability_no_network_and_no_writable_root() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    let mut child = work.holds("docker");
    let name = daemon.containers().pop().unwrap();
    let all: Value = serde_json::from_str(&daemon.docker(&["inspect", &name])).unwrap();
    let host = &all[0]["HostConfig"];
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!((&host["CapDrop"], host["CapAdd"].as_array().map_or(0, Vec::len)), (&json!(["ALL"]), 0));
    assert_eq!((&host["Privileged"], &host["ReadonlyRootfs"]), (&json!(false), &json!(true)));
    let options = host["SecurityOpt"].to_string();
    assert!(options.contains("no-new-privileges") && options.contains("seccomp"), "{options}");
    assert!(!options.contains("unconfined"), "{options}");
    assert_eq!(host["RestartPolicy"]["Name"].as_str().unwrap_or("no").replace("no", ""), "");
    for limit in ["Memory", "PidsLimit"] {
        assert!(host[limit].as_i64().is_some_and(|limit| limit > 0), "{limit}: {}", host[limit]);
    }
    assert_eq!(host["MemorySwap"], host["Memory"], "no swap on top");
    let user = all[0]["Config"]["User"].as_str().unwrap_or_default();
    assert!(!user.is_empty() && !user.starts_with('0') && !user.starts_with("root"), "{user}");

    // A process that comes in later by `docker exec` has no more.
    let status = daemon.docker(&["exec", &name, "cat", "/proc/self/status"]);
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
