//! What is asked and answered in the control API. Unknown fields are let through: newer clients send more, and what belljar does not
//! do is refused by its name where it is asked for.

use crate::facts::{Facts, OnTimeout};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A sandbox to make.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    pub(crate) timeout: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) auto_pause: bool,
    pub(crate) auto_pause_memory: Option<bool>,
    pub(crate) auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    pub(crate) allow_internet_access: Option<bool>,
    pub(crate) network: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) env_vars: BTreeMap<String, String>,
    pub(crate) mcp: Option<Value>,
    pub(crate) iam: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) volume_mounts: Vec<VolumeMount>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct AutoResume {
    pub(crate) enabled: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct VolumeMount {
    pub(crate) name: String,
    pub(crate) path: String,
}

/// What a sandbox may reach, and how its ports are reached.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Network {
    #[serde(deserialize_with = "or_default")]
    pub(crate) allow_out: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) deny_out: Vec<String>,
    pub(crate) allow_public_traffic: Option<bool>,
    pub(crate) mask_request_host: Option<String>,
    /// What belljar does not do, as far as it is known by name.
    #[serde(flatten)]
    pub(crate) more: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Connect {
    pub(crate) timeout: Option<u64>,
    /// `false`: from its files alone.
    pub(crate) memory: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Resume {
    pub(crate) timeout: Option<u64>,
    pub(crate) auto_pause: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Timeout {
    pub(crate) timeout: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refresh {
    pub(crate) duration: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pause {
    pub(crate) memory: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TakenSnapshot {
    pub(crate) name: Option<String>,
    pub(crate) memory: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fork {
    pub(crate) timeout: Option<u64>,
    pub(crate) count: Option<usize>,
}

/// The answer to a request for a sandbox.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "sandboxID")]
    pub(crate) sandbox_id: String,
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    pub(crate) alias: String,
    #[serde(rename = "clientID")]
    pub(crate) client_id: &'static str,
    pub(crate) envd_version: &'static str,
    pub(crate) envd_access_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic_access_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
}

/// A sandbox in a list.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    #[serde(rename = "sandboxID")]
    pub(crate) sandbox_id: String,
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    pub(crate) alias: String,
    #[serde(rename = "clientID")]
    pub(crate) client_id: &'static str,
    pub(crate) started_at: String,
    pub(crate) end_at: String,
    pub(crate) cpu_count: u32,
    #[serde(rename = "memoryMB")]
    pub(crate) memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    pub(crate) disk_size_mb: u64,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) state: &'static str,
    pub(crate) envd_version: &'static str,
}

/// The same by itself, with what only its maker should know.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) listed: Listed,
    pub(crate) envd_access_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_internet_access: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<Value>,
    pub(crate) lifecycle: Lifecycle,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifecycle {
    pub(crate) auto_resume: bool,
    pub(crate) on_timeout: &'static str,
}

impl From<&Facts> for Listed {
    fn from(facts: &Facts) -> Listed {
        Listed {
            sandbox_id: facts.id.clone(),
            template_id: facts.template.clone(),
            alias: facts.template.clone(),
            client_id: CLIENT_ID,
            started_at: rfc3339(facts.started_ms),
            end_at: rfc3339(facts.ends_ms),
            cpu_count: facts.size.cpus,
            memory_mb: facts.size.memory_mb,
            disk_size_mb: facts.size.disk_mb,
            metadata: facts.metadata.clone(),
            state: if facts.is_paused() { "paused" } else { "running" },
            envd_version: ENVD_VERSION,
        }
    }
}

impl From<&Facts> for Lifecycle {
    fn from(facts: &Facts) -> Lifecycle {
        let on_timeout = match facts.on_timeout {
            OnTimeout::Kill => "kill",
            OnTimeout::Pause | OnTimeout::Stop => "pause",
        };
        Lifecycle { auto_resume: facts.auto_resume, on_timeout }
    }
}

/// `null` as nothing: clients write it for what was not said.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A time of ours as text.
pub(crate) fn rfc3339(ms: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000);
    time.unwrap_or(OffsetDateTime::UNIX_EPOCH).format(&Rfc3339).unwrap_or_default()
}

/// A time as text as one of ours.
pub(crate) fn from_rfc3339(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

/// Clients ask for features by this number: all of those that are served are in it.
pub(crate) const ENVD_VERSION: &str = "0.6.4";
/// A field that every answer must have, and no client reads.
pub(crate) const CLIENT_ID: &str = "belljar";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_to_the_millisecond_and_read_back() {
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(from_rfc3339("2023-11-14T23:13:20.1239+01:00"), Some(1_700_000_000_123));
        assert_eq!(from_rfc3339("yesterday"), None);
    }

    #[test]
    fn what_is_null_was_not_said() {
        let text = r#"{"templateID":"base","metadata":null,"envVars":null,"autoPause":null,"newer":1}"#;
        let new: NewSandbox = serde_json::from_str(text).unwrap();
        assert_eq!((new.template_id.as_str(), new.metadata.len(), new.auto_pause), ("base", 0, false));
    }
}
