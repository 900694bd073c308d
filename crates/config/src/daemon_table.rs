//! `[daemon]`: the daemon's settings, from the operator and the user.

use crate::fault::at;
use crate::file::DaemonTable;
use crate::layer::Settings;
use crate::load::above;
use crate::origin::ConfigPaths;
use crate::read::Text;
use belljar_spec::SandboxError;

/// A file's settings of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DaemonSettings {
    /// How many sandboxes of each requested kind are started ahead.
    pub warm: Option<usize>,
}

impl DaemonSettings {
    pub(crate) fn understand(text: &Text, table: &DaemonTable) -> Result<DaemonSettings, SandboxError> {
        let Some(written) = &table.warm else { return Ok(DaemonSettings::default()) };
        let count = usize::try_from(*written.get_ref()).ok().filter(|count| *count <= MAX_WARM);
        let wrong = || at(&text.place(written.span().start), format!("`warm` is from 0 to {MAX_WARM}"));
        Ok(DaemonSettings { warm: Some(count.ok_or_else(wrong)?) })
    }
}

/// The daemon's settings from this machine's files; the user's override the operator's.
pub fn daemon() -> Result<DaemonSettings, SandboxError> {
    let layers = above(&ConfigPaths::real(), &mut Vec::new())?;
    let of = |layer: &Option<Settings>| layer.as_ref().map(|layer| layer.daemon).unwrap_or_default();
    Ok(DaemonSettings { warm: of(&layers.user).warm.or(of(&layers.operator).warm) })
}

/// Each takes about a megabyte, and there may be sixteen kinds.
const MAX_WARM: usize = 64;
