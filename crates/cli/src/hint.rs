//! Hints in words of the command line. The crates below name what a caller can change as the API does, by the field of a request
//! (`limits.disk`, `backend: native`) or by an operation (`GET /v1/sandboxes`), in backticks; here is the one table of what that is called
//! on the command line. An error of the daemon comes with the same words, and gets here the same way.

/// A hint with flags and commands in the place of fields and operations.
pub(crate) fn for_command_line(hint: &str) -> String {
    let mut said = String::with_capacity(hint.len());
    for (number, piece) in hint.split('`').enumerate() {
        if number > 0 {
            said.push('`');
        }
        match number % 2 {
            1 => said.push_str(&word(piece)),
            _ => said.push_str(piece),
        }
    }
    said
}

/// What stands in one pair of backticks.
fn word(word: &str) -> String {
    let (field, value) = word.split_once(": ").map_or((word, None), |(field, value)| (field, Some(value)));
    match (WORDS.iter().find(|(known, _)| *known == field), value) {
        (Some((_, flag)), None | Some("true")) => flag.trim_end_matches('=').to_string(),
        (Some((_, flag)), Some(value)) if flag.ends_with('=') => format!("{flag}{value}"),
        (Some((_, flag)), Some(value)) => format!("{flag} {value}"),
        (None, _) => word.to_string(),
    }
}

/// Fields and operations, and what they are called here. A flag that ends in `=` has its value behind that.
const WORDS: &[(&str, &str)] = &[
    ("at_least", "--at-least"),
    ("backend", "--backend"),
    ("egress.mode", "--egress"),
    ("env", "--env"),
    ("limits.disk", "--disk"),
    ("limits.memory", "--memory"),
    ("limits.pids", "--pids"),
    ("limits.ready", "--ready-timeout"),
    ("llm.url", "--llm"),
    ("nested", "--nested"),
    ("rootfs", "--root"),
    ("terminal", "--tty"),
    ("web_search", "--web-search="),
    ("workspace.agent_context", "--agent-context"),
    ("workspace.branch", "--branch"),
    ("workspace.clone", "--clone"),
    ("workspace.folder", "--workspace"),
    ("workspace.overlay", "--overlay"),
    ("workspace.ro", "--ro"),
    ("workspace.rw", "--rw"),
    ("workspace.share_git", "--git share"),
    ("DELETE /v1/sandboxes/NAME", "belljar rm"),
    ("DELETE /v1/sandboxes/NAME?force=true", "belljar rm --force"),
    ("GET /v1/capabilities", "belljar doctor"),
    ("GET /v1/grants", "belljar grants list"),
    ("GET /v1/sandboxes", "belljar list"),
    ("POST /v1/grants", "belljar grants create"),
    ("POST /v1/sandboxes", "belljar start"),
    ("POST /v1/sandboxes/NAME/stop", "belljar stop"),
    ("POST /v1/sweep", "belljar sweep"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn fields_become_flags_and_operations_commands() {
        for (hint, expected) in [
            ("allow more with `limits.disk`", "allow more with `--disk`"),
            ("use `backend: native`, or `no` field", "use `--backend native`, or `no` field"),
            ("use `web_search: tavily`", "use `--web-search=tavily`"),
            ("set `workspace.share_git: true`", "set `--git share`"),
            ("`GET /v1/sandboxes` shows them", "`belljar list` shows them"),
            ("a lone ` stays: backend", "a lone ` stays: backend"),
        ] {
            assert_eq!(for_command_line(hint), expected);
        }
    }

    #[test]
    fn every_word_of_the_table_is_there() {
        let command = Args::command();
        let run = command.find_subcommand("run").unwrap();
        for (field, word) in WORDS {
            let is_there = match word.strip_prefix("--") {
                Some(flag) => {
                    let flag = flag.split([' ', '=']).next();
                    run.get_arguments().any(|argument| argument.get_long() == flag)
                }
                None => {
                    let mut words = word.split(' ').skip(1).filter(|word| !word.starts_with('-'));
                    words.try_fold(&command, |found, word| found.find_subcommand(word)).is_some()
                }
            };
            assert!(is_there, "{field}: {word}");
        }
    }
}
