//! `belljar images golden`: the Alpine system that sandboxes can have as their root.

use super::print;
use crate::args::{GoldenBuildArgs, GoldenCommand, GoldenStatusArgs};
use belljar_engine::{BuildOptions, BuildProgress, Golden, GoldenStatus};
use belljar_spec::{ErrorCode, SandboxError};
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) fn golden(command: GoldenCommand) -> Result<u8, SandboxError> {
    match command {
        GoldenCommand::Build(options) => build(options, false),
        GoldenCommand::Rebuild(options) => build(options, true),
        GoldenCommand::Status(options) => status(&options),
        GoldenCommand::Rm => {
            match opened()?.remove()? {
                0 => eprintln!("belljar: the golden root is removed"),
                left => eprintln!(
                    "belljar: no new sandbox gets it; {left} still in use, gone with their sandboxes"
                ),
            }
            Ok(0)
        }
    }
}

/// Builds it if it is not there.
pub(super) fn make_ready() -> Result<(), SandboxError> {
    let golden = opened()?;
    if golden.status().is_none() {
        eprintln!("belljar: the golden root is not there yet: building it, once");
        golden.build(&BuildOptions::configured()?, false, &tell())?;
    }
    Ok(())
}

fn build(words: GoldenBuildArgs, anew: bool) -> Result<u8, SandboxError> {
    let GoldenBuildArgs { mirror, tier, release, sha256 } = words;
    let mut options = BuildOptions::configured()?;
    options.mirror = mirror.unwrap_or(options.mirror);
    options.tier = tier.unwrap_or(options.tier);
    if let Some(release) = release {
        // A digest that files say is one of another release.
        (options.release, options.digest) = (Some(release), None);
    }
    if let Some(digits) = sha256 {
        let digits = digits.trim().to_ascii_lowercase();
        let digest = format!("sha256:{}", digits.trim_start_matches("sha256:")).parse();
        options.digest = Some(digest.map_err(|_| {
            ErrorCode::RequestValue.error(format!("`{digits}` is no digest: it has 64 digits"))
        })?);
    }
    let golden = opened()?;
    let before = golden.status();
    let built = golden.build(&options, anew, &tell())?;
    match before {
        Some(before) if before == built => eprintln!("belljar: it is there already ({})", words_of(&built)),
        _ => eprintln!("belljar: built ({}); `belljar run --root golden` uses it", words_of(&built)),
    }
    Ok(0)
}

fn status(options: &GoldenStatusArgs) -> Result<u8, SandboxError> {
    let status = opened()?.status();
    if options.json {
        let mut json = serde_json::json!({ "golden": status }).to_string();
        json.push('\n');
        return print(json.as_bytes());
    }
    match status {
        Some(status) => print(format!("{}\n", words_of(&status)).as_bytes()),
        None => print(b"there is none; `belljar images golden build` makes it\n"),
    }
}

fn words_of(status: &GoldenStatus) -> String {
    format!("Alpine {}, {}, {}", status.release, status.tier.as_str(), status.build)
}

fn opened() -> Result<Golden, SandboxError> {
    let state = belljar_state::state_directory().map_err(|error| {
        ErrorCode::StateFailed
            .error(format!("the golden root cannot be kept: {error}"))
            .hint(error.hint())
            .caused_by(error)
    })?;
    Golden::new(&state)
}

/// Shows progress: a line a step, and a bar at a terminal.
fn tell() -> impl Fn(BuildProgress<'_>) + Sync {
    let is_watched = stderr().is_terminal();
    let last = AtomicU64::new(u64::MAX);
    move |progress| match progress {
        BuildProgress::Waiting => eprintln!("belljar: another process is building it: waiting"),
        BuildProgress::Other(newer) => {
            eprintln!("belljar: the mirror's newest release is {newer}; taking the one with a known digest")
        }
        BuildProgress::Fetched(have, of) => {
            if is_watched && let Some(of) = of.filter(|of| *of > 0) {
                let percent = have.min(of) * 100 / of;
                if last.swap(percent, Ordering::Relaxed) != percent {
                    let bar = "#".repeat(percent as usize / 4);
                    let ending = if percent == 100 { "\n" } else { "" };
                    let _ = write!(stderr(), "\rbelljar: fetching Alpine [{bar:<25}] {percent:>3} %{ending}");
                }
            }
        }
        BuildProgress::Unpacking => eprintln!("belljar: unpacking"),
        BuildProgress::Installing(packages) => eprintln!("belljar: installing {}", packages.join(" ")),
        BuildProgress::Checking => eprintln!("belljar: trying it"),
    }
}
