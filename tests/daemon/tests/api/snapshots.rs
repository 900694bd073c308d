//! Snapshots and forks: the files of a sandbox, kept and shared, while programs write, processes are killed, and others look on.

use belljar_tests_daemon::{Home, Sandbox, eventually, kill};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value:#}")).to_string()
}

fn snapshot(sandbox: &Sandbox, request: &Value) -> Value {
    sandbox.client.post(&sandbox.path("/snapshots"), request).ok()
}

fn from(home: &Home, snapshot: &str, more: &Value) -> Sandbox {
    let mut request = json!({ "persistent": true, "sandbox": { "snapshot": snapshot } });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Sandbox::create(&home.client(), &request)
}

fn layers(home: &Home) -> usize {
    let layers = home.path("state/belljar/fleet/snapshots/layers");
    fs::read_dir(layers).map_or(0, Iterator::count)
}

/// Nothing of snapshots is left.
#[track_caller]
fn no_layers(home: &Home) {
    for one in home.client().get("/v1/snapshots").ok()["items"].as_array().unwrap() {
        home.client().delete(&format!("/v1/snapshots/{}", text(&one["id"]))).ok();
    }
    home.client().post("/v1/sweep", &Value::Null).ok();
    assert!(eventually(|| layers(home) == 0), "{} layers are left", layers(home));
}

#[test]
fn a_fork_has_the_files_of_its_source_and_nothing_else_in_common_with_it() {
    let home = Home::new();
    let daemon = home.start();
    let request = json!({ "key": "source", "sandbox": { "ports": [8080], "env": { "A": "b" } } });
    let source = Sandbox::create(&home.client(), &request);
    let (printed, code) =
        source.run("echo 1 > ~/h; echo 1 > w; mkdir -m 750 d; ln -s w d/l; rm ~/.zshrc; echo said");
    assert_eq!((printed.as_str(), code), ("said\n", 0));
    let before = source.info();
    let answer =
        home.client().post(&source.path("/fork"), &json!({ "count": 2, "keys": ["one", "two"] })).ok();
    assert_eq!(answer["how"], "layered", "nothing ran, and nothing lay in /tmp: {answer:#}");
    let forks: Vec<Sandbox> = answer["sandboxes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|made| Sandbox::of(&home.client(), made.clone()))
        .collect();
    // The source is the same sandbox, with the output of its commands.
    let after = source.info();
    for field in ["id", "name", "key", "state", "started_ms", "leases"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let output = home.client().get(&source.path("/commands/cmd_1/output?from=0")).text();
    assert!(output.contains("said"), "{output}");
    let look = "cat ~/h w; stat -c %a d; readlink d/l; ls -A ~; echo $A";
    let seen = source.run(look);
    assert_eq!(seen, ("1\n1\n750\nw\n.bashrc\nh\nb\n".into(), 0));
    for fork in &forks {
        assert_eq!(fork.run(look), seen);
        for field in ["id", "name", "key", "leases"] {
            assert_ne!(fork.info()[field], after[field], "{field}");
        }
        assert_eq!(fork.info()["ports"], json!([8080]));
    }
    // All ways of changing a file, in both directions, and nobody else sees it.
    forks[0].run("echo fork > ~/h; rm w; rmdir d 2>/dev/null; mv d e; echo new > ~/n; chmod 700 ~");
    source.run("echo source > ~/h; echo more >> w; rm -r d; mkdir d; touch d/other");
    assert_eq!(forks[1].run(look), seen);
    assert_eq!(forks[0].run("cat ~/h ~/n; ls"), ("fork\nnew\ne\n".into(), 0));
    assert_eq!(source.run("cat ~/h w; ls d; ls ~"), ("source\n1\nmore\nother\nh\n".into(), 0));
    // Each of them in its next life.
    for sandbox in [&forks[0], &source] {
        home.client().post(&sandbox.path("/stop"), &json!({})).ok();
    }
    let again = Sandbox::create(&home.client(), &json!({ "key": "one" }));
    assert_eq!(again.run("cat ~/h ~/n; ls"), ("fork\nnew\ne\n".into(), 0));
    // A stopped one is forked as well, and what it has is not a source's any more once that is gone.
    let late = home.client().post(&source.path("/fork"), &json!({})).ok();
    let late = Sandbox::of(&home.client(), late["sandboxes"][0].clone());
    source.delete();
    assert_eq!(late.run("cat ~/h w; ls d"), ("source\n1\nmore\nother\n".into(), 0));
    let ids: Vec<String> = [again.id(), late.id(), forks[1].id()].into();
    for sandbox in [&again, &late, &forks[1]] {
        sandbox.delete();
    }
    no_layers(&home);
    home.is_clean(&[], &ids, Some(&daemon));
}

#[test]
fn a_snapshot_of_a_sandbox_at_work_is_one_moment_of_it() {
    let home = Home::new();
    let _daemon = home.start();
    let source = Sandbox::create(&home.client(), &json!({ "key": "busy" }));
    // In lockstep, over two parts: what was written first is never behind, and never more than one step ahead.
    let writer = source.start(
        "touch /tmp/private; i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i > ~/a.new; mv ~/a.new ~/a; echo $i > b.new; mv b.new b; done; echo $i",
    );
    assert!(eventually(|| source.run("test -s b").1 == 0));
    for round in 0..4 {
        let taken = snapshot(&source, &json!({ "name": format!("round-{round}") }));
        assert_eq!(taken["how"], "copied", "{taken:#}");
        let copy = from(&home, &text(&taken["id"]), &json!({}));
        let (seen, code) = copy.run("cat ~/a b");
        let steps: Vec<u64> = seen.lines().map(|line| line.parse().unwrap()).collect();
        assert!(code == 0 && (0..=1).contains(&(steps[0] - steps[1])), "{seen}");
        copy.delete();
    }
    // What cannot be done to a sandbox at work is refused, and changes nothing.
    let refused = home.client().post(&source.path("/snapshots"), &json!({ "how": "layered" }));
    refused.refused(409, "in_use");
    let refused = home.client().post(&source.path("/restore"), &json!({ "snapshot": "round-0" }));
    refused.refused(409, "in_use");
    source.run("touch stop");
    let ended = writer.wait();
    assert_eq!(ended["result"]["exit_code"], 0, "it went on: {ended:#}");
    // Nothing runs any more, and still a file in /tmp would be lost with the processes.
    assert_eq!(snapshot(&source, &json!({}))["how"], "copied");
    assert_eq!(source.run("ls /tmp"), ("private\n".into(), 0));
    source.run("rm /tmp/private");
    assert_eq!(snapshot(&source, &json!({}))["how"], "layered");
    source.delete();
    no_layers(&home);
}

#[test]
fn a_sandbox_goes_back_to_a_snapshot_and_forward_again() {
    let home = Home::new();
    let _daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({ "key": "k" }));
    let post = |below: &str, body: Value| home.client().post(&sandbox.path(below), &body);
    let seen = || sandbox.run("cat ~/f w 2>&1; ls ~").0;
    sandbox.run("echo 1 > ~/f; echo 1 > w");
    let first = seen();
    assert_eq!(text(&snapshot(&sandbox, &json!({ "name": "first" }))["name"]), "first");
    post("/snapshots", json!({ "name": "first" })).refused(409, "name_taken");
    post("/snapshots", json!({ "name": "snap-1" })).refused(422, "request_value");
    sandbox.run("rm w; echo 2 > ~/f; touch ~/g");
    let second = seen();
    let restored = post("/restore", json!({ "snapshot": "first" })).ok();
    assert_eq!(seen(), first);
    let saved = text(&restored["saved"]["id"]);
    post("/stop", json!({})).ok();
    post("/restore", json!({ "snapshot": saved })).ok();
    let again = Sandbox::create(&home.client(), &json!({ "key": "k" }));
    assert_eq!(again.run("cat ~/f w 2>&1; ls ~").0, second, "a stopped one, to what was saved");
    post("/restore", json!({ "snapshot": "first", "force": true })).ok()["saved"]
        .is_null()
        .then_some(())
        .unwrap();
    assert_eq!(seen(), first);
    // One checkpoint for each command; more than are kept, and more than the kernel could mount one by one.
    for step in 0..70 {
        assert_eq!(snapshot(&sandbox, &json!({ "checkpoint": true }))["automatic"], "checkpoint");
        sandbox.run(&format!(
            "echo {step} > ~/f; rm -f ~/g*; touch ~/g{step}; mkdir -p d/{step}; rm -rf d/$(({step}-1))"
        ));
    }
    let steps = |n: u32| post("/undo", json!({ "steps": n }));
    steps(1).ok();
    assert_eq!(sandbox.run("cat ~/f; ls ~ d").0, "68\n/home/agent:\nf\ng68\n\nd:\n68\n");
    steps(19).ok();
    assert_eq!(sandbox.run("cat ~/f; ls ~ d").0, "49\n/home/agent:\nf\ng49\n\nd:\n49\n");
    steps(1).refused(404, "not_found");
    let from_first = from(&home, "first", &json!({}));
    assert_eq!(from_first.run("cat ~/f w 2>&1; ls ~").0, first, "what was kept by name is as it was");
    from_first.delete();
    sandbox.delete();
    let left = home.client().get("/v1/snapshots").ok();
    let names: Vec<String> = left["items"].as_array().unwrap().iter().map(|one| text(&one["name"])).collect();
    assert_eq!(names, ["first"], "checkpoints go with their sandbox");
    no_layers(&home);
}

#[test]
fn a_grant_sees_and_uses_its_own_snapshots_alone() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let grant = |rules: Value| {
        let made = home.client().post("/v1/grants", &rules).ok();
        home.stranger().token(made["token"].as_str().unwrap())
    };
    let own = grant(
        json!({ "name": "own", "allow_sandbox": true, "snapshots": 2, "sandboxes": 3, "limits": { "pids": 200 } }),
    );
    let other =
        grant(json!({ "name": "other", "allow_sandbox": true, "keys": ["*"], "own_keys": ["nothing"] }));
    let sandbox = Sandbox::create(&own, &json!({ "persistent": true }));
    sandbox.run("echo mine > ~/f");
    let taken = own.post(&sandbox.path("/snapshots"), &json!({ "name": "mine" })).ok();
    let id = text(&taken["id"]);
    for client in [&other, &home.client()] {
        let is_owner = std::ptr::eq(client, &other);
        for name in ["mine", &id] {
            let answer = client.get(&format!("/v1/snapshots/{name}"));
            assert_eq!(answer.status == 404, is_owner, "{}", answer.text());
        }
    }
    assert_eq!(other.get("/v1/snapshots").ok()["items"], json!([]));
    for name in ["mine", &id] {
        other.delete(&format!("/v1/snapshots/{name}")).refused(404, "not_found");
        let create = json!({ "sandbox": { "snapshot": name } });
        other.post("/v1/sandboxes", &create).refused(404, "not_found");
    }
    for below in ["/snapshots", "/fork", "/undo"] {
        let answer = other.post(&sandbox.path(below), &json!({}));
        assert!([403, 404].contains(&answer.status), "{below}: {}", answer.text());
    }
    let theirs = Sandbox::create(&other, &json!({ "persistent": true }));
    other.post(&theirs.path("/restore"), &json!({ "snapshot": id })).refused(404, "not_found");
    // Another grant may have the same name for one of its own.
    other.post(&theirs.path("/snapshots"), &json!({ "name": "mine" })).ok();
    // Ceilings hold for snapshots and for forks.
    own.post(&sandbox.path("/snapshots"), &json!({})).ok();
    own.post(&sandbox.path("/snapshots"), &json!({})).refused(403, "quota_exceeded");
    own.post(&sandbox.path("/fork"), &json!({ "count": 3 })).refused(403, "quota_exceeded");
    assert_eq!(own.get("/v1/sandboxes").ok()["items"].as_array().unwrap().len(), 1, "all forks, or none");
    let create = json!({ "sandbox": { "snapshot": "mine", "limits": { "pids": 1000 } } });
    own.post("/v1/sandboxes", &create).refused(403, "not_granted");
    let forked = own.post(&sandbox.path("/fork"), &json!({})).ok();
    let fork = Sandbox::of(&own, forked["sandboxes"][0].clone());
    assert_eq!(fork.run("cat ~/f"), ("mine\n".into(), 0));
    assert_eq!(fork.info()["owner"], sandbox.info()["owner"]);
    for sandbox in [fork, sandbox, theirs] {
        sandbox.delete();
    }
    no_layers(&home);
}

/// The shim and the daemon die at any moment of snapshots, restores and forks. Steps are covered one by one in the crate `overlay`.
#[test]
fn a_kill_in_the_middle_loses_no_file_and_leaves_no_layer() {
    let home = Home::new();
    let mut daemon = Some(home.start());
    let source = Sandbox::create(&home.client(), &json!({ "key": "source" }));
    source.run("for i in $(seq 200); do echo $i > ~/$i; done; cp -r ~ all");
    let count = "ls ~ | wc -l; ls all | wc -l; cat ~/200";
    let whole = source.run(count);
    assert_eq!(whole.0, "200\n200\n200\n");
    snapshot(&source, &json!({ "name": "whole" }));
    let again = |what: &str| {
        let source = Sandbox::create(&home.client(), &json!({ "key": "source" }));
        assert_eq!(source.run(count), whole, "{what}");
        source
    };
    for round in 0..12_u64 {
        let mut source = again(&format!("round {round}"));
        source.run(&format!("echo {round} > all/1"));
        let client = home.client();
        let path = source.path("");
        let asking = thread::spawn(move || {
            let requested = match round % 3 {
                0 => client.ask("POST", &format!("{path}/fork")).json(&json!({ "count": 2 })).try_send(),
                1 => client.ask("POST", &format!("{path}/snapshots")).json(&json!({})).try_send(),
                _ => client
                    .ask("POST", &format!("{path}/restore"))
                    .json(&json!({ "snapshot": "whole" }))
                    .try_send(),
            };
            requested.map(|answer| answer.status).ok()
        });
        // From before the first step to behind the last.
        let moment = Instant::now() + Duration::from_millis(round * 9);
        while Instant::now() < moment {
            thread::yield_now();
        }
        if round % 2 == 0 {
            if let Some(shim) = home.shim(&source.name) {
                kill(shim);
            }
        } else if let Some(daemon) = daemon.take() {
            daemon.kill();
        }
        let _ = asking.join().unwrap();
        if daemon.is_none() {
            daemon = Some(home.start());
        }
        // The daemon may not have noticed yet that the shim is dead.
        let client = home.client();
        assert!(eventually(|| {
            let made = client.post("/v1/sandboxes", &json!({ "key": "source" }));
            let ran = client.post(&source.path("/commands"), &json!({ "shell": "true" }));
            made.status < 300 && ran.status < 300
        }));
        source = again("after it");
        let whole_again = from(&home, "whole", &json!({}));
        assert_eq!(whole_again.run(count), whole, "the earlier snapshot in round {round}");
        whole_again.delete();
        drop(source);
    }
    for one in home.client().get("/v1/sandboxes").ok()["items"].as_array().unwrap() {
        home.client().delete(&format!("/v1/sandboxes/{}", text(&one["name"]))).ok();
    }
    no_layers(&home);
}

#[test]
fn no_real_secret_is_in_a_snapshot() {
    const VALUE: &str = "tvly-0123456789abcdefghijklmnopqrstuv";
    let home = Home::new();
    let mut set = home.belljar();
    set.args(["secrets", "set", "tavily"]).stdin(std::process::Stdio::piped());
    let mut set = set.spawn().unwrap();
    std::io::Write::write_all(&mut set.stdin.take().unwrap(), VALUE.as_bytes()).unwrap();
    assert!(set.wait().unwrap().success());
    let _daemon = home.start();
    let request =
        json!({ "key": "k", "sandbox": { "web_search": "tavily", "egress": { "mode": "strict" } } });
    let source = Sandbox::create(&home.client(), &request);
    let (placeholder, code) = source.run("echo $TAVILY_API_KEY | tee ~/key key; env > ~/env");
    assert!(code == 0 && placeholder.len() > 10 && placeholder.trim() != VALUE, "{placeholder}");
    let forked = home.client().post(&source.path("/fork"), &json!({})).ok();
    let fork = Sandbox::of(&home.client(), forked["sandboxes"][0].clone());
    snapshot(&source, &json!({ "name": "kept" }));
    let (own, _) = fork.run("echo $TAVILY_API_KEY");
    assert!(own.len() > 10 && own != placeholder && own.trim() != VALUE, "{own}");
    assert_eq!(fork.run("cat key").0, placeholder, "what a program wrote stays what it wrote");
    let found = std::process::Command::new("grep")
        .args(["-rlF", VALUE])
        .arg(home.path("state/belljar/fleet"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    for sandbox in [&source, &fork] {
        sandbox.delete();
    }
    no_layers(&home);
}

/// A system of busybox, which brings all that it needs.
fn busybox(root: &std::path::Path) {
    for folder in ["bin", "etc", "usr/bin", "tmp", "var"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    // Its system belongs to root, which no process inside is.
    fs::set_permissions(root.join("var"), PermissionsExt::from_mode(0o777)).unwrap();
    let linked = std::process::Command::new("ldd").arg("/usr/bin/busybox").output().unwrap();
    let linked = String::from_utf8_lossy(&linked.stdout).into_owned();
    let libraries = linked.split_whitespace().filter(|word| word.starts_with('/'));
    for path in libraries.map(String::from).chain(["/usr/bin/busybox".into()]) {
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&path, to).unwrap();
    }
    for applet in ["sh", "cat", "ls", "rm", "mkdir", "echo", "touch", "stat", "id", "chmod", "mv"] {
        std::os::unix::fs::symlink("/usr/bin/busybox", root.join("bin").join(applet)).unwrap();
    }
    fs::write(root.join("var/of-the-root"), "root\n").unwrap();
}

#[test]
fn changes_of_a_root_are_in_a_snapshot_with_every_backend_that_has_layers() {
    let home = Home::new();
    let _daemon = home.start();
    let root = home.folder("root");
    busybox(&root);
    let capabilities = home.client().get("/v1/capabilities").ok();
    let works = |name: &str| {
        let all = capabilities["backends"].as_array().unwrap();
        all.iter().any(|one| one["backend"] == name && one["works"] == true)
    };
    for backend in ["native", "bwrap"].into_iter().filter(|name| works(name)) {
        let request = json!({ "key": backend, "sandbox": { "backend": backend, "rootfs": root } });
        let source = Sandbox::create(&home.client(), &request);
        let (printed, code) = source.run("rm /var/of-the-root; echo new > /var/new; mkdir /var/opt; echo o > /var/opt/f; echo h > ~/h; echo w > w");
        assert_eq!(code, 0, "{backend}: {printed}");
        let look =
            "cat /var/new /var/opt/f ~/h w; ls /var/of-the-root 2>/dev/null; cat /etc/passwd | head -n 1";
        let seen = source.run("cat /var/new /var/opt/f ~/h w; ls /var/of-the-root 2>/dev/null");
        let taken = snapshot(&source, &json!({ "name": backend }));
        assert_eq!(taken["parts"], json!(["root", "home", "workspace"]), "{taken:#}");
        assert_eq!(taken["how"], "layered");
        assert_eq!(source.run(look).0.lines().take(4).collect::<Vec<_>>(), ["new", "o", "h", "w"]);
        source.run("echo changed > /var/new; rm -r /var/opt; touch /var/of-the-root");
        let copy = from(&home, backend, &json!({ "sandbox": { "snapshot": backend, "backend": backend } }));
        assert_eq!(
            copy.run("cat /var/new /var/opt/f ~/h w; ls /var/of-the-root 2>/dev/null"),
            seen,
            "{backend}"
        );
        copy.run("rm /var/new; echo more > /var/opt/g");
        assert_eq!(source.run("cat /var/new; ls /var/opt 2>/dev/null").0, "changed\n");
        // Busy ones are copied, deleted files and all.
        let sleeper = copy.start("while [ ! -e /var/stop ]; do :; done");
        let busy = snapshot(&copy, &json!({}));
        assert_eq!(busy["how"], "copied");
        copy.run("touch /var/stop");
        sleeper.wait();
        let of_copy = from(
            &home,
            &text(&busy["id"]),
            &json!({ "sandbox": { "snapshot": busy["id"], "backend": backend } }),
        );
        assert_eq!(
            of_copy.run("ls /var/new /var/of-the-root 2>/dev/null; cat /var/opt/f /var/opt/g").0,
            "o\nmore\n"
        );
        // Another root, or another backend's users, are refused by name.
        let other = json!({ "sandbox": { "snapshot": backend, "backend": backend, "rootfs": "host" } });
        home.client().post("/v1/sandboxes", &other).refused(422, "request_conflict");
        if works("native") && works("bwrap") {
            let other = if backend == "native" { "bwrap" } else { "native" };
            let other = json!({ "sandbox": { "snapshot": backend, "backend": other } });
            home.client().post("/v1/sandboxes", &other).refused(422, "request_conflict");
        }
        for sandbox in [&source, &copy, &of_copy] {
            sandbox.delete();
        }
    }
    assert_eq!(fs::read_to_string(root.join("var/of-the-root")).unwrap(), "root\n");
    no_layers(&home);
}
