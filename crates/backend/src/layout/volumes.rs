//! What outlives a sandbox: directories that belljar keeps, writable inside, at places of their own. The engine, which
//! knows where they are kept, decides which directories may be one; that none of them holds belljar's own is judged here
//! once more.

use super::opened::{OpenedPaths, walk};
use super::{Bind, BindKind, BindOrigin, relative, text};
use belljar_spec::{ErrorCode, SandboxError, SandboxSpec, Volume};
use std::path::{Path, PathBuf};

/// The kept home.
pub(super) fn home(
    source: &Path,
    place: &str,
    own: &[PathBuf],
    opened: &mut OpenedPaths,
) -> Result<Bind, SandboxError> {
    bind(source, relative(place), own, opened)
}

/// The volumes, parents first.
pub(super) fn mounted(
    volumes: &[Volume],
    home: &str,
    own: &[PathBuf],
    before: &[Bind],
    opened: &mut OpenedPaths,
) -> Result<Vec<Bind>, SandboxError> {
    let mut binds = Vec::new();
    for Volume { source, target } in volumes {
        let bind = bind(source, relative(target.as_str()), own, opened)?;
        let covers = |other: &&Bind| {
            let (ours, theirs) = (Path::new(&bind.target), Path::new(&other.target));
            // A home is the one thing that a volume may lie in.
            theirs.starts_with(ours) || ours.starts_with(theirs) && other.target != relative(home)
        };
        if let Some(other) = before.iter().find(covers) {
            let message = format!("a volume cannot be at `{target}`: `/{}` is seen there", other.target);
            return Err(ErrorCode::PathRefused.error(message).hint("mount it below /volumes"));
        }
        binds.push(bind);
    }
    binds.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(binds)
}

/// Without isolation nothing can be seen elsewhere than where it is. A home is the workspace there, and need not be kept.
pub(super) fn refuse_without_isolation(spec: &SandboxSpec) -> Result<(), SandboxError> {
    let Some(volume) = spec.volumes.first() else { return Ok(()) };
    let message = format!("a volume cannot be mounted at `{}` without isolation", volume.target);
    Err(ErrorCode::NotSupported.error(message).hint("omit it, or use the backend `native`"))
}

fn bind(
    source: &Path,
    target: &str,
    own: &[PathBuf],
    opened: &mut OpenedPaths,
) -> Result<Bind, SandboxError> {
    let refused = |why: String| {
        ErrorCode::PathRefused.error(format!("`{}` cannot be a volume: {why}", source.display()))
    };
    let real = walk(source).real;
    let found = opened.open(&real).map_err(|errno| refused(errno.to_string()))?;
    if !found.is_directory() {
        return Err(refused("it is not a directory".into()));
    }
    if let Some(held) = own.iter().find(|own| holds(&real, own)) {
        return Err(refused(format!("it holds what belljar keeps to itself, at `{}`", held.display())));
    }
    text(&real)?;
    let (kind, origin) = (BindKind::ReadWrite, BindOrigin::Named);
    Ok(Bind { source: real, target: target.to_string(), kind, origin })
}

fn holds(volume: &Path, own: &Path) -> bool {
    own.ancestors().any(|part| part.canonicalize().is_ok_and(|part| part == volume))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(source: &Path, target: &str) -> Volume {
        Volume { source: source.into(), target: target.parse().unwrap() }
    }

    #[test]
    fn a_volume_holds_nothing_of_belljars_own_and_covers_nothing() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path().canonicalize().unwrap();
        let kept = state.join("fleet/volumes/cache");
        std::fs::create_dir_all(&kept).unwrap();
        let own = [state.clone(), state.join("audit")];
        let seen = |target: &str| Bind {
            source: "/x".into(),
            target: target.into(),
            kind: BindKind::ReadWrite,
            origin: BindOrigin::Named,
        };
        let mounted_at = |source: &Path, target: &str, before: &[Bind]| {
            mounted(&[volume(source, target)], "/home/agent", &own, before, &mut OpenedPaths::default())
                .map(|binds| binds[0].target.clone())
        };
        assert_eq!(mounted_at(&kept, "/volumes/a", &[]).unwrap(), "volumes/a");
        assert_eq!(
            mounted_at(&kept, "/home/agent/.cache", &[seen("home/agent")]).unwrap(),
            "home/agent/.cache"
        );
        for (source, target, before, code) in [
            (&state, "/volumes/a", vec![], ErrorCode::PathRefused),
            (&state.join("none"), "/volumes/a", vec![], ErrorCode::PathRefused),
            (&PathBuf::from("/"), "/volumes/a", vec![], ErrorCode::PathRefused),
            (&kept, "/data/a", vec![seen("data/a/b")], ErrorCode::PathRefused),
            (&kept, "/data/a/b", vec![seen("data/a")], ErrorCode::PathRefused),
            (&kept, "/data/a", vec![seen("data/a")], ErrorCode::PathRefused),
        ] {
            assert_eq!(mounted_at(source, target, &before).unwrap_err().code, code, "{target}");
        }
    }
}
