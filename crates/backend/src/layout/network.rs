//! What a sandbox is told of its network: where names are asked, and what can be reached.

use belljar_spec::egress::{EgressPolicy, HostPattern, Mode, Rule};
use std::net::IpAddr;

pub(super) fn files(
    policy: Option<&EgressPolicy>,
    resolver: Option<IpAddr>,
    model: Option<u16>,
) -> Vec<(String, Vec<u8>)> {
    let resolv_conf = match resolver {
        Some(address) => format!("nameserver {address}\n"),
        None => "# no network in here\n".to_string(),
    };
    let mut note = match resolver {
        Some(_) => note(policy.unwrap_or(&EgressPolicy::strict())),
        None => NO_NETWORK.to_string(),
    };
    if let Some(port) = model {
        note.push_str(&format!("\nA model is at http://127.0.0.1:{port}{MODEL}"));
    }
    vec![("etc/resolv.conf".into(), resolv_conf.into_bytes()), (NOTE.into(), note.into_bytes())]
}

/// For agents, which read before they guess.
fn note(policy: &EgressPolicy) -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str(match (policy.mode, policy.allow.is_empty()) {
        (Mode::None, _) => NO_NETWORK,
        (Mode::Strict, true) => "\nNothing is allowed.\n",
        (Mode::Strict, false) => "\nAllowed:\n",
        (Mode::Ask, true) => ASKS,
        (Mode::Ask, false) => ASKS_AND_ALLOWS,
        (Mode::Open, true) => "\nEvery public name is allowed.\n",
        (Mode::Open, false) => "\nEvery public name is allowed, and:\n",
    });
    policy.allow.iter().for_each(|rule| text.push_str(&line(rule)));
    if !policy.deny.is_empty() {
        text.push_str("\nForbidden, whatever allows it:\n");
        policy.deny.iter().for_each(|rule| text.push_str(&line(rule)));
    }
    text.push_str(ENDING);
    text
}

fn line(rule: &Rule) -> String {
    let ports: Vec<String> =
        rule.openings.iter().map(|opening| format!("{}/{}", opening.ports, opening.protocols)).collect();
    let below = match rule.host {
        HostPattern::Subtree(_) => " and every name under it",
        HostPattern::Exact(_) => "",
    };
    format!("  {}{below}: {}\n", rule.host.name(), ports.join(", "))
}

/// Where the note lies, without the leading slash; docs/egress.md names it.
const NOTE: &str = "etc/belljar/network.txt";
const NO_NETWORK: &str = "This sandbox has no network.\n";
const ASKS: &str = "
Of any name a person outside is asked: the connection waits for the answer, for a minute at most.
";
const ASKS_AND_ALLOWS: &str = "
Allowed; of any other name a person outside is asked, and the connection waits for the answer, for a minute at most:
";
const INTRODUCTION: &str = "\
This sandbox reaches only what its policy allows, by name and with no proxy settings. A name that is not allowed does\n\
not resolve; an address cannot be dialled; UDP and ping are blocked. A refusal is final: another tool, port or\n\
address gets the same answer.\n";
const MODEL: &str = ", in the usual dialects; OPENAI_BASE_URL, ANTHROPIC_BASE_URL and\n\
GOOGLE_GEMINI_BASE_URL say so to most programs. Any key will do: the real one is put in outside. A refusal with status\n\
400 is final.\n";
const ENDING: &str = "
To ask the user for a name, and wait for the answer (a minute at most):
  curl -d 'what it is for' http://ask.belljar.internal/HOST[:PORT]      or: belljar ask HOST --why TEXT
They can also allow it at the start: belljar run --allow HOST[:PORT][/PROTOCOL]
";
