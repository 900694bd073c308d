//! What may leave: (policy, name, port, protocol, addresses) in, a [`Permit`] or a refusal out.
//!
//! Pure: no I/O, no clock, no state, so that everything about it can be tested. Asked three times on the way of a
//! connection, each time with what is known by then: [`name`] when DNS is asked, [`opening`] when a port is dialled,
//! [`addresses`] when the first bytes are read and the name is resolved. [`decide`](decide()) is all of it at once. Where
//! rules are about requests, each one is asked about by [`request`].
//! Deny wins over allow, the reserved ranges win over both, and only the operator's ranges open addresses in them.

mod permit;
#[cfg(test)]
mod properties;
mod requests;
pub mod reserved;
mod rules;

pub use permit::{Attempt, Permit, addresses, by_proxy, decide};
pub use requests::{needs_authority, request};
pub use rules::{Allowed, is_forbidden, keeps, name, needs_approval, opening};
