//! Network rules as an egress policy. That protocol has addresses and names, of which addresses come first; belljar decides by name
//! alone. What cannot be said in names is refused, and nothing is left out silently.
//!
//! `allow_internet_access`, and its absence, mean as much as the key's grant may reach: a daemon that denies by default stays one.

use crate::api::shapes::Network;
use crate::fault::Fault;
use belljar_api::{EgressRequest, GrantRules};
use belljar_spec::Mode;
use belljar_spec::request::{AllowRule, DenyRule, HostGrant};
use std::net::IpAddr;

/// The policy of a sandbox that a key asks for. The owner's key has no rules.
pub(crate) fn policy(
    rules: Option<&GrantRules>,
    allow_internet_access: Option<bool>,
    network: &Network,
) -> Result<EgressRequest, Fault> {
    if let Some((name, _)) = network.more.iter().find(|(_, value)| is_said(value)) {
        return Err(Fault::not_served(&format!("`network.{name}`")));
    }
    let denies_all = allow_internet_access == Some(false) || network.deny_out.iter().any(|one| is_all(one));
    if let Some(address) = network.deny_out.iter().find(|one| !is_all(one)) {
        return Err(match is_address(address) {
            true => Fault::bad_request(format!(
                "`network.denyOut`: `{address}` cannot be denied by itself: belljar decides by name; deny \
                 `0.0.0.0/0` and name in `network.allowOut` what may be reached"
            )),
            false => Fault::bad_request(format!("`network.denyOut`: `{address}` is not an address")),
        });
    }
    let named: Vec<&String> = network.allow_out.iter().filter(|one| !is_all(one)).collect();
    if let Some(address) = named.iter().find(|one| is_address(one)) {
        return Err(Fault::bad_request(format!(
            "`network.allowOut`: `{address}` is an address: belljar allows names, so name the host"
        )));
    }
    if !denies_all {
        if let Some(name) = named.first() {
            return Err(Fault::bad_request(format!(
                "`network.allowOut`: the domain `{name}` needs `0.0.0.0/0` in `network.denyOut`: else all is allowed"
            )));
        }
        return Ok(everything(rules));
    }
    if named.len() < network.allow_out.len() {
        // What is allowed beats what is denied.
        return Ok(everything(rules));
    }
    let mut egress = EgressRequest { mode: Some(Mode::None), ..EgressRequest::default() };
    for name in &named {
        egress.mode = Some(Mode::Strict);
        let invalid = |why: String| Fault::bad_request(format!("`network.allowOut`: `{name}`: {why}"));
        let allowed = match name.strip_prefix("*.") {
            Some(apex) => {
                // Without the apex itself, which a rule of ours has among its names, unless it is allowed by another one: what is denied
                // beats what is allowed.
                if !named.iter().any(|other| *other == apex) {
                    let apex_only = format!("={apex}").parse::<DenyRule>();
                    egress.deny.push(apex_only.map_err(|error| invalid(error.to_string()))?);
                }
                apex.to_string()
            }
            None => format!("={name}"),
        };
        egress.allow.push(allowed.parse::<AllowRule>().map_err(|error| invalid(error.to_string()))?);
    }
    Ok(egress)
}

/// As much as the grant may reach.
fn everything(rules: Option<&GrantRules>) -> EgressRequest {
    let Some(rules) = rules else { return EgressRequest::default() };
    if rules.egress.contains(&Mode::Open) {
        return EgressRequest { mode: Some(Mode::Open), ..EgressRequest::default() };
    }
    let pattern = |host: &HostGrant| match host {
        HostGrant::Every => None,
        HostGrant::Pattern(pattern) => pattern.to_string().parse::<AllowRule>().ok(),
    };
    EgressRequest { allow: rules.hosts.iter().filter_map(pattern).collect(), ..EgressRequest::default() }
}

fn is_all(text: &str) -> bool {
    matches!(text, "0.0.0.0/0" | "::/0")
}

fn is_address(text: &str) -> bool {
    let (address, rest) = text.split_once('/').unwrap_or((text, "0"));
    address.parse::<IpAddr>().is_ok() && rest.parse::<u8>().is_ok()
}

fn is_said(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null | serde_json::Value::Bool(false) => false,
        serde_json::Value::Array(list) => !list.is_empty(),
        serde_json::Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(rules: &GrantRules, internet: Option<bool>, network: serde_json::Value) -> Result<String, String> {
        let network = serde_json::from_value(network).unwrap();
        let policy = policy(Some(rules), internet, &network).map_err(|fault| fault.message)?;
        Ok(serde_json::to_string(&policy).unwrap())
    }

    #[test]
    fn rules_are_said_in_names_or_refused() {
        let closed = GrantRules::default();
        let some = GrantRules { hosts: vec!["pypi.org".parse().unwrap()], ..GrantRules::default() };
        let open = GrantRules { egress: vec![Mode::Open], ..GrantRules::default() };
        let all = "0.0.0.0/0";
        for (rules, internet, network, expected) in [
            (&closed, None, json!({}), "{}"),
            (&closed, Some(true), json!({"allowOut": null, "rules": {}}), "{}"),
            (&some, Some(true), json!({}), r#"{"allow":["pypi.org"]}"#),
            (&open, None, json!({}), r#"{"mode":"open"}"#),
            (&open, Some(false), json!({}), r#"{"mode":"none"}"#),
            (&open, None, json!({"denyOut": [all]}), r#"{"mode":"none"}"#),
            (&open, None, json!({"denyOut": [all], "allowOut": [all]}), r#"{"mode":"open"}"#),
            (
                &open,
                Some(false),
                json!({"allowOut": ["pypi.org", "*.npmjs.org"]}),
                r#"{"mode":"strict","allow":["=pypi.org","npmjs.org"],"deny":["=npmjs.org"]}"#,
            ),
            (
                &open,
                Some(false),
                json!({"allowOut": ["pypi.org", "*.pypi.org"]}),
                r#"{"mode":"strict","allow":["=pypi.org","pypi.org"]}"#,
            ),
        ] {
            assert_eq!(of(rules, internet, network.clone()).as_deref(), Ok(expected), "{network}");
        }
        for (network, why) in [
            (json!({"denyOut": ["8.8.8.8"]}), "cannot be denied by itself"),
            (json!({"denyOut": ["evil.example"]}), "is not an address"),
            (json!({"denyOut": [all], "allowOut": ["1.1.1.1/32"]}), "is an address"),
            (json!({"allowOut": ["pypi.org"]}), "needs `0.0.0.0/0`"),
            (json!({"denyOut": [all], "allowOut": ["a b"]}), "a b"),
            (json!({"rules": {"a.example": []}}), "does not serve `network.rules`"),
            (json!({"egressProxy": "socks5://x"}), "does not serve `network.egressProxy`"),
        ] {
            let refused = of(&open, None, network.clone()).unwrap_err();
            assert!(refused.contains(why), "{network}: {refused}");
        }
    }
}
