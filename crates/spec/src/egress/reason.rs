//! Why something did not leave.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The closed list: the same words in the response, the audit log and the summary of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The mode is none.
    EgressOff,
    /// No rule names it.
    NameNotAllowed,
    /// No rule names it, and the person who was asked did not allow it.
    NotApproved,
    /// A rule forbids it.
    NameDenied,
    /// What was asked for is no name of a host.
    NameMalformed,
    /// The name is allowed, but not there.
    PortNotAllowed,
    /// Dialled by number.
    DirectAddress,
    /// The port is open for something else.
    ProtocolNotAllowed,
    /// TLS without a server name.
    ServerNameMissing,
    /// TLS that names another server.
    ServerNameDiffers,
    /// TLS that hides the server name.
    EncryptedHello,
    /// HTTP without a host.
    HostMissing,
    /// HTTP that names another host.
    HostDiffers,
    /// First bytes that make no sense.
    MalformedStart,
    /// Nothing was said where the client has to begin.
    SilentClient,
    /// In the reserved ranges.
    PrivateAddress,
    /// No address.
    NotResolved,
    /// More addresses than are judged.
    TooManyAddresses,
    /// The server did not answer.
    DialFailed,
    /// Too many at once.
    TooManyConnections,
    /// Too much.
    ByteLimit,
    /// More names than fake addresses.
    TooManyNames,
    /// Nothing moved for too long.
    IdleTimeout,
    /// A DNS record that is not an address.
    RecordTypeRefused,
    /// Redirected too often.
    TooManyRedirects,
    /// A body over the limit.
    TooLarge,
    /// A response over the limit of time.
    TooSlow,
    /// The audit log takes no more.
    NotRecorded,
    /// A request that no rule for its host allows.
    RequestNotAllowed,
    /// A request that can be read in more than one way.
    RequestMalformed,
    /// A placeholder on its way to where its secret does not belong.
    PlaceholderElsewhere,
    /// A secret that cannot be read.
    SecretUnavailable,
    /// A server whose certificate is not in order.
    UpstreamUntrusted,
    /// A client that trusts only whom it knows.
    ClientDistrusts,
    /// A server that wants to see a certificate.
    ClientCertificateRequested,
    /// A response that cannot be looked at.
    EncodedResponse,
    /// No calls, tokens or money left.
    BudgetSpent,
    /// A model without a price, where money is limited.
    PriceUnknown,
    /// A model that the run may not use.
    ModelNotAllowed,
    /// A push that the rules for branches do not allow, or that cannot be judged.
    PushRefused,
}

impl Reason {
    /// Every one.
    pub const ALL: [Reason; 40] = [
        Reason::EgressOff,
        Reason::NameNotAllowed,
        Reason::NotApproved,
        Reason::NameDenied,
        Reason::NameMalformed,
        Reason::PortNotAllowed,
        Reason::DirectAddress,
        Reason::ProtocolNotAllowed,
        Reason::ServerNameMissing,
        Reason::ServerNameDiffers,
        Reason::EncryptedHello,
        Reason::HostMissing,
        Reason::HostDiffers,
        Reason::MalformedStart,
        Reason::SilentClient,
        Reason::PrivateAddress,
        Reason::NotResolved,
        Reason::TooManyAddresses,
        Reason::DialFailed,
        Reason::TooManyConnections,
        Reason::ByteLimit,
        Reason::TooManyNames,
        Reason::IdleTimeout,
        Reason::RecordTypeRefused,
        Reason::TooManyRedirects,
        Reason::TooLarge,
        Reason::TooSlow,
        Reason::NotRecorded,
        Reason::RequestNotAllowed,
        Reason::RequestMalformed,
        Reason::PlaceholderElsewhere,
        Reason::SecretUnavailable,
        Reason::UpstreamUntrusted,
        Reason::ClientDistrusts,
        Reason::ClientCertificateRequested,
        Reason::EncodedResponse,
        Reason::BudgetSpent,
        Reason::PriceUnknown,
        Reason::ModelNotAllowed,
        Reason::PushRefused,
    ];

    /// Stable, for programs.
    pub fn code(self) -> &'static str {
        self.words().0
    }

    /// For people.
    pub fn sentence(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Reason::EgressOff => ("egress_off", "this sandbox has no network access"),
            Reason::NameNotAllowed => ("name_not_allowed", "no rule allows this name"),
            Reason::NotApproved => {
                ("not_approved", "no rule allows this name, and no person outside allowed it when asked")
            }
            Reason::NameDenied => ("name_denied", "a rule forbids this name"),
            Reason::NameMalformed => ("name_malformed", "this is not a name that a host can have"),
            Reason::PortNotAllowed => ("port_not_allowed", "the name is allowed, but not at this port"),
            Reason::DirectAddress => ("direct_address", "an address was dialled; only names can be"),
            Reason::ProtocolNotAllowed => {
                ("protocol_not_allowed", "this protocol is not allowed at this port")
            }
            Reason::ServerNameMissing => {
                ("server_name_missing", "the TLS client does not say which name it wants")
            }
            Reason::ServerNameDiffers => {
                ("server_name_differs", "the TLS client wants another name than it asked for")
            }
            Reason::EncryptedHello => ("encrypted_hello", "the TLS client hides which name it wants"),
            Reason::HostMissing => ("host_missing", "the HTTP request has no Host"),
            Reason::HostDiffers => ("host_differs", "the HTTP request wants another Host than was asked for"),
            Reason::MalformedStart => {
                ("malformed_start", "the first bytes of the connection are of no known protocol")
            }
            Reason::SilentClient => {
                ("silent_client", "the client said nothing; this port needs it to speak first")
            }
            Reason::PrivateAddress => ("private_address", "the name leads to an address that is not public"),
            Reason::NotResolved => ("not_resolved", "the name has no address"),
            Reason::TooManyAddresses => ("too_many_addresses", "the name has too many addresses"),
            Reason::DialFailed => ("dial_failed", "the host could not be reached"),
            Reason::TooManyConnections => ("too_many_connections", "too many connections are open"),
            Reason::ByteLimit => ("byte_limit", "the sandbox has used up its bytes"),
            Reason::TooManyNames => ("too_many_names", "the sandbox has asked for too many names"),
            Reason::IdleTimeout => ("idle_timeout", "nothing was sent for too long"),
            Reason::RecordTypeRefused => ("record_type_refused", "only addresses can be asked for"),
            Reason::TooManyRedirects => ("too_many_redirects", "the response was redirected too often"),
            Reason::TooLarge => ("too_large", "the response is larger than allowed"),
            Reason::TooSlow => ("too_slow", "the response took longer than allowed"),
            Reason::NotRecorded => ("not_recorded", "it could not be recorded, and so it may not happen"),
            Reason::RequestNotAllowed => ("request_not_allowed", "the host is allowed, but not this request"),
            Reason::RequestMalformed => ("request_malformed", "the request can be read in more than one way"),
            Reason::PlaceholderElsewhere => (
                "placeholder_elsewhere",
                "a placeholder of a secret was on its way to where the secret does not belong",
            ),
            Reason::SecretUnavailable => {
                ("secret_unavailable", "the secret that belongs here cannot be read")
            }
            Reason::UpstreamUntrusted => ("upstream_untrusted", "the server's certificate cannot be trusted"),
            Reason::ClientDistrusts => {
                ("client_distrusts", "the client does not trust the sandbox's authority")
            }
            Reason::ClientCertificateRequested => {
                ("client_certificate_wanted", "the server wants a certificate of the client")
            }
            Reason::EncodedResponse => ("encoded_response", "the response cannot be searched for secrets"),
            Reason::BudgetSpent => ("budget_spent", "the budget for the model is spent"),
            Reason::PriceUnknown => {
                ("price_unknown", "the budget is in dollars, and the price of the model is not known")
            }
            Reason::ModelNotAllowed => ("model_not_allowed", "this model is not one that the run may use"),
            Reason::PushRefused => ("push_refused", "the rules for pushes do not allow this"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_what_stands_in_the_log() {
        for reason in Reason::ALL {
            let written = serde_json::to_string(&reason).expect("a string");
            assert_eq!(written, format!("\"{}\"", reason.code()));
            assert_eq!(serde_json::from_str::<Reason>(&written).expect("a reason"), reason);
        }
    }

    #[test]
    fn every_reason_stands_once_in_the_list() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason:?}");
        }
    }

    #[test]
    fn sentences_have_one_voice() {
        for reason in Reason::ALL {
            let sentence = reason.sentence();
            assert!(sentence.starts_with(char::is_lowercase) && !sentence.ends_with('.'), "{sentence}");
        }
    }
}
