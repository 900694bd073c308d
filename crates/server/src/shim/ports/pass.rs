//! HTTP to a port inside: the request goes there, the answer comes back, both as they come; a WebSocket or another protocol that the
//! two agree on is passed on in both directions.

use super::{Port, head};
use crate::shim::failure::Answer;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, Uri, Version};
use axum::response::Response;
use belljar_api::ErrorBody;
use belljar_spec::{ErrorCode, SandboxError};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// Ask a server that listens inside, with any method.
///
/// The rest of the path, the query and the body are passed on, and so is a change to WebSocket. `Authorization`, cookies and headers of
/// belljar are not.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/ports/{port}/{path}", tag = "ports", operation_id = "ask_port",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("port" = u16, Path, description = "One of the `ports` of the sandbox."),
        ("path" = String, Path, description = "Path of the request inside."),
    ),
    responses(
        (status = "default", description = "Response of the server inside.", body = Vec<u8>, content_type = "*/*"),
        (status = "4XX", description = "The request was not sent; or the response of the server inside.", body = ErrorBody),
    )
)]
pub(super) async fn pass(port: Port, mut request: Request) -> Answer<Response> {
    let stream = port.connect().await?;
    let caller = hyper::upgrade::on(&mut request);
    let upgrade = head::inward(request.headers_mut(), port.number);
    let at = head::place(request.uri());
    *request.uri_mut() = Uri::from(head::target(request.uri()));
    *request.version_mut() = Version::HTTP_11;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(not_answered)?;
    tokio::spawn(connection.with_upgrades());
    let mut response = sender.send_request(request).await.map_err(not_answered)?;
    let changed = upgrade.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS);
    if changed.is_some() {
        tokio::spawn(join(caller, hyper::upgrade::on(&mut response)));
    }
    *response.version_mut() = Version::HTTP_11;
    head::outward(response.headers_mut(), changed.as_ref(), &at);
    Ok(response.map(Body::new))
}

/// Both sides agreed on something else than HTTP.
async fn join(caller: OnUpgrade, inside: OnUpgrade) {
    if let (Ok(caller), Ok(inside)) = (caller.await, inside.await) {
        // When one side hangs up, both connections end.
        let _ = copy_bidirectional(&mut TokioIo::new(caller), &mut TokioIo::new(inside)).await;
    }
}

fn not_answered(error: hyper::Error) -> SandboxError {
    ErrorCode::ConnectionFailed
        .error(format!("what listens inside did not answer as a web server does: {error}"))
        .hint("for other protocols use `Upgrade: tcp`")
        .caused_by(error)
}
