//! Grants: who else may ask, for what.

use crate::client::Client;
use crate::client::call::escaped;
use crate::client::error::ClientError;
use crate::{GrantInfo, NewGrant, NewToken};
use hyper::Method;

impl Client {
    pub async fn grants(&self) -> Result<Vec<GrantInfo>, ClientError> {
        self.every("/grants", &[]).await
    }

    /// Makes one. Its token is told this once.
    pub async fn grant(&self, grant: &NewGrant) -> Result<NewToken, ClientError> {
        self.call(Method::POST, "/grants").json(grant).answer().await
    }

    pub async fn revoke(&self, id: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, format!("/grants/{}", escaped(id))).done().await
    }
}
