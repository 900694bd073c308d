//! Names of ours that sandboxes know: the one by which a sandbox reaches services of the machine that it runs on, with the ports of it that a
//! person opened, and the one at which programs ask. The first stands for the machine's loopback address; no resolver is asked for it, and no rule
//! opens it without a port that was named.

use super::{HostName, PortRange, Rule, RuleError, RuleSource};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// The machine's name inside.
pub const THIS_MACHINE: &str = "host.belljar.internal";

/// Where programs inside ask for names that they want to reach.
pub const ASKING: &str = "ask.belljar.internal";

/// Does this name mean the place where programs ask?
pub fn is_asking(name: &HostName) -> bool {
    name.as_str() == ASKING
}

/// Does this name mean the machine itself?
pub fn is_this_machine(name: &HostName) -> bool {
    name.as_str() == THIS_MACHINE
}

/// A port of the machine's loopback address that a sandbox may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HostPort(u16);

impl HostPort {
    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The rule that opens it: any bytes, which the gateway does not read.
    pub fn rule(self, source: RuleSource) -> Result<Rule, RuleError> {
        Rule::allow(&format!("={THIS_MACHINE}:{self}/tcp"), source)
    }
}

/// A number that no service of the machine can be opened by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPortError {
    #[error("`{0}` is not a port of this machine: write a number from 1 to 65535, as in `5432`")]
    NoPort(String),
    /// A port that never leads to the host.
    #[error(
        "port 53 cannot be opened: every connection to it is a question for names, which belljar answers itself"
    )]
    DnsPort,
}

impl TryFrom<u16> for HostPort {
    type Error = HostPortError;

    fn try_from(port: u16) -> Result<HostPort, HostPortError> {
        match port {
            0 => Err(HostPortError::NoPort("0".into())),
            PortRange::DNS => Err(HostPortError::DnsPort),
            port => Ok(HostPort(port)),
        }
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<HostPort, HostPortError> {
        let port: u16 = text.parse().map_err(|_| HostPortError::NoPort(text.escape_debug().to_string()))?;
        port.try_into()
    }
}

impl<'de> Deserialize<'de> for HostPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostPort, D::Error> {
        HostPort::try_from(u16::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_the_machine_is_a_number_that_can_be_led_there() {
        let port: HostPort = "5432".parse().expect("a port");
        let rule = port.rule(RuleSource::Flag).expect("a rule");
        assert_eq!(rule.to_string(), "=host.belljar.internal:5432/tcp");
        let matches = |name: &str| rule.matches(&name.parse().expect("a name"), Some(5432));
        assert!(matches(THIS_MACHINE) && !matches("x.host.belljar.internal"));
        for text in ["0", "53", "70000", "-1", "a", "", "5432/tcp"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<HostPort>("53").is_err());
    }
}
