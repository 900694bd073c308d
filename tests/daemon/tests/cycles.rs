//! Many short lives, 32 at a time: nothing is left of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use belljar_tests_daemon::{Home, Sandbox, eventually};
use serde_json::json;
use std::sync::Mutex;
use std::thread;

#[test]
fn lives_that_are_over_leave_nothing_behind() {
    let home = Home::new();
    let daemon = home.start();
    lives(&home, 32);
    assert!(eventually(|| home.left(&daemon).processes == 0), "{:?}", home.left(&daemon));
    let before = home.left(&daemon);
    let ids = lives(&home, 200);
    // Other tests make and remove mounts and cgroups of their own: ours are looked for by name.
    home.is_clean(&[], &ids, Some(&daemon));
    let grew = || home.left(&daemon).open_files.saturating_sub(before.open_files);
    assert!(
        eventually(|| grew() <= SOME),
        "{} more open files: {before:?}, {:?}",
        grew(),
        home.left(&daemon)
    );
    let after = home.left(&daemon);
    assert!(after.memory < before.memory + 16 * 1024, "memory grew: {before:?}, {after:?}");
    assert!(home.client().get("/v1/sandboxes").ok()["items"].as_array().unwrap().is_empty());
    assert!(daemon.stop().success(), "{}", home.log());
}

fn lives(home: &Home, count: usize) -> Vec<String> {
    let next = Mutex::new(0..count);
    let ids = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let client = home.client();
                while let Some(number) = { next.lock().unwrap().next() } {
                    let request = match number % 3 {
                        0 => json!({ "key": format!("cycle {number}") }),
                        1 => json!({ "entity": "cycles", "scope": "wake", "wake": number.to_string() }),
                        _ => json!({}),
                    };
                    let sandbox = Sandbox::create(&client, &request);
                    assert_eq!(sandbox.run("echo here > file; cat file"), ("here\n".into(), 0));
                    sandbox.delete();
                    ids.lock().unwrap().push(sandbox.id());
                }
            });
        }
    });
    ids.into_inner().unwrap()
}

/// A connection that is kept for the next one is no leak; one of each life would be.
const SOME: usize = 40;
