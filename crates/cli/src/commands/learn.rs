//! The smallest policy that would have sufficed, from what the gateway let out: at the end of `belljar run --learn`, and from older records by
//! `belljar policy suggest`. Proposes, and changes no file.

use super::config::effective;
use super::{persistent, print};
use crate::args::PolicySuggestArgs;
use belljar_audit::{AuditError, Event, LogFile, Reader, Stamp};
use belljar_config::{self as config, RulesProposal};
use belljar_engine::{Outcome, explain};
use belljar_spec::egress::{EgressPolicy, HostName, Mode, Protocol, is_this_machine};
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What was reached: at which ports of which names, speaking what.
#[derive(Debug, Default)]
struct Reached(BTreeMap<(HostName, u16), BTreeSet<&'static str>>);

/// At the end of a run in open mode.
pub(super) fn say(id: SandboxId, folder: &Path) -> Result<(), SandboxError> {
    let log = belljar_audit::find(&belljar_audit::directory()?, Some(&id.to_string()))?;
    let mut reached = Reached::default();
    reached.read(&log)?;
    let rules = reached.rules(&strict(folder)?);
    if rules.is_empty() {
        eprintln!("belljar: it reached nothing that your configuration does not allow already");
        return Ok(());
    }
    let proposal = config::propose_rules(folder, &rules)?;
    eprintln!("belljar: this would have sufficed; `belljar allow HOST` adds a rule:");
    eprint!("{}", diff(&proposal));
    Ok(())
}

/// From the records of a folder's sandboxes.
pub(super) fn suggest(options: &PolicySuggestArgs) -> Result<u8, SandboxError> {
    let folder = persistent::folder(options.folder.clone())?;
    let folder = folder.canonicalize().unwrap_or(folder);
    let since = options.since.and_then(|age| SystemTime::now().checked_sub(age));
    let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let (mut reached, mut sandboxes) = (Reached::default(), 0);
    for log in belljar_audit::list(&belljar_audit::directory()?)? {
        if is_of(&log, &folder, since.as_secs()) {
            // One that is damaged says what it can.
            let _ = reached.read(&log);
            sandboxes += 1;
        }
    }
    let rules = reached.rules(&strict(&folder)?);
    let proposal = config::propose_rules(&folder, &rules)?;
    if options.json {
        let report =
            json!({ "folder": folder, "sandboxes": sandboxes, "allow": rules, "file": proposal.file });
        return print(format!("{report:#}\n").as_bytes()).map(|_| 0);
    }
    if sandboxes == 0 {
        return Err(ErrorCode::NameUnknown
            .error(format!("no audit log is of a sandbox in `{}`", folder.display()))
            .hint("`belljar run --learn -- COMMAND` records what a command reaches"));
    }
    if rules.is_empty() {
        eprintln!(
            "belljar: {sandboxes} sandboxes reached nothing that your configuration does not allow already"
        );
        return Ok(0);
    }
    print(diff(&proposal).as_bytes())
}

/// What files allow, as if no mode opened more.
fn strict(folder: &Path) -> Result<EgressPolicy, SandboxError> {
    let (policy, _) = effective(Some(folder.to_path_buf()), crate::args::EgressArgs::default())?;
    Ok(EgressPolicy { mode: Mode::Strict, ..policy })
}

fn is_of(log: &LogFile, folder: &Path, since: u64) -> bool {
    let first = Reader::open(&log.path).and_then(|mut reader| reader.next_record());
    let Ok(Some(first)) = first else { return false };
    let is_late = first.time.as_deref().and_then(Stamp::parse).is_some_and(|time| time.second() >= since);
    let of = match first.event.known() {
        Some(Event::SandboxStarted { folder, .. }) => folder.as_deref(),
        Some(_) | None => None,
    };
    is_late && of.is_some_and(|of| Path::new(of) == folder)
}

impl Reached {
    fn read(&mut self, log: &LogFile) -> Result<(), AuditError> {
        let mut reader = Reader::open(&log.path)?;
        while let Some(record) = reader.next_record()? {
            if let Some(Event::ConnectionOpened { name, port, protocol, .. }) = record.event.known() {
                self.0.entry((name.clone(), *port)).or_default().insert(protocol.as_str());
            }
        }
        Ok(())
    }

    /// The narrowest rules for what this policy does not allow. A port of this machine has no rule: a flag opens it.
    fn rules(&self, policy: &EgressPolicy) -> Vec<String> {
        let is_allowed = |name: &HostName, port: u16, protocol: &str| match explain(
            policy,
            name,
            Some(port),
            None,
        )
        .outcome
        {
            Outcome::Allowed(grants) => {
                grants.iter().any(|grant| grant.protocols.iter().any(|one| one.as_str() == protocol))
            }
            Outcome::Refused { .. } => false,
        };
        let mut needed: BTreeMap<&HostName, BTreeSet<(u16, &str)>> = BTreeMap::new();
        for ((name, port), protocols) in &self.0 {
            for protocol in protocols.iter().filter(|protocol| !is_allowed(name, *port, protocol)) {
                needed.entry(name).or_default().insert((*port, *protocol));
            }
        }
        let usual = [(80, Protocol::Http.as_str()), (443, Protocol::Tls.as_str())];
        let mut rules = Vec::new();
        for (name, mut needed) in needed.into_iter().filter(|(name, _)| !is_this_machine(name)) {
            if usual.iter().all(|one| needed.contains(one)) {
                needed.retain(|one| !usual.contains(one));
                rules.push(format!("={name}"));
            }
            rules.extend(needed.into_iter().map(|(port, protocol)| match Protocol::usual_at(port) {
                Some(usual) if usual.as_str() == protocol => format!("={name}:{port}"),
                Some(_) | None => format!("={name}:{port}/{protocol}"),
            }));
        }
        rules
    }
}

/// Old and new text, line by line: what the proposal changes lies in one place.
fn diff(proposal: &RulesProposal) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (proposal.before.lines().collect(), proposal.after.lines().collect());
    let same = |one: &&str, other: &&str| one == other;
    let front = old.iter().zip(&new).take_while(|(one, other)| same(one, other)).count();
    let left = old.len().min(new.len()) - front;
    let back =
        old.iter().rev().zip(new.iter().rev()).take(left).take_while(|(one, other)| same(one, other)).count();
    let from = front.saturating_sub(CONTEXT_LINES);
    let to = (old.len() - back + CONTEXT_LINES).min(old.len());
    let file = proposal.file.display();
    let mut text = format!("--- {file}\n+++ {file}\n");
    let (old_length, new_length) = (to - from, new.len() - back - from + (to - (old.len() - back)));
    text.push_str(&format!("@@ -{},{old_length} +{},{new_length} @@\n", (from + 1).min(old.len()), from + 1));
    for line in &old[from..front] {
        text.push_str(&format!(" {line}\n"));
    }
    for line in &old[front..old.len() - back] {
        text.push_str(&format!("-{line}\n"));
    }
    for line in &new[front..new.len() - back] {
        text.push_str(&format!("+{line}\n"));
    }
    for line in &old[old.len() - back..to] {
        text.push_str(&format!(" {line}\n"));
    }
    text
}

const CONTEXT_LINES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::egress::RuleSource;

    #[test]
    fn rules_are_the_narrowest_for_what_is_not_allowed_yet() {
        let mut reached = Reached::default();
        for (name, port, protocol) in [
            ("a.example", 443, "tls"),
            ("a.example", 80, "http"),
            ("b.example", 443, "tls"),
            ("b.example", 22, "ssh"),
            ("b.example", 8443, "tls"),
            ("known.example", 443, "tls"),
            ("known.example", 22, "ssh"),
            ("host.belljar.internal", 5432, "tcp"),
        ] {
            reached.0.entry((name.parse().expect(name), port)).or_default().insert(protocol);
        }
        let known = belljar_spec::egress::Rule::allow("known.example", RuleSource::Flag).expect("a rule");
        let rules = reached.rules(&EgressPolicy::strict().allow(known));
        let expected =
            ["=a.example", "=b.example:22", "=b.example:443", "=b.example:8443/tls", "=known.example:22"];
        assert_eq!(rules, expected);
        for rule in rules {
            belljar_spec::egress::Rule::allow(&rule, RuleSource::Flag).expect("a rule");
        }
    }

    #[test]
    fn a_diff_applies() {
        let proposal = |before: &str, after: &str| RulesProposal {
            file: "f".into(),
            before: before.into(),
            after: after.into(),
        };
        let made = diff(&proposal("", "[egress]\nallow = [\"=a\"]\n"));
        assert_eq!(made, "--- f\n+++ f\n@@ -0,0 +1,2 @@\n+[egress]\n+allow = [\"=a\"]\n");
        let made =
            diff(&proposal("# c\n[egress]\nallow = []\n[git]\n", "# c\n[egress]\nallow = [\"=a\"]\n[git]\n"));
        assert_eq!(
            made,
            "--- f\n+++ f\n@@ -1,4 +1,4 @@\n # c\n [egress]\n-allow = []\n+allow = [\"=a\"]\n [git]\n"
        );
    }
}
