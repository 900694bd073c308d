//! What is kept of templates: one small file for each, written before an answer tells of it.

use super::recipe::Surroundings;
use crate::facts::now_ms;
use crate::fault::Fault;
use belljar_api::CreateSandbox;
use belljar_spec::SnapshotName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A template of a grant: builds under one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Template {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) grant: String,
    pub(crate) name: String,
    pub(crate) created_ms: i64,
    pub(crate) builds: Vec<Build>,
    /// Which build a tag means.
    pub(crate) tags: BTreeMap<String, Tag>,
    /// Snapshots of single steps, which the next build may begin with.
    #[serde(default)]
    pub(crate) steps: Vec<SnapshotName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tag {
    pub(crate) build: String,
    pub(crate) created_ms: i64,
}

/// One build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Build {
    pub(crate) id: String,
    pub(crate) created_ms: i64,
    /// Tags that are its own once it is ready.
    pub(crate) tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mb: Option<u64>,
    pub(crate) state: BuildState,
}

/// How far a build is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BuildState {
    /// Its steps are not known yet.
    Waiting,
    /// It waits for its turn.
    Queued,
    /// In the sandbox that this request makes: after a crash it is found by it, and removed.
    Building(Box<CreateSandbox>),
    Ready(Box<Built>),
    Failed(Failure),
}

/// What came of a build: what a sandbox of it begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Built {
    pub(crate) snapshot: SnapshotName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<String>,
    pub(crate) surroundings: Surroundings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mb: Option<u64>,
}

/// Why a build failed, and at which step: its number, or the name of the first or last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) step: String,
    pub(crate) message: String,
}

impl Template {
    pub(crate) fn build(&self, id: &str) -> Option<&Build> {
        self.builds.iter().find(|build| build.id == id)
    }

    /// The build that a tag means, if it is ready.
    pub(crate) fn tagged(&self, tag: &str) -> Option<&Built> {
        match &self.build(&self.tags.get(tag)?.build)?.state {
            BuildState::Ready(built) => Some(built),
            _ => None,
        }
    }

    /// These tags mean that build from now on; without any, the usual one does.
    pub(crate) fn tag(&mut self, tags: &[String], build: &str) {
        let tag = Tag { build: build.into(), created_ms: now_ms() };
        let usual = [USUAL_TAG.to_string()];
        for name in if tags.is_empty() { &usual[..] } else { tags } {
            self.tags.insert(name.clone(), tag.clone());
        }
    }

    /// Builds that no tag means and that have ended; all snapshots but those of the other builds can go with them.
    pub(crate) fn take_untagged(&mut self) -> Vec<Built> {
        let tags = &self.tags;
        let is_named = |build: &Build| tags.values().any(|tag| tag.build == build.id);
        let gone = self
            .builds
            .extract_if(.., |build| matches!(build.state, BuildState::Ready(_)) && !is_named(build));
        gone.filter_map(|build| match build.state {
            BuildState::Ready(built) => Some(*built),
            _ => None,
        })
        .collect()
    }

    /// Every snapshot that it needs.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &SnapshotName> {
        let built = self.builds.iter().filter_map(|build| match &build.state {
            BuildState::Ready(built) => Some(&built.snapshot),
            _ => None,
        });
        built.chain(&self.steps)
    }
}

/// All templates.
pub(crate) struct Templates {
    directory: PathBuf,
    all: Mutex<HashMap<String, Template>>,
}

impl Templates {
    /// Makes the directory, and reads what is in it. A file that cannot be understood is left as it is and reported.
    pub(crate) fn open(directory: &Path) -> io::Result<Templates> {
        belljar_state::create_private(directory)?;
        let mut all = HashMap::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<Template>(&text)?)) {
                Ok(template) if template.version == VERSION => {
                    drop(all.insert(template.id.clone(), template))
                }
                Ok(template) => {
                    tracing::warn!("{} is of version {}, and is left", path.display(), template.version);
                }
                Err(error) => tracing::warn!("{} is not understood, and is left: {error}", path.display()),
            }
        }
        Ok(Templates { directory: directory.to_path_buf(), all: Mutex::new(all) })
    }

    /// One of a grant's, by its id or its name.
    pub(crate) fn find(&self, grant: &str, asked: &str) -> Option<Template> {
        let all = self.held();
        let own = |template: &&Template| template.grant == grant;
        let by_id = all.get(asked).filter(own);
        by_id.or_else(|| all.values().filter(own).find(|template| template.name == asked)).cloned()
    }

    /// A grant's own, by name.
    pub(crate) fn of_grant(&self, grant: &str) -> Vec<Template> {
        let mut own: Vec<Template> =
            self.held().values().filter(|template| template.grant == grant).cloned().collect();
        own.sort_by(|a, b| a.name.cmp(&b.name));
        own
    }

    pub(crate) fn every(&self) -> Vec<Template> {
        self.held().values().cloned().collect()
    }

    /// The grant's template of this name, made if there is none, after a change; on disk first.
    pub(crate) fn change_or_make(
        &self,
        new: Template,
        change: impl FnOnce(&mut Template),
    ) -> Result<Template, Fault> {
        let mut all = self.held();
        let known = all.values().find(|known| known.grant == new.grant && known.name == new.name);
        if known.is_none() && all.values().filter(|known| known.grant == new.grant).count() >= MAX_TEMPLATES {
            return Err(Fault::bad_request(format!(
                "this API key has {MAX_TEMPLATES} templates: delete one first"
            )));
        }
        let mut template = known.cloned().unwrap_or(new);
        change(&mut template);
        self.write(&template)?;
        all.insert(template.id.clone(), template.clone());
        Ok(template)
    }

    /// One after a change. `None`: it is gone.
    pub(crate) fn change(
        &self,
        id: &str,
        change: impl FnOnce(&mut Template),
    ) -> Result<Option<Template>, Fault> {
        let mut all = self.held();
        let Some(mut template) = all.get(id).cloned() else { return Ok(None) };
        change(&mut template);
        self.write(&template)?;
        all.insert(template.id.clone(), template.clone());
        Ok(Some(template))
    }

    /// Changes a build of one. `false`: it is gone.
    pub(crate) fn change_build(
        &self,
        template: &str,
        build: &str,
        change: impl FnOnce(&mut Build),
    ) -> Result<bool, Fault> {
        let changed = self.change(template, |template| {
            if let Some(build) = template.builds.iter_mut().find(|known| known.id == build) {
                change(build);
            }
        })?;
        Ok(changed.is_some_and(|template| template.build(build).is_some()))
    }

    pub(crate) fn remove(&self, id: &str) {
        self.held().remove(id);
        if let Err(error) = fs::remove_file(self.path(id)) {
            tracing::warn!("cannot remove what is kept of the template {id}: {error}");
        }
    }

    fn write(&self, template: &Template) -> Result<(), Fault> {
        let text = serde_json::to_vec(template).expect("plain data can be written as JSON");
        let written =
            belljar_state::write_atomic(&self.path(&template.id), &text, belljar_state::Survives::Kill);
        written
            .map_err(|error| Fault::internal(format!("cannot keep what is known of the template: {error}")))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Template>> {
        // Every change is one assignment: a panic leaves it right.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) const VERSION: u32 = 1;
/// The tag of a build that was given none, and of a template that is named without one.
pub(crate) const USUAL_TAG: &str = "default";
/// Of one grant.
const MAX_TEMPLATES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn template(id: &str, grant: &str, name: &str) -> Template {
        Template {
            version: VERSION,
            id: id.into(),
            grant: grant.into(),
            name: name.into(),
            created_ms: 1,
            builds: Vec::new(),
            tags: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    fn ready(id: &str) -> Build {
        let built = Built {
            snapshot: format!("s-{id}").parse().unwrap(),
            profile: None,
            surroundings: Surroundings::default(),
            start: None,
            ready: None,
            cpus: None,
            memory_mb: None,
        };
        let state = BuildState::Ready(Box::new(built));
        Build { id: id.into(), created_ms: 1, tags: Vec::new(), cpus: None, memory_mb: None, state }
    }

    #[test]
    fn a_grant_finds_its_own_templates_after_a_restart_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let templates = Templates::open(folder.path()).unwrap();
        templates.change_or_make(template("t1", "a", "web"), |_| {}).unwrap();
        templates.change_or_make(template("t2", "b", "web"), |_| {}).unwrap();
        // The same name is the same template.
        let again =
            templates.change_or_make(template("t3", "a", "web"), |known| known.created_ms = 7).unwrap();
        assert_eq!((again.id.as_str(), again.created_ms), ("t1", 7));
        let templates = Templates::open(folder.path()).unwrap();
        let found = |grant: &str, asked: &str| templates.find(grant, asked).map(|template| template.id);
        assert_eq!(found("a", "web").as_deref(), Some("t1"));
        assert_eq!(found("b", "t1"), None);
        assert_eq!(found("b", "web").as_deref(), Some("t2"));
        templates.remove("t1");
        assert!(Templates::open(folder.path()).unwrap().find("a", "web").is_none());
    }

    #[test]
    fn a_build_without_a_tag_goes_with_its_snapshot() {
        let mut web = template("t1", "a", "web");
        web.builds = vec![ready("one"), ready("two"), Build { state: BuildState::Waiting, ..ready("three") }];
        web.tags = [("default".into(), Tag { build: "two".into(), created_ms: 1 })].into();
        let gone = web.take_untagged();
        assert_eq!(gone.iter().map(|built| built.snapshot.to_string()).collect::<Vec<_>>(), ["s-one"]);
        assert_eq!(web.builds.len(), 2);
        assert_eq!(web.tagged("default").map(|built| built.snapshot.to_string()).as_deref(), Some("s-two"));
        assert!(web.tagged("v1").is_none());
    }
}
