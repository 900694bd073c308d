//! `belljar forward`: ports of this machine that lead to ports inside a sandbox.

use super::daemon::client;
use super::hold::Held;
use super::print_json;
use super::target::Target;
use crate::args::ForwardArgs;
use crate::commands::block_on;
use belljar_api::client::Sandbox;
use belljar_engine::listen;
use belljar_spec::{ErrorCode, ForwardedAt, ForwardedPort, SandboxError};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;

pub(crate) fn forward(options: ForwardArgs) -> Result<u8, SandboxError> {
    let ForwardArgs { target, mut ports, branch, json } = options;
    let target = match target.parse::<ForwardedPort>() {
        Ok(port) => {
            ports.insert(0, port);
            ".".to_string()
        }
        Err(_) => target,
    };
    if ports.is_empty() {
        let message = format!("which port of `{target}` should be reached?");
        return Err(ErrorCode::RequestValue
            .error(message)
            .hint("write it behind, as in `belljar forward . 3000`"));
    }
    let target = Target::word(target, branch)?;
    block_on(async {
        // Opened first: a port that is in use starts no sandbox.
        let mut listening = Vec::new();
        for port in ports {
            listening.push((port, listener(&port)?));
        }
        let held = Held::take(&client(), &target).await?;
        let outcome = say(&held, &listening, json);
        if outcome.is_ok() {
            for (port, listener) in listening {
                tokio::spawn(serve(listener, held.sandbox.clone(), port.inside));
            }
            hold(&held).await;
        }
        held.release().await;
        outcome
    })
}

fn listener(port: &ForwardedPort) -> Result<TcpListener, SandboxError> {
    TcpListener::from_std(listen(port)?).map_err(|error| ErrorCode::Internal.error(error.to_string()))
}

fn say(held: &Held, listening: &[(ForwardedPort, TcpListener)], as_json: bool) -> Result<u8, SandboxError> {
    let failed = |error: std::io::Error| ErrorCode::StateFailed.error(error.to_string());
    let mut ports = Vec::new();
    for (port, listener) in listening {
        let address = listener.local_addr().map_err(failed)?;
        ports.push(ForwardedAt { address: address.ip(), port: address.port(), inside: port.inside });
    }
    let name = &held.info.name;
    if as_json {
        let ports: Vec<_> = ports
            .iter()
            .map(|at| json!({ "inside": at.inside, "here": at.port, "address": at.address }))
            .collect();
        return print_json(&json!({ "sandbox": name, "ports": ports }));
    }
    for at in ports {
        let here = SocketAddr::new(at.address, at.port);
        eprintln!("belljar: {here} leads to port {} of {name}", at.inside);
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
            let _ = copy_bidirectional_with_sizes(&mut client, &mut stream, COPY_BYTES, COPY_BYTES).await;
        }
        Err(error) => {
            let error = crate::failure::of_client(error);
            eprintln!("belljar: port {inside} of {}: {error}", sandbox.name());
        }
    }
}

/// As much as a socket gives at once.
const COPY_BYTES: usize = 64 * 1024;
/// A lease lasts an hour without it.
const RENEWAL: Duration = Duration::from_secs(20 * 60);
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
