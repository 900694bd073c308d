//! What a variable of a sandbox is set to.

use crate::secret::{SecretName, SecretNameError};
use crate::text::{Written, serialize_base64};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What a variable is set to. In JSON `secret:NAME` is a secret; text that only looks like one is written as base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    Text(OsString),
    /// A placeholder for a secret.
    Secret(SecretName),
}

impl EnvValue {
    /// `secret:NAME` is a placeholder, everything else is what it says.
    pub fn parse(text: OsString) -> Result<EnvValue, SecretNameError> {
        match text.as_bytes().strip_prefix(SECRET.as_bytes()) {
            Some(name) => String::from_utf8_lossy(name).parse().map(EnvValue::Secret),
            None => Ok(EnvValue::Text(text)),
        }
    }
}

impl Serialize for EnvValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EnvValue::Secret(name) => serializer.collect_str(&format_args!("{SECRET}{name}")),
            EnvValue::Text(text) => match text.to_str().filter(|text| !text.starts_with(SECRET)) {
                Some(text) => serializer.serialize_str(text),
                None => serialize_base64(text.as_bytes(), serializer),
            },
        }
    }
}

impl<'de> Deserialize<'de> for EnvValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EnvValue, D::Error> {
        let value = match Written::deserialize(deserializer)? {
            Written::Text(text) => EnvValue::parse(text.into()).map_err(D::Error::custom)?,
            Written::Bytes(bytes) => EnvValue::Text(OsString::from_vec(bytes)),
        };
        match &value {
            EnvValue::Text(text) if text.as_bytes().contains(&0) => {
                Err(D::Error::custom("a variable cannot hold a zero byte"))
            }
            EnvValue::Text(_) | EnvValue::Secret(_) => Ok(value),
        }
    }
}

const SECRET: &str = "secret:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_can_stand_for_a_secret() {
        assert_eq!(EnvValue::parse("plain".into()), Ok(EnvValue::Text("plain".into())));
        assert_eq!(EnvValue::parse("secret:key".into()), Ok(EnvValue::Secret("key".parse().unwrap())));
        assert!(EnvValue::parse("secret:no such name".into()).is_err());
    }

    #[test]
    fn text_that_looks_like_a_secret_reads_back_as_text() {
        for value in [
            EnvValue::Text("plain".into()),
            EnvValue::Text("secret:key".into()),
            EnvValue::Text(OsString::from_vec(vec![0xff])),
            EnvValue::Secret("key".parse().unwrap()),
        ] {
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<EnvValue>(&json).unwrap(), value, "{json}");
        }
    }
}
