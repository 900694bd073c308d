//! Servers in a sandbox, reached from outside.

use crate::client::error::ClientError;
use crate::client::sandbox::Sandbox;
use hyper::Method;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

/// A connection to a port inside: bytes both ways.
pub type PortStream = TokioIo<Upgraded>;

impl Sandbox {
    /// A connection to a port inside that the sandbox was made with.
    pub async fn connect(&self, port: u16) -> Result<PortStream, ClientError> {
        let response = self.call(Method::GET, &format!("/ports/{port}")).upgrade("tcp").await?;
        Ok(TokioIo::new(hyper::upgrade::on(response).await?))
    }
}
