//! What registries say there is of a program: npm's shortened answer, and the tags of a git repository.
//!
//! Answers are read here and not believed further than needed: what is no version is left out, since what comes of it ends up
//! in a build.

use super::versions::Published;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use semver::Version;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// What is asked of npm's registry about a package, so that its answer is a tenth as long.
pub(super) const NPM_ACCEPT: &str = "application/vnd.npm.install-v1+json";

/// Where a registry tells of a package: the `/` in its name is part of the name.
pub(super) fn npm_address(registry: &str, package: &str) -> String {
    format!("{}/{}", registry.trim_end_matches('/'), package.replace('/', "%2f"))
}

/// What npm's registry answered.
pub(super) fn npm(package: &str, answer: &[u8]) -> Result<Published, SandboxError> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "dist-tags", default)]
        tags: BTreeMap<String, String>,
        #[serde(default)]
        versions: BTreeMap<String, IgnoredAny>,
    }
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| {
        ErrorCode::RegistryFailed
            .error(format!("what the registry says of `{package}` is not valid: {error}"))
            .hint(hint!("see what answers at the address of {}", CommandLine::NpmRegistry))
            .caused_by(error)
    })?;
    let versions = answer.versions.keys().filter_map(|version| Version::parse(version).ok()).collect();
    Ok(Published { tags: answer.tags, versions })
}

/// Where a git repository lists its tags over HTTP.
pub(super) fn git_address(repository: &str) -> String {
    format!(
        "{}.git/info/refs?service=git-upload-pack",
        repository.trim_end_matches('/').trim_end_matches(".git")
    )
}

/// What a repository of git answered: packet lines, each with its length in front. The newest is the highest that is final.
pub(super) fn git(repository: &str, answer: &[u8]) -> Result<Published, SandboxError> {
    let no_sense = || {
        ErrorCode::RegistryFailed
            .error(format!("`{repository}` does not answer as a git repository does"))
            .hint("write an exact version, which needs no registry")
    };
    let mut versions = Vec::new();
    let mut rest = answer;
    while !rest.is_empty() {
        let length = rest.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
        let length = length.and_then(|digits| usize::from_str_radix(digits, 16).ok()).ok_or_else(no_sense)?;
        // Below that they are marks without a line.
        let taken = length.max(4);
        let line = rest.get(4..taken).ok_or_else(no_sense)?;
        rest = &rest[taken..];
        let line = String::from_utf8_lossy(line);
        if let Some((_, tag)) = line.trim_end().split_once(" refs/tags/") {
            // `^{}` is what a tag leads to; the tag itself was there before.
            versions.extend(Version::parse(tag.trim_start_matches('v')).ok());
        }
    }
    let newest = versions.iter().filter(|version| version.pre.is_empty()).max();
    let tags = newest.map(|newest| ("latest".to_string(), newest.to_string())).into_iter().collect();
    Ok(Published { tags, versions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_package_is_one_step_of_its_address() {
        assert_eq!(
            npm_address("http://localhost:4873/", "@openai/codex"),
            "http://localhost:4873/@openai%2fcodex"
        );
        assert_eq!(
            npm_address("https://registry.npmjs.org", "opencode-ai"),
            "https://registry.npmjs.org/opencode-ai"
        );
    }

    #[test]
    fn what_npm_answers_is_read_and_what_is_no_version_left_out() {
        let answer = br#"{"name":"x","dist-tags":{"latest":"1.2.3"},"modified":"now",
            "versions":{"1.2.3":{"dist":{"tarball":"http://x"}},"1.0.0":{},"$(id)":{}}}"#;
        let published = npm("x", answer).unwrap();
        assert_eq!(published.tags["latest"], "1.2.3");
        assert_eq!(published.versions, ["1.0.0".parse().unwrap(), "1.2.3".parse().unwrap()]);
        assert_eq!(npm("x", b"<html>").unwrap_err().code, ErrorCode::RegistryFailed);
    }

    #[test]
    fn the_tags_of_a_repository_are_its_versions() {
        let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
        let id = "0123456789012345678901234567890123456789";
        let answer = [
            line("# service=git-upload-pack\n"),
            "0000".into(),
            line(&format!("{id} HEAD\0multi_ack side-band-64k\n")),
            line(&format!("{id} refs/heads/main\n")),
            line(&format!("{id} refs/tags/0.9.0\n")),
            line(&format!("{id} refs/tags/0.18.2\n")),
            line(&format!("{id} refs/tags/0.18.2^{{}}\n")),
            line(&format!("{id} refs/tags/0.19.0-rc.1\n")),
            line(&format!("{id} refs/tags/nightly\n")),
            "0000".into(),
        ]
        .concat();
        let published = git("it", answer.as_bytes()).unwrap();
        assert_eq!(published.tags["latest"], "0.18.2");
        assert_eq!(published.versions.len(), 3);
        for broken in [&b"<html>"[..], b"00", b"ffff"] {
            assert_eq!(git("it", broken).unwrap_err().code, ErrorCode::RegistryFailed);
        }
        assert_eq!(
            git_address("https://github.com/x/y/"),
            "https://github.com/x/y.git/info/refs?service=git-upload-pack"
        );
    }
}
