//! Which of an image's variants runs here.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An operating system and a processor, in Go's words, as the OCI image specification has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// This machine's.
    pub fn here() -> Platform {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "x86" => ("386", None),
            "aarch64" => ("arm64", Some("v8")),
            "arm" => ("arm", Some("v7")),
            "powerpc64" => ("ppc64le", None),
            other => (other, None),
        };
        Platform {
            os: "linux".into(),
            architecture: architecture.into(),
            variant: variant.map(str::to_string),
        }
    }

    /// How well something made for `other` suits this; not at all is nothing, and less is better. Those of 32-bit arm run what
    /// was made for older ones.
    pub(crate) fn suits(&self, other: &Platform) -> Option<u32> {
        if (&self.os, &self.architecture) != (&other.os, &other.architecture) {
            return None;
        }
        match (self.variant.as_deref(), other.variant.as_deref()) {
            (ours, theirs) if ours == theirs => Some(0),
            (_, None) => Some(1),
            (Some("v7"), Some("v6")) => Some(2),
            (Some("v7"), Some("v5")) => Some(3),
            // `arm64` without a variant is `v8`.
            (None, Some("v8")) if self.architecture == "arm64" => Some(0),
            // `amd64/v2` and above need more than every processor has.
            (None, Some("v1")) => Some(0),
            _ => None,
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_string);
        let (os, architecture) = (parts.next().unwrap(), parts.next().unwrap());
        Platform { os, architecture, variant: parts.next() }
    }

    #[test]
    fn the_nearest_variant_suits_best() {
        for (ours, theirs, how) in [
            ("linux/amd64", "linux/amd64", Some(0)),
            ("linux/amd64", "linux/amd64/v3", None),
            ("linux/amd64", "linux/arm64", None),
            ("linux/amd64", "windows/amd64", None),
            ("linux/amd64", "unknown/unknown", None),
            ("linux/arm64/v8", "linux/arm64", Some(1)),
            ("linux/arm/v7", "linux/arm/v6", Some(2)),
            ("linux/arm/v7", "linux/arm/v8", None),
        ] {
            assert_eq!(platform(ours).suits(&platform(theirs)), how, "{ours} {theirs}");
        }
    }
}
