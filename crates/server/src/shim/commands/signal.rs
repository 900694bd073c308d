//! Signals, by name or number.

use belljar_spec::{ErrorCode, SandboxError, signal_number};

/// `SIGINT`, `int`, or `2`.
pub(super) fn signal(text: &str) -> Result<i32, SandboxError> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let number = text.parse().ok().filter(|number| (1..=64).contains(number));
    let more = || MORE.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    number.or_else(|| signal_number(&name)).or_else(more).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        ErrorCode::RequestValue
            .error(format!("there is no signal `{shown}`"))
            .hint("write a name as in `SIGINT`, or a number from 1 to 64")
    })
}

/// What ends no command, and so is in no result: signal(7), the numbers of x86 and ARM.
const MORE: [(&str, i32); 9] = [
    ("SIGCHLD", 17),
    ("SIGCONT", 18),
    ("SIGSTOP", 19),
    ("SIGTSTP", 20),
    ("SIGTTIN", 21),
    ("SIGTTOU", 22),
    ("SIGURG", 23),
    ("SIGWINCH", 28),
    ("SIGIO", 29),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_understood() {
        for (text, number) in
            [("SIGINT", 2), ("int", 2), ("9", 9), ("SIGTERM", 15), ("SIGWINCH", 28), ("64", 64)]
        {
            assert_eq!(signal(text).expect(text), number);
        }
        for text in ["", "0", "65", "-1", "SIGNOTHING", "SIG"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }
}
