//! The golden root: how much is in it.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How much is in the Alpine system that belljar keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GoldenTier {
    /// Alpine as it comes.
    Base,
    /// A shell, Python, git and what fetches and unpacks.
    Small,
    /// Node.js and the usual tools too.
    #[default]
    Full,
}

impl GoldenTier {
    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            GoldenTier::Base => "base",
            GoldenTier::Small => "small",
            GoldenTier::Full => "full",
        }
    }

    /// What it takes beside Alpine as it comes.
    pub fn packages(self) -> Vec<&'static str> {
        match self {
            GoldenTier::Base => ALWAYS.to_vec(),
            GoldenTier::Small => [&ALWAYS[..], &SMALL].concat(),
            GoldenTier::Full => [&ALWAYS[..], &SMALL, &FULL].concat(),
        }
    }
}

impl FromStr for GoldenTier {
    type Err = String;

    fn from_str(text: &str) -> Result<GoldenTier, String> {
        let all = [GoldenTier::Base, GoldenTier::Small, GoldenTier::Full];
        let found = all.into_iter().find(|tier| tier.as_str() == text);
        found.ok_or_else(|| format!("there is no tier `{text}`: use one of base, small, full"))
    }
}

/// What programs need to trust servers.
const ALWAYS: [&str; 1] = ["ca-certificates"];
const SMALL: [&str; 8] = ["bash", "python3", "py3-pip", "git", "curl", "wget", "tar", "unzip"];
const FULL: [&str; 8] = ["jq", "findutils", "grep", "sed", "gawk", "coreutils", "nodejs", "npm"];
