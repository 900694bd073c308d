//! OpenMetrics text (OpenMetrics 1.0, "Text format").

use super::family::{BUCKETS_US, Family};
use super::sum::Summed;
use belljar_api::{SandboxInfo, State};
use belljar_spec::BackendName;
use std::fmt::Write;

/// What is told beside what was counted.
pub(crate) struct Machine<'m> {
    pub(crate) sandboxes: &'m [SandboxInfo],
    /// When the daemon began, in seconds of 1970: counters begin at zero then.
    pub(crate) began: f64,
}

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Summed {
    /// All of it as text.
    pub(crate) fn text(&self, machine: &Machine<'_>) -> String {
        let mut text = String::new();
        let began = "When the daemon began, and with it its counters.";
        head(&mut text, "process_start_time_seconds", "gauge", "seconds", began);
        line(&mut text, "process_start_time_seconds", "", &format!("{:.3}", machine.began));
        head(&mut text, "belljar_build", "info", "", "The version of the daemon.");
        line(&mut text, "belljar_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), "1");
        sandboxes(&mut text, machine.sandboxes);
        head(&mut text, "belljar_shims", "gauge", "", "Processes that hold a sandbox or a run.");
        line(&mut text, "belljar_shims", "", &self.shims.to_string());
        let memory = "belljar_shim_resident_memory_bytes";
        head(
            &mut text,
            memory,
            "gauge",
            "bytes",
            "Resident memory of all of them, with pages that they share.",
        );
        line(&mut text, memory, "", &self.resident_bytes.to_string());
        for family in Family::ALL {
            let values = &self.values[family.values()];
            match family.is_histogram() {
                true => histogram(&mut text, family, values),
                false => counter(&mut text, family, values),
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

fn sandboxes(text: &mut String, all: &[SandboxInfo]) {
    let name = "belljar_sandboxes";
    head(text, name, "gauge", "", "Sandboxes of the API by state and by the backend of their last life.");
    for (word, state) in STATES {
        // `none` before its first life.
        for backend in BackendName::ALL.map(BackendName::as_str).into_iter().chain(["none"]) {
            let is_it = |info: &&SandboxInfo| {
                info.state == state && info.backend.as_deref().unwrap_or("none") == backend
            };
            let number = all.iter().filter(is_it).count();
            line(text, name, &format!("state=\"{word}\",backend=\"{backend}\""), &number.to_string());
        }
    }
}

fn counter(text: &mut String, family: Family, values: &[u64]) {
    let (name, unit, help) = family.about();
    head(text, name, "counter", unit, help);
    let mut series = vec![String::new()];
    for (label, words) in family.labels() {
        let with = |before: &String| {
            let comma = if before.is_empty() { "" } else { "," };
            words.iter().map(|word| format!("{before}{comma}{label}=\"{word}\"")).collect::<Vec<_>>()
        };
        series = series.iter().flat_map(with).collect();
    }
    for (labels, value) in series.iter().zip(values) {
        line(text, &format!("{name}_total"), labels, &in_units(*value, family.per_unit()));
    }
}

fn histogram(text: &mut String, family: Family, values: &[u64]) {
    let (name, unit, help) = family.about();
    head(text, name, "histogram", unit, help);
    let bounds = BUCKETS_US.iter().map(|most| in_units(*most, family.per_unit()));
    let mut count = 0_u64;
    for (bound, value) in bounds.chain(["+Inf".into()]).zip(values) {
        count = count.saturating_add(*value);
        line(text, &format!("{name}_bucket"), &format!("le=\"{bound}\""), &count.to_string());
    }
    let sum = values.last().copied().unwrap_or_default();
    line(text, &format!("{name}_sum"), "", &in_units(sum, family.per_unit()));
    line(text, &format!("{name}_count"), "", &count.to_string());
}

fn head(text: &mut String, name: &str, kind: &str, unit: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
}

fn line(text: &mut String, name: &str, labels: &str, value: &str) {
    let _ = match labels {
        "" => writeln!(text, "{name} {value}"),
        labels => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}

/// Exact, where a floating point number is not.
fn in_units(value: u64, per: u64) -> String {
    match per {
        1 => value.to_string(),
        per => {
            let text = format!("{}.{:06}", value / per, value % per);
            let end = text.trim_end_matches('0').len();
            // At least one digit behind the point.
            text[..if text[..end].ends_with('.') { end + 1 } else { end }].into()
        }
    }
}

const STATES: [(&str, State); 5] = [
    ("starting", State::Starting),
    ("live", State::Live),
    ("paused", State::Paused),
    ("stopping", State::Stopping),
    ("stopped", State::Stopped),
];

#[cfg(test)]
mod tests {
    use super::super::count::count;
    use super::super::zeros;
    use super::*;
    use belljar_audit::{Ending, Event};
    use belljar_engine::Observed;
    use belljar_spec::egress::Reason;
    use belljar_spec::{Ended, ErrorCode};
    use std::time::Duration;

    /// The series that are not zero.
    fn rendered(observed: &[Observed<'_>]) -> Vec<String> {
        let mut values = zeros();
        observed.iter().for_each(|observed| assert!(count(&mut values, observed), "{observed:?}"));
        let summed = Summed { values, shims: 2, resident_bytes: 4096 };
        let text = summed.text(&Machine { sandboxes: &[], began: 1.5 });
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter(|line| !line.ends_with(" 0") && !line.ends_with(" 0.0")).map(String::from).collect()
    }

    #[test]
    fn what_happens_is_counted_once() {
        let refused = || Observed::Refused(Reason::NameNotAllowed);
        let closed = Event::ConnectionClosed {
            connection: 1,
            sent: 10,
            received: 2000,
            millis: 3,
            address: None,
            ending: Ending::Finished,
        };
        let (took, long) = (Duration::from_millis(7), Duration::from_secs(7200));
        let ended = Ended { exit_code: Some(3), ..Ended::default() };
        let rendered = rendered(&[
            Observed::Start { outcome: Ok(BackendName::Native), took },
            Observed::Start { outcome: Err(ErrorCode::StartFailed), took },
            Observed::Command { outcome: Ok(&ended), took: long },
            Observed::Recorded(&closed),
            refused(),
            refused(),
        ]);
        let buckets = ["0.01", "0.025", "0.05", "0.1", "0.25", "1.0", "2.5"];
        let rest = ["10.0", "60.0", "600.0", "3600.0", "+Inf"];
        let buckets = buckets.iter().chain(&rest);
        let mut expected = vec![
            "process_start_time_seconds 1.500".to_string(),
            format!("belljar_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
            "belljar_shims 2".into(),
            "belljar_shim_resident_memory_bytes 4096".into(),
            r#"belljar_starts_total{backend="native"} 1"#.into(),
            r#"belljar_start_failures_total{kind="runtime"} 1"#.into(),
        ];
        expected
            .extend(buckets.map(|most| format!("belljar_start_duration_seconds_bucket{{le=\"{most}\"}} 1")));
        expected.extend(
            [
                "belljar_start_duration_seconds_sum 0.007",
                "belljar_start_duration_seconds_count 1",
                r#"belljar_execs_total{outcome="failed"} 1"#,
                r#"belljar_exec_duration_seconds_bucket{le="+Inf"} 1"#,
                "belljar_exec_duration_seconds_sum 7200.0",
                "belljar_exec_duration_seconds_count 1",
                r#"belljar_egress_bytes_total{direction="sent"} 10"#,
                r#"belljar_egress_bytes_total{direction="received"} 2000"#,
                r#"belljar_egress_refusals_total{reason="name_not_allowed"} 2"#,
            ]
            .map(String::from),
        );
        assert_eq!(rendered, expected);
    }
}
