//! `belljar audit export`: the records for another program.

use super::{Stop, find};
use crate::args::{AuditExportArgs, ExportFormat};
use belljar_audit::{LogFile, Reader, Record, Stamp};
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn export(out: &mut impl Write, options: &AuditExportArgs) -> Result<u8, Stop> {
    let logs = match &options.sandbox {
        Some(word) => vec![find(Some(word))?],
        None => {
            let mut logs = belljar_audit::list(&belljar_audit::directory()?)?;
            logs.reverse();
            logs
        }
    };
    let since = options.since.and_then(|age| SystemTime::now().checked_sub(age));
    let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok()).unwrap_or(Duration::ZERO);
    let mut resources = Vec::new();
    for log in &logs {
        let mut records = Vec::new();
        read(log, since, |record, time| match options.format {
            ExportFormat::Jsonl => Ok(writeln!(out, "{}", record.raw)?),
            ExportFormat::Otel => {
                records.push(otel(record, time));
                Ok(())
            }
        })?;
        if !records.is_empty() {
            resources.push(json!({
                "resource": { "attributes": [
                    attribute("service.name", &json!("belljar")),
                    attribute("belljar.sandbox.id", &json!(log.sandbox.to_string())),
                ] },
                "scopeLogs": [{ "scope": { "name": "belljar.audit" }, "logRecords": records }],
            }));
        }
    }
    if options.format == ExportFormat::Otel {
        serde_json::to_writer(&mut *out, &json!({ "resourceLogs": resources }))?;
        writeln!(out)?;
    }
    Ok(0)
}

/// One that cannot be read to its end does not hide the others.
fn read(
    log: &LogFile,
    since: Duration,
    mut each: impl FnMut(&Record, Duration) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let damaged = |error: belljar_audit::AuditError| {
        eprintln!("belljar: the log of {} is damaged: {}", log.sandbox, super::printable(&error.to_string()));
    };
    let mut reader = match Reader::open(&log.path) {
        Ok(reader) => reader,
        Err(error) => {
            damaged(error);
            return Ok(());
        }
    };
    loop {
        let record = match reader.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(error) => {
                damaged(error);
                return Ok(());
            }
        };
        let time = record.time.as_deref().and_then(Stamp::parse).map(Stamp::since_epoch).unwrap_or_default();
        if time >= since {
            each(&record, time)?;
        }
    }
}

/// A log record of OpenTelemetry (opentelemetry-proto, logs/v1), in the JSON form of OTLP.
fn otel(record: &Record, time: Duration) -> Value {
    let event = record.written();
    let kind = event["kind"].as_str().unwrap_or("unknown").to_string();
    let is_refusal = kind.ends_with("_refused") || kind == "placeholder_elsewhere";
    let (number, text) = if is_refusal { (WARN, "WARN") } else { (INFO, "INFO") };
    let fields = event.as_object().into_iter().flatten();
    let attributes: Vec<Value> = fields
        .filter(|(name, value)| *name != "kind" && !value.is_null())
        .map(|(name, value)| attribute(&format!("belljar.{name}"), value))
        .collect();
    json!({
        "timeUnixNano": time.as_nanos().to_string(),
        "severityNumber": number,
        "severityText": text,
        "eventName": format!("belljar.{kind}"),
        "body": { "stringValue": kind },
        "attributes": attributes,
    })
}

fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        Value::String(text) => json!({ "stringValue": text }),
        Value::Bool(value) => json!({ "boolValue": value }),
        // 64 bits are text in JSON's form of protocol buffers.
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            json!({ "intValue": number.to_string() })
        }
        Value::Number(number) => json!({ "doubleValue": number }),
        Value::Array(_) | Value::Object(_) | Value::Null => json!({ "stringValue": value.to_string() }),
    };
    json!({ "key": name, "value": value })
}

/// SEVERITY_NUMBER_INFO and SEVERITY_NUMBER_WARN.
const INFO: u8 = 9;
const WARN: u8 = 13;
