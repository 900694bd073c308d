//! A request beside a living sandbox.

use super::SandboxRequest;
use super::field::Field;

impl SandboxRequest {
    /// The fields in which a living sandbox is not what was asked for: a value that is another one, or a part of a list that is missing. What
    /// was not said fits. `effective` is what the profile and the grant make of this request.
    pub fn fits(&self, effective: &SandboxRequest, living: &SandboxRequest) -> Vec<String> {
        let mut found = Vec::new();
        self.compare(effective, living, "", &mut found);
        found
    }
}
