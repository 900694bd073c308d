//! `[[egress.rule]]`: several ports and protocols, a reason, and examples that are checked when it is loaded.

use crate::fault::{at, plain};
use crate::file::{RuleTable, Scalar};
use crate::layer::source;
use crate::read::Text;
use belljar_spec::SandboxError;
use belljar_spec::egress::{
    HostPattern, Opening, PathGlob, PortRange, Protocol, RequestFilter, RequestMethod, Rule, RuleLabel,
};
use std::fmt;
use toml::Spanned;

/// The rule, and its reason. Ports and protocols mean the same as in a line: it is made of such lines.
pub(crate) fn understand(text: &Text, table: &RuleTable) -> Result<(Rule, Option<String>), SandboxError> {
    let host: HostPattern = parse(text, &table.host, |host| host.parse())?;
    let ports = list(text, table.ports.as_ref(), |Scalar(port)| port.parse::<PortRange>())?;
    let protocols = list(text, table.protocols.as_ref(), |word| word.parse::<Protocol>())?;
    let place = text.place(table.host.span().start);
    let mut openings: Vec<Opening> = Vec::new();
    for line in lines(&host, &ports, &protocols) {
        let rule = Rule::allow(&line, source(place.clone()))
            .map_err(|error| at(&place, error).hint("ports = [8443] says at which port"))?;
        openings.extend(rule.openings);
    }
    let requests = requests(text, table)?;
    let mut words = label(&host, &ports, &protocols);
    if let Some(filter) = &requests {
        words = format!("{words}: {filter}");
        looked_into(&openings).map_err(|error| at(&place, error))?;
    }
    let rule = Rule { host, openings, requests, label: RuleLabel::new(source(place), &words) };
    for (examples, must_match) in [(&table.matches, true), (&table.does_not_match, false)] {
        for example in examples {
            check(text, &rule, example, must_match)?;
        }
    }
    Ok((rule, table.reason.as_deref().map(plain)))
}

/// The allowed requests, if the rule limits them. `inspect` inspects all of them and lets all pass.
fn requests(text: &Text, table: &RuleTable) -> Result<Option<RequestFilter>, SandboxError> {
    let methods = list(text, table.methods.as_ref(), |word| word.parse::<RequestMethod>())?;
    let paths = list(text, table.paths.as_ref(), |path| path.parse::<PathGlob>())?;
    let filter = RequestFilter { methods, paths };
    match &table.inspect {
        Some(inspect) if !*inspect.get_ref() && !filter.is_any() => {
            let what = "what is not looked into cannot be held to `methods` and `paths`";
            Err(at(&text.place(inspect.span().start), what)
                .hint("leave `inspect` out, or leave `methods` and `paths` out"))
        }
        Some(inspect) if *inspect.get_ref() => Ok(Some(filter)),
        Some(_) | None => Ok((!filter.is_any()).then_some(filter)),
    }
}

/// Only HTTP has requests.
fn looked_into(openings: &[Opening]) -> Result<(), String> {
    let other = openings
        .iter()
        .flat_map(|opening| opening.protocols.iter())
        .find(|protocol| !matches!(protocol, Protocol::Tls | Protocol::Http));
    match other {
        None => Ok(()),
        Some(protocol) => Err(format!(
            "`{protocol}` has no requests: `methods`, `paths` and `inspect` are for tls and http; write another rule for it"
        )),
    }
}

/// One line for each port and protocol.
fn lines(host: &HostPattern, ports: &[PortRange], protocols: &[Protocol]) -> Vec<String> {
    match (ports, protocols) {
        ([], []) => vec![host.to_string()],
        ([], protocols) => protocols.iter().map(|protocol| format!("{host}/{protocol}")).collect(),
        (ports, []) => ports.iter().map(|port| format!("{host}:{port}")).collect(),
        (ports, protocols) => {
            let at = |port: &PortRange| {
                protocols.iter().map(|protocol| format!("{host}:{port}/{protocol}")).collect::<Vec<_>>()
            };
            ports.iter().flat_map(at).collect()
        }
    }
}

/// In the syntax of a line, with commas where a line has room for only one.
fn label(host: &HostPattern, ports: &[PortRange], protocols: &[Protocol]) -> String {
    let mut label = host.to_string();
    if !ports.is_empty() {
        label.push(':');
        label.push_str(&joined(ports));
    }
    if !protocols.is_empty() {
        label.push('/');
        label.push_str(&joined(protocols));
    }
    label
}

fn joined<T: fmt::Display>(parts: &[T]) -> String {
    parts.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn list<W, T, E: fmt::Display>(
    text: &Text,
    written: Option<&Spanned<Vec<Spanned<W>>>>,
    understand: fn(&W) -> Result<T, E>,
) -> Result<Vec<T>, SandboxError> {
    let Some(written) = written else { return Ok(Vec::new()) };
    // An empty list looks like "none", and an omitted one means "the default": we do not guess.
    if written.get_ref().is_empty() {
        return Err(at(&text.place(written.span().start), "this list is empty")
            .hint("write what is needed, or leave the key out for what is usual"));
    }
    written.get_ref().iter().map(|one| parse(text, one, understand)).collect()
}

fn parse<W, T, E: fmt::Display>(
    text: &Text,
    written: &Spanned<W>,
    understand: impl FnOnce(&W) -> Result<T, E>,
) -> Result<T, SandboxError> {
    understand(written.get_ref()).map_err(|error| at(&text.place(written.span().start), error))
}

fn check(text: &Text, rule: &Rule, example: &Spanned<String>, must_match: bool) -> Result<(), SandboxError> {
    let (one, none) = ([example.get_ref().as_str()], [""; 0]);
    let outcome = match must_match {
        true => rule.check_examples(&one, &none),
        false => rule.check_examples(&none, &one),
    };
    outcome.map_err(|error| at(&text.place(example.span().start), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Layer, Settings};

    fn understand(table: &str) -> Result<Settings, SandboxError> {
        let content = format!("[[egress.rule]]\n{table}\n");
        Settings::understand(&Text { layer: Layer::Repository, name: "config.toml".into(), content })
    }

    #[test]
    fn ports_and_protocols_mean_what_they_mean_in_a_line() {
        for (table, label, openings) in [
            ("", "x.com", "443 (tls) 80 (http)"),
            ("ports = [443, \"8000-8100\"]", "x.com:443,8000-8100", "443 (tls) 8000-8100 (tls, http)"),
            ("protocols = [\"ssh\", \"tls\"]", "x.com/ssh,tls", "22 (ssh) 443 (tls)"),
            ("ports = [8443]\nprotocols = [\"tls\", \"tcp\"]", "x.com:8443/tls,tcp", "8443 (tls) 8443 (tcp)"),
        ] {
            let settings = understand(&format!("host = \"x.com\"\n{table}")).expect(table);
            let rule = &settings.allow[0];
            assert_eq!(rule.label.text(), label);
            let parsed: Vec<String> = rule.openings.iter().map(Opening::to_string).collect();
            assert_eq!(parsed.join(" "), openings, "{table}");
        }
    }

    #[test]
    fn methods_and_paths_are_a_filter_and_inspect_is_one_that_lets_all_pass() {
        for (table, label) in [
            ("methods = [\"get\", \"HEAD\"]\npaths = [\"/repos/**\"]", Some("x.com: GET, HEAD of /repos/**")),
            ("paths = [\"/a\"]\nports = [8443]", Some("x.com:8443: any method of /a")),
            ("inspect = true", Some("x.com: any request")),
            ("inspect = true\nmethods = [\"GET\"]", Some("x.com: GET of any path")),
            ("inspect = false", None),
        ] {
            let settings = understand(&format!("host = \"x.com\"\n{table}")).expect(table);
            let rule = &settings.allow[0];
            assert_eq!(rule.requests.is_some(), label.is_some(), "{table}");
            assert_eq!(rule.label.text(), label.unwrap_or("x.com"));
        }
    }

    #[test]
    fn an_example_that_fails_is_named_with_its_rule_and_line() {
        for (table, line, says) in [
            (
                "host = \"x.com\"\nmatches = [\n\"api.x.com:443\",\n\"x.com.evil\"]",
                5,
                "rule `x.com` does not match its example `x.com.evil`",
            ),
            (
                "host = \"x.com\"\ndoes_not_match = [\"api.x.com\"]",
                3,
                "rule `x.com` matches `api.x.com`, which it must not",
            ),
            ("host = \"x.com\"\nmatches = [\"x.com:80-90\"]", 3, "cannot be checked"),
            ("host = \"x.com:443\"", 2, "not a host name"),
            ("host = \"x.com\"\nports = []", 3, "this list is empty"),
            ("host = \"x.com\"\nports = [0]", 3, "is not a port"),
            ("host = \"x.com\"\nprotocols = [\"udp\"]", 3, "`udp` is not a protocol"),
            ("host = \"x.com\"\nprotocols = [\"tcp\"]", 2, "has no port"),
            ("host = \"x.com\"\nmethods = []", 3, "this list is empty"),
            ("host = \"x.com\"\nmethods = [\"CONNECT\"]", 3, "is not a method"),
            ("host = \"x.com\"\npaths = [\"repos\"]", 3, "is not a path: begin with `/`"),
            ("host = \"x.com\"\npaths = [\"/a/../b\"]", 3, "is not a path"),
            ("host = \"x.com\"\nmethods = [\"GET\"]\ninspect = false", 4, "not looked into"),
            ("host = \"x.com\"\nprotocols = [\"ssh\"]\ninspect = true", 2, "`ssh` has no requests"),
        ] {
            let error = understand(table).expect_err(table);
            assert!(error.message.starts_with(&format!("config.toml:{line}: ")), "{error}");
            assert!(error.message.contains(says), "{error}");
        }
    }

    #[test]
    fn examples_that_hold_are_no_trouble() {
        let table =
            "host = \"=x.com\"\nmatches = [\"x.com:443\"]\ndoes_not_match = [\"x.com.evil\", \"x.com:22\"]";
        assert!(understand(table).is_ok());
    }
}
