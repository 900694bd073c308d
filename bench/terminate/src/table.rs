//! What was measured, and how it is printed.

/// Rows of ways, columns of measures, and in each cell what the rounds brought.
pub(crate) struct Table {
    columns: &'static [&'static str],
    rows: Vec<(&'static str, Vec<Vec<f64>>)>,
}

impl Table {
    pub(crate) fn new(columns: &'static [&'static str]) -> Table {
        Table { columns, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: &'static str, column: &str, value: f64) {
        let Some(column) = self.columns.iter().position(|name| *name == column) else { return };
        let row = match self.rows.iter().position(|(name, _)| *name == row) {
            Some(row) => row,
            None => {
                self.rows.push((row, vec![Vec::new(); self.columns.len()]));
                self.rows.len() - 1
            }
        };
        self.rows[row].1[column].push(value);
    }

    /// Medians, the least and the most, and ratios to a row.
    pub(crate) fn print(&self, reference: &str) {
        println!("\nOne stream over TLS that is looked into");
        print!("  {:<12}", "");
        self.columns.iter().for_each(|column| print!(" {column:>24}"));
        println!("   x {reference}");
        for (name, cells) in &self.rows {
            print!("  {name:<12}");
            for cell in cells {
                let edge = |pick: fn(f64, f64) -> f64| cell.iter().copied().reduce(pick).unwrap_or(f64::NAN);
                let shown = format!("{:.0} ({:.0}-{:.0})", median(cell), edge(f64::min), edge(f64::max));
                print!(" {shown:>24}");
            }
            let ratio = |column: &&str| match self.ratio(name, reference, column) {
                Some(ratio) => format!("{ratio:.2}"),
                None => "-".into(),
            };
            println!("   {}", self.columns.iter().map(ratio).collect::<Vec<_>>().join(" "));
        }
    }

    /// Says whether a row is at least so many times another.
    pub(crate) fn judge(&self, row: &str, reference: &str, column: &str, least: f64) {
        let Some(ratio) = self.ratio(row, reference, column) else { return };
        let verdict = if ratio >= least { "as wanted" } else { "NOT AS WANTED" };
        println!("  {column}: {row} is {ratio:.2} x {reference}; at least {least:.2} is wanted: {verdict}");
    }

    fn ratio(&self, row: &str, reference: &str, column: &str) -> Option<f64> {
        let column = self.columns.iter().position(|name| *name == column)?;
        let cell =
            |row: &str| self.rows.iter().find(|(name, _)| *name == row).map(|(_, cells)| &cells[column]);
        Some(median(cell(row)?) / median(cell(reference)?))
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
