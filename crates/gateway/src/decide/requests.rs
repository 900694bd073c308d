//! Requests against the rules: which of them may pass where the gateway inspects them, and whether it ever has to.

use super::rules::{Denials, granting};
use belljar_spec::egress::{EgressPolicy, HostName, Mode, Protocol, Reason, RequestTarget, Rule, RuleLabel};
use belljar_spec::secret::Credential;

/// May this request be sent? Says the first rule that thinks so. `target` is as the client wrote it; a filter has to
/// allow everything that a server could make of it.
pub fn request(
    policy: &EgressPolicy,
    name: &HostName,
    port: u16,
    protocol: Protocol,
    method: &str,
    target: &str,
) -> Result<RuleLabel, Reason> {
    if policy.mode == Mode::None {
        return Err(Reason::EgressOff);
    }
    let denied = Denials::of(policy, name).at(port);
    let target = RequestTarget::of(target);
    let mut unclear = false;
    for rule in granting(policy, name, Some(port)) {
        let left = rule.protocols_at(port).without(denied);
        if !left.contains(protocol) && !left.contains(Protocol::Tcp) {
            continue;
        }
        match rule.requests.map(|filter| filter.judge(method, &target)) {
            None | Some(Ok(true)) => return Ok(rule.label.clone()),
            Some(Ok(false)) => {}
            Some(Err(_)) => unclear = true,
        }
    }
    Err(if unclear { Reason::RequestMalformed } else { Reason::RequestNotAllowed })
}

/// Whether a sandbox with this policy and these credentials may come to a server of TLS that the gateway has to speak for.
/// If not, it needs no CA.
pub fn needs_authority(policy: &EgressPolicy, credentials: &[Credential]) -> bool {
    let lets_tls =
        |rule: &Rule| rule.openings.iter().any(|opening| opening.protocols.contains(Protocol::Tls));
    let looks = policy.allow.iter().any(|rule| (policy.inspect || rule.requests.is_some()) && lets_tls(rule));
    // A name may be allowed while the sandbox lives.
    let looks_everywhere = policy.inspect;
    policy.mode != Mode::None && (looks || looks_everywhere || !credentials.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::opening;
    use super::*;
    use belljar_spec::egress::{RequestFilter, RuleSource};

    fn rule(line: &str, methods: &[&str], paths: &[&str]) -> Rule {
        let filter = RequestFilter {
            methods: methods.iter().map(|text| text.parse().expect("a method")).collect(),
            paths: paths.iter().map(|text| text.parse().expect("a path")).collect(),
        };
        Rule::allow(line, RuleSource::Flag).expect(line).requests(filter)
    }

    fn host(text: &str) -> HostName {
        text.parse().expect(text)
    }

    fn policy(mode: Mode) -> EgressPolicy {
        EgressPolicy { mode, ..EgressPolicy::default() }
            .allow(rule("api.x.com", &["GET"], &["/repos/**"]))
            .allow(rule("=api.x.com", &["POST"], &["/repos/acme/issues"]))
            .allow(Rule::allow("y.com", RuleSource::Flag).expect("a rule"))
    }

    #[test]
    fn one_rule_has_to_allow_all_of_a_request() {
        let strict = policy(Mode::Strict);
        for (name, port, protocol, method, target, expected) in [
            ("api.x.com", 443, Protocol::Tls, "GET", "/repos/a", Ok("api.x.com")),
            ("api.x.com", 443, Protocol::Tls, "POST", "/repos/acme/issues", Ok("=api.x.com")),
            ("api.x.com", 80, Protocol::Http, "GET", "/repos/a?x", Ok("api.x.com")),
            ("a.api.x.com", 443, Protocol::Tls, "GET", "/repos/a", Ok("api.x.com")),
            ("api.x.com", 443, Protocol::Tls, "POST", "/repos/a", Err(Reason::RequestNotAllowed)),
            ("api.x.com", 443, Protocol::Tls, "GET", "/user", Err(Reason::RequestNotAllowed)),
            ("api.x.com", 443, Protocol::Tls, "GET", "/repos/../user", Err(Reason::RequestNotAllowed)),
            ("api.x.com", 443, Protocol::Tls, "GET", "/repos/%00", Err(Reason::RequestMalformed)),
            ("a.api.x.com", 443, Protocol::Tls, "POST", "/repos/acme/issues", Err(Reason::RequestNotAllowed)),
            ("api.x.com", 8443, Protocol::Tls, "GET", "/repos/a", Err(Reason::RequestNotAllowed)),
            ("y.com", 443, Protocol::Tls, "BREW", "*", Ok("y.com")),
        ] {
            let judged = request(&strict, &host(name), port, protocol, method, target);
            let judged = judged.map(|label| label.text().to_string());
            assert_eq!(judged, expected.map(str::to_string), "{name}:{port} {method} {target}");
        }
        let none = EgressPolicy { mode: Mode::None, ..strict };
        let judged = request(&none, &host("y.com"), 443, Protocol::Tls, "GET", "/");
        assert_eq!(judged, Err(Reason::EgressOff));
    }

    #[test]
    fn a_connection_is_looked_into_where_no_rule_lets_it_through_unseen() {
        let inspected = |policy: &EgressPolicy, name: &str, protocol| {
            opening(policy, &host(name), 443).is_ok_and(|allowed| allowed.is_inspected(protocol))
        };
        let strict = policy(Mode::Strict);
        assert!(inspected(&strict, "api.x.com", Protocol::Tls));
        assert!(!inspected(&strict, "y.com", Protocol::Tls));
        for line in ["x.com", "api.x.com:443/tcp", "api.x.com:443/tls"] {
            let unseen = strict.clone().allow(Rule::allow(line, RuleSource::Flag).expect(line));
            assert!(!inspected(&unseen, "api.x.com", Protocol::Tls), "{line}");
            assert!(request(&unseen, &host("api.x.com"), 443, Protocol::Tls, "PUT", "/").is_ok(), "{line}");
        }
        let beside = strict.allow(Rule::allow("api.x.com:443/ssh", RuleSource::Flag).expect("a rule"));
        assert!(inspected(&beside, "api.x.com", Protocol::Tls));
    }

    #[test]
    fn open_mode_does_not_undo_a_rule_about_requests() {
        let open = policy(Mode::Open);
        let allowed = opening(&open, &host("api.x.com"), 443).expect("allowed");
        assert!(allowed.is_inspected(Protocol::Tls));
        assert_eq!(
            allowed.protocols().to_string(),
            "tls",
            "unchecked bytes could be TLS that escapes inspection"
        );
        assert!(request(&open, &host("api.x.com"), 443, Protocol::Tls, "PUT", "/").is_err());
        assert!(request(&open, &host("api.x.com"), 8443, Protocol::Tls, "PUT", "/").is_ok());
        assert!(request(&open, &host("z.com"), 443, Protocol::Tls, "PUT", "/").is_ok());
    }

    #[test]
    fn a_credential_does_not_undo_a_rule_about_requests() {
        let source = RuleSource::Credential("key".parse().expect("a name"));
        let of_credential = |line: &str| Rule::allow(line, source.clone()).expect(line);
        let strict = policy(Mode::Strict)
            .allow(of_credential("=api.x.com:443/tls"))
            .allow(of_credential("=z.com:443/tls"));
        let judged = |name: &str, method: &str| {
            request(&strict, &host(name), 443, Protocol::Tls, method, "/repos/a").map(|rule| rule.to_string())
        };
        assert_eq!(judged("api.x.com", "PUT"), Err(Reason::RequestNotAllowed));
        assert!(judged("api.x.com", "GET").is_ok());
        assert_eq!(judged("z.com", "PUT"), Ok("`=z.com:443/tls` (credential key)".into()));
    }

    #[test]
    fn an_authority_is_needed_for_tls_that_is_looked_into() {
        assert!(needs_authority(&policy(Mode::Strict), &[]));
        assert!(!needs_authority(&policy(Mode::None), &[]));
        let plain = EgressPolicy::strict().allow(rule("x.com/http", &["GET"], &[]));
        assert!(!needs_authority(&plain, &[]));
        assert!(!needs_authority(&EgressPolicy::open(), &[]));
        let inspected = |policy: EgressPolicy| EgressPolicy { inspect: true, ..policy };
        assert!(needs_authority(
            &inspected(EgressPolicy::strict().allow("x.com".parse().expect("a rule"))),
            &[]
        ));
        assert!(needs_authority(&inspected(plain), &[]), "a rule may come while the sandbox lives");
        assert!(needs_authority(&inspected(EgressPolicy::open()), &[]));
        assert!(
            needs_authority(&inspected(EgressPolicy::strict()), &[]),
            "the same, where there is none yet"
        );
        assert!(!needs_authority(&inspected(EgressPolicy::none()), &[]));
    }
}
