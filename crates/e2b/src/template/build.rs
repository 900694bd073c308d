//! Builds: the steps of a recipe, one after the other, in a sandbox of the grant that asked. What a step leaves is kept as a snapshot, and
//! the next build of the same steps begins with it. Nothing of a build runs on the host: uploaded files are unpacked inside.

use super::log::Level;
use super::recipe::{Action, Base, Copy, HOME, Recipe, Surroundings};
use super::record::{BuildState, Built, Failure, Template};
use super::start;
use crate::api::sandboxes::{own_variables, request_of};
use crate::api::templates::{self, Found};
use crate::envd::{USER, paths};
use crate::fault::Fault;
use crate::pieces;
use crate::server::{Caller, E2b};
use belljar_api::client::{ClientError, Sandbox, output_bytes};
use belljar_api::{CommandEvent, CreateSandbox, StartCommand, TakeSnapshot};
use belljar_spec::{ErrorCode, OsText, Root, SnapshotName};
use hyper::body::Bytes;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A build that is to be made.
pub(crate) struct Order {
    pub(crate) caller: Caller,
    pub(crate) template: Template,
    /// Of one of the template's builds.
    pub(crate) build: String,
    pub(crate) recipe: Recipe,
}

/// Makes it, and keeps how that ended.
pub(crate) async fn make(e2b: Arc<E2b>, order: Order) {
    let _turn = e2b.builds.turn().await;
    let course = Course { e2b: &e2b, order: &order };
    let outcome = match timeout(MAX_BUILD_TIME, course.run()).await {
        Ok(outcome) => outcome,
        Err(_) => Err(failure(LAST_STEP, "the build took longer than two hours")),
    };
    course.remove_sandbox().await;
    if let Err(failure) = &outcome {
        course.log(Level::Error, &failure.message, &failure.step);
    }
    let kept = match outcome {
        Ok((built, steps)) => course.keep(built, steps).await,
        Err(failure) => course.state(BuildState::Failed(failure)).map(drop),
    };
    if let Err(fault) = kept {
        tracing::warn!("how the build {} ended cannot be kept: {}", order.build, fault.message);
    }
}

/// Removes what a daemon that was killed has left of builds.
pub(crate) async fn sweep(e2b: &E2b) {
    for template in e2b.templates.every() {
        for build in &template.builds {
            match &build.state {
                BuildState::Building(request) => {
                    let client = e2b.client(&template.grant);
                    // Asked again under the same name, the daemon says which sandbox it is.
                    if let Ok(created) = client.create_once(request, &word(&build.id)).await {
                        let _ = e2b.owner.sandbox(&created.sandbox.name).delete().await;
                    }
                }
                BuildState::Queued => {}
                BuildState::Waiting | BuildState::Ready(_) | BuildState::Failed(_) => continue,
            }
            let failed = failure(LAST_STEP, "the daemon was ended during this build: start it again");
            let _ = e2b.templates.change_build(&template.id, &build.id, |build| {
                build.state = BuildState::Failed(failed);
            });
        }
    }
}

struct Course<'b> {
    e2b: &'b Arc<E2b>,
    order: &'b Order,
}

type Outcome<T> = Result<T, Failure>;

impl Course<'_> {
    /// Gives what a sandbox of the template begins with, and the snapshots of its steps.
    async fn run(&self) -> Outcome<(Built, Vec<SnapshotName>)> {
        let Order { caller, recipe, .. } = self.order;
        let base = |fault: Fault| failure(FIRST_STEP, &fault.message);
        let (found, rootfs) = match &recipe.base {
            Base::Template(name) => (templates::find(self.e2b, caller, name).await.map_err(base)?, None),
            Base::Image(image) => {
                let root: Root = format!("oci:{image}")
                    .parse()
                    .map_err(|error| failure(FIRST_STEP, &format!("the image `{image}`: {error}")))?;
                (Found::default(), Some(root))
            }
        };
        let keys = recipe.keys(&identity(&found, rootfs.as_ref()));
        let (done, mut snapshot) = self.earlier(&keys).await.map_err(base)?;
        let mut request = request_of(self.e2b, caller).await.map_err(base)?;
        request.profile = found.profile.clone();
        request.lease_s = Some(LEASE_S);
        request.sandbox.rootfs = rootfs;
        request.sandbox.snapshot = snapshot.clone().or(found.snapshot);
        request.sandbox.env.extend(own_variables(&self.order.template.id).map_err(base)?);
        let sandbox = self.sandbox(request).await?;
        let mut surroundings = found.surroundings;
        let mut kept = Vec::new();
        for (index, step) in recipe.steps.iter().enumerate() {
            let number = (index + 1).to_string();
            let total = recipe.steps.len();
            let is_known = index < done;
            let cached = if is_known { "CACHED " } else { "" };
            self.log(Level::Info, &format!("[{number}/{total}] {cached}{}", step.action.line()), &number);
            if !is_known {
                self.step(&sandbox, &step.action, &surroundings, &number).await?;
            }
            surroundings = surroundings.after(&step.action);
            if step.action.changes_files() {
                let name = step_name(&keys[index]);
                if !is_known {
                    snapshot = self.keep_step(&sandbox, &name, &number).await.or(snapshot);
                }
                kept.push(name);
            }
        }
        self.log(Level::Info, "keeping the files", LAST_STEP);
        let take = TakeSnapshot { name: Some(final_name(&self.order.build)), ..TakeSnapshot::default() };
        let taken = sandbox.snapshot(&take).await.map_err(|error| refused(LAST_STEP, &error))?;
        let build = self.order.template.build(&self.order.build);
        let built = Built {
            snapshot: taken.id,
            profile: found.profile,
            surroundings,
            start: recipe.start.clone().or(found.start),
            ready: recipe.ready.clone().or(found.ready),
            cpus: build.and_then(|build| build.cpus),
            memory_mb: build.and_then(|build| build.memory_mb),
        };
        if built.start.is_some() || built.ready.is_some() {
            self.log(Level::Info, "starting, and waiting until it is ready", LAST_STEP);
            if let Err(fault) =
                start::begin(&sandbox, &built.begin(), &built.surroundings.env, MAX_READY_TIME).await
            {
                let _ = self.client().remove_snapshot(&built.snapshot.to_string()).await;
                return Err(failure(LAST_STEP, &fault.message));
            }
        }
        self.log(Level::Info, "the template is ready", LAST_STEP);
        Ok((built, kept))
    }

    fn client(&self) -> belljar_api::client::Client {
        self.e2b.client(&self.order.caller.grant)
    }

    fn log(&self, level: Level, message: &str, step: &str) {
        self.e2b.builds.log(&self.order.build, level, message, step);
    }

    fn state(&self, state: BuildState) -> Result<bool, Fault> {
        self.e2b
            .templates
            .change_build(&self.order.template.id, &self.order.build, |build| build.state = state)
    }

    /// How many steps an earlier build has made, and the snapshot behind the last of them that changed files.
    async fn earlier(&self, keys: &[String]) -> Result<(usize, Option<SnapshotName>), Fault> {
        let recipe = &self.order.recipe;
        let usable = recipe.first_forced();
        let names: Vec<SnapshotName> = keys.iter().map(|key| step_name(key)).collect();
        let known: HashSet<SnapshotName> =
            self.client().snapshots().await?.into_iter().map(|taken| taken.name).collect();
        for index in (0..usable).rev() {
            if recipe.steps[index].action.changes_files() && known.contains(&names[index]) {
                return Ok((index + 1, Some(names[index].clone())));
            }
        }
        Ok((0, None))
    }

    /// The sandbox in which the steps are made. What is asked for is kept first.
    async fn sandbox(&self, request: CreateSandbox) -> Outcome<Sandbox> {
        let state = BuildState::Building(Box::new(request.clone()));
        match self.state(state) {
            Ok(true) => {}
            Ok(false) => return Err(failure(FIRST_STEP, "the template was deleted")),
            Err(fault) => return Err(failure(FIRST_STEP, &fault.message)),
        }
        let created = self.client().create_once(&request, &word(&self.order.build)).await;
        let created = created.map_err(|error| refused(FIRST_STEP, &error))?;
        Ok(self.client().sandbox(&created.sandbox.name).holding(&created.lease.id))
    }

    async fn remove_sandbox(&self) {
        let template = self.e2b.templates.find(&self.order.caller.grant, &self.order.template.id);
        let build = template.as_ref().and_then(|template| template.build(&self.order.build));
        let Some(BuildState::Building(request)) = build.map(|build| &build.state) else { return };
        if let Ok(created) = self.client().create_once(request, &word(&self.order.build)).await
            && let Err(error) = self.e2b.owner.sandbox(&created.sandbox.name).delete().await
        {
            tracing::warn!("cannot remove the sandbox of the build {}: {error}", self.order.build);
        }
    }

    async fn step(
        &self,
        sandbox: &Sandbox,
        action: &Action,
        surroundings: &Surroundings,
        number: &str,
    ) -> Outcome<()> {
        match action {
            Action::Run { command, user } => {
                self.only_one_user(user.as_ref().or(surroundings.user.as_ref()), number);
                let argv = ["/bin/bash", "-l", "-c", command].map(OsText::from).into();
                self.command(sandbox, argv, surroundings, number).await
            }
            Action::Copy(copy) => {
                self.only_one_user(copy.owner.as_ref(), number);
                self.copy(sandbox, copy, surroundings, number).await
            }
            // A folder that a step names is there for the next one.
            Action::Workdir(_) => {
                let path = surroundings.clone().after(action).start().to_string();
                let made = sandbox.make_folder(&path, true).await;
                made.map_err(|error| refused(number, &error))
            }
            Action::User(name) => {
                self.only_one_user(Some(name), number);
                Ok(())
            }
            Action::Env(_) => Ok(()),
        }
    }

    /// Everything in a sandbox is done as its one user: a step that names another is told so, and done as that user.
    fn only_one_user(&self, named: Option<&String>, number: &str) {
        let name = named.map(|named| named.split(':').next().unwrap_or_default());
        if let Some(name) = name.filter(|name| *name != USER && !name.is_empty()) {
            let message = format!(
                "done as `{USER}`, not as `{name}`: nothing in a sandbox of belljar is done as another user. Packages of \
                 the system belong into the image of a profile (docs/e2b.md)"
            );
            self.log(Level::Warn, &message, number);
        }
    }

    async fn copy(
        &self,
        sandbox: &Sandbox,
        copy: &Copy,
        surroundings: &Surroundings,
        number: &str,
    ) -> Outcome<()> {
        let files = self.e2b.uploads.find(&self.order.caller.grant, &copy.files);
        let files = files.ok_or_else(|| failure(number, "the files of this step were not uploaded"))?;
        let archive = format!("/tmp/e2b-copy-{}", &copy.files.as_str()[..16]);
        upload(sandbox, &archive, &files).await.map_err(|message| failure(number, &message))?;
        let mut target = paths::absolute(&copy.target, HOME, surroundings.start());
        if copy.target.ends_with('/') && !target.ends_with('/') {
            target.push('/');
        }
        let words = [&archive, copy.source.trim_start_matches("./"), &target];
        let mut argv: Vec<OsText> = ["/bin/bash", "-c", COPY, "copy"]
            .into_iter()
            .chain(words.iter().map(|word| word.as_ref()))
            .map(OsText::from)
            .collect();
        argv.push(copy.mode.as_deref().unwrap_or_default().into());
        self.command(sandbox, argv, surroundings, number).await
    }

    /// Runs a command to its end; its output is in the log.
    async fn command(
        &self,
        sandbox: &Sandbox,
        argv: Vec<OsText>,
        surroundings: &Surroundings,
        number: &str,
    ) -> Outcome<()> {
        let command = StartCommand {
            argv,
            cwd: Some(surroundings.start().into()),
            env: start::variables(&surroundings.env),
            timeout_s: Some(MAX_STEP_TIME.as_secs()),
            ..StartCommand::default()
        };
        let mut events = sandbox.run_following(&command).await.map_err(|error| refused(number, &error))?;
        let mut lines = Lines::default();
        loop {
            match events.next().await.map_err(|error| refused(number, &error))? {
                Some(CommandEvent::Started { .. }) => {}
                Some(CommandEvent::Output { text, base64, .. }) => {
                    let bytes = output_bytes(text, base64).map_err(|error| refused(number, &error))?;
                    for line in lines.take(&String::from_utf8_lossy(&bytes)) {
                        self.log(Level::Info, &line, number);
                    }
                }
                Some(CommandEvent::Ended { result }) => {
                    for line in lines.rest() {
                        self.log(Level::Info, &line, number);
                    }
                    let why = match (result.exit_code, result.not_started, result.error) {
                        (Some(0), None, None) => return Ok(()),
                        (_, Some(why), _) => why,
                        (_, _, Some(error)) => error.message,
                        (Some(code), ..) => format!("exit status {code}"),
                        (None, ..) if result.timed_out => "it took longer than an hour".into(),
                        (None, ..) => result.signal.unwrap_or_else(|| "it was ended".into()),
                    };
                    let last = lines.last.map(|line| format!(": {line}")).unwrap_or_default();
                    return Err(failure(
                        number,
                        &format!("the command of step {number} failed: {why}{last}"),
                    ));
                }
                None => return Err(failure(number, "the sandbox of the build has ended")),
            }
        }
    }

    /// Keeps the files behind a step for later builds. Where that is refused, the build goes on without.
    async fn keep_step(&self, sandbox: &Sandbox, name: &SnapshotName, number: &str) -> Option<SnapshotName> {
        let take = TakeSnapshot { name: Some(name.clone()), ..TakeSnapshot::default() };
        // A forced step replaces what an earlier build kept.
        let _ = self.client().remove_snapshot(&name.to_string()).await;
        match sandbox.snapshot(&take).await {
            Ok(taken) => Some(taken.id),
            Err(error) => {
                self.log(Level::Warn, &format!("later builds begin before this step: {error}"), number);
                None
            }
        }
    }

    /// The build is what its tags mean from now on; what only earlier builds needed is removed.
    async fn keep(&self, built: Built, steps: Vec<SnapshotName>) -> Result<(), Fault> {
        let mut gone: Vec<SnapshotName> = Vec::new();
        let snapshot = built.snapshot.clone();
        let changed = self.e2b.templates.change(&self.order.template.id, |template| {
            let mut tags = Vec::new();
            if let Some(build) = template.builds.iter_mut().find(|build| build.id == self.order.build) {
                build.state = BuildState::Ready(Box::new(built));
                tags.clone_from(&build.tags);
            }
            template.tag(&tags, &self.order.build);
            gone = template.take_untagged().into_iter().map(|built| built.snapshot).collect();
            gone.extend(template.steps.extract_if(.., |step| !steps.contains(step)));
            template.steps = steps;
        })?;
        if changed.is_none() {
            gone.push(snapshot);
        }
        // Another template of the same steps may need one.
        let needed: HashSet<SnapshotName> = self
            .e2b
            .templates
            .of_grant(&self.order.caller.grant)
            .iter()
            .flat_map(|template| template.snapshots().cloned().collect::<Vec<_>>())
            .collect();
        for name in gone.iter().filter(|name| !needed.contains(name)) {
            let _ = self.client().remove_snapshot(&name.to_string()).await;
        }
        Ok(())
    }
}

/// Sends a file of the host to a path inside.
async fn upload(sandbox: &Sandbox, path: &str, file: &Path) -> Result<(), String> {
    let (to, reader) = pieces::channel();
    let file = file.to_path_buf();
    // Reading from a disk blocks.
    let reading = tokio::task::spawn_blocking(move || {
        let mut file = match File::open(file) {
            Ok(file) => file,
            Err(error) => return drop(to.blocking_send(Err(error))),
        };
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let read = file.read(&mut piece).map(|length| {
                piece.truncate(length);
                Bytes::from(piece)
            });
            let is_last = !matches!(&read, Ok(bytes) if !bytes.is_empty());
            if matches!(&read, Ok(bytes) if bytes.is_empty()) || to.blocking_send(read).is_err() || is_last {
                return;
            }
        }
    });
    let written = sandbox.write_file_from(path, reader, None).await;
    reading.await.map_err(|_| "the files of this step cannot be read".to_string())?;
    written.map_err(|error: ClientError| format!("the files of this step cannot be sent: {error}"))
}

/// Output as lines, without colours and carriage returns.
#[derive(Default)]
struct Lines {
    open: String,
    last: Option<String>,
}

impl Lines {
    fn take(&mut self, text: &str) -> Vec<String> {
        self.open.push_str(text);
        let mut lines = Vec::new();
        while let Some(end) = self.open.find('\n') {
            let rest = self.open.split_off(end + 1);
            let line = std::mem::replace(&mut self.open, rest);
            lines.push(line);
        }
        if self.open.len() > MAX_LINE_BYTES {
            lines.push(std::mem::take(&mut self.open));
        }
        self.remember(lines)
    }

    fn rest(&mut self) -> Vec<String> {
        let lines = vec![std::mem::take(&mut self.open)];
        self.remember(lines)
    }

    fn remember(&mut self, lines: Vec<String>) -> Vec<String> {
        let told = |line: String| {
            let line = line.trim_end().rsplit('\r').next().unwrap_or_default();
            line.chars().filter(|c| !c.is_control() || *c == '\t').collect::<String>()
        };
        let lines: Vec<String> = lines.into_iter().map(told).filter(|line| !line.is_empty()).collect();
        if let Some(last) = lines.last() {
            self.last = Some(last.clone());
        }
        lines
    }
}

/// What the keys of the first step follow from.
fn identity(found: &Found, rootfs: Option<&Root>) -> String {
    match (&found.snapshot, &found.profile, rootfs) {
        (Some(snapshot), ..) => format!("snapshot {snapshot}"),
        (None, Some(profile), _) => format!("profile {profile}"),
        (None, None, Some(root)) => format!("root {root}"),
        (None, None, None) => "base".into(),
    }
}

fn step_name(key: &str) -> SnapshotName {
    format!("{STEP}{key}").parse().expect("a key is made of digits and small letters")
}

fn final_name(build: &str) -> SnapshotName {
    format!("{BUILT}{build}").parse().expect("the id of a build is made of digits, small letters and dashes")
}

/// Whether a snapshot belongs to a template, and is none of its own to a client.
pub(crate) fn is_of_template(name: &SnapshotName) -> bool {
    let name = name.to_string();
    name.starts_with(STEP) || name.starts_with(BUILT)
}

/// The name of the request that makes the sandbox of a build.
fn word(build: &str) -> String {
    format!("e2b-build-{build}")
}

fn failure(step: &str, message: &str) -> Failure {
    Failure { step: step.into(), message: message.into() }
}

fn refused(step: &str, error: &ClientError) -> Failure {
    let what = match error.code() {
        ErrorCode::SandboxNotFound | ErrorCode::SandboxNotAlive => {
            "the sandbox of the build has ended".into()
        }
        _ => crate::connect::said(error),
    };
    failure(step, &what)
}

/// Unpacks an archive and copies what a step names of it: a folder's contents, a file, or all that a pattern matches.
const COPY: &str = r#"
set -e
archive=$1 source=${2%/} target=$3 mode=$4
into=$(mktemp -d /tmp/e2b-copy.XXXXXX)
trap 'rm -rf "$into" "$archive"' EXIT
tar -xf "$archive" -C "$into"
cd "$into"
[ -z "$mode" ] || find . -type f -exec chmod "$mode" {} +
if [ "$source" = . ] || [ -d "$source" ] && [ ! -L "$source" ]; then
    mkdir -p "$target"
    cp -a "$source/." "$target/"
elif [ -e "$source" ] || [ -L "$source" ]; then
    case $target in
        */) mkdir -p "$target" ;;
        *) [ -d "$target" ] || mkdir -p "$(dirname "$target")" ;;
    esac
    cp -a "$source" "$target"
else
    shopt -s globstar dotglob nullglob
    IFS=
    found=($source)
    [ ${#found[@]} -gt 0 ] || { echo "nothing of the uploaded files is called $source" >&2; exit 1; }
    mkdir -p "$target"
    for one in "${found[@]}"; do
        if [ -d "$one" ] && [ ! -L "$one" ]; then cp -a "$one/." "$target/"; else cp -a "$one" "$target/"; fi
    done
fi
"#;
/// How clients call what comes before the first step, and what comes behind the last.
const FIRST_STEP: &str = "base";
const LAST_STEP: &str = "finalize";
const STEP: &str = "e2b-step-";
const BUILT: &str = "e2b-template-";
const MAX_BUILD_TIME: Duration = Duration::from_secs(2 * 60 * 60);
const MAX_STEP_TIME: Duration = Duration::from_secs(60 * 60);
const MAX_READY_TIME: Duration = Duration::from_secs(60);
/// Longer than a build.
const LEASE_S: u64 = 3 * 60 * 60;
const MAX_LINE_BYTES: usize = 4096;
const PIECE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_lines_without_what_moves_a_cursor() {
        let mut lines = Lines::default();
        assert_eq!(lines.take("one\r\ntw"), ["one"]);
        assert_eq!(lines.take("o\n\n 10%\r 20%\r100%\n\x1b[1mx"), ["two", "100%"]);
        assert_eq!(lines.rest(), ["[1mx"]);
        assert_eq!(lines.last.as_deref(), Some("[1mx"));
    }
}
