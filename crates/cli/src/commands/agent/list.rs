//! `belljar agent list`: which agents there are, which are here, and what is missing.

use super::super::print;
use super::request::search_path;
use super::sentence::visible;
use crate::args::AgentListArgs;
use crate::failure::hint_of;
use belljar_agent::adapter::catalog::{Listed, catalog};
use belljar_spec::SandboxError;
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) fn list(options: &AgentListArgs) -> Result<u8, SandboxError> {
    let all = catalog(&search_path());
    if options.json {
        let rows: Vec<Value> = all.iter().map(as_json).collect();
        return print(format!("{:#}\n", Value::from(rows)).as_bytes());
    }
    let mut text = String::new();
    let _ = writeln!(text, "{:<9}  {:<9}  {:<9}  WHERE, OR WHAT TO DO", "AGENT", "HERE", "TRIED");
    for Listed { adapter, found } in &all {
        let (here, path) = match found {
            Ok(found) => (found.version.clone().unwrap_or("yes".into()), found.program.display().to_string()),
            Err(error) => ("no".into(), hint_of(error).unwrap_or(error.message.clone())),
        };
        let [here, path] = [here, path].map(|text| visible(&text, 1).concat());
        let _ = writeln!(text, "{:<9}  {here:<9}  {:<9}  {path}", adapter.name, adapter.version);
    }
    print(text.as_bytes())
}

fn as_json(Listed { adapter, found }: &Listed) -> Value {
    let efforts: Vec<String> = adapter.efforts.iter().map(ToString::to_string).collect();
    let found_here = found.as_ref().ok();
    let missing = found.as_ref().err();
    json!({
        "name": adapter.name,
        "title": adapter.title,
        "package": adapter.package,
        "tried": adapter.version,
        "speaks": adapter.speaks,
        "efforts": efforts,
        "available": found.is_ok(),
        "version": found_here.and_then(|found| found.version.clone()),
        "path": found_here.map(|found| found.program.display().to_string()),
        "reason": missing.map(|error| error.message.clone()),
        "remedy": missing.and_then(hint_of),
    })
}
