//! The age from which something may be removed, as written in flags and files.

use std::time::Duration;

/// Reads `36h`, `30d`, `8w` or `2y`. A number without a unit would be ambiguous.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    let hours = match text.char_indices().last() {
        Some((end, unit)) => {
            let hours = match unit {
                'h' => Some(1),
                'd' => Some(24),
                'w' => Some(7 * 24),
                'y' => Some(365 * 24),
                _ => None,
            };
            let number =
                text[..end].parse::<u64>().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
            number.zip(hours).and_then(|(number, hours)| number.checked_mul(hours))
        }
        None => None,
    };
    let seconds = hours.and_then(|hours| hours.checked_mul(3600));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("`{text}` is not an age: write a whole number and h, d, w or y, as in `30d`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_a_unit() {
        let hours = |text: &str| parse_age(text).ok().map(|age| age.as_secs() / 3600);
        let written = ["36h", "30d", "8w", "2y"].map(hours);
        assert_eq!(written, [Some(36), Some(720), Some(1344), Some(17_520)]);
        for text in [
            "",
            "30",
            "d",
            "1.5d",
            "-1d",
            "+1d",
            "30m",
            "30s",
            "d30",
            "99999999999999999999y",
            "9999999999999999y",
            "3é",
        ] {
            assert_eq!(hours(text), None, "{text}");
        }
    }
}
