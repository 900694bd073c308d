//! What a caller may do.

use crate::read::{describes_shape, without_index};
use crate::strict::Strict;
use belljar_spec::request::GrantRules;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A grant to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default, try_from = "Strict")]
pub struct NewGrant {
    /// For people.
    pub name: String,
    #[serde(flatten)]
    pub rules: GrantRules,
    /// How long it counts. Left out: until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_s: Option<u64>,
}

/// Serde loses the path of a wrong value in a flattened part: the rules are read by themselves.
impl TryFrom<Strict> for NewGrant {
    type Error = String;

    fn try_from(Strict(value): Strict) -> Result<NewGrant, String> {
        let Value::Object(mut fields) = value else {
            return Err("invalid type: a grant is an object".into());
        };
        fn take<T: DeserializeOwned + Default>(
            fields: &mut Map<String, Value>,
            name: &str,
        ) -> Result<T, String> {
            let value = fields.remove(name).map(T::deserialize).transpose();
            value.map(Option::unwrap_or_default).map_err(|error| error.to_string())
        }
        let (name, valid_s) = (take(&mut fields, "name")?, take(&mut fields, "valid_s")?);
        let rules = serde_path_to_error::deserialize(Value::Object(fields));
        let rules = rules.map_err(|error| match describes_shape(&error.inner().to_string()) {
            true => error.inner().to_string(),
            false => format!("`{}`: {}", without_index(&error.path().to_string()), error.inner()),
        })?;
        Ok(NewGrant { name, rules, valid_s })
    }
}

/// A grant that was made. The token is told once, and kept only as a hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    pub grant: GrantInfo,
    pub token: String,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantInfo {
    pub id: String,
    pub name: String,
    pub rules: GrantRules,
    pub created_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_ms: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_says_each_field_once() {
        let read = |text: &str| serde_json::from_str::<NewGrant>(text).map_err(|error| error.to_string());
        assert!(read(r#"{"name": "a", "allow_sandbox": true}"#).unwrap().rules.allow_sandbox);
        for text in [
            r#"{"name": "a", "allow_sandbox": false, "allow_sandbox": true}"#,
            r#"{"name": "a", "limits": {"pids": 1, "pids": 100000}}"#,
            r#"{"name": "a", "name": "b"}"#,
        ] {
            assert!(read(text).unwrap_err().contains("duplicate field"), "{text}");
        }
    }
}
