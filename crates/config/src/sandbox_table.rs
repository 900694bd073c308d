//! `[sandbox]` of a trusted repository: the needs of its sandboxes, besides egress. Only ports that are listed here or in a request
//! are opened; a volume belongs to the folder, even if other folders use the same name.

use crate::fault::at;
use crate::file::SandboxTable;
use crate::origin::At;
use crate::read::Text;
use belljar_spec::{EnvName, Root, SandboxError, VolumeName, VolumePath};
use std::fmt;
use toml::Spanned;

/// A repository's settings for its sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSettings {
    /// Ports of the sandbox that are published on the host.
    pub ports: Vec<u16>,
    /// Volumes, which outlive them, and their mount points.
    pub volumes: Vec<(VolumeName, VolumePath)>,
    pub env: Vec<(EnvName, String)>,
    /// What `/` is made of, if the request does not say.
    pub rootfs: Option<Root>,
    /// The profile that is used if none is named.
    pub profile: Option<At<String>>,
    /// A checkpoint is taken before each command of `belljar exec`.
    pub checkpoint: bool,
}

impl SandboxSettings {
    /// Is nothing set?
    pub fn is_empty(&self) -> bool {
        *self == SandboxSettings::default()
    }

    pub(crate) fn understand(text: &Text, table: &SandboxTable) -> Result<SandboxSettings, SandboxError> {
        let mut settings = SandboxSettings::default();
        for written in &table.ports {
            let port = value(text, written, |port| port_of(*port))?;
            if !settings.ports.contains(&port) {
                settings.ports.push(port);
            }
        }
        for (name, written) in &table.volumes {
            let name: VolumeName = value(text, written, |_| volume_name(name))?;
            let target: VolumePath = value(text, written, |path| path.parse())?;
            if settings.volumes.iter().any(|(_, known)| *known == target) {
                let what = format!("two volumes cannot both be at `{target}`");
                return Err(at(&text.place(written.span().start), what));
            }
            settings.volumes.push((name, target));
        }
        for (name, written) in &table.env {
            let name: EnvName = value(text, written, |_| name.parse())?;
            let text = value(text, written, |text| plain_value(text))?;
            settings.env.push((name, text));
        }
        settings.rootfs =
            table.rootfs.as_ref().map(|written| value(text, written, |word| root_of(word))).transpose()?;
        settings.profile = table
            .profile
            .as_ref()
            .map(|written| At { value: written.get_ref().clone(), place: text.place(written.span().start) });
        settings.checkpoint = table.checkpoint;
        Ok(settings)
    }
}

fn port_of(port: i64) -> Result<u16, String> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0).ok_or(port);
    port.map_err(|port| format!("`{port}` is not a port: write 1 to 65535"))
}

/// The user decides which host directories are mounted.
fn root_of(word: &str) -> Result<Root, String> {
    match word.parse() {
        Ok(Root::Directory(_)) => Err("a repository cannot name a directory of yours".into()),
        Ok(root) => Ok(root),
        Err(error) => Err(error.to_string()),
    }
}

/// Shorter than other names: a suffix that identifies the folder is added.
fn volume_name(name: &str) -> Result<VolumeName, String> {
    if name.len() > MAX_VOLUME_NAME_BYTES {
        return Err(format!("the name of a volume has {MAX_VOLUME_NAME_BYTES} letters at most here"));
    }
    name.parse().map_err(|error: belljar_spec::VolumeNameError| error.to_string())
}

/// The user decides which secrets a sandbox may use.
fn plain_value(text: &str) -> Result<String, &'static str> {
    match text {
        text if text.starts_with("secret:") => Err("a repository cannot name a secret of yours"),
        text if text.contains('\0') => Err("a variable cannot hold a zero byte"),
        text => Ok(text.to_string()),
    }
}

fn value<W, T, E: fmt::Display>(
    text: &Text,
    written: &Spanned<W>,
    parse: impl FnOnce(&W) -> Result<T, E>,
) -> Result<T, SandboxError> {
    parse(written.get_ref()).map_err(|error| at(&text.place(written.span().start), error))
}

const MAX_VOLUME_NAME_BYTES: usize = 48;
