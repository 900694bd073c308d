//! What holds for a sandbox's pushes to git hosts.

use belljar_gateway::Pushes;
use belljar_spec::SandboxSpec;
use belljar_spec::git::RefPolicy;
use belljar_spec::secret::SecretSource;
use belljar_workspace::pack_judge::PackJudge;
use std::path::Path;
use std::sync::Arc;

/// As the caller said, or as it is when nobody says anything. Pushes are kept below belljar's state while they are looked
/// at, or beside the records where there is none.
pub(crate) fn pushes(spec: &SandboxSpec, records: &Path) -> Pushes {
    let state = belljar_audit::state_directory().unwrap_or_else(|_| records.to_path_buf());
    let judge = PackJudge::new(state.join("pushes"));
    Pushes::new(spec.pushes.clone().unwrap_or_else(|| unsaid(spec)), Arc::new(judge))
}

/// A token that belljar holds for GitHub can do what nobody asked an agent to do: change what GitHub runs, with secrets of
/// its own.
fn unsaid(spec: &SandboxSpec) -> RefPolicy {
    let of_github = spec.credentials.iter().any(|credential| {
        let places = &credential.places;
        let at =
            |name: &str| name.parse().is_ok_and(|name| places.iter().any(|place| place.is_at(&name, 443)));
        credential.source == SecretSource::GitHubApp || at("github.com")
    });
    RefPolicy { workflows: !(of_github || spec.github.is_some()), ..RefPolicy::for_hosts() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflow_files_stay_as_they_are_where_a_token_of_ours_is_used() {
        let plain = SandboxSpec::default();
        assert!(unsaid(&plain).workflows);
        assert!(!unsaid(&plain).allows_branch(&"main".parse().unwrap()));
    }
}
