//! What can go wrong with images.

use crate::digest::Digest;
use crate::disk::{self, Full};
use crate::unpack::UnpackError;
use belljar_spec::{CommandLine, ErrorCode, Hint, SandboxError, Term, hint};
use std::error::Error;
use std::io;
use std::path::PathBuf;

/// What can go wrong with images.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("cannot {step} `{}`", .path.display())]
    Store {
        step: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the store of images is in use: something is being pulled or imported")]
    Busy,
    #[error("the image `{0}` is not here")]
    Missing(String),
    #[error("the image `{0}` is not here whole: a layer of it is missing")]
    Damaged(String),
    #[error(
        "`{0}` is the name of an image that belljar builds: Docker has such images, and no registry does"
    )]
    Dockers(String),
    #[error("the registry `{registry}` has no image `{image}`")]
    NotFound { registry: String, image: String },
    #[error("the registry `{registry}` does not let us have `{image}`")]
    Unauthorized { registry: String, image: String },
    #[error("the registry `{registry}` cannot be reached: {why}")]
    Unreachable { registry: String, why: String },
    #[error("the registry `{registry}` answered {status}: {detail}")]
    Answer { registry: String, status: u16, detail: String },
    #[error("the registry `{registry}` sends us to `{to}`, which has no TLS")]
    Downgrade { registry: String, to: String },
    #[error("the mirror `{mirror}` has no `{file}`")]
    NoFile { mirror: String, file: String },
    #[error("the mirror `{mirror}` cannot be reached: {why}")]
    MirrorUnreachable { mirror: String, why: String },
    #[error("the mirror `{mirror}` answered {status} for `{file}`")]
    MirrorAnswer { mirror: String, status: u16, file: String },
    #[error("the mirror `{mirror}` sends a file too slowly: less than {least} bytes a second")]
    MirrorTooSlow { mirror: String, least: u64 },
    #[error("the image's {what} is refused: {why}")]
    Document { what: &'static str, why: String },
    #[error("the {what} is not what was asked for: it is {found}, and should be {expected}")]
    Mismatch { what: &'static str, expected: String, found: String },
    #[error("the image has no variant for this machine, {here}: there is {there}")]
    Platform { here: String, there: String },
    #[error("the layer {layer} is refused")]
    Layer {
        layer: Digest,
        #[source]
        source: UnpackError,
    },
    #[error("the image has more than {0} bytes")]
    TooLarge(u64),
    #[error("there is no room for the image: {0}")]
    NoSpace(Full),
    #[error("the registry `{registry}` sends a blob too slowly: less than {least} bytes a second")]
    TooSlow { registry: String, least: u64 },
    #[error("the store of images `{}` is not used: {why}", .path.display())]
    NotOurs { path: PathBuf, why: &'static str },
    #[error("`{}` is no archive of an image: {why}", .path.display())]
    Archive { path: PathBuf, why: String },
    #[error("`{}` cannot be used: {why}", .path.display())]
    Credentials { path: PathBuf, why: String },
}

impl ImageError {
    pub(crate) fn store(
        step: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> ImageError {
        let path = path.into();
        move |source| match disk::full(&source) {
            Some(full) => ImageError::NoSpace(full),
            None => ImageError::Store { step, path, source },
        }
    }

    fn code(&self) -> ErrorCode {
        match self {
            ImageError::Busy => ErrorCode::InUse,
            ImageError::Missing(_)
            | ImageError::Dockers(_)
            | ImageError::NotFound { .. }
            | ImageError::Platform { .. }
            | ImageError::Unauthorized { .. } => ErrorCode::ImageMissing,
            ImageError::NoFile { .. }
            | ImageError::Unreachable { .. }
            | ImageError::TooSlow { .. }
            | ImageError::Answer { .. }
            | ImageError::MirrorUnreachable { .. }
            | ImageError::MirrorTooSlow { .. }
            | ImageError::MirrorAnswer { .. } => ErrorCode::RegistryFailed,
            ImageError::Document { .. }
            | ImageError::Downgrade { .. }
            | ImageError::Mismatch { .. }
            | ImageError::Layer { .. }
            | ImageError::TooLarge(_) => ErrorCode::ImageRefused,
            ImageError::NotOurs { .. } => ErrorCode::PathRefused,
            ImageError::NoSpace(_) => ErrorCode::DiskFull,
            ImageError::Store { .. }
            | ImageError::Damaged(_)
            | ImageError::Archive { .. }
            | ImageError::Credentials { .. } => ErrorCode::ImageFailed,
        }
    }

    fn hint(&self) -> Option<Hint> {
        Some(match self {
            ImageError::Busy => "try again when it is done".into(),
            ImageError::Missing(name) => {
                hint!(
                    "{} gets it, {} takes it from a file",
                    CommandLine::ImagesPull.of(name), CommandLine::ImagesImport.of(name)
                )
            }
            ImageError::Dockers(name) => hint!(
                "{} starts it; or `docker save {} -o FILE` and {}",
                Term::Backend.to("docker"), name.to_string(), CommandLine::ImagesImport.of(name)
            ),
            ImageError::Damaged(name) => hint!("{} gets it again", CommandLine::ImagesPull.of(name)),
            ImageError::Unauthorized { registry, .. } => format!(
                "`docker login {registry}` writes ~/.docker/config.json; passwords that it keeps elsewhere are not read"
            ).into(),
            ImageError::Unreachable { .. } => {
                hint!(
                    "is it up, and its name right? a mirror can be named in the configuration: {}",
                    CommandLine::Help.of("topics images")
                )
            }
            ImageError::NoFile { .. } | ImageError::MirrorUnreachable { .. } => {
                hint!("is it up, and its address right? another mirror: {}", CommandLine::Mirror.of("URL"))
            }
            ImageError::MirrorTooSlow { .. } => {
                hint!(
                    "try again later, and it continues from here; another mirror: {}",
                    CommandLine::Mirror.of("URL")
                )
            }
            ImageError::Downgrade { to, .. } => {
                format!(
                    "if `{to}` is yours and may be spoken to in the clear, name it in `images.plain_http`"
                ).into()
            }
            ImageError::NoSpace(_) => hint!("{} removes unused images", CommandLine::ImagesGc),
            ImageError::TooSlow { .. } => {
                hint!(
                    "try again later; a mirror can be named in the configuration: {}",
                    CommandLine::Help.of("topics images")
                )
            }
            ImageError::NotOurs { .. } => {
                "is XDG_STATE_HOME, or the state that was named, a folder of yours?".into()
            }
            ImageError::NotFound { .. } => {
                "check the name and the tag; a repository that is not public looks like this without `docker login`"
                    .into()
            }
            ImageError::Platform { .. } => {
                "take a tag or digest that is made for this machine, or build one here".into()
            }
            ImageError::Answer { .. } | ImageError::MirrorAnswer { .. } => {
                "it is the other side that fails: try again later, or name another mirror".into()
            }
            ImageError::Mismatch { .. } => {
                "what came is not used; if the digest is right, the download is modified on the way".into()
            }
            ImageError::Document { .. } | ImageError::Layer { .. } | ImageError::TooLarge(_) => {
                hint!(
                    "{} says what an image may be; its valid layers are kept until {} removes them",
                    CommandLine::Help.of("topics images"),
                    CommandLine::ImagesGc
                )
            }
            ImageError::Archive { .. } => {
                "`docker save IMAGE -o FILE` and `skopeo copy` to `oci-archive:FILE` make such files".into()
            }
            ImageError::Credentials { .. } => "`docker login` writes it anew".into(),
            // A record of ours, by `files::read`.
            ImageError::Store { path, source, .. } if source.kind() == io::ErrorKind::InvalidData => format!(
                "`rm {}` helps: an image that it is about is pulled again, a stopped sandbox whose file it is has to be made anew",
                path.display()
            ).into(),
            ImageError::Store { .. } => return None,
        })
    }
}

impl From<ImageError> for SandboxError {
    fn from(error: ImageError) -> SandboxError {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        let converted = error.code().error(message);
        let converted = match error.hint() {
            Some(hint) => converted.hint(hint),
            None => converted,
        };
        converted.caused_by(error)
    }
}
