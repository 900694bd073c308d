//! Loads files and flags, and makes one policy of them.

use crate::fault::{argument, shown};
use crate::flags::EgressFlags;
use crate::layer::{Layer, Settings};
use crate::llm::LlmLayers;
use crate::merge::{Layers, Origins};
use crate::origin::{At, ConfigPaths, Position};
use crate::profile_table::Profile;
use crate::read::{self, FILE, FOLDER};
use crate::request::UsersNetwork;
use crate::sandbox_table::SandboxSettings;
use crate::trust::{self, Standing};
use belljar_spec::egress::{EgressPolicy, RuleSource};
use belljar_spec::git::{PushRules, RefPattern};
use belljar_spec::request::EgressRequest;
use belljar_spec::secret::{Credential, Forwarded, GitHubGrant};
use belljar_spec::workspace::{HidePattern, ProtectedPath};
use belljar_spec::{CommandLine, ErrorCode, Hint, SandboxError, SandboxRequest, hint};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The merged settings of files and flags.
#[derive(Debug, Default)]
pub struct Loaded {
    /// `None` if neither a flag nor a file sets anything: the default is strict, with nothing allowed.
    pub policy: Option<EgressPolicy>,
    /// Notes for the user.
    pub notes: Vec<Note>,
    /// The origins of the policy's parts.
    pub origins: Origins,
    /// The files that counted.
    pub files: Vec<(Layer, Arc<str>)>,
    /// The secrets that the sandbox may use without holding them.
    pub credentials: Vec<Credential>,
    /// The permissions of its GitHub token.
    pub github: Option<GitHubGrant>,
    /// The secrets that it holds.
    pub forwarded: Vec<Forwarded>,
    pub(crate) layers: Layers,
    pub(crate) flags: EgressFlags,
    /// Their settings of the route to a model.
    pub llm: LlmLayers,
    /// The profile that a command line uses for settings it omits.
    pub profile: Option<ChosenProfile>,
}

/// The profile of the user's own sandboxes: the one that a trusted repository names, else the default one of the user's or the
/// operator's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenProfile {
    pub profile: Profile,
    /// The line that chose it.
    pub chosen_at: Position,
}

impl Loaded {
    /// The push rules of a run; `asked` are those requested for it.
    pub fn pushes(&self, requested: &[RefPattern]) -> PushRules {
        self.layers.pushes(requested)
    }

    /// Directories that repositories may borrow objects from.
    pub fn alternates(&self) -> Vec<PathBuf> {
        self.layers.alternates()
    }

    /// A trusted repository's settings for its sandboxes; `None` if there is none.
    pub fn sandbox(&self) -> SandboxSettings {
        self.layers.repository.as_ref().map(|repository| repository.sandbox.clone()).unwrap_or_default()
    }

    /// Directories of instructions for agents, in the order in which agents get them: the operator's, the user's, and the
    /// repository's own, if its file is trusted. They add up.
    pub fn agent_context(&self, workspace: Option<&Path>) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            self.layers.iter().filter_map(|layer| layer.agent_context.clone()).map(|at| at.value).collect();
        if let (Some(workspace), Some(_)) = (workspace, &self.layers.repository) {
            let is_own = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
            let folder = workspace.join(FOLDER);
            let context = folder.join(AGENT_CONTEXT);
            all.extend((is_own(&folder) && is_own(&context)).then_some(context));
        }
        all
    }

    /// Paths of a workspace that the sandbox may not change, besides the built-in ones; all layers add up.
    pub fn protected(&self) -> Vec<At<ProtectedPath>> {
        self.layers.iter().flat_map(|layer| layer.protect.iter().cloned()).collect()
    }

    /// Settings that may be changed inside, though they are protected by default. A repository can name none.
    pub fn unprotected(&self) -> Vec<At<ProtectedPath>> {
        self.layers.iter().flat_map(|layer| layer.unprotect.iter().cloned()).collect()
    }

    /// What of a workspace is hidden; all layers add up.
    pub fn hidden(&self) -> Vec<HidePattern> {
        self.layers.iter().flat_map(|layer| layer.hide.iter().map(|pattern| pattern.value.clone())).collect()
    }

    /// What of a workspace is seen with placeholders; all layers add up.
    pub fn placeholders(&self) -> Vec<HidePattern> {
        self.layers
            .iter()
            .flat_map(|layer| layer.placeholders.iter().map(|pattern| pattern.value.clone()))
            .collect()
    }

    /// Files that may be seen inside though they look like secrets. A repository can name none.
    pub fn visible(&self) -> Vec<HidePattern> {
        self.layers
            .iter()
            .flat_map(|layer| layer.visible.iter().map(|pattern| pattern.value.clone()))
            .collect()
    }
}

/// A note for the user that is not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A stable code for programs: `repository_untrusted`.
    pub code: &'static str,
    /// The message; lowercase, no full stop.
    pub message: String,
    /// The remedy.
    pub hint: Option<Hint>,
}

/// Loads this machine's files and `flags` for a workspace.
pub fn load(workspace: Option<&Path>, flags: EgressFlags) -> Result<Loaded, SandboxError> {
    load_from(&ConfigPaths::real(), workspace, flags)
}

/// The same, for a command line that takes omitted settings from a profile.
pub fn load_for_command(
    workspace: Option<&Path>,
    egress: EgressRequest,
    source: &RuleSource,
) -> Result<Loaded, SandboxError> {
    load_then(&ConfigPaths::real(), workspace, UsersNetwork::Applied, |profile| {
        let request = SandboxRequest { egress, ..SandboxRequest::default() };
        EgressFlags::of(&filled(request, profile).egress, source)
    })
}

/// The same, with files from elsewhere.
pub fn load_from(
    places: &ConfigPaths,
    workspace: Option<&Path>,
    flags: EgressFlags,
) -> Result<Loaded, SandboxError> {
    load_then(places, workspace, UsersNetwork::Applied, |_| flags)
}

/// A request, with omitted settings filled in from the profile.
pub(crate) fn filled(request: SandboxRequest, profile: Option<&ChosenProfile>) -> SandboxRequest {
    match profile {
        Some(chosen) => request.filled_from(&chosen.profile.base),
        None => request,
    }
}

/// The same. The flags may depend on the profile that the files name.
pub(crate) fn load_then(
    places: &ConfigPaths,
    workspace: Option<&Path>,
    users_network: UsersNetwork,
    flags: impl FnOnce(Option<&ChosenProfile>) -> EgressFlags,
) -> Result<Loaded, SandboxError> {
    let mut loaded = Loaded::default();
    let mut layers = above(places, &mut loaded.files)?;
    if let (UsersNetwork::Ignored, Some(user)) = (users_network, &mut layers.user) {
        user.private.clear();
        user.host_ports.clear();
    }
    let llm = |layer: &Option<Settings>| layer.as_ref().and_then(|layer| layer.llm.clone());
    loaded.llm = LlmLayers { operator: llm(&layers.operator), user: llm(&layers.user) };
    if let Some(workspace) = workspace {
        layers.repository = repository(places, workspace, &mut loaded)?;
    }
    loaded.profile = chosen_profile(&layers, &mut loaded.notes);
    let flags = flags(loaded.profile.as_ref());
    if !flags.is_empty() || !layers.iter().all(Settings::is_silent) {
        let (policy, origins) = layers.merge(&flags, &mut loaded.notes)?;
        loaded.policy = Some(policy);
        loaded.origins = origins;
    }
    (loaded.layers, loaded.flags) = (layers, flags);
    Ok(loaded)
}

/// Whether a file is valid for a layer. Other files are not read.
pub fn check(file: &Path, layer: Layer) -> Result<Settings, SandboxError> {
    Settings::understand(&read::named(layer, file)?)
}

/// The layers above the repository.
pub(crate) fn above(
    places: &ConfigPaths,
    files: &mut Vec<(Layer, Arc<str>)>,
) -> Result<Layers, SandboxError> {
    let mut understand = |text: Option<read::Text>| -> Result<Option<Settings>, SandboxError> {
        let Some(text) = text else { return Ok(None) };
        files.push((text.layer, text.name.clone()));
        Settings::understand(&text).map(Some)
    };
    Ok(Layers {
        operator: understand(read::operator(places)?)?,
        user: understand(read::user(places)?)?,
        repository: None,
    })
}

fn chosen_profile(layers: &Layers, notes: &mut Vec<Note>) -> Option<ChosenProfile> {
    let written = || [&layers.operator, &layers.user].into_iter().flatten().flat_map(|layer| &layer.profiles);
    let named = layers.repository.as_ref().and_then(|repository| repository.sandbox.profile.clone());
    if let Some(named) = named {
        if let Some(profile) = written().find(|profile| profile.name == named.value) {
            return Some(ChosenProfile { profile: profile.clone(), chosen_at: named.place });
        }
        notes.push(Note {
            code: "profile_not_yours",
            message: format!(
                "the profile `{}` ({}) is not applied: your files have none of that name",
                named.value, named.place
            ),
            hint: Some(
                "write it to your belljar.toml; a persistent sandbox knows built-in profiles as well".into(),
            ),
        });
    }
    // The user's, else the operator's.
    let default = |layer: &Option<Settings>| {
        layer.as_ref().and_then(|layer| layer.profiles.iter().find(|profile| profile.default).cloned())
    };
    let profile = default(&layers.user).or_else(|| default(&layers.operator))?;
    Some(ChosenProfile { chosen_at: profile.place.clone(), profile })
}

/// The repository's settings, if the user trusted exactly this content. Other content is no error: anyone can put it there, and a
/// run must not fail because of it.
fn repository(
    places: &ConfigPaths,
    workspace: &Path,
    loaded: &mut Loaded,
) -> Result<Option<Settings>, SandboxError> {
    let bytes = match read::repository(workspace) {
        Ok(None) => return Ok(None),
        Ok(Some(bytes)) => bytes,
        Err(why) => {
            loaded.notes.push(Note {
                code: "repository_unreadable",
                message: format!("`{FOLDER}/{FILE}` of the workspace was not applied: {why}"),
                hint: Some("replace it with a text file, or remove it".into()),
            });
            return Ok(None);
        }
    };
    let standing = trust::standing(places, workspace, &bytes);
    let (code, message) = match standing {
        Standing::Trusted => {
            let path = workspace.join(FOLDER).join(FILE);
            let text = read::repository_text(&path, bytes).map_err(|why| {
                ErrorCode::ConfigInvalid.error(format!("`{}` cannot be used: {why}", shown(&path)))
            })?;
            loaded.files.push((Layer::Repository, text.name.clone()));
            return Settings::understand(&text).map(Some);
        }
        Standing::Unknown => (
            "repository_untrusted",
            format!("`{FOLDER}/{FILE}` of the workspace was not applied: it is not trusted"),
        ),
        Standing::Changed => (
            "repository_changed",
            format!(
                "`{FOLDER}/{FILE}` of the workspace was not applied: it has changed since it was trusted"
            ),
        ),
    };
    loaded.notes.push(Note {
        code,
        message,
        hint: Some(hint!(
            "{} shows what it would allow, and asks",
            CommandLine::Trust.of(argument(workspace))
        )),
    });
    Ok(None)
}

/// Below the repository's [`FOLDER`].
const AGENT_CONTEXT: &str = "agent-context";
