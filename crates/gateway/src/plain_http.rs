//! HTTP in the clear: a connection whose first bytes are a request.

use crate::credentials::Origin;
use crate::http::{Route, Start};
use crate::serving::{Alive, Serving};
use crate::stream::Side;
use belljar_spec::egress::HostName;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Serves it to its end.
pub(crate) async fn serve(
    inside: TcpStream,
    ahead: Vec<u8>,
    name: HostName,
    port: u16,
    serving: Arc<Serving>,
    alive: Alive,
) {
    let to = Origin { name, port, secure: false };
    Route::new(to, serving, alive, Start::InTheClear).serve_http1(Side::inside(inside, ahead)).await;
}
