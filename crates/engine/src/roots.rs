//! What a sandbox's `/` is made of, made ready: found or fetched, and held for as long as the sandbox lives. How it is mounted is
//! the backend's business.

use crate::golden::{self, BuildOptions, Golden};
use crate::persistent;
use crate::wait::wait;
use belljar_backend::{Isolation, RootTree, image_root, root_directory};
use belljar_config as config;
use belljar_images::{Lease, Silent, Store};
use belljar_spec::{
    Assurance, BackendName, ErrorCode, ImageName, Root, SandboxError, SandboxSpec, Term, hint,
};
use belljar_state::Lock;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A root that is ready. While this value lives, nothing that it is made of is removed.
#[derive(Default)]
pub(crate) struct PreparedRoot {
    tree: Option<RootTree>,
    _image: Option<Lease>,
    _golden: Option<golden::Held>,
    /// Two sandboxes cannot change the same root.
    _changes: Option<Lock>,
}

impl PreparedRoot {
    /// One that is held elsewhere.
    pub(crate) fn of(tree: RootTree) -> PreparedRoot {
        PreparedRoot { tree: Some(tree), ..PreparedRoot::default() }
    }
}

/// Makes the root of a sandbox ready.
pub(crate) fn prepare(
    spec: &SandboxSpec,
    backend: BackendName,
    state: impl Fn() -> Result<PathBuf, SandboxError>,
) -> Result<PreparedRoot, SandboxError> {
    match (&spec.root, backend) {
        (Root::Host, _) => return Ok(PreparedRoot::default()),
        (Root::Image(image), BackendName::Docker(_)) => {
            let tree = image_root(image, &state()?.join("docker"))?;
            return Ok(PreparedRoot::of(tree));
        }
        (Root::Golden | Root::Directory(_), BackendName::Docker(_)) => {
            let message = format!("Docker's containers cannot have the root `{}`", spec.root);
            return Err(ErrorCode::NotSupported.error(message).hint(hint!(
                "use {}, or {} with an image that Docker has",
                Term::Backend.to("native"),
                Term::Rootfs.to("oci:IMAGE")
            )));
        }
        // Said when it is planned, and nothing is fetched for it.
        _ if !backend.assurance().is_at_least(Assurance::Namespace) => return Ok(PreparedRoot::default()),
        (Root::Golden | Root::Image(_) | Root::Directory(_), _) => {}
    }
    let persistent = persistent::root_of(spec);
    let changes = persistent.as_ref().map(|persistent| held(&persistent.join("lock"))).transpose()?;
    let mut root = match &spec.root {
        Root::Host => PreparedRoot::default(),
        Root::Directory(path) => {
            PreparedRoot::of(RootTree { lowers: vec![path.clone()], ..RootTree::default() })
        }
        Root::Image(name) => image(name, &state()?, persistent.as_deref())?,
        Root::Golden => {
            let options = BuildOptions::configured()?;
            let held = Golden::new(&state()?)?.hold(persistent.as_deref(), &options, &|_| {})?;
            let tree = RootTree { lowers: held.lowers.clone(), ..RootTree::default() };
            PreparedRoot { tree: Some(tree), _golden: Some(held), ..PreparedRoot::default() }
        }
    };
    if let Some(tree) = &mut root.tree {
        tree.persistent = persistent.map(|persistent| persistent.join("changes"));
    }
    root._changes = changes;
    Ok(root)
}

/// An image of our own store. A sandbox that keeps what it changes gets the same one in all its lives, whatever its tag means by
/// then.
fn image(name: &ImageName, state: &Path, owner: Option<&Path>) -> Result<PreparedRoot, SandboxError> {
    let store = Store::open(&state.join("images"))?;
    let pinned = owner.map(|owner| store.pinned(owner)).transpose()?.flatten();
    let image = match pinned.filter(|image| image.name == *name) {
        Some(image) => image,
        None => {
            let found = store.find(name)?;
            let image = match found {
                Some(image) => image,
                None => {
                    let how = config::pull_options()?;
                    wait(async || Ok(store.ensure(name, &how, Arc::new(Silent)).await?))?
                }
            };
            if let Some(owner) = owner {
                image.pin(owner)?;
            }
            image
        }
    };
    let environment = image.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let tree = RootTree { lowers: image.lowers, environment, ..RootTree::default() };
    Ok(PreparedRoot { tree: Some(tree), _image: Some(image.lease), ..PreparedRoot::default() })
}

/// The root, if it may be what it is.
pub(crate) fn understand(
    spec: &SandboxSpec,
    root: &PreparedRoot,
    isolation: Isolation,
    own: &[PathBuf],
) -> Result<Option<RootTree>, SandboxError> {
    if spec.root != Root::Host && isolation != Isolation::Own {
        let message =
            format!("without namespaces there is no other root than the host's, and not `{}`", spec.root);
        return Err(ErrorCode::NotSupported.error(message).hint(hint!(
            "omit {} and {}, or use {}",
            Term::Rootfs,
            Term::Rootfs.to("oci:IMAGE"),
            Term::Backend.to("native")
        )));
    }
    let mut tree = root.tree.clone();
    if let (Root::Directory(path), Some(tree)) = (&spec.root, &mut tree) {
        let real = root_directory(path, own)?;
        // One that is kept has the directory that was allowed when it was made.
        if spec.persistent.is_some() && real != *path {
            let message =
                format!("the path `{}` leads over a link that was not there before", path.display());
            return Err(ErrorCode::PathMoved
                .error(message)
                .hint("put back what was there, or delete the sandbox and make it anew"));
        }
        tree.lowers = vec![real];
    } else if let Some(tree) = &mut tree {
        // Belljar's own: a link on the way to them is the host's, and a backend follows none.
        for directory in tree.lowers.iter_mut().chain(&mut tree.persistent) {
            *directory = directory.canonicalize().map_err(|error| {
                let message =
                    format!("the root's directory `{}` cannot be opened: {error}", directory.display());
                ErrorCode::ImageFailed.error(message).caused_by(error)
            })?;
        }
    }
    Ok(tree)
}

fn held(path: &Path) -> Result<Lock, SandboxError> {
    let failed = |error: std::io::Error| {
        ErrorCode::StateFailed
            .error(format!("`{}` cannot be locked: {error}", path.display()))
            .caused_by(error)
    };
    Lock::try_now(path).map_err(failed)?.ok_or_else(|| {
        let message = "another sandbox changes this root, and two cannot at the same time";
        ErrorCode::InUse.error(message).hint("end the other one first")
    })
}
