//! Plain bytes to a port inside.

use super::{Port, pass};
use crate::shim::failure::Answer;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::response::{IntoResponse, Response};
use belljar_api::ErrorBody;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// Connect to a port inside.
///
/// With `Connection: upgrade` and `Upgrade: tcp`, what follows in both directions are the bytes of the connection. Without them it asks
/// the server inside for `/`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/ports/{port}", tag = "ports", operation_id = "connect_port",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("port" = u16, Path, description = "One of the `ports` of the sandbox."),
    ),
    responses(
        (status = 101, description = "The connection continues as plain bytes."),
        (status = "default", description = "Response of the server inside.", body = Vec<u8>, content_type = "*/*"),
        (status = "4XX", description = "The request was not sent; or the response of the server inside.", body = ErrorBody),
    )
)]
pub(super) async fn open(port: Port, mut request: Request) -> Answer<Response> {
    let upgrade_of = request.headers().get(UPGRADE);
    if !upgrade_of.is_some_and(|upgrade_of| upgrade_of.as_bytes().eq_ignore_ascii_case(b"tcp")) {
        return pass::pass(port, request).await;
    }
    let mut stream = port.connect().await?;
    let caller = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(caller) = caller.await {
            // When one side hangs up, both connections end.
            let _ = copy_bidirectional(&mut TokioIo::new(caller), &mut stream).await;
        }
    });
    Ok((StatusCode::SWITCHING_PROTOCOLS, [(CONNECTION, "upgrade"), (UPGRADE, "tcp")]).into_response())
}
