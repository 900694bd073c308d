//! Names of signals in results.

/// The name of a signal: `SIGKILL`; `signal 63` for one without a name.
pub fn signal_name(number: i32) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_string())
}

/// The number of a signal that a result names.
pub fn signal_number(name: &str) -> Option<i32> {
    let known = NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
    known.or_else(|| name.strip_prefix("signal ")?.parse().ok())
}

/// signal(7), the numbers of x86 and ARM.
const NAMES: [(i32, &str); 16] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (31, "SIGSYS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_number() {
        for number in 1..=64 {
            assert_eq!(signal_number(&signal_name(number)), Some(number));
        }
        assert_eq!(signal_number("SIGNOTHING"), None);
    }
}
