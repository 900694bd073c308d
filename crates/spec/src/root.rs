//! What a sandbox's `/` is made of.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the root filesystem comes from. Whatever it is, nothing inside changes it: changes go to a layer of the sandbox's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Root {
    /// The host's own system directories, read-only.
    #[default]
    Host,
    /// The Alpine system that belljar keeps.
    Golden,
    /// An image: of belljar's store, or with the backend `docker` one of Docker's.
    Image(ImageName),
    /// A directory of the host that holds a whole system.
    Directory(PathBuf),
}

/// Not a root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    #[error("`{0}` is no root: use host, golden, oci:IMAGE or the absolute path of a directory")]
    Unknown(String),
    #[error(transparent)]
    Image(#[from] ImageNameError),
}

impl FromStr for Root {
    type Err = RootError;

    fn from_str(text: &str) -> Result<Root, RootError> {
        match text {
            "host" => Ok(Root::Host),
            "golden" => Ok(Root::Golden),
            path if path.starts_with('/') => Ok(Root::Directory(path.into())),
            other => match other.strip_prefix("oci:") {
                Some(image) => Ok(Root::Image(image.parse()?)),
                None => Err(RootError::Unknown(other.to_string())),
            },
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Root::Host => f.write_str("host"),
            Root::Golden => f.write_str("golden"),
            Root::Image(image) => write!(f, "oci:{image}"),
            Root::Directory(path) => write!(f, "{}", path.display()),
        }
    }
}

crate::text::serde_as_text!(Root);

/// An image, by digest or by a tag that was written out: `alpine:3.22`, `ghcr.io/owner/name@sha256:…`. An implied tag would be
/// a version that the user did not choose.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageName {
    registry: Option<String>,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// Not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    #[error(
        "`{0}` is not the name of an image: it is like `alpine:3.22` or `registry.example.com/owner/name@sha256:…`"
    )]
    Malformed(String),
    #[error(
        "the image `{0}` says neither a digest nor a tag: write `{0}@sha256:…`, or `{0}:latest` if it may change under you"
    )]
    Floating(String),
}

impl ImageName {
    /// The registry's host and port, if it was written.
    pub fn registry(&self) -> Option<&str> {
        self.registry.as_deref()
    }

    /// The name within the registry, as it was written.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if it was written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// `sha256:` and 64 digits, if it was written.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }
}

impl FromStr for ImageName {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<ImageName, ImageNameError> {
        let malformed = || ImageNameError::Malformed(text.to_string());
        if text.len() > MAX_IMAGE_NAME_BYTES {
            return Err(malformed());
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (Some(first), rest),
            _ => (None, rest),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        let is_valid = registry.is_none_or(is_registry)
            && repository.split('/').all(is_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !is_valid {
            return Err(malformed());
        }
        if tag.is_none() && digest.is_none() {
            return Err(ImageNameError::Floating(text.to_string()));
        }
        let owned = |part: Option<&str>| part.map(str::to_string);
        let (registry, tag, digest) = (owned(registry), owned(tag), owned(digest));
        Ok(ImageName { registry, repository: repository.to_string(), tag, digest })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(registry) = &self.registry {
            write!(f, "{registry}/")?;
        }
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_host = !host.is_empty()
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        && !host.starts_with(['.', '-']);
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// Lower case, digits, and separators between them: the OCI distribution specification.
fn is_component(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|c| is_plain(c) || matches!(c, '.' | '_' | '-'))
        && !text.contains("..")
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128
        && text.starts_with(is_word)
        && text.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

const MAX_IMAGE_NAME_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_by_digest_or_by_a_tag_that_was_written() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, registry, repository) in [
            ("alpine:3.22".to_string(), None, "alpine"),
            (format!("alpine@{digest}"), None, "alpine"),
            (format!("127.0.0.1:5000/a/b:1@{digest}"), Some("127.0.0.1:5000"), "a/b"),
            ("localhost/x:latest".to_string(), Some("localhost"), "x"),
            ("ghcr.io/owner/my-image_2:v1.0-rc".to_string(), Some("ghcr.io"), "owner/my-image_2"),
        ] {
            let image: ImageName = text.parse().unwrap();
            assert_eq!((image.registry(), image.repository()), (registry, repository), "{text}");
            assert_eq!(image.to_string(), text);
        }
        assert!(matches!("alpine".parse::<ImageName>(), Err(ImageNameError::Floating(_))));
        for text in [
            "",
            ":x",
            "@",
            "Alpine:3",
            "a//b:1",
            "../x:1",
            "a/../b:1",
            "x:",
            "x:-a",
            "x@sha256:12",
            "-a.b/x:1",
            "x y:1",
            "a.b:99999/x:1",
            "x:a:b",
        ] {
            assert!(matches!(text.parse::<ImageName>(), Err(ImageNameError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn a_root_has_one_spelling() {
        for text in ["host", "golden", "oci:alpine:3.22", "/srv/root"] {
            assert_eq!(text.parse::<Root>().unwrap().to_string(), text);
        }
        for text in ["", "alpine:3.22", "srv/root", "oci:", "oci:alpine"] {
            assert!(text.parse::<Root>().is_err(), "{text}");
        }
    }
}
