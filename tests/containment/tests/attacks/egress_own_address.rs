//! A name may lead to this machine's own public address, where services listen that are not meant to be reached from outside.

use belljar_engine::{Outcome, explain};
use belljar_spec::egress::{EgressPolicy, HostName, Mode, Reason};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns, have};
use std::process::Command;

/// Set in the process that has a network of its own.
const WITHIN: &str = "BELLJAR_TEST_OWN_NETWORK";
/// Public by every registry; in that network they are this machine's.
const PUBLIC: [&str; 2] = ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"];

#[test]
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what was not tried")]
fn a_service_of_this_machine_is_not_reached_by_its_public_address() {
    if std::env::var_os(WITHIN).is_some() {
        return in_a_network_with_public_addresses();
    }
    if !have(["unshare", "ip"]) {
        return;
    }
    // An ordinary user needs to be root of something to make addresses, and is itself again afterwards.
    let (own, again) = match is_root() {
        true => (&["--net"][..], "exec"),
        false => (
            &["--user", "--map-root-user", "--net"][..],
            "exec unshare --user --map-user=1000 --map-group=1000",
        ),
    };
    let addresses =
        format!("ip addr add {}/32 dev lo && ip addr add {}/128 dev lo nodad", PUBLIC[0], PUBLIC[1]);
    let script = format!("ip link set lo up && {addresses} && {again} \"$@\"");
    if !Command::new("unshare").args(own).arg("true").output().is_ok_and(|output| output.status.success()) {
        eprintln!("not tried: no network of our own can be made here");
        return;
    }
    let mut within = Command::new("unshare");
    within.args(own).args(["sh", "-c", &script, "sh"]);
    let name = "egress_own_address::a_service_of_this_machine_is_not_reached_by_its_public_address";
    let output = within
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(WITHIN, "1")
        .output()
        .unwrap();
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

fn in_a_network_with_public_addresses() {
    // As most services are: at every address, and kept from the outside by a firewall alone.
    let capture = Capture::start(at("0.0.0.0"));
    let port = capture.port().to_string();
    let capture6 = Capture::at((at(PUBLIC[1]), capture.port()).into());
    let dns = Dns::start(|query| match query.name.as_str() {
        "four.test" => vec![at(PUBLIC[0])],
        "six.test" => vec![at(PUBLIC[1])],
        _ => Vec::new(),
    });
    let rules = ["four", "six"].map(|name| format!("={name}.test:{port}/tcp"));
    let strict = policy(&dns, &rules.each_ref().map(String::as_str));
    let knock = "for name in ('four.test', 'six.test'): send(name, sys.argv[1], b'inside', timeout=0.3)";
    for backend in backends() {
        for policy in [EgressPolicy { mode: Mode::Open, ..strict.clone() }, strict.clone()] {
            let cage = cage(*backend, &policy);
            cage.attack(knock, &[&port]);
            capture.assert_nothing_arrived();
            capture6.assert_nothing_arrived();
            assert_eq!(cage.refused_for(Reason::PrivateAddress), ["four.test", "six.test"], "{backend}");
        }
    }
    // `explain` answers the same.
    let explained = |policy: &EgressPolicy| {
        let resolved = |_: &HostName| Ok(vec![at(PUBLIC[0])]);
        explain(policy, &"four.test".parse().unwrap(), Some(capture.port()), Some(&resolved)).outcome
    };
    assert!(
        matches!(explained(&strict), Outcome::Refused { refusal, .. } if refusal.reason == Reason::PrivateAddress)
    );
    // An operator may say that it is meant.
    let mut meant = strict;
    meant.private = vec![at(PUBLIC[0]).into()];
    assert!(matches!(explained(&meant), Outcome::Allowed(_)));
    let cage = cage(backends()[0], &meant);
    cage.attack(knock, &[&port]);
    assert_eq!(cage.opened(), 1);
}
