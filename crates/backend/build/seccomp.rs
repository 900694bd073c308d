//! Turns the guest's `confine/syscalls.table` into a filter as the Docker daemon takes it: what holds in a container from its
//! first instruction on, and for whatever is started in it later by `docker exec`. It is a little wider than the filter
//! that the guest puts on top: this language has no way to say "allowed, except where".

use crate::table::{Arch, Condition, Decision, Operator, Row};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The filter, as JSON.
pub(crate) fn profile(rows: &[Row], arch: Arch) -> String {
    let mut calls: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.number(arch).is_some()) {
        calls.entry(&row.name).or_default().push(row);
    }
    let mut rules: Vec<String> = vec![rule(UNKNOWN, "SCMP_ACT_ERRNO", Some(ENOSYS), &[])];
    for (name, rows) in &calls {
        rules.extend(rules_of(name, rows));
    }
    // The other ways to call the same kernel, by the same names: one that is not listed here kills the calling process,
    // where the guest's filter says that there is no such call.
    let architectures = match arch {
        Arch::X86_64 => r#""SCMP_ARCH_X86_64","SCMP_ARCH_X86","SCMP_ARCH_X32""#,
        Arch::Aarch64 => r#""SCMP_ARCH_AARCH64","SCMP_ARCH_ARM""#,
    };
    format!(
        "{{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":{ENOSYS},\"architectures\":[{architectures}],\
         \"syscalls\":[{}]}}",
        rules.join(",")
    )
}

fn rules_of(name: &str, rows: &[&Row]) -> Vec<String> {
    let allows = |row: &&&Row| matches!(row.decision, Decision::Allow | Decision::Plain);
    let allowed: Vec<&Row> = rows.iter().filter(allows).copied().collect();
    let refused: Vec<&Row> = rows.iter().filter(|row| !allows(row)).copied().collect();
    if refused.iter().any(|row| row.conditions.is_empty()) || allowed.is_empty() {
        return vec![rule(&[name], "SCMP_ACT_ERRNO", Some(EPERM), &[])];
    }
    if allowed.iter().any(|row| row.conditions.is_empty()) {
        return vec![rule(&[name], "SCMP_ACT_ALLOW", None, &except(&refused))];
    }
    let conditions = |row: &&Row| row.conditions.iter().map(argument).collect::<Vec<_>>();
    allowed.iter().map(|row| rule(&[name], "SCMP_ACT_ALLOW", None, &conditions(row))).collect()
}

/// Where none of these holds, as far as it can be said.
fn except(refused: &[&Row]) -> Vec<String> {
    let only = |row: &&Row| match row.conditions.as_slice() {
        [condition] => Some((condition.arg, condition.operator, condition.value)),
        _ => None,
    };
    let all: Option<Vec<_>> = refused.iter().map(only).collect();
    match all.unwrap_or_default().as_slice() {
        [(arg, Operator::Equal, value)] => vec![comparison(*arg, "SCMP_CMP_NE", *value, 0)],
        [first @ (arg, Operator::MaskedEqual(_), _), rest @ ..] => {
            let mut bits = 0;
            for (other, operator, value) in [first].into_iter().chain(rest) {
                match operator {
                    Operator::MaskedEqual(mask) if mask == value && other == arg => bits |= mask,
                    _ => return Vec::new(),
                }
            }
            vec![comparison(*arg, "SCMP_CMP_MASKED_EQ", bits, 0)]
        }
        _ => Vec::new(),
    }
}

/// The kernel looks at the lower half only, but for pointers; so does this.
fn argument(condition: &Condition) -> String {
    let Condition { arg, operator, value } = condition;
    match operator {
        Operator::Equal => comparison(*arg, "SCMP_CMP_MASKED_EQ", u32::MAX, *value),
        Operator::MaskedEqual(mask) => comparison(*arg, "SCMP_CMP_MASKED_EQ", *mask, *value),
        Operator::NotEqual => comparison(*arg, "SCMP_CMP_NE", *value, 0),
        Operator::Null => comparison(*arg, "SCMP_CMP_EQ", 0, 0),
    }
}

fn comparison(arg: u8, operator: &str, value: u32, second: u32) -> String {
    format!("{{\"index\":{arg},\"value\":{value},\"valueTwo\":{second},\"op\":\"{operator}\"}}")
}

fn rule(names: &[&str], action: &str, errno: Option<u32>, arguments: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let mut text = format!("{{\"names\":[{}],\"action\":\"{action}\"", names.join(","));
    if let Some(errno) = errno {
        let _ = write!(text, ",\"errnoRet\":{errno}");
    }
    if !arguments.is_empty() {
        let _ = write!(text, ",\"args\":[{}]", arguments.join(","));
    }
    text.push('}');
    text
}

/// In no row of the table, and used by libraries that do without them only if the kernel seems not to know them. Older
/// daemons know no such default for the rest.
const UNKNOWN: &[&str] = &["clone3", "openat2"];
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
