//! Which Alpine: the release that belljar comes with, and what is known of it from elsewhere than the server it is downloaded from.

use belljar_images::Digest;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, Term, hint};

/// A minirootfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Release {
    /// `3.24.1`
    pub(super) version: String,
    /// As Alpine calls the machine.
    pub(super) arch: &'static str,
    pub(super) digest: Digest,
}

impl Release {
    /// The release that was named, or the one that belljar comes with; `digest` is what the user learned of it elsewhere.
    pub(super) fn choose(
        machine: &str,
        version: Option<&str>,
        digest: Option<&Digest>,
    ) -> Result<Release, SandboxError> {
        let Some((_, arch)) = MACHINES.iter().find(|(name, _)| *name == machine) else {
            let message = format!("there is no Alpine for this machine, `{machine}`");
            return Err(ErrorCode::NotSupported
                .error(message)
                .hint(hint!("use the host's own system, or an image: {}", Term::Rootfs.to("oci:IMAGE"))));
        };
        let version = version.unwrap_or(VERSION);
        if !is_version(version) {
            let message = format!("`{version}` is no release of Alpine: it is like `{VERSION}`");
            return Err(ErrorCode::RequestValue.error(message));
        }
        let pinned = PINNED.iter().find(|(known, of, _)| (*known, *of) == (version, *arch));
        let pinned = pinned.map(|(_, _, digits)| {
            format!("sha256:{digits}").parse::<Digest>().expect("the table holds digests")
        });
        match (digest.cloned().or(pinned.clone()), pinned) {
            (Some(digest), None) => Ok(Release { version: version.into(), arch, digest }),
            (Some(digest), Some(pinned)) if digest == pinned => {
                Ok(Release { version: version.into(), arch, digest })
            }
            (Some(_), Some(pinned)) => {
                let message =
                    format!("Alpine {version} for {arch} has another digest, as belljar knows it: {pinned}");
                Err(ErrorCode::RequestValue.error(message))
            }
            (None, _) => {
                let message = format!(
                    "belljar does not know the digest of Alpine {version} for {arch}, and would have to believe the server"
                );
                Err(ErrorCode::RequestValue.error(message).hint(hint!(
                    "look it up elsewhere and name it: {}",
                    CommandLine::GoldenBuild.of(format!("--release {version} --sha256 DIGEST"))
                )))
            }
        }
    }

    /// `v3.24`
    pub(super) fn branch(&self) -> String {
        let (branch, _) = self.version.rsplit_once('.').unwrap_or((&self.version, ""));
        format!("v{branch}")
    }

    pub(super) fn file(&self) -> String {
        format!("alpine-minirootfs-{}-{}.tar.gz", self.version, self.arch)
    }

    /// Where it is below a mirror.
    pub(super) fn directory(&self) -> String {
        format!("{}/releases/{}", self.branch(), self.arch)
    }

    /// Holds what the mirror says of its newest release against what is known. Gives that one's version if it is another.
    pub(super) fn compare(&self, listing: &str) -> Result<Option<String>, SandboxError> {
        let listed = Listed::read(listing)?;
        if listed.version != self.version {
            return Ok(Some(listed.version));
        }
        if listed.file != self.file() || format!("sha256:{}", listed.sha256) != self.digest.to_string() {
            let message = format!(
                "the mirror says that {} has the digest {}, and belljar knows {}",
                listed.file, listed.sha256, self.digest
            );
            return Err(ErrorCode::ImageRefused
                .error(message)
                .hint("use another mirror, and tell the people of this one"));
        }
        Ok(None)
    }
}

/// The minirootfs in a listing of releases.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    version: String,
    file: String,
    sha256: String,
}

impl Listed {
    /// Reads `latest-releases.yaml`: a list of plain keys and values, in which texts of several lines are passed over. Anything
    /// else is refused.
    fn read(text: &str) -> Result<Listed, SandboxError> {
        let refused = |why: String| {
            ErrorCode::ImageRefused
                .error(format!("the mirror's list of releases is not valid: {why}"))
                .hint("is this a mirror of Alpine?")
        };
        let mut releases: Vec<Vec<(&str, &str)>> = Vec::new();
        let mut block: Option<usize> = None;
        for (number, line) in text.lines().enumerate() {
            let depth = line.len() - line.trim_start_matches(' ').len();
            let content = line.trim();
            // Lines of a text lie deeper than its key.
            if block.is_some_and(|key| depth > key || content.is_empty()) {
                continue;
            }
            block = None;
            if content.is_empty() || content == "---" || content.starts_with('#') {
                continue;
            }
            let content = match content.strip_prefix('-') {
                Some(rest) if rest.is_empty() || rest.starts_with(' ') => {
                    releases.push(Vec::new());
                    rest.trim()
                }
                _ => content,
            };
            if content.is_empty() {
                continue;
            }
            let (key, value) =
                content.split_once(':').ok_or_else(|| refused(format!("line {}", number + 1)))?;
            if value.trim() == "|" {
                block = Some(depth);
                continue;
            }
            let release = releases.last_mut().ok_or_else(|| refused(format!("line {}", number + 1)))?;
            release.push((key.trim(), value.trim().trim_matches('"')));
        }
        let value = |release: &[(&str, &str)], key: &str| -> Result<String, SandboxError> {
            let mut found = release.iter().filter(|(name, _)| *name == key).map(|(_, value)| *value);
            match (found.next(), found.next()) {
                (Some(value), None) => Ok(value.to_string()),
                (None, _) => Err(refused(format!("a release has no `{key}`"))),
                (Some(_), Some(_)) => Err(refused(format!("a release has two `{key}`"))),
            }
        };
        let mut roots = releases.iter().filter(|release| release.contains(&("flavor", FLAVOR)));
        let (Some(release), None) = (roots.next(), roots.next()) else {
            return Err(refused(format!("it has not one `{FLAVOR}`")));
        };
        let listed = Listed {
            version: value(release, "version")?,
            file: value(release, "file")?,
            sha256: value(release, "sha256")?,
        };
        let is_digest =
            listed.sha256.len() == 64 && listed.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        match is_version(&listed.version) && is_digest && !listed.file.contains('/') {
            true => Ok(listed),
            false => Err(refused("its version, file or digest is none".into())),
        }
    }
}

/// `3.24.1`
fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.len() < 4 && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The release that belljar comes with.
pub const VERSION: &str = "3.24.1";
/// Digests that do not come from the server that the files do: several people wrote them down independently.
const PINNED: [(&str, &str, &str); 2] = [
    ("3.24.1", "x86_64", "41f73e3cf5fa919b8aa5ca6b30dc48f0da2720776d7423e2a7748211456fe081"),
    ("3.24.1", "aarch64", "f55a90f69052c5bd6f92cb09a8f47065970830b194c917a006fb94028e721259"),
];
/// What the kernel calls a machine, and what Alpine does: those that belljar runs on (docs/decisions/0032-two-architectures.md).
const MACHINES: [(&str, &str); 4] =
    [("x86_64", "x86_64"), ("amd64", "x86_64"), ("aarch64", "aarch64"), ("arm64", "aarch64")];
const FLAVOR: &str = "alpine-minirootfs";

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "41f73e3cf5fa919b8aa5ca6b30dc48f0da2720776d7423e2a7748211456fe081";

    fn listing(version: &str, digits: &str) -> String {
        format!(
            "---\n-\n  title: \"Standard\"\n  desc: |\n    version: of nothing\n\n    flavor: alpine-minirootfs\n  flavor: alpine-standard\n  \
             version: 9.9.9\n-\n  title: \"Mini root filesystem\"\n  desc: |\n    Minimal.\n  branch: v3.24\n  arch: x86_64\n  \
             version: {version}\n  flavor: alpine-minirootfs\n  file: alpine-minirootfs-{version}-x86_64.tar.gz\n  time: 10:28:29\n  \
             sha256: {digits}\n"
        )
    }

    #[test]
    fn a_release_is_believed_only_with_a_digest_from_elsewhere() {
        let release = Release::choose("amd64", None, None).unwrap();
        assert_eq!((release.branch().as_str(), release.arch), ("v3.24", "x86_64"));
        assert_eq!(release.file(), "alpine-minirootfs-3.24.1-x86_64.tar.gz");
        let other: Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        let code = |machine, version, digest| Release::choose(machine, version, digest).unwrap_err().code;
        assert_eq!(code("mips", None, None), ErrorCode::NotSupported);
        assert_eq!(code("i686", None, None), ErrorCode::NotSupported);
        assert_eq!(code("x86_64", Some("3.24.0"), None), ErrorCode::RequestValue);
        assert_eq!(code("x86_64", None, Some(&other)), ErrorCode::RequestValue);
        assert_eq!(code("x86_64", Some("../3.24"), Some(&other)), ErrorCode::RequestValue);
        assert_eq!(Release::choose("arm64", Some("3.24.0"), Some(&other)).unwrap().arch, "aarch64");
    }

    #[test]
    fn what_the_mirror_says_is_held_against_what_is_known() {
        let release = Release::choose("x86_64", None, None).unwrap();
        assert_eq!(release.compare(&listing("3.24.1", DIGITS)), Ok(None));
        assert_eq!(release.compare(&listing("3.24.2", DIGITS)), Ok(Some("3.24.2".into())));
        let code = |text: &str| release.compare(text).unwrap_err().code;
        assert_eq!(code(&listing("3.24.1", &"0".repeat(64))), ErrorCode::ImageRefused);
        for text in [
            "",
            "<html>",
            "- flavor: alpine-minirootfs\n",
            &listing("3.24", DIGITS),
            &listing("3.24.1", "zz"),
            &format!("{0}{0}", listing("3.24.1", DIGITS)),
            &listing("3.24.1", &format!("{DIGITS}\n  sha256: {DIGITS}")),
        ] {
            assert_eq!(code(text), ErrorCode::ImageRefused, "{text}");
        }
    }
}
