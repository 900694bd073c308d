//! A request over a profile. The request fills in or replaces what the profile says, with some exceptions: the backend and the root that a
//! profile names, the weakest isolation that it accepts, and the width of its egress can be made stricter and never wider; and what it says of
//! `nested` and `inspect` is not the request's to undo. Lists are joined.

use super::field::Field;
use super::{EgressRequest, SandboxRequest};
use crate::BackendChoice;
use std::fmt::Display;

/// What a request has that is wider than its profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wider {
    pub field: &'static str,
    pub requested: String,
    /// What the profile says of it.
    pub base: String,
}

impl SandboxRequest {
    /// This request over what a profile says.
    pub fn over(self, base: &SandboxRequest) -> Result<SandboxRequest, Wider> {
        let backend = match (base.backend, self.backend) {
            (Some(base @ BackendChoice::Named(_)), Some(BackendChoice::Auto)) => Some(base),
            (Some(base @ BackendChoice::Named(_)), Some(requested)) if requested != base => {
                return Err(wider("backend", requested, base));
            }
            (base, requested) => requested.or(base),
        };
        if let (Some(base), Some(requested)) = (&base.rootfs, &self.rootfs)
            && requested != base
        {
            // A profile's root may be chosen for what it does not show.
            return Err(wider("rootfs", requested, base));
        }
        if base.nested == Some(false) && self.nested == Some(true) {
            return Err(wider("nested", true, false));
        }
        self.egress.must_be_within(&base.egress)?;
        let at_least = match (base.at_least, self.at_least) {
            (Some(base), Some(ours)) => Some(base.stricter(ours)),
            (base, ours) => base.or(ours),
        };
        let nested = base.nested.or(self.nested).filter(|nested| *nested);
        Ok(SandboxRequest { backend, at_least, nested, ..Field::over(self, base.clone()) })
    }

    /// This request of the person who wrote the profile: it fills in what the request leaves out, and holds nothing against it. Lists are
    /// joined.
    pub fn filled_from(self, base: &SandboxRequest) -> SandboxRequest {
        Field::over(self, base.clone())
    }
}

impl EgressRequest {
    fn must_be_within(&self, base: &EgressRequest) -> Result<(), Wider> {
        if let (Some(requested), Some(base)) = (self.mode, base.mode)
            && requested > base
        {
            return Err(wider("egress.mode", requested, base));
        }
        let mut new = self.allow.iter().filter(|rule| !base.allow.contains(rule));
        match new.find(|rule| base.inspect && rule.passes_tcp()) {
            Some(unseen) => Err(wider("egress.allow", unseen, "`inspect`, which cannot look into tcp")),
            None => Ok(()),
        }
    }
}

fn wider(field: &'static str, requested: impl Display, base: impl Display) -> Wider {
    Wider { field, requested: requested.to_string(), base: base.to_string() }
}
