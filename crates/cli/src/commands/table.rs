//! Lists for people.

use std::fmt::Write;

/// Columns as wide as what stands in them; the last one as it is.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N)
        .map(|at| rows.iter().map(|row| row[at].chars().count()).chain([head[at].len()]).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in std::iter::once(&head.map(String::from)).chain(rows) {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", still(cell))).collect();
        // A string can always be written to.
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

/// What cannot move the cursor, nor speak to a terminal: a folder's name may be any text.
fn still(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// In the largest unit that says something.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Bytes, in the largest unit that says something.
pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// How long ago, of milliseconds since 1970.
pub(super) fn since(ms: i64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis() as i64 - ms).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_speaks_to_the_terminal() {
        let text = table(["A", "B"], &[["a\u{1b}[2J\nb".into(), "c\u{9b}1m".into()]]);
        assert_eq!(text.lines().count(), 2);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    }
}
