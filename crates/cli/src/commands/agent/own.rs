//! What the command line says to an agent itself, and what its run is booked under.

use crate::args::{BillField, OwnArgs};
use belljar_agent::billing::RunBilling;
use belljar_agent::run::RunRequest;
use belljar_spec::SandboxError;

pub(super) fn tell(own: OwnArgs, request: &mut RunRequest) -> Result<(), SandboxError> {
    let OwnArgs { bill, arguments } = own;
    request.own_arguments = arguments;
    let mut billing = RunBilling::default();
    for field in bill {
        match field {
            BillField::EndUser(value) => billing.end_user = Some(value),
            BillField::UserId(value) => billing.user_id = Some(value),
            BillField::SessionId(value) => billing.session_id = Some(value),
            BillField::GraphId(value) => billing.graph_id = Some(value),
            BillField::Attempt(number) => billing.attempt = Some(number),
        }
    }
    billing.book(request.sandbox.llm.as_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_bill_has_a_known_name_and_one_word() {
        for wrong in ["ann", "end_user=", "end_user=a b", "account=ann", "attempt=x", "session_id=a\r\nb"] {
            wrong.parse::<BillField>().expect_err(wrong);
        }
        assert_eq!("attempt=2".parse(), Ok(BillField::Attempt(2)));
    }
}
