//! `belljar forward`: ports of this machine that lead to ports inside a sandbox.

use super::daemon::client;
use super::hold::Held;
use super::print_json;
use super::target::Target;
use crate::args::{ForwardArgs, PortPair};
use crate::commands::block_on;
use belljar_api::client::Sandbox;
use belljar_spec::{ErrorCode, SandboxError};
use serde_json::json;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;

pub(crate) fn forward(options: ForwardArgs) -> Result<u8, SandboxError> {
    let target = Target::word(options.target, options.branch)?;
    block_on(async {
        // Opened first: a port that is in use starts no sandbox.
        let mut listening = Vec::new();
        for pair in options.ports {
            listening.push((pair, listen(pair).await?));
        }
        let held = Held::take(&client(), &target).await?;
        let outcome = say(&held, &listening, options.json);
        if outcome.is_ok() {
            for (pair, listener) in listening {
                tokio::spawn(serve(listener, held.sandbox.clone(), pair.inside));
            }
            hold(&held).await;
        }
        held.release().await;
        outcome
    })
}

async fn listen(pair: PortPair) -> Result<TcpListener, SandboxError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, pair.here)).await.map_err(|error| {
        let message = format!("the port {} of this machine cannot be opened: {error}", pair.here);
        let refused = ErrorCode::RequestConflict.error(message);
        match error.kind() {
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied => refused.hint(format!(
                "choose another one, as in `{}:8080`; `{}:0` is any free one",
                pair.inside, pair.inside
            )),
            _ => refused,
        }
    })
}

fn say(held: &Held, listening: &[(PortPair, TcpListener)], as_json: bool) -> Result<u8, SandboxError> {
    let failed = |error: std::io::Error| ErrorCode::StateFailed.error(error.to_string());
    let mut ports = Vec::new();
    for (pair, listener) in listening {
        ports.push((pair.inside, listener.local_addr().map_err(failed)?.port()));
    }
    let name = &held.info.name;
    if as_json {
        let ports: Vec<_> =
            ports.iter().map(|(inside, here)| json!({ "inside": inside, "here": here })).collect();
        return print_json(&json!({ "sandbox": name, "address": "127.0.0.1", "ports": ports }));
    }
    for (inside, here) in ports {
        eprintln!("belljar: 127.0.0.1:{here} leads to port {inside} of {name}");
    }
    eprintln!("belljar: ctrl-C ends it");
    Ok(0)
}

/// Keeps the sandbox until a signal ends us.
async fn hold(held: &Held) {
    let mut renewal = interval(RENEWAL);
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => return,
            _ = terminate.recv() => return,
            _ = renewal.tick() => held.renew().await,
        }
    }
}

/// Leads every connection of a port to the sandbox.
async fn serve(listener: TcpListener, sandbox: Sandbox, inside: u16) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(lead(client, sandbox.clone(), inside));
            }
            // No descriptor is free: a connection that ends gives one back.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn lead(mut client: TcpStream, sandbox: Sandbox, inside: u16) {
    match sandbox.connect(inside).await {
        Ok(mut stream) => {
            // When one side hangs up, both connections end.
            let _ = copy_bidirectional(&mut client, &mut stream).await;
        }
        Err(error) => {
            let error = crate::failure::of_client(error);
            eprintln!("belljar: port {inside} of {}: {error}", sandbox.name());
        }
    }
}

/// A lease lasts an hour without it.
const RENEWAL: Duration = Duration::from_secs(20 * 60);
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
