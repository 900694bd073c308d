//! What may leave a sandbox: names, ports, protocols, rules, and the reasons for which something may not.
//!
//! Only nouns. Who may reach what is decided in the gateway's `decide`, from a policy made of these.

mod address;
mod example;
mod group;
mod host_name;
mod host_pattern;
mod live;
mod path;
mod policy;
mod port;
mod printable;
mod protocol;
mod reason;
mod refusal;
mod request;
mod rule;
mod this_machine;
mod upstream_proxy;

pub use address::spelled_address;
pub use example::ExampleError;
pub use group::{Group, GroupName, UnknownGroup, group, groups};
pub use host_name::{HostName, HostNameError};
pub use host_pattern::{HostPattern, HostPatternError};
pub use live::{LiveNotice, PolicyReport, QuestionReport, RuleEffect, RuleLasting, RuleReport, Verdict};
pub use path::{PathReadings, RequestTarget, UnclearPath};
pub use policy::{EgressLimits, EgressPolicy, Mode, UnknownMode};
pub use port::{PortRange, PortRangeError};
pub use printable::{Printable, is_control};
pub use protocol::{Protocol, ProtocolSet, UnknownProtocol};
pub use reason::Reason;
pub use refusal::{Destination, Refusal, Refused, RefusedRequest, UNKNOWN_AUTHORITY};
pub use request::{PathGlob, RequestFilter, RequestFilterError, RequestMethod};
pub use rule::{Opening, Rule, RuleError, RuleLabel, RuleSource};
pub use this_machine::{ASKING, HostPort, HostPortError, THIS_MACHINE, is_asking, is_this_machine};
pub use upstream_proxy::{
    ProxyAddress, ProxyAddressError, ProxyHost, ProxyKind, ProxyResolve, UnknownProxyResolve, UpstreamProxy,
};
