//! Two hundred sandboxes at once by the Python SDK, with the daemon killed in the middle. Takes minutes on a small machine: `./dev test
//! full` alone.

use crate::daemon::{Served, has_sdks};
use belljar_tests_daemon::eventually;
use std::process::Stdio;

const MANY: &str = include_str!("../programs/many.py");

#[test]
#[ignore = "takes minutes: `./dev test full` runs it"]
fn two_hundred_sandboxes_live_side_by_side_and_outlive_the_daemon() {
    if !has_sdks() {
        return;
    }
    let mut served = Served::new();
    let url = format!("http://{}", served.address);
    let ready = served.home.folder("programs").join("ready");
    let mut program = served.python("many.py", MANY);
    program.env("E2B_API_KEY", served.key("many")).env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url);
    let running =
        program.arg(&ready).arg("200").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !eventually(|| ready.exists()) {}
    drop(served.started.take());
    served.start();
    let output = running.wait_with_output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{}\n{}", said[0], said[1]);
    assert!(eventually(|| std::fs::read_dir(served.home.places()).unwrap().count() == 0), "files are left");
    served.home.is_clean(&[], &[], served.started.as_ref());
}
