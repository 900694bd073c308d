//! `[golden]`: how the golden root is built, from the operator and the user.

use crate::fault::at;
use crate::file::GoldenTable;
use crate::layer::Settings;
use crate::load::above;
use crate::origin::ConfigPaths;
use crate::read::Text;
use belljar_images::Digest;
use belljar_spec::{GoldenTier, SandboxError};
use std::fmt;
use toml::Spanned;

/// A file's settings of the golden root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GoldenSettings {
    pub mirror: Option<String>,
    pub release: Option<String>,
    pub digest: Option<Digest>,
    pub tier: Option<GoldenTier>,
}

impl GoldenSettings {
    pub(crate) fn understand(text: &Text, table: &GoldenTable) -> Result<GoldenSettings, SandboxError> {
        fn value<T, E: fmt::Display>(
            text: &Text,
            written: &Option<Spanned<String>>,
            parse: impl FnOnce(&str) -> Result<T, E>,
        ) -> Result<Option<T>, SandboxError> {
            let Some(written) = written else { return Ok(None) };
            let failed = |error| at(&text.place(written.span().start), error);
            parse(written.get_ref()).map(Some).map_err(failed)
        }
        Ok(GoldenSettings {
            mirror: value(text, &table.mirror, |url| match url.split_once("://") {
                Some(("https" | "http", _)) => Ok(url.to_string()),
                _ => Err("a mirror is an address like `https://dl-cdn.alpinelinux.org/alpine`"),
            })?,
            release: value(text, &table.release, |word| Ok::<_, String>(word.to_string()))?,
            digest: value(text, &table.sha256, |digits| format!("sha256:{digits}").parse::<Digest>())?,
            tier: value(text, &table.tier, |word| word.parse::<GoldenTier>())?,
        })
    }
}

/// The golden root's settings from this machine's files; the user's override the operator's.
pub fn golden() -> Result<GoldenSettings, SandboxError> {
    let layers = above(&ConfigPaths::real(), &mut Vec::new())?;
    let of = |layer: &Option<Settings>| layer.as_ref().map(|layer| layer.golden.clone()).unwrap_or_default();
    let (operator, user) = (of(&layers.operator), of(&layers.user));
    // A digest belongs to its release.
    let (release, digest) = match user.release {
        Some(release) => (Some(release), user.digest),
        None => (operator.release, user.digest.or(operator.digest)),
    };
    Ok(GoldenSettings {
        mirror: user.mirror.or(operator.mirror),
        release,
        digest,
        tier: user.tier.or(operator.tier),
    })
}
