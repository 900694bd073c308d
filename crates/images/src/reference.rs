//! Where an image is, from how it was named.

use crate::digest::Digest;
use belljar_spec::ImageName;
use std::fmt;

/// An image's full name: two spellings of one image are one of these.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// `docker.io`, `ghcr.io`, `127.0.0.1:5000`.
    pub registry: String,
    /// `library/alpine`.
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

impl Reference {
    /// With the usual defaults: without a registry it is Docker's, and there without an owner `library`'s.
    pub fn of(name: &ImageName) -> Reference {
        let written = name.registry().map(str::to_ascii_lowercase);
        let registry = match written.as_deref() {
            None | Some("index.docker.io" | "registry-1.docker.io") => HUB,
            Some(registry) => registry,
        };
        let repository = match name.repository() {
            alone if registry == HUB && !alone.contains('/') => format!("library/{alone}"),
            whole => whole.to_string(),
        };
        Reference {
            registry: registry.to_string(),
            repository,
            tag: name.tag().map(str::to_string),
            digest: name
                .digest()
                .map(|digest| digest.parse().expect("the digest of an image's name has the form of one")),
        }
    }

    /// What a registry is asked for: the digest, if there is one.
    pub(crate) fn tag_or_digest(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".into(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// As people call it. What serves it is another host.
pub(crate) const HUB: &str = "docker.io";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spellings_of_one_image_are_one() {
        for (name, full) in [
            ("alpine:3.22", "docker.io/library/alpine:3.22"),
            ("docker.io/alpine:3.22", "docker.io/library/alpine:3.22"),
            ("Docker.io/alpine:3.22", "docker.io/library/alpine:3.22"),
            ("Index.Docker.io/alpine:3.22", "docker.io/library/alpine:3.22"),
            ("index.docker.io/library/alpine:3.22", "docker.io/library/alpine:3.22"),
            ("owner/x:1", "docker.io/owner/x:1"),
            ("GHCR.io/x:1", "ghcr.io/x:1"),
            ("127.0.0.1:5000/x:1", "127.0.0.1:5000/x:1"),
        ] {
            assert_eq!(Reference::of(&name.parse().unwrap()).to_string(), full);
        }
    }
}
