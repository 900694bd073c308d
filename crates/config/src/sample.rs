//! The commented sample of a user's file.

/// Every setting of it is commented out, so that the defaults apply.
pub fn sample() -> &'static str {
    include_str!("../../../docs/sample-belljar.toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigPaths, Layer, check, profiles_from};
    use std::fs;

    /// Settings begin with a key or a header; other comments are sentences.
    fn uncommented() -> String {
        let is_setting = |line: &str| {
            let key = line.split(" = ").next().unwrap_or_default();
            let is_key = |key: &str| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            line.starts_with('[') || (line.contains(" = ") && is_key(key))
        };
        let line = |line: &'static str| match line.strip_prefix("# ") {
            Some(setting) if is_setting(setting) => setting,
            _ => line,
        };
        sample().lines().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_sample_is_understood_with_every_line_and_says_nothing_without() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("belljar.toml");
        fs::write(&file, sample()).unwrap();
        assert!(check(&file, Layer::User).unwrap().is_silent());
        let text = uncommented();
        let settings = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert!(settings > 30, "{text}");
        fs::write(&file, &text).unwrap();
        let read = check(&file, Layer::User);
        assert!(read.is_ok(), "{read:?}\n{text}");
        let places = ConfigPaths {
            operator: folder.path().join("none"),
            operator_id: 0,
            user: Some(file),
            state: None,
        };
        assert!(profiles_from(&places).unwrap().iter().any(|profile| profile.default));
    }
}
