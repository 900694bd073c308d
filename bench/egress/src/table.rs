//! What was measured, and how it is printed.

/// Rows of ways, columns of measures, and in each cell what the rounds brought.
pub(crate) struct Table {
    title: String,
    columns: &'static [&'static str],
    rows: Vec<(String, Vec<Vec<f64>>)>,
}

/// What a ratio should be.
pub(crate) enum Expected {
    AtLeast(f64),
    AtMost(f64),
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &'static [&'static str]) -> Table {
        Table { title: title.into(), columns, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: &str, column: &str, value: f64) {
        let columns = self.columns.len();
        let Some(column) = self.columns.iter().position(|name| *name == column) else { return };
        let row = match self.rows.iter().position(|(name, _)| name == row) {
            Some(row) => row,
            None => {
                self.rows.push((row.to_string(), vec![Vec::new(); columns]));
                self.rows.len() - 1
            }
        };
        self.rows[row].1[column].push(value);
    }

    /// Medians, between which values four fifths of the rounds lie, and ratios to a row.
    pub(crate) fn print(&self, reference: &str) {
        println!("\n{}", self.title);
        print!("  {:<32}", "");
        self.columns.iter().for_each(|column| print!(" {column:>24}"));
        println!("   x {reference}");
        for (name, cells) in &self.rows {
            print!("  {name:<32}");
            for cell in cells {
                print!(" {:>24}", shown(cell));
            }
            let ratios = self.columns.iter().map(|column| match self.ratio(name, reference, column) {
                Some(ratio) => format!("{ratio:.2}"),
                None => "-".into(),
            });
            println!("   {}", ratios.collect::<Vec<_>>().join(" "));
        }
    }

    /// Says whether a row is where it should be beside another.
    pub(crate) fn judge(&self, row: &str, reference: &str, column: &str, expected: &Expected) {
        let Some(ratio) = self.ratio(row, reference, column) else { return };
        let (words, limit, good) = match expected {
            Expected::AtLeast(limit) => ("at least", limit, ratio >= *limit),
            Expected::AtMost(limit) => ("at most", limit, ratio <= *limit),
        };
        let verdict = if good { "as wanted" } else { "NOT AS WANTED" };
        println!("  {column}: {row} is {ratio:.2} x {reference}; {words} {limit:.2} is wanted: {verdict}");
    }

    fn ratio(&self, row: &str, reference: &str, column: &str) -> Option<f64> {
        let column = self.columns.iter().position(|name| *name == column)?;
        let median = |row: &str| {
            let (_, cells) = self.rows.iter().find(|(name, _)| name == row)?;
            quantile(&cells[column], 0.5)
        };
        Some(median(row)? / median(reference)?)
    }
}

fn shown(cell: &[f64]) -> String {
    match (quantile(cell, 0.1), quantile(cell, 0.5), quantile(cell, 0.9)) {
        (Some(low), Some(median), Some(high)) => {
            format!("{} ({}-{})", figure(median), figure(low), figure(high))
        }
        _ => "-".into(),
    }
}

fn figure(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// The value below which this share of the samples lies.
pub(crate) fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_one_of_medians() {
        let mut table = Table::new("", &["speed"]);
        for value in [1.0, 2.0, 90.0] {
            table.add("ours", "speed", value);
            table.add("theirs", "speed", 4.0);
        }
        assert_eq!(table.ratio("ours", "theirs", "speed"), Some(0.5));
        assert_eq!(table.ratio("ours", "nobody", "speed"), None);
    }
}
