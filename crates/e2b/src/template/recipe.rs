//! A template as its maker writes it: what it begins with, and steps. Pure: what a step does to a sandbox is in `build`.

use crate::envd::{USER, paths};
use crate::fault::Fault;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The body of a request for a build.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BuildRequest {
    from_image: Option<String>,
    from_template: Option<String>,
    from_image_registry: Option<serde_json::Value>,
    #[serde(deserialize_with = "or_default")]
    force: bool,
    #[serde(deserialize_with = "or_default")]
    steps: Vec<StepRequest>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StepRequest {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    args: Vec<String>,
    files_hash: Option<String>,
    #[serde(deserialize_with = "or_default")]
    force: bool,
}

/// What a template is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub(crate) base: Base,
    pub(crate) steps: Vec<Step>,
    /// Runs in every sandbox of the template.
    pub(crate) start: Option<String>,
    /// Succeeds once what was started is ready.
    pub(crate) ready: Option<String>,
}

/// What the first step begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// A profile, a snapshot or another template, by name.
    Template(String),
    /// An image, as the daemon names it.
    Image(String),
}

/// One step. The words of its request are a part of what its result is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) action: Action,
    /// Its result is not taken from an earlier build.
    pub(crate) force: bool,
    digest: [u8; 32],
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// A command line for a shell, as a user if the step names one.
    Run {
        command: String,
        user: Option<String>,
    },
    Copy(Copy),
    /// Variables of later steps and of every sandbox.
    Env(Vec<(String, String)>),
    /// Where later steps, commands and relative paths begin.
    Workdir(String),
    /// Who later steps run as.
    User(String),
}

/// Uploaded files, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    /// A path or a pattern, below the folder that was uploaded.
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) owner: Option<String>,
    /// In octal digits.
    pub(crate) mode: Option<String>,
    pub(crate) files: FilesHash,
}

/// By which uploaded files are known: SHA-256 in hexadecimal digits, as the client says it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FilesHash(String);

impl FilesHash {
    pub(crate) fn parse(text: &str) -> Result<FilesHash, Fault> {
        let is_hash = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match is_hash {
            true => Ok(FilesHash(text.into())),
            false => Err(Fault::bad_request("the hash of files is 64 hexadecimal digits")),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl BuildRequest {
    /// The recipe, if belljar can make it.
    pub(crate) fn recipe(self) -> Result<Recipe, Fault> {
        if self.from_image_registry.is_some_and(|registry| !registry.is_null()) {
            return Err(Fault::not_served(
                "credentials of a registry in a template: log in on the host, and name the image",
            ));
        }
        let said = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let base = match (said(self.from_image), said(self.from_template)) {
            (Some(image), None) if is_usual(&image) => Base::Template(String::new()),
            (Some(image), None) => Base::Image(image),
            (None, Some(template)) => Base::Template(template),
            _ => return Err(Fault::bad_request("one of `fromImage` and `fromTemplate` is given")),
        };
        if self.steps.len() > MAX_STEPS {
            return Err(Fault::bad_request(format!("a template has at most {MAX_STEPS} steps")));
        }
        let force = self.force;
        let steps = self.steps.into_iter().enumerate().map(|(index, step)| {
            let number = index + 1;
            let step =
                step.understood().map_err(|why| Fault::bad_request(format!("step {number}: {why}")))?;
            Ok(Step { force: step.force || force, ..step })
        });
        let steps = steps.collect::<Result<_, Fault>>()?;
        Ok(Recipe { base, steps, start: said(self.start_cmd), ready: said(self.ready_cmd) })
    }
}

impl StepRequest {
    fn understood(self) -> Result<Step, String> {
        let mut digest = Sha256::new();
        for part in [self.kind.as_str(), self.files_hash.as_deref().unwrap_or_default()]
            .into_iter()
            .chain(self.args.iter().map(String::as_str))
        {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        let digest = digest.finalize().into();
        let arg = |index: usize| self.args.get(index).cloned().filter(|arg| !arg.is_empty());
        let first = |what: &str| arg(0).ok_or_else(|| format!("{what} is missing"));
        let action = match self.kind.as_str() {
            "RUN" => Action::Run { command: first("the command")?, user: arg(1) },
            "COPY" => {
                let hash = self.files_hash.as_deref().ok_or("the hash of its files is missing")?;
                let mode = arg(3);
                if mode.as_ref().is_some_and(|mode| !is_mode(mode)) {
                    return Err("the mode is up to four octal digits".into());
                }
                Action::Copy(Copy {
                    source: first("what is copied")?,
                    target: arg(1).ok_or("where it is copied to is missing")?,
                    owner: arg(2),
                    mode,
                    files: FilesHash::parse(hash).map_err(|fault| fault.message)?,
                })
            }
            "ENV" if !self.args.is_empty() && self.args.len() % 2 == 0 => Action::Env(
                self.args.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
            ),
            "ENV" => return Err("variables are pairs of a name and a value".into()),
            "WORKDIR" => Action::Workdir(first("the folder")?),
            "USER" => Action::User(first("the user")?),
            other => return Err(format!("belljar knows no step `{other}`")),
        };
        Ok(Step { action, force: self.force, digest })
    }
}

/// What steps leave beside files: with these each command of a later step runs, and every command of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Surroundings {
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workdir: Option<String>,
    /// Who steps name as their user; nothing more than a name, since one user does everything.
    #[serde(skip)]
    pub(crate) user: Option<String>,
}

impl Surroundings {
    /// After a step.
    pub(crate) fn after(mut self, action: &Action) -> Surroundings {
        match action {
            Action::Env(pairs) => self.env.extend(pairs.iter().cloned()),
            Action::Workdir(path) => self.workdir = Some(paths::absolute(path, HOME, self.start())),
            Action::User(name) => self.user = Some(name.clone()),
            Action::Run { .. } | Action::Copy(_) => {}
        }
        self
    }

    /// Where commands start and relative paths begin.
    pub(crate) fn start(&self) -> &str {
        self.workdir.as_deref().unwrap_or(HOME)
    }
}

impl Recipe {
    /// For each step, what the files behind it are known by: the same base and the same steps so far, in the same words.
    pub(crate) fn keys(&self, base: &str) -> Vec<String> {
        let mut so_far: [u8; 32] = Sha256::digest(base).into();
        let mut key = |step: &Step| {
            so_far = Sha256::new().chain_update(so_far).chain_update(step.digest).finalize().into();
            HEXLOWER.encode(&so_far[..KEY_BYTES])
        };
        self.steps.iter().map(&mut key).collect()
    }

    /// The step from which on nothing comes from an earlier build.
    pub(crate) fn first_forced(&self) -> usize {
        self.steps.iter().position(|step| step.force).unwrap_or(self.steps.len())
    }
}

impl Action {
    /// Whether it changes files.
    pub(crate) fn changes_files(&self) -> bool {
        matches!(self, Action::Run { .. } | Action::Copy(_))
    }

    /// As a line of the build's log.
    pub(crate) fn line(&self) -> String {
        match self {
            Action::Run { command, .. } => format!("RUN {command}"),
            Action::Copy(copy) => format!("COPY {} {}", copy.source, copy.target),
            Action::Env(pairs) => {
                let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
                format!("ENV {}", names.join(" "))
            }
            Action::Workdir(path) => format!("WORKDIR {path}"),
            Action::User(name) => format!("USER {name}"),
        }
    }
}

/// The image that the clients take where none is named: here the template `base`.
fn is_usual(image: &str) -> bool {
    let name = image.strip_prefix("docker.io/").unwrap_or(image);
    name.split_once(':').map_or(name, |(name, _)| name) == "e2bdev/base"
}

fn is_mode(text: &str) -> bool {
    (1..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte))
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The home of the one user.
pub(crate) const HOME: &str = "/home/user";
const _: () = assert!(HOME.len() == "/home/".len() + USER.len());
const MAX_STEPS: usize = 200;
const KEY_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn recipe(request: Value) -> Result<Recipe, String> {
        serde_json::from_value::<BuildRequest>(request).unwrap().recipe().map_err(|fault| fault.message)
    }

    fn steps(steps: Value) -> Result<Recipe, String> {
        recipe(json!({ "fromTemplate": "base", "steps": steps }))
    }

    #[test]
    fn a_build_begins_with_one_thing() {
        for (request, expected) in [
            (json!({ "fromImage": "e2bdev/base" }), Ok(Base::Template(String::new()))),
            (json!({ "fromImage": "e2bdev/base:latest" }), Ok(Base::Template(String::new()))),
            (json!({ "fromImage": "debian:stable" }), Ok(Base::Image("debian:stable".into()))),
            (json!({ "fromTemplate": "mine:v1" }), Ok(Base::Template("mine:v1".into()))),
            (json!({}), Err("one of `fromImage` and `fromTemplate` is given")),
            (
                json!({ "fromImage": "a", "fromTemplate": "b" }),
                Err("one of `fromImage` and `fromTemplate` is given"),
            ),
        ] {
            assert_eq!(recipe(request).map(|recipe| recipe.base), expected.map_err(String::from));
        }
        let refused =
            recipe(json!({ "fromImage": "a", "fromImageRegistry": { "type": "registry" } })).unwrap_err();
        assert!(refused.contains("credentials of a registry"), "{refused}");
    }

    #[test]
    fn a_step_that_makes_no_sense_is_refused_by_its_number() {
        let hash = "0".repeat(64);
        for (step, why) in [
            (json!({ "type": "RUN", "args": [""] }), "step 1: the command is missing"),
            (json!({ "type": "COPY", "args": ["a", "b"] }), "step 1: the hash of its files is missing"),
            (json!({ "type": "COPY", "args": ["a", "b"], "filesHash": "../x" }), "64 hexadecimal digits"),
            (json!({ "type": "COPY", "args": ["a", "b", "", "9"], "filesHash": hash }), "octal digits"),
            (json!({ "type": "COPY", "args": ["a"], "filesHash": hash }), "copied to is missing"),
            (json!({ "type": "ENV", "args": ["A"] }), "pairs"),
            (json!({ "type": "VOLUME", "args": ["/x"] }), "knows no step `VOLUME`"),
        ] {
            let refused = steps(json!([step])).unwrap_err();
            assert!(refused.contains(why), "{step}: {refused}");
        }
    }

    #[test]
    fn the_result_of_a_step_is_known_by_all_that_led_to_it() {
        let run = |command: &str| json!({ "type": "RUN", "args": [command] });
        let keys = |base: &str, given: Value| steps(given).unwrap().keys(base);
        let one = keys("base", json!([run("a"), run("b"), run("c")]));
        assert_eq!(one, keys("base", json!([run("a"), run("b"), run("c")])));
        let other = keys("base", json!([run("a"), run("x"), run("c")]));
        assert_eq!(one[0], other[0]);
        assert!(one[1] != other[1] && one[2] != other[2]);
        assert_ne!(one[0], keys("other", json!([run("a")]))[0]);
        // Where one argument ends counts.
        let split = |args: Value| keys("base", json!([{ "type": "RUN", "args": args }]));
        assert_ne!(split(json!(["ab", "c"])), split(json!(["a", "bc"])));
    }

    #[test]
    fn folders_and_variables_add_up() {
        let recipe = steps(json!([
            { "type": "WORKDIR", "args": ["app"] },
            { "type": "ENV", "args": ["A", "1", "B", "2"] },
            { "type": "WORKDIR", "args": ["src"] },
            { "type": "ENV", "args": ["A", "3"] },
            { "type": "RUN", "args": ["x"], "force": true },
        ]))
        .unwrap();
        let all =
            recipe.steps.iter().fold(Surroundings::default(), |so_far, step| so_far.after(&step.action));
        assert_eq!(all.start(), "/home/user/app/src");
        assert_eq!(all.env, [("A".into(), "3".into()), ("B".into(), "2".into())].into());
        assert_eq!(recipe.first_forced(), 4);
    }
}
