//! Services of the machine itself: those whose port a person opened, by one name, and no others by no way.

use belljar_engine::{Engine, Order, steered};
use belljar_spec::egress::{EgressPolicy, Mode, Reason, RuleEffect, RuleLasting, RuleSource};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns, Echo};

/// Whatever a resolver says of the machine's own name, and names that lead to its loopback device.
fn names() -> Dns {
    Dns::start(|query| match query.name.as_str() {
        "host.belljar.internal" => vec![at("127.66.13.9")],
        _ => vec![at("127.0.0.1")],
    })
}

/// Without any range, and with rules for whatever a repository or an agent might have asked for.
fn wishes(dns: &Dns, mode: Mode) -> EgressPolicy {
    let rules = ["host.belljar.internal:1-65535/tcp", "evil.test:1-65535/tcp", "localhost:1-65535/tcp"];
    EgressPolicy { mode, private: Vec::new(), ..policy(dns, &rules) }
}

#[test]
fn a_port_of_the_machine_is_reached_by_its_name_and_no_other_port_is() {
    let (dns, opened, other) = (names(), Echo::start(at("127.0.0.1")), Capture::start(at("127.0.0.1")));
    for backend in backends() {
        for mode in [Mode::Strict, Mode::Open, Mode::Ask] {
            let mut policy = wishes(&dns, mode);
            policy.open_host_port(opened.port().try_into().unwrap(), RuleSource::Flag).unwrap();
            let cage = cage(*backend, &policy);
            let script = r#"
for name in ['host.belljar.internal', 'HOST.belljar.internal', 'host.belljar.internal.']:
    for port in sys.argv[1:]:
        attack(f'{name.lower().rstrip(".")} {port}', lambda: answered(name, port, b'hello'))
for name in ['x.host.belljar.internal', 'belljar.internal', 'evil.test', 'localhost', '127.0.0.1', '::1', '127.66.13.9']:
    for port in sys.argv[1:]:
        attack(f'{name} {port}', lambda: answered(name, port, b'hello', timeout=0.3))
"#;
            let (opened, other) = (opened.port().to_string(), other.port().to_string());
            // Of a name that no rule allows a person would be asked, which takes a minute.
            let script = if mode == Mode::Ask {
                script.replace("'x.host.belljar.internal', 'belljar.internal', ", "")
            } else {
                script.to_string()
            };
            let reached = cage.attack(&script, &[&opened, &other]);
            let meant = format!("host.belljar.internal {opened}");
            assert!(
                reached.len() == 3 && reached.iter().all(|line| line.contains(&meant)),
                "{backend} {mode}: {reached:?}"
            );
            assert_eq!(cage.opened(), 3, "{backend} {mode}");
            let lines = cage.lines();
            let recorded = |line: &&String| {
                line.contains("connection_opened")
                    && line.contains(r#""address":"127.0.0.1""#)
                    && line.contains("host.belljar.internal")
            };
            assert_eq!(lines.iter().filter(recorded).count(), 3, "{backend} {mode}");
            // Where only some ports are led to the gateway, the other one is closed inside.
            assert!(
                !has_netfilter(*backend)
                    || cage
                        .refused_for(Reason::PrivateAddress)
                        .contains(&"host.belljar.internal".to_string()),
                "{backend} {mode}"
            );
        }
    }
    other.assert_nothing_arrived();
}

#[test]
fn no_rule_no_mode_and_no_answer_opens_the_machine_without_a_port() {
    let (dns, capture) = (names(), Capture::start(at("127.0.0.1")));
    for backend in gateway_backends() {
        for mode in [Mode::Strict, Mode::Open, Mode::Ask] {
            let state = folder();
            let engine = Engine::new().with_state(state.path());
            let cage = cage_by(engine, *backend, &wishes(&dns, mode), |_, _| {});
            let sandbox = steered(state.path()).remove(0);
            for rule in ["host.belljar.internal", "=host.belljar.internal"] {
                for lasting in [RuleLasting::Life, RuleLasting::Once] {
                    let rule = format!("{rule}:{}/tcp", capture.port());
                    let order = Order::Change { effect: RuleEffect::Allow, rule, lasting, by: "test".into() };
                    let refused = sandbox.order(state.path(), &order).unwrap_err();
                    assert!(refused.message.contains("when a sandbox starts"), "{backend} {mode}: {refused}");
                }
            }
            let script = "attack('this machine', lambda: answered('host.belljar.internal', sys.argv[1], b'hello', timeout=0.3))";
            let reached = cage.attack(script, &[&capture.port().to_string()]);
            assert!(reached.is_empty() && cage.opened() == 0, "{backend} {mode}: {reached:?}");
            assert!(steered(state.path()).remove(0).policy(state.path()).unwrap().questions.is_empty());
        }
    }
    capture.assert_nothing_arrived();
}
