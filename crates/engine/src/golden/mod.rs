//! The golden root: an Alpine system that belljar keeps, built once and shared by all sandboxes that want it. Each of them has a
//! layer of its own over it, so that a copy costs nothing.

mod build;
mod golden_dir;
mod release;

use crate::wait::wait;
use belljar_config::{self as config, EgressFlags, GoldenSettings};
use belljar_images::Digest;
use belljar_spec::egress::EgressPolicy;
use belljar_spec::{ErrorCode, GoldenTier, SandboxError};
use belljar_state::Lock;
use golden_dir::{Build, GoldenDir};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The release that is taken where none is named.
pub use release::VERSION as GOLDEN_RELEASE;

/// The golden root of a state directory.
pub struct Golden {
    place: GoldenDir,
}

/// How it is built.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Where everything comes from.
    pub mirror: String,
    /// Another release than the one that belljar comes with: `3.24.1`.
    pub release: Option<String>,
    /// The digest of its archive, learned elsewhere than from the mirror.
    pub digest: Option<Digest>,
    pub tier: GoldenTier,
    /// Which resolvers are asked for names, and which private ranges may be dialled. Its rules are not used: only the mirror is allowed.
    pub network: EgressPolicy,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            mirror: MIRROR.into(),
            release: None,
            digest: None,
            tier: GoldenTier::default(),
            network: EgressPolicy::strict(),
        }
    }
}

impl BuildOptions {
    /// As this machine's files and the variable BELLJAR_GOLDEN_MIRROR say.
    pub fn configured() -> Result<BuildOptions, SandboxError> {
        let GoldenSettings { mirror, release, digest, tier } = config::golden()?;
        let configured = std::env::var(MIRROR_VARIABLE).ok().filter(|mirror| !mirror.is_empty());
        let usual = BuildOptions::default();
        let policy = config::load(None, EgressFlags::default())?.policy;
        Ok(BuildOptions {
            mirror: configured.or(mirror).unwrap_or(usual.mirror),
            release,
            digest,
            tier: tier.unwrap_or(usual.tier),
            network: policy.unwrap_or(usual.network),
        })
    }
}

/// What is told while one is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildProgress<'t> {
    /// Another process builds one: we wait.
    Waiting,
    /// The mirror has another release.
    Other(&'t str),
    /// So much of the archive is here.
    Fetched(u64, Option<u64>),
    Unpacking,
    Installing(&'t [&'static str]),
    /// Whether it works is tried.
    Checking,
}

/// One that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GoldenStatus {
    pub build: String,
    pub release: String,
    pub tier: GoldenTier,
}

/// One that is in use: as long as it is held, it stays.
pub(crate) struct Held {
    pub(crate) lowers: Vec<PathBuf>,
    pub(crate) _lease: Lock,
}

impl Golden {
    /// Of this state directory.
    pub fn new(state: &Path) -> Result<Golden, SandboxError> {
        Ok(Golden { place: GoldenDir::new(state)? })
    }

    /// What is there.
    pub fn status(&self) -> Option<GoldenStatus> {
        self.place.current().and_then(|build| status(&build))
    }

    /// Builds one if there is none, or if it is to be a new one. Sandboxes that live keep theirs.
    pub fn build(
        &self,
        options: &BuildOptions,
        anew: bool,
        progress: &(dyn Fn(BuildProgress<'_>) + Sync),
    ) -> Result<GoldenStatus, SandboxError> {
        let gone =
            || ErrorCode::ChangedMeanwhile.error("the golden root was removed just now").hint("try again");
        if !anew && let Some(status) = self.status() {
            return Ok(status);
        }
        let before = self.status();
        let _lock = self.place.lock(&|| progress(BuildProgress::Waiting))?;
        // Another process may have been faster: then its build is new enough.
        let present = self.status();
        if let Some(status) = present.filter(|status| !anew || Some(status) != before.as_ref()) {
            return Ok(status);
        }
        // What was cut short goes first: the disk may be full of it.
        self.place.sweep();
        let build = wait(async || build::build(&self.place, options, progress).await)?;
        self.place.switch(&build)?;
        self.place.sweep();
        status(&build).ok_or_else(gone)
    }

    /// Removes it. Those that sandboxes use stay until they are gone; says how many.
    pub fn remove(&self) -> Result<usize, SandboxError> {
        let _lock = self.place.lock(&|| {})?;
        self.place.forget()?;
        Ok(self.place.sweep())
    }

    /// Pins for one owner what is pinned for another; whether there was such a pin.
    pub(crate) fn pin_like(&self, from: &Path, to: &Path) -> Result<bool, SandboxError> {
        match self.place.pinned(from)? {
            Some(build) => self.place.pin(&build, to).map(|()| true),
            None => Ok(false),
        }
    }

    /// The one for a sandbox, built if there is none. Where the sandbox keeps what it changes, it gets the same one in all its
    /// lives.
    pub(crate) fn hold(
        &self,
        owner: Option<&Path>,
        options: &BuildOptions,
        progress: &(dyn Fn(BuildProgress<'_>) + Sync),
    ) -> Result<Held, SandboxError> {
        let pinned = owner.map(|owner| self.place.pinned(owner)).transpose()?.flatten();
        for _ in 0..TRIES {
            let build = match pinned.clone().or_else(|| self.place.current()) {
                Some(build) => build,
                None => {
                    self.build(options, false, progress)?;
                    continue;
                }
            };
            let lease = build.lease();
            // It may have been removed before we had it.
            if let (Ok(lease), Some(_)) = (lease, build.about()) {
                if let Some(owner) = owner {
                    self.place.pin(&build, owner)?;
                }
                return Ok(Held { lowers: build.lowers(), _lease: lease });
            }
        }
        Err(ErrorCode::ChangedMeanwhile
            .error("the golden root was removed again and again")
            .hint("try again"))
    }
}

fn status(build: &Build) -> Option<GoldenStatus> {
    let about = build.about()?;
    Some(GoldenStatus { build: build.name(), release: about.release, tier: about.tier })
}

/// Says where to fetch from, for one run.
const MIRROR_VARIABLE: &str = "BELLJAR_GOLDEN_MIRROR";
/// Alpine's own.
pub const MIRROR: &str = "https://dl-cdn.alpinelinux.org/alpine";
const TRIES: u32 = 8;
