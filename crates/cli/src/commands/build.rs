//! `belljar images build-base` and `belljar images build`: images that Docker makes, for sandboxes of the docker backend.

mod screen;

use super::{block_on, print};
use crate::args::{BuildArgs, BuildBaseArgs, OwnImageArgs, SandboxOptions, workspace};
use crate::failure::UNSUCCESSFUL;
use belljar_image_build::{
    Authorities, BASE, BaseRequest, Built, DOCKERFILE, Daemon, Ended, Event, Failed, How, Planned,
    RepositoryPlan, RepositoryRequest, is_here,
};
use belljar_overlay::quote::visible;
use belljar_spec::{CommandLine, ErrorCode, ImageName, SandboxError, hint};
use screen::Screen;
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) fn build_base(options: BuildBaseArgs) -> Result<u8, SandboxError> {
    let BuildBaseArgs { tag, base, pull_from, pull, versions, how } = options;
    let request = BaseRequest {
        image: base_image(&tag)?,
        from: base,
        pull_from,
        npm_registry: versions.npm_registry,
        claude_code: versions.claude_code_version,
        codex: versions.codex_version,
        opencode: versions.opencode_version,
        ast_grep: versions.ast_grep_version,
        git_delta: versions.git_delta_version,
        git_delta_from: versions.git_delta_from,
        authorities: versions.ca.as_deref().map(Authorities::read).transpose()?,
        how: how.how(pull),
    };
    // Registries are asked for versions only if there is a Docker daemon to build with.
    let daemon = Daemon::connect()?;
    let mut screen = Screen::new(how.json);
    screen.say("looking up versions");
    let plan = block_on(request.settle())?;
    screen.say(&format!("{} from {}: {}", plan.image, plan.from, plan.shown_versions()));
    let mut output = BuildOutput::default();
    let ended = plan.build(&daemon, &mut |event| output.note(&mut screen, event))?;
    screen.clear();
    let about = json!({ "from": plan.from.to_string(), "versions": plan.versions });
    report(&plan.image, &ended, output.warnings, about, how.json)
}

pub(crate) fn build(options: BuildArgs) -> Result<u8, SandboxError> {
    let BuildArgs { folder, base_tag, how } = options;
    let folder = workspace(folder)?;
    let folder = folder.canonicalize().map_err(|error| {
        let message = format!("cannot enter `{}`: {error}", visible(folder.as_os_str().as_encoded_bytes()));
        ErrorCode::WorkspaceMissing.error(message).hint("name a folder that exists").caused_by(error)
    })?;
    let base = base_image(&base_tag)?;
    let request = RepositoryRequest { folder, base: base.clone(), how: how.how(false) };
    let plan = match request.plan()? {
        Planned::Base(base) => return fall_back(&base, how.json),
        Planned::Own(plan) => plan,
    };
    let (ended, warnings) = build_repository(&plan, &Daemon::connect()?, how.json)?;
    report(&plan.image, &ended, warnings, json!({ "base": base.to_string() }), how.json)
}

/// The sandbox with its folder's own image, if the flags ask for it. What contradicts it is refused before anything is built.
pub(crate) fn with_own_image(
    sandbox_options: SandboxOptions,
    options: &OwnImageArgs,
    folder: impl FnOnce(&SandboxOptions) -> Result<PathBuf, SandboxError>,
    as_json: bool,
) -> Result<SandboxOptions, SandboxError> {
    if options.is_given() {
        sandbox_options.must_take_image()?;
    }
    let image = own_image(options, || folder(&sandbox_options), as_json)?;
    Ok(match image {
        Some(image) => sandbox_options.with_image(image),
        None => sandbox_options,
    })
}

/// The image of a folder that a sandbox is made from: built first if the flags say so; none without flags.
pub(crate) fn own_image(
    options: &OwnImageArgs,
    folder: impl FnOnce() -> Result<PathBuf, SandboxError>,
    as_json: bool,
) -> Result<Option<ImageName>, SandboxError> {
    if !options.is_given() {
        return Ok(None);
    }
    let OwnImageArgs { build, base_tag } = options;
    let tag = base_tag.as_deref().unwrap_or("latest");
    let request = RepositoryRequest { folder: folder()?, base: base_image(tag)?, how: How::default() };
    let daemon = Daemon::connect()?;
    let must_be_here = |image: ImageName, remedy: CommandLine| match is_here(&daemon, &image)? {
        true => Ok(Some(image)),
        false => Err(ErrorCode::ImageMissing
            .error(format!("the image {image} is not built"))
            .hint(hint!("build it: {}", remedy.of(format!("{} {tag}", flag_of(remedy)))))),
    };
    match request.plan()? {
        Planned::Base(base) => must_be_here(base, CommandLine::BuildBase),
        Planned::Own(plan) if !build => must_be_here(plan.image, CommandLine::Build),
        Planned::Own(plan) => {
            let (ended, warnings) = build_repository(&plan, &daemon, as_json)?;
            for warning in &warnings {
                eprintln!("belljar: {}", visible(warning.as_bytes()));
            }
            match ended {
                Ended::Built(_) => Ok(Some(plan.image)),
                Ended::Failed(failed) => {
                    explain(&failed);
                    Err(ErrorCode::ImageFailed
                        .error(format!("the image {} was not built", plan.image))
                        .hint(format!("mend `{DOCKERFILE}`, or omit `--build`")))
                }
            }
        }
    }
}

/// The flag that names the tag of the base image.
fn flag_of(command: CommandLine) -> &'static str {
    match command {
        CommandLine::BuildBase => "--tag",
        _ => "--base-tag",
    }
}

/// Builds a folder's image on screen, with the warnings of Docker and belljar.
fn build_repository(
    plan: &RepositoryPlan,
    daemon: &Daemon,
    as_json: bool,
) -> Result<(Ended, Vec<String>), SandboxError> {
    let mut screen = Screen::new(as_json);
    screen.say(&format!("{} from {DOCKERFILE}, on {}", plan.image, plan.base));
    let mut output = BuildOutput::default();
    let ended = plan.build(daemon, &mut |event| output.note(&mut screen, event))?;
    screen.clear();
    if let Ended::Built(_) = &ended {
        output.warnings.extend(plan.unheeded(daemon)?);
    }
    Ok((ended, output.warnings))
}

/// Without a Dockerfile there is nothing to build.
fn fall_back(base: &ImageName, as_json: bool) -> Result<u8, SandboxError> {
    // Which image it is does not depend on a daemon that answers.
    let here = Daemon::connect().and_then(|daemon| is_here(&daemon, base)).ok();
    if as_json {
        let report =
            json!({ "outcome": "base", "image": base.to_string(), "here": here, "use": usage(base) });
        return print(format!("{report:#}\n").as_bytes());
    }
    eprintln!("belljar: there is no {DOCKERFILE}, so the base image is used as it is: {base}");
    match here {
        Some(false) => eprintln!(
            "  hint: it is not made yet: `belljar images build-base --tag {}`",
            base.tag().unwrap_or("latest")
        ),
        Some(true) => eprintln!("  hint: `belljar sandbox init --dockerfile` writes one to begin with"),
        None => eprintln!(
            "  hint: no Docker daemon answers, so whether the image was made is not known: `belljar doctor` says more"
        ),
    }
    print(format!("{base}\n").as_bytes())
}

fn report(
    image: &ImageName,
    ended: &Ended,
    warnings: Vec<String>,
    about: Value,
    as_json: bool,
) -> Result<u8, SandboxError> {
    if as_json {
        let mut report = match ended {
            Ended::Built(Built { id, steps, cached }) => {
                json!({ "outcome": "built", "id": id, "steps": steps, "cached": cached, "use": usage(image) })
            }
            Ended::Failed(Failed { number, of, instruction, why, output }) => json!({
                "outcome": "failed",
                "failed": { "step": number, "of": of, "instruction": instruction, "why": why, "output": output },
            }),
        };
        report["image"] = json!(image.to_string());
        report["warnings"] = json!(warnings);
        if let (Some(report), Value::Object(about)) = (report.as_object_mut(), about) {
            report.extend(about);
        }
        print(format!("{report:#}\n").as_bytes())?;
        return Ok(match ended {
            Ended::Built(_) => 0,
            Ended::Failed(_) => UNSUCCESSFUL,
        });
    }
    for warning in &warnings {
        eprintln!("belljar: {}", visible(warning.as_bytes()));
    }
    match ended {
        Ended::Built(Built { steps, cached, .. }) => {
            eprintln!("belljar: {image} is ready: {steps} steps, {cached} of them done before");
            eprintln!("  once:   belljar run --backend docker --image {image} -- COMMAND");
            eprintln!(
                "  always: backend = \"docker\" and rootfs = \"oci:{image}\" in a profile of belljar.toml"
            );
            print(format!("{image}\n").as_bytes())
        }
        Ended::Failed(failed) => {
            explain(failed);
            Ok(UNSUCCESSFUL)
        }
    }
}

/// What a person needs to mend it: what the step wrote, which one it was, and why Docker gave up.
fn explain(Failed { number, of, instruction, why, output }: &Failed) {
    for line in output.lines() {
        eprintln!("  {}", visible(line.as_bytes()));
    }
    let why = visible(why.as_bytes());
    match number {
        0 => eprintln!("belljar: nothing was built: {why}"),
        _ => {
            eprintln!(
                "belljar: step {number} of {of} failed, and there is no image: {}",
                screen::short(instruction)
            );
            match why.rsplit_once(" returned a non-zero code: ") {
                // The rest is the whole script once more.
                Some((_, code)) => eprintln!("  it ended with code {code}"),
                None => eprintln!("  {why}"),
            }
        }
    }
    if why.contains("BuildKit") {
        eprintln!(
            "  hint: write it without: belljar asks for Docker's own first builder, which every daemon has"
        );
    }
}

/// What is of interest when all is over.
#[derive(Default)]
struct BuildOutput {
    warnings: Vec<String>,
}

impl BuildOutput {
    fn note(&mut self, screen: &mut Screen, event: Event) {
        match event {
            Event::Warning { text } => self.warnings.push(text),
            event => screen.show(&event),
        }
    }
}

/// How to use an image, in belljar's words.
fn usage(image: &ImageName) -> Value {
    json!({
        "run": format!("belljar run --backend docker --image {image} -- COMMAND"),
        "config": format!("backend = \"docker\"\nrootfs = \"oci:{image}\""),
    })
}

fn base_image(tag: &str) -> Result<ImageName, SandboxError> {
    format!("{BASE}:{tag}")
        .parse()
        .map_err(|error| ErrorCode::RequestValue.error(format!("{error}")).caused_by(error))
}
