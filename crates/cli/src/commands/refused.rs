//! One line at the end of a run: what it could not reach, and what would allow it.

use belljar_engine::{RefusedReport, Sandbox};
use std::fmt::Display;

/// Says it, if there is something to say.
pub(super) fn say(sandbox: &Sandbox) {
    if let Some(line) = line(sandbox.id(), &report(sandbox)) {
        eprintln!("{line}");
    }
}

/// The same, for a program.
pub(super) fn report(sandbox: &Sandbox) -> Vec<RefusedReport> {
    sandbox.refused_report()
}

/// What was refused to a sandbox, in a line.
pub(super) fn line(sandbox: impl Display, refused: &[RefusedReport]) -> Option<String> {
    if refused.is_empty() {
        return None;
    }
    let mut shown: Vec<String> = refused.iter().take(SHOWN).map(sentence).collect();
    if refused.len() > SHOWN {
        shown.push(format!("and {} more (`belljar audit show {sandbox}`)", refused.len() - SHOWN));
    }
    let mut remedies: Vec<String> = Vec::new();
    for remedy in refused.iter().take(SHOWN).filter_map(|one| one.remedy.clone()) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    let remedy = match remedies.as_slice() {
        [] => String::new(),
        // Flags stand beside each other; a line of a file stands alone.
        flags if flags.iter().all(|flag| flag.starts_with("--")) => {
            format!("; to allow: {}", flags.join(" "))
        }
        mixed => format!("; to allow: {}", mixed.join(", ")),
    };
    Some(format!("belljar: refused {}{remedy}", shown.join("; ")))
}

/// With the line of a file that it is refused by.
fn sentence(one: &RefusedReport) -> String {
    let place = one.rule.as_ref().and_then(|rule| Some((rule, rule.file.as_ref()?, rule.line?)));
    match place {
        Some((rule, file, line)) => format!("{} (`{}`, {file}:{line})", one.sentence, rule.rule),
        None => one.sentence.clone(),
    }
}

/// More is in the audit log.
const SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::SandboxId;
    use belljar_spec::egress::Refused;
    use belljar_spec::egress::{HostName, Reason, Refusal};

    fn refused(name: &str, port: Option<u16>) -> RefusedReport {
        let name: HostName = name.parse().expect("a name");
        Refused { refusal: Refusal::new(name, port, Reason::NameNotAllowed), times: 2 }.into()
    }

    #[test]
    fn the_line_has_the_flags_that_help() {
        let id = SandboxId::from_random([1; 8]);
        assert_eq!(line(id, &[]), None);
        assert_eq!(
            line(id, &[refused("a.example", None), refused("b.example", Some(8443))]).as_deref(),
            Some(
                "belljar: refused a.example: no rule allows this name; b.example:8443: no rule allows this name; \
                 to allow: --allow a.example --allow b.example:8443"
            )
        );
    }

    #[test]
    fn many_refusals_are_still_one_line() {
        let id = SandboxId::from_random([1; 8]);
        let many: Vec<RefusedReport> =
            (0..100).map(|number| refused(&format!("n{number}.example"), None)).collect();
        let line = line(id, &many).expect("a line");
        assert!(line.contains("and 95 more (`belljar audit show "), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
