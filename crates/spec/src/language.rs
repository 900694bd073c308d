//! The variables that say in which language programs speak, and how they write numbers, dates and letters (locale(7)).

/// Whether a variable is one of them.
pub fn is_language_variable(name: &str) -> bool {
    LANGUAGE_VARIABLES.contains(&name)
}

/// All of them. `LANGUAGE` is none: it names translations, which need no locale to be there.
pub const LANGUAGE_VARIABLES: [&str; 14] = [
    "LANG",
    "LC_ALL",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];
