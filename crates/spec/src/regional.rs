//! The variables that say in which language programs speak, how they write numbers, dates and letters (locale(7)), and in which
//! time zone (tzset(3)).

/// Whether a variable is one of them.
pub fn is_regional_variable(name: &str) -> bool {
    REGIONAL_VARIABLES.contains(&name)
}

/// All of them. `LANGUAGE` is none: it names translations, which need no locale to be there.
pub const REGIONAL_VARIABLES: [&str; 15] = [
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
    TIME_ZONE_VARIABLE,
];

/// The one of the time zone.
pub const TIME_ZONE_VARIABLE: &str = "TZ";
