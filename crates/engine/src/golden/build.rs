//! Makes the golden root: fetched, verified, unpacked, and furnished with packages inside a sandbox that reaches the mirror and
//! nothing else.

use super::golden_dir::{Build, GoldenDir};
use super::release::Release;
use super::{BuildOptions, BuildProgress};
use belljar_backend::RootTree;
use belljar_images::{Downloader, Limits, unpack};
use belljar_spec::egress::EgressPolicy;
use belljar_spec::egress::HostName;
use belljar_spec::{
    Admin, BackendChoice, BackendName, Command, CommandLine, ErrorCode, GoldenTier, LimitsRequest, Root,
    SandboxError, SandboxSpec, hint,
};
use belljar_state::new_id;
use belljar_sys::rustix::system::uname;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Makes one, whole, at a path that is not in use yet. The caller holds the lock.
pub(super) async fn build(
    place: &GoldenDir,
    options: &BuildOptions,
    progress: &dyn Fn(BuildProgress<'_>),
) -> Result<Build, SandboxError> {
    let machine = uname();
    let release = Release::choose(
        machine.machine().to_str().unwrap_or_default(),
        options.release.as_deref(),
        options.digest.as_ref(),
    )?;
    let mirror = Mirror::understand(options).await?;
    let archive = fetch(place, &release, &mirror, progress).await?;
    let unfinished = place.unfinished(new_id()?)?;
    progress(BuildProgress::Unpacking);
    let base = unfinished.base();
    make(&base)?;
    let size = fs::metadata(&archive).map_err(failed(&archive))?.len();
    let file = File::open(&archive).map_err(failed(&archive))?;
    unpack(file, size, &base, &Limits::default()).map_err(|error| {
        ErrorCode::ImageRefused
            .error(format!("the archive {} is refused: {error}", release.file()))
            .caused_by(error)
    })?;
    repositories(&base, &release, &mirror)?;
    for directory in ["upper", "work"] {
        make(&unfinished.changes().join(directory))?;
    }
    install(place, &unfinished, options, &mirror, progress).await?;
    progress(BuildProgress::Checking);
    check(place, &unfinished, options.tier).await?;
    let build = unfinished.finish(&release.version, options.tier)?;
    let _ = fs::remove_file(&archive);
    Ok(build)
}

/// Where everything comes from.
struct Mirror {
    /// Without a slash at the end.
    url: String,
    /// What a sandbox may reach: this and nothing else.
    policy: EgressPolicy,
    downloader: Downloader,
}

impl Mirror {
    async fn understand(options: &BuildOptions) -> Result<Mirror, SandboxError> {
        let url = options.mirror.trim_end_matches('/').to_string();
        let unusable = |why: String| {
            ErrorCode::RequestValue
                .error(format!("`{url}` cannot be a mirror: {why}"))
                .hint("it is like `https://dl-cdn.alpinelinux.org/alpine`")
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| unusable("it is no address".into()))?;
        let usual = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(unusable("it has neither http nor https".into())),
        };
        let server = rest.split('/').next().unwrap_or_default();
        if rest.contains(['@', '?', '#', '\n', ' ']) {
            return Err(unusable("it has more than a server and a path".into()));
        }
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) => {
                (host, port.parse::<u16>().map_err(|_| unusable("its port is none".into()))?)
            }
            None => (server, usual),
        };
        // A sandbox dials names.
        let name: HostName =
            host.parse().map_err(|_| unusable(format!("`{host}` is not the name of a server")))?;
        let mut policy = EgressPolicy {
            allow: Vec::new(),
            deny: Vec::new(),
            host_ports: Vec::new(),
            inspect: false,
            ..options.network.clone()
        };
        policy.mode = belljar_spec::egress::Mode::Strict;
        let protocol = if scheme == "https" { "tls" } else { "http" };
        let rule = format!("={name}:{port}/{protocol}");
        policy.allow = vec![rule.parse().map_err(|error| unusable(format!("{error}")))?];
        let addresses = if policy.resolvers.is_empty() {
            Vec::new()
        } else {
            let found = crate::resolve(&policy, &name).await.map_err(|error| {
                ErrorCode::RegistryFailed.error(format!("the name `{name}` leads nowhere: {error}"))
            })?;
            found.into_iter().map(|address| SocketAddr::new(address, port)).collect()
        };
        let downloader = Downloader::new(&url, &addresses)?;
        Ok(Mirror { url, policy, downloader })
    }
}

/// The archive, which has the digest that is known of it.
async fn fetch(
    place: &GoldenDir,
    release: &Release,
    mirror: &Mirror,
    progress: &dyn Fn(BuildProgress<'_>),
) -> Result<std::path::PathBuf, SandboxError> {
    let directory = format!("{}/{}", mirror.url, release.directory());
    let listing = mirror.downloader.document(&format!("{directory}/latest-releases.yaml"), LISTING).await?;
    if let Some(newer) = release.compare(&String::from_utf8_lossy(&listing))? {
        progress(BuildProgress::Other(&newer));
    }
    let archive = place.download(&release.file())?;
    mirror
        .downloader
        .file(&format!("{directory}/{}", release.file()), &release.digest, ARCHIVE, &archive, &|have, of| {
            progress(BuildProgress::Fetched(have, of))
        })
        .await?;
    Ok(archive)
}

/// Where packages come from: the same mirror. Their signatures are checked by apk, with the keys of the archive.
fn repositories(base: &Path, release: &Release, mirror: &Mirror) -> Result<(), SandboxError> {
    let directory = base.join("etc/apk");
    fs::create_dir_all(&directory).map_err(failed(&directory))?;
    let file = directory.join("repositories");
    let branch = release.branch();
    let lines = ["main", "community"].map(|part| format!("{}/{branch}/{part}\n", mirror.url));
    let _ = fs::remove_file(&file);
    fs::write(&file, lines.concat()).map_err(failed(&file))
}

async fn install(
    place: &GoldenDir,
    build: &Build,
    options: &BuildOptions,
    mirror: &Mirror,
    progress: &dyn Fn(BuildProgress<'_>),
) -> Result<(), SandboxError> {
    let packages = options.tier.packages();
    progress(BuildProgress::Installing(&packages));
    let words = ["apk", "add", "--no-cache", "--no-progress"].into_iter().chain(packages.iter().copied());
    let tree =
        RootTree { lowers: vec![build.base()], persistent: Some(build.changes()), ..RootTree::default() };
    run(place, tree, Admin::Root, Some(&mirror.policy), words, INSTALLING).await.map(drop).map_err(|error| {
        ErrorCode::ImageFailed
            .error(format!("the packages could not be installed: {error}"))
            .hint(hint!(
                "does the mirror have them? {} makes a root without",
                CommandLine::GoldenBuild.of("--tier base")
            ))
            .caused_by(error)
    })
}

/// What is there must also run.
async fn check(place: &GoldenDir, build: &Build, tier: GoldenTier) -> Result<(), SandboxError> {
    for words in checks(tier) {
        let tree = RootTree { lowers: build.lowers(), ..RootTree::default() };
        run(place, tree, Admin::No, None, words.iter().copied(), CHECKING).await.map_err(|error| {
            let message = format!("the new root does not work: `{}`: {error}", words.join(" "));
            ErrorCode::ImageFailed.error(message).caused_by(error)
        })?;
    }
    Ok(())
}

/// Commands that must run in it.
fn checks(tier: GoldenTier) -> Vec<Vec<&'static str>> {
    let mut checks = vec![vec!["/bin/sh", "-c", "test -e /etc/alpine-release"]];
    if tier >= GoldenTier::Small {
        checks.extend([vec!["bash", "--version"], vec!["python3", "--version"], vec!["git", "--version"]]);
    }
    if tier >= GoldenTier::Full {
        checks.push(vec!["node", "--version"]);
    }
    checks
}

/// Runs a command in a sandbox whose root is this, and gives what it wrote.
async fn run<'w>(
    place: &GoldenDir,
    tree: RootTree,
    admin: Admin,
    policy: Option<&EgressPolicy>,
    words: impl Iterator<Item = &'w str>,
    most: Duration,
) -> Result<Vec<u8>, SandboxError> {
    let spec = SandboxSpec {
        backend: BackendChoice::Named(BackendName::Native),
        root: Root::Golden,
        admin,
        egress: policy.cloned(),
        limits: LimitsRequest { timeout: Some(most), ..LimitsRequest::default() },
        ..SandboxSpec::default()
    };
    let command = Command::new(words)
        .map_err(|error| ErrorCode::ImageFailed.error(error.to_string()).caused_by(error))?;
    let sandbox = place.engine().with_root(tree).create(spec).await?;
    let result = sandbox.exec(&command).await;
    sandbox.dispose().await;
    let result = result?;
    match result.exit_code {
        Some(0) => Ok(result.stdout),
        code => {
            let configured = String::from_utf8_lossy(&result.stderr).into_owned()
                + &String::from_utf8_lossy(&result.stdout);
            let last: Vec<&str> = configured.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = last[last.len().saturating_sub(3)..].join("; ");
            let how = match (code, result.timed_out) {
                (_, true) => format!("it took longer than {} s", most.as_secs()),
                (Some(code), _) => format!("it ended with {code}"),
                (None, _) => "it was killed".into(),
            };
            Err(ErrorCode::ImageFailed.error(format!("{how}: {last}")))
        }
    }
}

fn make(directory: &Path) -> Result<(), SandboxError> {
    fs::create_dir_all(directory).map_err(failed(directory))?;
    // What all users inside see as `/`.
    fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .map_err(failed(directory))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> SandboxError {
    super::golden_dir::failed(path)
}

/// A listing has a few kilobytes.
const LISTING: u64 = 256 << 10;
/// An archive has a few megabytes.
const ARCHIVE: u64 = 256 << 20;
const INSTALLING: Duration = Duration::from_secs(15 * 60);
const CHECKING: Duration = Duration::from_secs(60);
