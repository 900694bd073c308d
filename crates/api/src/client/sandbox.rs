//! One sandbox, by its name.

use crate::client::Client;
use crate::client::call::{Call, escaped};
use hyper::Method;

/// A sandbox, by its name. What is asked of it is asked anew each time: it may be gone meanwhile.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) lease: Option<String>,
}

impl Sandbox {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, and each request keeps this lease.
    pub fn holding(mut self, lease: &str) -> Sandbox {
        self.lease = Some(lease.into());
        self
    }

    pub(crate) fn call(&self, method: Method, below: &str) -> Call<'_> {
        self.client
            .call(method, format!("/sandboxes/{}{below}", escaped(&self.name)))
            .maybe_header("x-belljar-lease", self.lease.as_deref())
    }
}
