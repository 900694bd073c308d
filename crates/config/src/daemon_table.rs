//! `[daemon]`: the daemon's settings, from the operator and the user.

use crate::fault::at;
use crate::file::DaemonTable;
use crate::layer::Settings;
use crate::load::above;
use crate::origin::{At, ConfigPaths};
use crate::read::Text;
use belljar_spec::{SandboxError, parse_age};
use std::net::SocketAddr;
use std::time::Duration;
use toml::Spanned;

/// A file's settings of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonSettings {
    /// How many sandboxes of each requested kind are started ahead.
    pub warm: Option<At<usize>>,
    /// The age from which logs, records and unused images are removed.
    pub retention: Option<At<Duration>>,
    /// Where E2B-compatible clients are served.
    pub e2b: Option<At<SocketAddr>>,
    /// The domain that they are served by name.
    pub e2b_domain: Option<At<String>>,
}

impl DaemonSettings {
    pub(crate) fn understand(text: &Text, table: &DaemonTable) -> Result<DaemonSettings, SandboxError> {
        Ok(DaemonSettings {
            warm: read(text, &table.warm, |count| {
                let count = usize::try_from(*count).ok().filter(|count| *count <= MAX_WARM);
                count.ok_or_else(|| format!("`warm` is from 0 to {MAX_WARM}"))
            })?,
            retention: read(text, &table.retention, |age| parse_age(age).and_then(old_enough))?,
            e2b: read(text, &table.e2b, |address: &String| {
                address
                    .parse()
                    .map_err(|_| "`e2b` is an address and a port, as in `127.0.0.1:3000`".to_string())
            })?,
            e2b_domain: read(text, &table.e2b_domain, |domain: &String| Ok(domain.clone()))?,
        })
    }
}

/// An age of zero would remove the log of a sandbox that ended a moment ago.
fn old_enough(age: Duration) -> Result<Duration, String> {
    Some(age).filter(|age| !age.is_zero()).ok_or_else(|| "`retention` is one hour (`1h`) or more".into())
}

fn read<W, T>(
    text: &Text,
    written: &Option<Spanned<W>>,
    parse: impl FnOnce(&W) -> Result<T, String>,
) -> Result<Option<At<T>>, SandboxError> {
    let Some(written) = written else { return Ok(None) };
    let place = text.place(written.span().start);
    match parse(written.get_ref()) {
        Ok(value) => Ok(Some(At { value, place })),
        Err(message) => Err(at(&place, message)),
    }
}

/// The daemon's settings from this machine's files; the user's override the operator's.
pub fn daemon() -> Result<DaemonSettings, SandboxError> {
    let layers = above(&ConfigPaths::real(), &mut Vec::new())?;
    let of = |layer: Option<Settings>| layer.map(|layer| layer.daemon).unwrap_or_default();
    let (operator, user) = (of(layers.operator), of(layers.user));
    Ok(DaemonSettings {
        warm: user.warm.or(operator.warm),
        retention: user.retention.or(operator.retention),
        e2b: user.e2b.or(operator.e2b),
        e2b_domain: user.e2b_domain.or(operator.e2b_domain),
    })
}

/// Each takes about a megabyte, and there may be sixteen kinds.
const MAX_WARM: usize = 64;
