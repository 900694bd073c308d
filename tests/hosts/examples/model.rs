//! The model as a program, for benchmarks and for trying agents by hand.
//!
//! ```text
//! cargo run -p belljar-tests-hosts --example model -- [--port N] [--scenario NAME] [--expect-key KEY] [--log FILE]
//! {"ready":true,"port":41234,"url":"http://127.0.0.1:41234"}
//! ```
//!
//! That line means that it listens. With `--log`, every request becomes a line of JSON there.

use belljar_tests_hosts::{Model, SCENARIOS};
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

fn main() -> Result<(), String> {
    let (mut port, mut scenario, mut key, mut log) = (0, None, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("`{name}` needs a value"))?;
        match name.as_str() {
            "--port" => port = value.parse().map_err(|error| format!("`--port {value}`: {error}"))?,
            "--scenario" if SCENARIOS.contains(&value.as_str()) => scenario = Some(value),
            "--scenario" => {
                return Err(format!("there is no `{value}`: use one of {}", SCENARIOS.join(", ")));
            }
            "--expect-key" => key = Some(value),
            "--log" => {
                log = Some(File::create(&value).map_err(|error| format!("`--log {value}`: {error}"))?);
            }
            _ => return Err(format!("there is no `{name}`")),
        }
    }
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let model = Model::at(address);
    if let Some(scenario) = scenario {
        model.scenario(&scenario);
    }
    if let Some(key) = key {
        model.expect_key(&key);
    }
    let ready = json!({"ready": true, "port": model.address().port(), "url": model.url()});
    writeln!(io::stdout(), "{ready}").map_err(|error| error.to_string())?;
    let Some(mut log) = log else {
        loop {
            thread::park();
        }
    };
    let mut written = 0;
    loop {
        thread::sleep(Duration::from_millis(100));
        for call in model.calls().iter().skip(written) {
            writeln!(log, "{}", call.to_json()).map_err(|error| format!("the log: {error}"))?;
            written += 1;
        }
    }
}
