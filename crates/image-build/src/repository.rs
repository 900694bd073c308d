//! The image of a repository: what its `.belljar/Dockerfile` makes of the base.

use super::base::BASE;
use super::context::Context;
use super::daemon_build::{self, Ended, Files, How, Job, OnEvent};
use super::dockerfile::starts_from;
use aws_lc_rs::digest::{SHA256, digest};
use belljar_docker::Daemon;
use belljar_spec::{CommandLine, ErrorCode, ImageName, SandboxError, hint};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What an image of a repository is made by, within it.
pub const DOCKERFILE: &str = ".belljar/Dockerfile";
/// One to begin with, for a repository that has none.
pub const TEMPLATE: &str = include_str!("repository/Dockerfile");

/// Which image is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryRequest {
    /// Without links on the way.
    pub folder: PathBuf,
    /// Which base: `belljar-base:TAG`.
    pub base: ImageName,
    pub how: How,
}

/// What comes of a repository.
#[derive(Debug)]
pub enum Planned {
    /// It has no Dockerfile: the base is its image.
    Base(ImageName),
    Own(Box<RepositoryPlan>),
}

/// An image that is ready to be built.
#[derive(Debug)]
pub struct RepositoryPlan {
    pub image: ImageName,
    pub base: ImageName,
    folder: PathBuf,
    context: Context,
    starts_from: Vec<String>,
    how: How,
}

impl RepositoryRequest {
    /// Looks at the folder. Nothing of it is sent anywhere yet.
    pub fn plan(&self) -> Result<Planned, SandboxError> {
        let context = Context::of(&self.folder, &[DOCKERFILE, super::context::IGNORE_FILE])?;
        let Some(text) = context.text(DOCKERFILE, MAX_DOCKERFILE_BYTES)? else {
            return Ok(Planned::Base(self.base.clone()));
        };
        let tag = self.base.tag().unwrap_or("latest");
        Ok(Planned::Own(Box::new(RepositoryPlan {
            image: image_of(&self.folder, tag)?,
            base: self.base.clone(),
            folder: self.folder.clone(),
            context,
            starts_from: starts_from(&text, tag),
            how: self.how.clone(),
        })))
    }
}

impl RepositoryPlan {
    /// How many bytes are sent to the daemon.
    pub fn bytes(&self) -> u64 {
        self.context.bytes()
    }

    /// Builds it.
    pub fn build(&self, daemon: &Daemon, on_event: OnEvent<'_>) -> Result<Ended, SandboxError> {
        self.need_bases(daemon)?;
        let tag = self.base.tag().unwrap_or("latest");
        let job = Job {
            image: &self.image.to_string(),
            dockerfile: DOCKERFILE,
            files: Files::Folder(&self.context),
            arguments: BTreeMap::from([("BASE_IMAGE_TAG", tag.to_string())]),
            labels: BTreeMap::from([
                ("belljar.image", "repository".to_string()),
                ("belljar.base", self.base.to_string()),
                ("belljar.folder", self.folder.display().to_string()),
            ]),
            how: &self.how,
        };
        daemon_build::build(daemon, &job, on_event)
    }

    /// What the image says that belljar does not follow.
    pub fn unheeded(&self, daemon: &Daemon) -> Result<Vec<String>, SandboxError> {
        let config = |image: &ImageName| {
            daemon_build::inspect(daemon, &image.to_string())
                .map(|found| found.and_then(|found| found.config))
        };
        let Some(own) = config(&self.image)? else { return Ok(Vec::new()) };
        let of_base = config(&self.base)?.and_then(|base| base.entrypoint);
        let mut all = Vec::new();
        if own.entrypoint != of_base && own.entrypoint.is_some_and(|words| !words.is_empty()) {
            all.push(
                "its ENTRYPOINT is not run: the first process of a sandbox is belljar's own".to_string(),
            );
        }
        let user = own.user.unwrap_or_default();
        let user = user.split(':').next().unwrap_or_default();
        if !matches!(user, "agent" | "1000") {
            let user = if user.is_empty() { "root" } else { user };
            all.push(format!(
                "its USER `{user}` counts only while it is built: commands run as `agent`, whose number is 1000"
            ));
        }
        Ok(all)
    }

    /// A base of ours that is missing is not looked for in a registry, where that name belongs to another owner.
    fn need_bases(&self, daemon: &Daemon) -> Result<(), SandboxError> {
        for image in &self.starts_from {
            let is_ours =
                image == BASE || image.strip_prefix(BASE).is_some_and(|rest| rest.starts_with([':', '@']));
            if is_ours && daemon_build::inspect(daemon, image)?.is_none() {
                let tag = image.split_once(':').map_or("latest", |(_, tag)| tag);
                let message = format!("the image `{image}`, which `{DOCKERFILE}` starts from, is not here");
                return Err(ErrorCode::ImageMissing
                    .error(message)
                    .hint(hint!("make it: {}", CommandLine::BuildBase.of(format!("--tag {tag}")))));
            }
        }
        Ok(())
    }
}

/// Whether the daemon has an image.
pub fn is_here(daemon: &Daemon, image: &ImageName) -> Result<bool, SandboxError> {
    Ok(daemon_build::inspect(daemon, &image.to_string())?.is_some())
}

/// What the image of a folder is called: the same for the same folder, and another for any other.
pub fn image_of(folder: &Path, base_tag: &str) -> Result<ImageName, SandboxError> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut plain = String::new();
    for letter in name.chars().map(|letter| letter.to_ascii_lowercase()).take(MAX_NAME_BYTES) {
        match letter {
            'a'..='z' | '0'..='9' => plain.push(letter),
            // Two in a row would not be a name of Docker's.
            _ if plain.is_empty() || plain.ends_with('-') => {}
            _ => plain.push('-'),
        }
    }
    let plain = match plain.trim_end_matches('-') {
        "" => "folder",
        plain => plain,
    };
    let hash = digest(&SHA256, folder.as_os_str().as_bytes());
    let hash: String = hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("belljar-{plain}-{hash}:{base_tag}");
    name.parse().map_err(|error| ErrorCode::RequestValue.error(format!("{error}")).caused_by(error))
}

/// No Dockerfile is longer.
const MAX_DOCKERFILE_BYTES: u64 = 1 << 20;
const MAX_NAME_BYTES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_a_folder_has_one_name() {
        let name = |path: &str| image_of(Path::new(path), "v1").unwrap().to_string();
        assert_eq!(name("/home/ann/web"), "belljar-web-f0177f751386:v1");
        assert_ne!(name("/home/ann/web"), name("/home/bob/web"));
        for (path, beginning) in [
            ("/x/My Project!", "belljar-my-project-"),
            ("/x/...", "belljar-folder-"),
            ("/", "belljar-folder-"),
            ("/x/größe", "belljar-gr-e-"),
            ("/x/a--b__c", "belljar-a-b-c-"),
        ] {
            let name = name(path);
            assert!(name.starts_with(beginning) && name.len() == beginning.len() + 15, "{path}: {name}");
        }
        assert!(name(&format!("/{}", "x".repeat(200))).len() < 80);
    }

    #[test]
    fn the_template_starts_from_the_base() {
        assert_eq!(starts_from(TEMPLATE, "v1"), ["belljar-base:v1"]);
    }
}
