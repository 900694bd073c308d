//! What the command line says to an agent itself, and what its run is booked under.

use crate::args::{BillField, OwnArgs};
use belljar_agent::run::RunRequest;
use belljar_spec::llm::{Billing, UpstreamKind};
use belljar_spec::{ErrorCode, SandboxError};

pub(super) fn tell(own: OwnArgs, request: &mut RunRequest) -> Result<(), SandboxError> {
    let OwnArgs { bill, arguments } = own;
    request.own_arguments = arguments;
    if bill.is_empty() {
        return Ok(());
    }
    let Some(route) = request.sandbox.llm.as_mut().filter(|route| route.kind == UpstreamKind::LiteLlm) else {
        return Err(ErrorCode::RequestConflict
            .error("only a LiteLLM server books calls under a name, and the model's server is another one")
            .hint("omit `--bill`, or name the server with `--llm URL --llm-kind litellm`"));
    };
    bill.into_iter().try_for_each(|field| book(&mut route.billing, field))
}

/// Adds a field. What configuration says stays: it may be an operator's.
fn book(billing: &mut Billing, field: BillField) -> Result<(), SandboxError> {
    let (name, given, value) = match field {
        BillField::EndUser(value) => ("end_user", &mut billing.end_user, value),
        BillField::UserId(value) => ("user_id", &mut billing.user_id, value),
        BillField::SessionId(value) => ("session_id", &mut billing.session_id, value),
        BillField::GraphId(value) => ("graph_id", &mut billing.graph_id, value),
        BillField::Attempt(number) => {
            billing.attempt = number;
            return Ok(());
        }
    };
    match given {
        Some(configured) if *configured != value => Err(ErrorCode::RequestConflict
            .error(format!(
                "`{name}` is `{configured}` by configuration, and cannot be another one for a run"
            ))
            .hint("omit it, or change it in `[llm]` where it is said")),
        _ => {
            *given = Some(value);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_booked_under_what_configuration_leaves_open() {
        let mut billing = Billing { end_user: Some("team".into()), ..Billing::default() };
        let fields =
            ["end_user=team", "session_id=s-1", "attempt=2"].map(|text| text.parse().expect("a field"));
        fields.into_iter().try_for_each(|field| book(&mut billing, field)).expect("nothing is another");
        assert_eq!((billing.session_id.as_deref(), billing.attempt), (Some("s-1"), 2));
        let other = book(&mut billing, "end_user=ann".parse().expect("a field")).expect_err("it is said");
        assert_eq!(other.code, ErrorCode::RequestConflict);
        for wrong in ["ann", "end_user=", "end_user=a b", "account=ann", "attempt=x", "session_id=a\r\nb"] {
            wrong.parse::<BillField>().expect_err(wrong);
        }
    }
}
