//! What a sandbox would be, said without making it: planned and drawn by the code that makes it, so that it cannot say anything else.

use super::plan::Planned;
use super::{Engine, no_backend, strong_enough};
use crate::credentials::Prepared;
use crate::persistent;
use crate::record::loosened;
use crate::workspace::Workspace;
use belljar_backend::{Drawing, LimitsHeld, backend};
use belljar_config::machine;
use belljar_gateway::Credentials;
use belljar_spec::egress::{EgressPolicy, Rule};
use belljar_spec::workspace::{Shield, Shielded, View};
use belljar_spec::{BackendChoice, BackendName, Limits, SandboxError, SandboxId, SandboxSpec};
use belljar_state::new_id;
use belljar_wire::message::{Confinement, Step};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// A sandbox, described. No secret is in it.
#[derive(Debug, Clone)]
pub struct Description {
    /// Everything.
    pub json: Value,
    /// The program that would build the sandbox, if it is not belljar itself, with arguments that a person can run (bubblewrap,
    /// with a shell in the guest's place) or read (Docker).
    pub command: Option<Vec<String>>,
}

/// What an engine of the usual kind would make.
pub fn describe(spec: &SandboxSpec) -> Result<Description, SandboxError> {
    Engine::new().describe(spec)
}

impl Engine {
    /// What [`Engine::create`] would make, or why it would not. Nothing is started, and nothing is left but empty directories of
    /// volumes; where no backend is named, each is tried as `belljar doctor` does.
    pub fn describe(&self, spec: &SandboxSpec) -> Result<Description, SandboxError> {
        let spec = Prepared::sketch(spec)?;
        let sketch = persistent::Sketch::of(&spec);
        persistent::make(&spec, || self.state())?;
        let name = isolation(&spec)?;
        let workspace = Workspace::sketch(&spec, || self.state(), || self.secrets())?;
        let mut described = self.describe_in(&spec, name, &workspace);
        let _ = workspace.finish(None);
        drop(sketch);
        if let Ok(Description { command: Some(words), .. }) = &mut described {
            omit_missing(words);
        }
        described
    }

    fn describe_in(
        &self,
        spec: &SandboxSpec,
        name: BackendName,
        workspace: &Workspace,
    ) -> Result<Description, SandboxError> {
        let limits = Limits::understand(&spec.limits, machine());
        let id = spec.id.map_or_else(new_id, Ok)?;
        let root = self.root(spec, name)?;
        let planned = self.plan(
            name,
            spec,
            id,
            &self.records()?,
            workspace,
            &root,
            &limits,
            &Arc::new(Credentials::none()),
        )?;
        let drawing = backend(name).draw(&planned.plan)?;
        let json = json_of(name, id, &planned, workspace, &limits, &drawing)?;
        let command = drawing.program.zip(drawing.command).map(|((program, _), words)| {
            let path = program.display().to_string();
            std::iter::once(path).chain(words.into_iter().skip(1)).collect()
        });
        Ok(Description { json, command })
    }
}

/// Takes out what bubblewrap could not bind: a sandbox's own git directory is made for a start, and gone with the sketch.
fn omit_missing(words: &mut Vec<String>) {
    let mut at = 0;
    while let Some([option, source, _]) = words.get(at..at + 3) {
        match matches!(option.as_str(), "--bind" | "--ro-bind") && !Path::new(source).exists() {
            true => drop(words.drain(at..at + 3)),
            false => at += 1,
        }
    }
}

/// The backend that was named, or the strongest that works.
fn isolation(spec: &SandboxSpec) -> Result<BackendName, SandboxError> {
    match spec.backend {
        BackendChoice::Named(name) => strong_enough(name, spec).map(|()| name),
        BackendChoice::Auto => {
            let mut refusals = Vec::new();
            for name in BackendName::AUTO {
                match strong_enough(name, spec).and_then(|()| backend(name).check()) {
                    Ok(()) => return Ok(name),
                    Err(refusal) => refusals.push((name, refusal)),
                }
            }
            Err(no_backend(&refusals, spec))
        }
    }
}

fn json_of(
    name: BackendName,
    id: SandboxId,
    planned: &Planned,
    workspace: &Workspace,
    limits: &Limits,
    drawing: &Drawing,
) -> Result<Value, SandboxError> {
    let Planned { plan, spec, policy, .. } = planned;
    let environment: Map<String, Value> = plan
        .environment()?
        .iter()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), json!(value.to_string_lossy())))
        .collect();
    let egress_reach = drawing.setup.steps.iter().find_map(|step| match step {
        Step::EnterNetwork { egress: Some(egress) } | Step::OpenEgress(egress) => Some(egress),
        _ => None,
    });
    Ok(json!({
        "belljar": env!("CARGO_PKG_VERSION"),
        "sandbox": id,
        "backend": name,
        "assurance": name.assurance().as_str(),
        "user": { "inside": drawing.user.0, "outside": drawing.user.1 },
        "workspace": {
            "inside": plan.workspace()?,
            "folder": workspace.view.as_ref().map(|view| view.folder.display().to_string()),
            "layer": workspace.view.as_ref().and_then(|view| view.layer.as_ref()).map(|layer| layer.upper.display().to_string()),
        },
        "mounts": plan.seen()?.iter().map(|seen| json!({
            "source": seen.source.display().to_string(),
            "target": seen.target,
            "writable": seen.writable,
        })).collect::<Vec<_>>(),
        "protected": workspace.view.as_ref().map(protected).unwrap_or_default(),
        "hidden": spec.hidden,
        "placeholders": spec.placeholders,
        "volumes": spec.volumes.iter().map(|volume| json!({ "source": volume.source.display().to_string(), "target": volume.target.as_str() })).collect::<Vec<_>>(),
        "environment": environment,
        "limits": limits_of(limits, &drawing.held),
        "egress": policy.as_ref().map(egress),
        "routes": egress_reach.map(|egress| egress.routes.clone()).unwrap_or_default(),
        "model": spec.llm.as_ref().map(|route| json!({
            "url": route.upstream,
            "kind": route.kind,
            "models": route.models,
            "budget": route.budget.to_string(),
            "port": route.port,
        })),
        "credentials": spec.credentials.iter().map(|credential| json!({
            "name": credential.name,
            "hosts": credential.bindings.iter().map(|binding| format!("{}:{}", binding.host, binding.ports)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "loosened": loosened(name, spec),
        "program": drawing.program.as_ref().map(|(program, words)| json!({ "path": program.display().to_string(), "words": words })),
        "steps": drawing.setup.steps.iter().map(step).collect::<Vec<_>>(),
        "seal": confinement(&drawing.setup.confinement),
    }))
}

/// What no process inside may change.
fn protected(view: &View) -> Vec<String> {
    let is_held = |shield: &&Shield| shield.what != Shielded::Watched;
    let own = view.shields.iter().filter(is_held).map(|shield| shield.path.clone());
    let linked = view.git.iter().flat_map(|git| git.shields.iter().filter(is_held));
    let linked = linked.map(|shield| format!(".git: {}", shield.path));
    own.chain(linked).collect()
}

fn limits_of(limits: &Limits, held: &LimitsHeld) -> Value {
    let Limits { memory, cpus, pids, disk, wall_time, output, ready, .. } = limits;
    json!({
        "memory": memory.value.as_u64(),
        "cpus_thousandths": cpus.value.as_millis(),
        "pids": pids.value,
        "open_files": held.open_files,
        "disk": disk.value.as_u64(),
        "wall_time_ms": wall_time.value.as_millis() as u64,
        "output": output.value.as_u64(),
        "ready_ms": ready.value.as_millis() as u64,
        "held_by": { "memory": held.memory, "cpus": held.cpus, "pids": held.pids, "disk": held.disk },
    })
}

fn egress(policy: &EgressPolicy) -> Value {
    let rules = |rules: &[Rule]| rules.iter().map(|rule| rule.label.to_string()).collect::<Vec<_>>();
    json!({
        "mode": policy.mode,
        "allow": rules(&policy.allow),
        "deny": rules(&policy.deny),
        "private": policy.private.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "resolvers": policy.resolvers,
        "inspect": policy.inspect,
        "connections": policy.limits.connections,
        "bytes": policy.limits.bytes,
    })
}

fn confinement(confinement: &Confinement) -> Value {
    json!({
        "rlimits": confinement.rlimits.iter().map(|(number, value)| json!({ "resource": number, "value": value })).collect::<Vec<_>>(),
        "privileges": word(&format!("{:?}", confinement.privileges)),
        "seccomp": word(&format!("{:?}", confinement.syscalls)),
        "landlock": confinement.landlock.as_ref().map(|landlock| json!({ "writable": landlock.writable })),
    })
}

/// A step, in the words that the guest gets: its name, and what belongs to it.
fn step(step: &Step) -> Value {
    let mut json = match serde_json::to_value(step) {
        Ok(Value::Object(variant)) => variant.into_iter().next(),
        Ok(Value::String(name)) => Some((name, Value::Null)),
        _ => None,
    }
    .map(|(name, inner)| {
        let mut fields = Map::from_iter([("step".to_string(), json!(word(&name)))]);
        match inner {
            Value::Object(inner) => fields.extend(inner.into_iter().map(|(key, value)| (key, plain(value)))),
            Value::Null => {}
            other => drop(fields.insert("value".into(), plain(other))),
        }
        fields
    })
    .unwrap_or_default();
    // Small ones as text; whole bundles of certificates as what they are.
    if let Step::File { content, .. } | Step::Cover { content, .. } = step {
        let value = match std::str::from_utf8(&content.0) {
            Ok(text) if text.len() <= SHOWN => json!(text),
            _ => {
                let hash: String =
                    Sha256::digest(&content.0).iter().map(|byte| format!("{byte:02x}")).collect();
                json!({ "bytes": content.0.len(), "sha256": hash })
            }
        };
        json.insert("content".into(), value);
    }
    Value::Object(json)
}

/// The names of variants as everywhere else in JSON of ours.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let named = |key: String| if key.starts_with(char::is_uppercase) { word(&key) } else { key };
            Value::Object(fields.into_iter().map(|(key, value)| (named(key), plain(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(plain).collect()),
        Value::String(text) if VARIANTS.contains(&text.as_str()) => Value::String(word(&text)),
        other => other,
    }
}

/// `ReadOnlyRoot` as `read_only_root`.
fn word(name: &str) -> String {
    let mut word = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

const VARIANTS: [&str; 6] = ["Directory", "File", "ReadOnly", "ReadWrite", "Device", "Reopened"];
/// More of a file than this tells a reader nothing.
const SHOWN: usize = 1024;
