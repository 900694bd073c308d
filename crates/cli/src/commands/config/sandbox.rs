//! What a sandbox of `run`, `shell` and `agent run` is where no flag says it: each value, and where it comes from.

use belljar_config::{ChosenProfile, Loaded, machine};
use belljar_spec::{Limits, LimitsRequest, SandboxRequest};
use serde_json::{Value, json};

/// One value.
pub(super) struct Row {
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) origin: String,
}

/// Of all that a profile can say of a sandbox; egress is shown by itself.
pub(super) fn defaults(loaded: &Loaded) -> Vec<Row> {
    let chosen = loaded.profile.as_ref();
    let nothing = SandboxRequest::default();
    let base = chosen.map_or(&nothing, |chosen| &chosen.profile.base);
    let limits = Limits::understand(&base.limits, machine());
    let LimitsRequest { memory, cpus, pids, disk, timeout, output, open_files: _, ready: _ } = &base.limits;
    // As the help of the flags says it: what they come to is another number on each machine.
    let or = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.into());
    let row = |key, value: String, is_set: bool| {
        let origin = match chosen.filter(|_| is_set) {
            Some(chosen) => origin(chosen),
            None => "default".into(),
        };
        Row { key, value, origin }
    };
    // What the repository's own file says of the root counts before the default.
    let written = loaded.sandbox().rootfs.filter(|_| base.rootfs.is_none());
    let root = match &written {
        Some(root) => {
            Row { key: "root", value: root.to_string(), origin: "the repository's [sandbox]".into() }
        }
        None => row("root", base.rootfs.clone().unwrap_or_default().to_string(), base.rootfs.is_some()),
    };
    let at_least = base.at_least.map_or("any".into(), |least| least.as_str().to_string());
    let mut rows = vec![
        row("backend", base.backend.unwrap_or_default().to_string(), base.backend.is_some()),
        row("at_least", at_least, base.at_least.is_some()),
        root,
        row("memory", or(memory.map(|size| size.to_string()), "half of the machine's"), memory.is_some()),
        row("cpus", or(cpus.map(|cpus| cpus.to_string()), "all"), cpus.is_some()),
        row("pids", limits.pids.value.to_string(), pids.is_some()),
        row("disk", or(disk.map(|size| size.to_string()), "4g, or half of memory"), disk.is_some()),
        row("timeout", format!("{}s", limits.wall_time.value.as_secs()), timeout.is_some()),
        row("output", limits.output.value.to_string(), output.is_some()),
    ];
    if let Some(chosen) = chosen {
        let (value, origin) = (chosen.profile.name.clone(), chosen.chosen_at.to_string());
        rows.insert(0, Row { key: "profile", value, origin });
    }
    rows
}

pub(super) fn as_json(loaded: &Loaded) -> Value {
    let rows = defaults(loaded).into_iter();
    rows.map(|row| (row.key.to_string(), json!({ "value": row.value, "from": row.origin })))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn origin(chosen: &ChosenProfile) -> String {
    format!("profile {} ({})", chosen.profile.name, chosen.profile.place)
}
