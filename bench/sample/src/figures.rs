//! The figures of a run of a benchmark, kept for the next release to be compared with.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Medians and counts, by name. With `BELLJAR_BENCH_HISTORY`, which `./dev bench --record` sets, they are a line of that file.
pub struct Figures {
    benchmark: &'static str,
    named: Vec<(&'static str, f64)>,
}

impl Figures {
    pub fn of(benchmark: &'static str) -> Figures {
        Figures { benchmark, named: Vec::new() }
    }

    /// One that could not be measured is left out.
    pub fn add(&mut self, name: &'static str, figure: f64) {
        if figure.is_finite() {
            self.named.push((name, figure));
        }
    }

    /// Keeps them, if the caller wants that.
    pub fn record(&self) -> io::Result<()> {
        let Some(history) = std::env::var_os("BELLJAR_BENCH_HISTORY") else { return Ok(()) };
        let commit = std::env::var("BELLJAR_BENCH_COMMIT").unwrap_or_default();
        let mut file = File::options().create(true).append(true).open(Path::new(&history))?;
        file.write_all(self.line(&commit).as_bytes())
    }

    /// JSON, of names and numbers that need no quoting.
    fn line(&self, commit: &str) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut line =
            format!(r#"{{"benchmark":"{}","version":"{version}","commit":"{commit}""#, self.benchmark);
        for (name, figure) in &self.named {
            // A string can always be written to.
            let _ = write!(line, r#","{name}":{figure:.3}"#);
        }
        line + "}\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_one_line_of_json() {
        let mut figures = Figures::of("api");
        figures.add("create_ms", 5.25);
        figures.add("warm_ms", f64::NAN);
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "{{\"benchmark\":\"api\",\"version\":\"{version}\",\"commit\":\"abc\",\"create_ms\":5.250}}\n"
        );
        assert_eq!(figures.line("abc"), expected);
    }
}
