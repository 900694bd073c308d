//! Hints in words of the command line: the one table of flags and commands for what the API calls by a field or an operation. An error
//! of the daemon comes with the same terms, and gets here the same way.

use belljar_spec::{Hint, Piece, Term};

/// A hint with flags and commands.
pub(crate) fn for_command_line(hint: &Hint) -> String {
    let quoted = |words: &str, value: &Option<String>| match value {
        None => format!("`{}`", words.trim_end_matches('=')),
        Some(value) if words.ends_with('=') => format!("`{words}{value}`"),
        Some(value) => format!("`{words} {value}`"),
    };
    let texts = hint.pieces().iter().map(|piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Term { term, value } => quoted(words(*term), value),
        Piece::CommandLine { command_line, value } => quoted(command_line.as_str(), value),
    });
    texts.collect()
}

/// What a term is called here. A flag that ends in `=` has its value behind that.
fn words(term: Term) -> &'static str {
    match term {
        Term::AgentContext => "--agent-context",
        Term::AtLeast => "--at-least",
        Term::Backend => "--backend",
        Term::Branch => "--branch",
        Term::Budget => "--budget",
        Term::Clone => "--clone",
        Term::Disk => "--disk",
        Term::Effort => "--effort",
        Term::Egress => "--egress",
        Term::EgressAllow => "--allow",
        Term::EgressGroups => "--group",
        Term::EgressHostPorts => "--allow-host",
        Term::Env => "--env",
        Term::Folder => "--workspace",
        Term::GitHub => "--github",
        Term::Hide => "--hide",
        Term::Placeholders => "--placeholders",
        Term::LlmKey => "--llm-key",
        Term::LlmKind => "--llm-kind",
        Term::LlmUrl => "--llm",
        Term::Memory => "--memory",
        Term::Model => "--model",
        Term::Nested => "--nested",
        Term::Overlay => "--overlay",
        Term::Pids => "--pids",
        Term::ReadyTimeout => "--ready-timeout",
        Term::Ro => "--ro",
        Term::Rootfs => "--root",
        Term::Rw => "--rw",
        Term::ShareGit => "--git share",
        Term::Terminal => "--tty",
        Term::Timeout => "--timeout",
        Term::WebSearch => "--web-search=",
        Term::Capabilities => "belljar doctor",
        Term::CreateGrant => "belljar daemon grants create",
        Term::CreateSandbox => "belljar start",
        Term::DeleteSandbox => "belljar rm",
        Term::ForceDeleteSandbox => "belljar rm --force",
        Term::GetSandbox => "belljar list",
        Term::ListGrants => "belljar daemon grants list",
        Term::ListSandboxes => "belljar list",
        Term::ListSnapshots => "belljar snapshots",
        Term::StopSandbox => "belljar stop",
        Term::Sweep => "belljar daemon sweep",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;
    use belljar_spec::{CommandLine, hint};
    use clap::Command;

    #[test]
    fn terms_become_flags_and_commands() {
        for (hint, expected) in [
            (hint!("allow more with {}", Term::Disk), "allow more with `--disk`"),
            (hint!("use {}", Term::Backend.to("native")), "use `--backend native`"),
            (
                hint!("use {} or {}", Term::WebSearch.to("exa"), Term::WebSearch),
                "use `--web-search=exa` or `--web-search`",
            ),
            (hint!("{} removes it", CommandLine::Discard.of(7)), "`belljar changes discard 7` removes it"),
        ] {
            assert_eq!(for_command_line(&hint), expected);
        }
    }

    #[test]
    fn the_command_line_has_every_word() {
        let belljar = command();
        let terms = Term::ALL.iter().map(|term| words(*term));
        for words in terms.chain(CommandLine::ALL.iter().map(|words| words.as_str())) {
            let of_belljar = words.split(" | ").next().unwrap().strip_prefix("belljar ");
            let mut command = Some(&belljar).filter(|_| of_belljar.is_some());
            for word in of_belljar.unwrap_or(words).split(' ').filter(|word| *word != word.to_uppercase()) {
                match word.strip_prefix("--") {
                    Some(flag) => {
                        assert!(has_flag(command.unwrap_or(&belljar), flag.trim_end_matches('=')), "{words}")
                    }
                    None if command.is_none() => {}
                    None => {
                        command =
                            Some(command.and_then(|command| command.find_subcommand(word)).expect(words))
                    }
                }
            }
        }
    }

    /// Whether it, or one of its subcommands, has the flag.
    fn has_flag(command: &Command, flag: &str) -> bool {
        command.get_arguments().any(|argument| argument.get_long() == Some(flag))
            || command.get_subcommands().any(|command| has_flag(command, flag))
    }
}
