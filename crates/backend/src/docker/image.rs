//! The image below a container, where that is the host's own root.
//!
//! The host's root is an image of our own with nothing in it but the links of the host's `/`: all the rest is mounted. It is
//! made when it is missing, once for a machine.

use crate::layout::Layout;
use belljar_docker::{Daemon, bollard, is_missing, refused};
use belljar_spec::{ErrorCode, SandboxError};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::TryStreamExt;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The image of the host's root.
pub(super) struct HostImage {
    /// Its name says what is in it.
    pub(super) name: String,
    tar: Vec<u8>,
}

impl HostImage {
    pub(super) fn of(layout: &Layout) -> HostImage {
        let links = layout.links.iter().filter(|(target, _)| !target.contains('/'));
        let mut tar: Vec<u8> = links.flat_map(|(target, to)| tar_link(target, to)).collect();
        tar.extend([0; 2 * BLOCK]);
        let digest: String = Sha1::digest(&tar).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        HostImage { name: format!("belljar/host-root:{digest}"), tar }
    }

    /// Its id, with a daemon that has it: by now, if not before.
    pub(super) fn have(&self, daemon: &Daemon) -> Result<String, SandboxError> {
        if let Some(id) = self.id(daemon)? {
            return Ok(id);
        }
        self.import(daemon)?;
        self.id(daemon)?.ok_or_else(|| {
            let message =
                format!("the Docker daemon made another image of `{}` than it was given", self.name);
            ErrorCode::StartFailed
                .error(message)
                .hint(format!("remove it (`docker image rm {}`), and try again", self.name))
        })
    }

    /// The id of the image of this name, if its content is ours: a user may have given the name to another image.
    fn id(&self, daemon: &Daemon) -> Result<Option<String>, SandboxError> {
        let found = match daemon.try_run(async |client| client.inspect_image(&self.name).await) {
            Err(error) if is_missing(&error) => return Ok(None),
            other => other.map_err(|error| refused("look at belljar's image of the host's root", &error))?,
        };
        let layers = found.root_fs.and_then(|root| root.layers).unwrap_or_default();
        let own: String = Sha256::digest(&self.tar).iter().map(|byte| format!("{byte:02x}")).collect();
        let has_no_volume = found.config.is_none_or(|config| config.volumes.unwrap_or_default().is_empty());
        Ok(found.id.filter(|_| layers == [format!("sha256:{own}")] && has_no_volume))
    }

    /// Gives it to the daemon.
    fn import(&self, daemon: &Daemon) -> Result<(), SandboxError> {
        let (repository, tag) = self.name.split_once(':').unwrap_or((&self.name, "latest"));
        let options = CreateImageOptionsBuilder::default()
            .from_src("-")
            .repo(repository)
            .tag(tag)
            .message("the links of a host's root, by belljar")
            .build();
        let body = bollard::body_full(self.tar.clone().into());
        daemon.run("take belljar's image of the host's root", async |client| {
            client.create_image(Some(options), Some(body), None).try_for_each(async |_| Ok(())).await
        })
    }
}

/// A link as an entry of an archive: ustar, of `pax(1)`.
fn tar_link(name: &str, to: &str) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(99)]);
    put(100, b"0000777\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, b"00000000000\0");
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"2");
    put(157, &to.as_bytes()[..to.len().min(99)]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

const BLOCK: usize = 512;
