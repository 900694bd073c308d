//! What a run is booked under at a LiteLLM server, as far as configuration leaves that open.

use belljar_spec::llm::{Billing, LlmRoute, UpstreamKind};
use belljar_spec::{ErrorCode, SandboxError};

/// The fields of a run. Each text is one word that a header can hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunBilling {
    pub end_user: Option<String>,
    pub user_id: Option<String>,
    pub session_id: Option<String>,
    pub graph_id: Option<String>,
    pub attempt: Option<u32>,
}

impl RunBilling {
    /// Whether a field may have this value: visible letters without spaces, at most 256.
    pub fn is_valid(value: &str) -> bool {
        !value.is_empty()
            && value.len() <= MAX_VALUE_BYTES
            && value.bytes().all(|byte| byte.is_ascii_graphic())
    }

    /// Books the calls of a route under these. Configuration has the last word: it may be an operator's.
    pub fn book(self, route: Option<&mut LlmRoute>) -> Result<(), SandboxError> {
        if self == RunBilling::default() {
            return Ok(());
        }
        let Some(route) = route.filter(|route| route.kind == UpstreamKind::LiteLlm) else {
            return Err(ErrorCode::RequestConflict
                .error(
                    "only a LiteLLM server books calls under a name, and the model's server is another one",
                )
                .hint("omit the names, or use a LiteLLM server"));
        };
        self.enter(&mut route.billing)
    }

    fn enter(self, billing: &mut Billing) -> Result<(), SandboxError> {
        let RunBilling { end_user, user_id, session_id, graph_id, attempt } = self;
        let fields = [
            ("end_user", &mut billing.end_user, end_user),
            ("user_id", &mut billing.user_id, user_id),
            ("session_id", &mut billing.session_id, session_id),
            ("graph_id", &mut billing.graph_id, graph_id),
        ];
        for (name, configured, value) in fields {
            let Some(value) = value else { continue };
            if !RunBilling::is_valid(&value) {
                let message =
                    format!("`{name}` is visible letters without spaces, at most {MAX_VALUE_BYTES}");
                return Err(ErrorCode::RequestValue.error(message));
            }
            match configured {
                Some(configured) if *configured != value => {
                    let message = format!(
                        "`{name}` is `{configured}` by configuration, and cannot be another one for a run"
                    );
                    return Err(ErrorCode::RequestConflict
                        .error(message)
                        .hint("omit it, or change it in `[llm]` where it is said"));
                }
                _ => *configured = Some(value),
            }
        }
        if let Some(attempt) = attempt {
            billing.attempt = attempt;
        }
        Ok(())
    }
}

const MAX_VALUE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_booked_under_what_configuration_leaves_open() {
        let mut billing = Billing { end_user: Some("team".into()), ..Billing::default() };
        let some = |text: &str| Some(text.to_string());
        let run = RunBilling {
            end_user: some("team"),
            session_id: some("s-1"),
            attempt: Some(2),
            ..RunBilling::default()
        };
        run.enter(&mut billing).expect("nothing is another");
        assert_eq!((billing.session_id.as_deref(), billing.attempt), (Some("s-1"), 2));
        let other = RunBilling { end_user: some("ann"), ..RunBilling::default() };
        assert_eq!(other.enter(&mut billing).unwrap_err().code, ErrorCode::RequestConflict);
        for wrong in ["", "a b", "a\r\nb", &"x".repeat(257)] {
            let run = RunBilling { graph_id: some(wrong), ..RunBilling::default() };
            assert_eq!(run.enter(&mut billing).unwrap_err().code, ErrorCode::RequestValue, "{wrong:?}");
        }
        let run = RunBilling { attempt: Some(1), ..RunBilling::default() };
        assert_eq!(run.book(None).unwrap_err().code, ErrorCode::RequestConflict, "no server books it");
    }
}
