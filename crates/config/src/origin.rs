//! The paths of the files, and the origins of settings in them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The files of this machine and this user. Tests use others; no variable moves the operator's.
#[derive(Debug, Clone)]
pub struct ConfigPaths {
    /// The operator's file.
    pub operator: PathBuf,
    /// The user id that must own it.
    pub operator_id: u32,
    /// The user's file; `None` for a user without a home.
    pub user: Option<PathBuf>,
    /// The directory that records which files were trusted.
    pub state: Option<PathBuf>,
}

impl ConfigPaths {
    /// The real paths.
    pub fn real() -> ConfigPaths {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        ConfigPaths {
            operator: OPERATOR.into(),
            operator_id: ROOT,
            user: user_file(variable("XDG_CONFIG_HOME"), variable("HOME")),
            state: belljar_state::state_directory().ok(),
        }
    }
}

fn user_file(config: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    // By the XDG specification, a relative path is ignored.
    let absolute = |path: &PathBuf| path.is_absolute();
    let config = config.filter(absolute).or_else(|| home.filter(absolute).map(|home| home.join(".config")));
    config.map(|config| config.join("belljar/belljar.toml"))
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Position {
    /// The file, safe to show.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
}

/// A value, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    pub place: Position,
}

/// The origin of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// No layer sets it.
    #[default]
    Default,
    /// The command line.
    Flag,
    /// A line of a file.
    Line(Position),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Flag => f.write_str("command line"),
            Origin::Line(place) => write!(f, "{place}"),
        }
    }
}

/// Fixed, so that the user who starts belljar cannot choose another.
const OPERATOR: &str = "/etc/belljar/belljar.toml";
const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_file_follows_the_variables() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (config, home, expected) in [
            (path("/c"), path("/h"), path("/c/belljar/belljar.toml")),
            (None, path("/h"), path("/h/.config/belljar/belljar.toml")),
            (path("relative"), path("/h"), path("/h/.config/belljar/belljar.toml")),
            (path(""), path(""), None),
            (None, None, None),
        ] {
            assert_eq!(user_file(config, home), expected);
        }
    }

    #[test]
    fn the_operators_file_is_where_it_is() {
        assert_eq!(ConfigPaths::real().operator, PathBuf::from("/etc/belljar/belljar.toml"));
    }
}
