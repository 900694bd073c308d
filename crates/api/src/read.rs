//! A request's body, read. What is wrong with it is told with the name of its field.

use belljar_spec::{ErrorCode, SandboxError};
use serde::de::DeserializeOwned;

/// The object that a body is. Whatever is no object is refused here: a list would otherwise be taken for one, field by field.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, SandboxError> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(invalid("the body is not a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| wrong(without_index(&error.path().to_string()), error.inner()))?;
    reader.end().map_err(|error| unexpected(&error))?;
    Ok(read)
}

/// A value that does not make sense, or a body of another shape.
fn wrong(field: &str, error: &serde_json::Error) -> SandboxError {
    let message = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    let why = message.strip_suffix(&at).unwrap_or(&message);
    if !error.is_data() || describes_shape(why) {
        return unexpected(error);
    }
    if field == "." {
        return ErrorCode::RequestValue.error(why);
    }
    // What is said of a sandbox is named as it is in the sandbox itself.
    let short = field.strip_prefix("sandbox.").unwrap_or(field);
    ErrorCode::RequestValue
        .error(format!("`{}`: {why}", short.escape_debug()))
        .hint(format!("correct `{}`", field.escape_debug()))
}

fn unexpected(error: &serde_json::Error) -> SandboxError {
    invalid(format!("the body is not what it should be: {error}"))
}

fn invalid(message: impl Into<String>) -> SandboxError {
    ErrorCode::RequestInvalid.error(message)
}

/// The name of a list, where the path leads into it.
pub(crate) fn without_index(path: &str) -> &str {
    path.split('[').next().unwrap_or_default()
}

/// Is it an error of serde's own, and not of a value that was text and made no sense?
pub(crate) fn describes_shape(why: &str) -> bool {
    SHAPE.iter().any(|begins| why.starts_with(begins))
}

/// How serde's own errors begin (`serde::de::Error`).
const SHAPE: [&str; 7] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "unknown variant",
    "unknown field",
    "missing field",
    "duplicate field",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateSandbox, NewGrant};

    #[test]
    fn a_value_that_makes_no_sense_is_named_with_its_field() {
        for (json, field) in [
            (r#"{"backend": "dock"}"#, "backend"),
            (r#"{"at_least": "strong"}"#, "at_least"),
            (r#"{"rootfs": "alpine"}"#, "rootfs"),
            (r#"{"workspace": {"folder": "here"}}"#, "workspace.folder"),
            (r#"{"workspace": {"ro": ["../x"]}}"#, "workspace.ro"),
            (r#"{"workspace": {"rw": [""]}}"#, "workspace.rw"),
            (r#"{"workspace": {"protect": ["/etc"]}}"#, "workspace.protect"),
            (r#"{"workspace": {"push": ["a..b"]}}"#, "workspace.push"),
            (r#"{"workspace": {"folder": "/a", "branch": "a..b"}}"#, "workspace.branch"),
            (r#"{"egress": {"mode": "wide"}}"#, "egress.mode"),
            (r#"{"egress": {"allow": ["*.com"]}}"#, "egress.allow"),
            (r#"{"egress": {"deny": ["1.2.3.4"]}}"#, "egress.deny"),
            (r#"{"egress": {"groups": ["none-such"]}}"#, "egress.groups"),
            (r#"{"llm": {"url": "ftp://x"}}"#, "llm.url"),
            (r#"{"llm": {"key": "sk-123"}}"#, "llm.key"),
            (r#"{"llm": {"kind": "oracle"}}"#, "llm.kind"),
            (r#"{"llm": {"budget": "much"}}"#, "llm.budget"),
            (r#"{"secrets": ["no such name"]}"#, "secrets"),
            (r#"{"web_search": "no such name"}"#, "web_search"),
            (r#"{"github": {"profile": "all"}}"#, "github.profile"),
            (r#"{"github": {"profile": "read", "repositories": ["a"]}}"#, "github.repositories"),
            (r#"{"env": {"A=B": "1"}}"#, "env.A=B"),
            (r#"{"env": {"A": "secret:no such name"}}"#, "env.A"),
            (r#"{"env": {"A": "a\u0000b"}}"#, "env.A"),
            (r#"{"env": {"A": {"base64": "%"}}}"#, "env.A"),
            (r#"{"limits": {"memory": "lots"}}"#, "limits.memory"),
            (r#"{"limits": {"cpus": "-1"}}"#, "limits.cpus"),
            (r#"{"limits": {"disk": ""}}"#, "limits.disk"),
            (r#"{"limits": {"timeout": "soon"}}"#, "limits.timeout"),
            (r#"{"limits": {"output": "x"}}"#, "limits.output"),
            (r#"{"volumes": {"../x": "/volumes/x"}}"#, "volumes.../x"),
            (r#"{"volumes": {"x": "/usr"}}"#, "volumes.x"),
            (r#"{"volumes": {"x": "/volumes/../proc"}}"#, "volumes.x"),
        ] {
            let body = format!(r#"{{"sandbox": {json}}}"#);
            let error = read::<CreateSandbox>(body.as_bytes()).expect_err(json);
            assert_eq!(error.code, ErrorCode::RequestValue, "{json}: {error}");
            assert!(error.message.starts_with(&format!("`{field}`: ")), "{field}: {error}");
            assert!(!error.message.contains(" at line"), "{error}");
            assert_eq!(error.hint, Some(format!("correct `sandbox.{field}`").into()), "{json}");
        }
    }

    #[test]
    fn a_body_of_another_shape_is_told_with_its_place() {
        for (body, part) in [
            ("[]", "not a JSON object"),
            (r#"{"sandbox": {"limits": {"memory": 5}}}"#, "expected a string at line 1"),
            (r#"{"sandbox": {"bakend": "native"}}"#, "unknown field `bakend`"),
            (r#"{"sandbox": {"github": {}}}"#, "missing field `profile`"),
            (r#"{"key": "k"} x"#, "trailing characters"),
            (r#"{"key": "#, "EOF"),
        ] {
            let error = read::<CreateSandbox>(body.as_bytes()).expect_err(body);
            assert_eq!(error.code, ErrorCode::RequestInvalid, "{body}: {error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn rules_of_a_grant_are_read_the_same_way() {
        for (body, code, field) in [
            (r#"{"name": "g", "egress": ["wide"]}"#, ErrorCode::RequestValue, "`egress`: "),
            (r#"{"name": "g", "hosts": ["*.com"]}"#, ErrorCode::RequestValue, "`hosts`: "),
            (r#"{"name": "g", "folders": ["here"]}"#, ErrorCode::RequestValue, "`folders`: "),
            (r#"{"name": "g", "limits": {"memory": "lots"}}"#, ErrorCode::RequestValue, "`limits.memory`: "),
            (r#"{"name": "g", "unknown": 1}"#, ErrorCode::RequestInvalid, ""),
            (r#"{"name": 1}"#, ErrorCode::RequestInvalid, ""),
            (r#"{"name": "g", "limits": {"memory": 5}}"#, ErrorCode::RequestInvalid, ""),
        ] {
            let error = read::<NewGrant>(body.as_bytes()).expect_err(body);
            assert_eq!(error.code, code, "{body}: {error}");
            assert!(code != ErrorCode::RequestValue || error.message.starts_with(field), "{error}");
        }
    }
}
