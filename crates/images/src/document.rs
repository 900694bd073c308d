//! Manifests, indexes and configurations, as far as they matter here: the OCI image specification and Docker's schema 2.

use crate::digest::Digest;
use crate::error::ImageError;
use crate::limits::{Limits, MOUNTED};
use crate::platform::Platform;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes somewhere, by their digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    #[serde(rename = "mediaType", default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// What a name stands for: one image, or one for each kind of machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    Manifest(Manifest),
    Index(Vec<Descriptor>),
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    /// The lowest first.
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct AsWritten {
    #[serde(rename = "schemaVersion", default)]
    schema_version: u32,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Document {
    pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Document, ImageError> {
        let written: AsWritten = serde_json::from_slice(bytes)
            .map_err(|error| ImageError::Document { what: "manifest", why: error.to_string() })?;
        let refused = |why: &str| ImageError::Document { what: "manifest", why: why.into() };
        if written.schema_version != 2 {
            return Err(refused("it is of a version that is no longer used"));
        }
        match written {
            // One that could be read as either is neither.
            AsWritten { config: Some(_), manifests: Some(_), .. } => {
                Err(refused("it is a manifest and an index at once"))
            }
            AsWritten { manifests: Some(manifests), .. } => Ok(Document::Index(manifests)),
            AsWritten { config: Some(config), layers: Some(layers), .. } => {
                let manifest = Manifest { config, layers };
                manifest.check(limits)?;
                Ok(Document::Manifest(manifest))
            }
            _ => Err(refused("it names no layers")),
        }
    }
}

impl Manifest {
    fn check(&self, limits: &Limits) -> Result<(), ImageError> {
        let refused = |why: String| ImageError::Document { what: "manifest", why };
        if self.layers.is_empty() {
            return Err(refused("it has no layers".into()));
        }
        if self.layers.len() > limits.layers {
            return Err(refused(format!("it has more than {} layers", limits.layers)));
        }
        let mut packed: u64 = 0;
        for layer in &self.layers {
            packed = packed.saturating_add(layer.size);
            if !is_layer(&layer.media_type) {
                return Err(refused(format!("{:?} is no layer of an image", layer.media_type)));
            }
        }
        if packed > limits.image_bytes {
            return Err(refused(format!("its layers have more than {} bytes", limits.image_bytes)));
        }
        Ok(())
    }
}

/// Layers that are archives, packed or not. Those that a registry may not give away come from elsewhere, and are not taken.
fn is_layer(media_type: &str) -> bool {
    let base = media_type.split(['+', ';']).next().unwrap_or_default();
    matches!(
        base,
        "" | "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip"
            | "application/vnd.docker.image.rootfs.diff.tar"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd"
    ) && !media_type.contains("encrypted")
}

/// What an image says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ImageConfig {
    #[serde(flatten)]
    pub(crate) platform: Option<Platform>,
    #[serde(default)]
    pub(crate) config: Option<RunConfig>,
    #[serde(default)]
    pub(crate) rootfs: Option<RootFs>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunConfig {
    #[serde(rename = "User", default)]
    pub(crate) user: Option<String>,
    #[serde(rename = "Env", default)]
    pub(crate) env: Option<Vec<String>>,
    #[serde(rename = "WorkingDir", default)]
    pub(crate) working_dir: Option<String>,
    #[serde(rename = "Entrypoint", default)]
    pub(crate) entrypoint: Option<Vec<String>>,
    #[serde(rename = "Cmd", default)]
    pub(crate) cmd: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct RootFs {
    /// Of each layer's archive, the lowest first.
    #[serde(default)]
    pub(crate) diff_ids: Vec<Digest>,
}

impl ImageConfig {
    pub(crate) fn parse(bytes: &[u8]) -> Result<ImageConfig, ImageError> {
        serde_json::from_slice(bytes)
            .map_err(|error| ImageError::Document { what: "configuration", why: error.to_string() })
    }

    /// What each layer's archive must be, for so many layers.
    pub(crate) fn diff_ids(&self, layers: usize) -> Result<&[Digest], ImageError> {
        let refused = |why: &str| ImageError::Document { what: "configuration", why: why.into() };
        let ids = self.rootfs.as_ref().map(|rootfs| rootfs.diff_ids.as_slice()).unwrap_or_default();
        if ids.len() != layers {
            return Err(refused("it does not name the manifest's layers"));
        }
        // Before anything of them is fetched. One that comes twice is mounted once, and an empty one not at all.
        let empty = Digest::of(&[0; 1024]);
        let mounted = ids.iter().filter(|id| **id != empty).collect::<BTreeSet<_>>().len();
        if mounted > MOUNTED {
            return Err(refused(&format!("it has {mounted} layers, and {MOUNTED} can lie over each other")));
        }
        Ok(ids)
    }
}

impl RunConfig {
    /// Variables that a program can be given. What has no name or a zero in it is none.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let pairs = self.env.iter().flatten().filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    /// The entry point and then the command.
    pub(crate) fn command(&self) -> Vec<String> {
        self.entrypoint.iter().flatten().chain(self.cmd.iter().flatten()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(layers: usize, media_type: &str) -> String {
        let digest = Digest::of(b"x");
        let layer = format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":10}}"#);
        let layers = vec![layer; layers].join(",");
        format!(r#"{{"schemaVersion":2,"config":{{"digest":"{digest}","size":1}},"layers":[{layers}]}}"#)
    }

    #[test]
    fn a_manifest_is_one_thing_and_bounded() {
        let limits = Limits { layers: 3, image_bytes: 25, ..Limits::default() };
        let parse = |text: &str| Document::parse(text.as_bytes(), &limits);
        let layer = "application/vnd.oci.image.layer.v1.tar+zstd";
        assert!(matches!(parse(&manifest(2, layer)), Ok(Document::Manifest(_))));
        for bad in [
            manifest(0, layer),
            manifest(3, layer),
            manifest(4, layer),
            manifest(1, "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"),
            manifest(1, "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"),
            manifest(1, layer).replace("\"schemaVersion\":2", "\"schemaVersion\":1"),
            manifest(1, layer).replace("\"config\"", "\"manifests\":[],\"config\""),
            manifest(1, layer).replace("sha256", "md5"),
            manifest(1, layer).replace("\"size\":10", "\"size\":-10"),
            "[".repeat(100_000),
            "{}".into(),
            String::new(),
        ] {
            assert!(parse(&bad).is_err(), "{}", &bad[..bad.len().min(100)]);
        }
    }
}
