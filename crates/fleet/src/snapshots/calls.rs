//! What callers ask of snapshots. A caller sees those that it took, and the owner of the machine all.

use super::{RequestedSnapshot, SnapshotOrder, Subject, info_of};
use crate::command::Command;
use crate::fleet::{Fleet, blocking, must_own, shown};
use crate::permission::{OWNER, Permission};
use belljar_api::{
    RestoreSandbox, Restored, SandboxRequest, SnapshotInfo, SnapshotMethod, TakeSnapshot, UndoSandbox,
};
use belljar_overlay::snapshot::{Automatic, Forking, Part, Snapshot, SnapshotError, SnapshotStore};
use belljar_spec::{ErrorCode, SandboxError, SnapshotName};

/// A sandbox that is to be forked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forkable {
    /// As it was asked for.
    pub requested: SandboxRequest,
    pub profile: String,
    pub persistent: bool,
    pub idle_s: u64,
}

impl Fleet {
    /// Takes a snapshot of a sandbox of the caller.
    pub async fn snapshot(
        &self,
        name: &str,
        take: &TakeSnapshot,
        caller: &dyn Permission,
    ) -> Result<SnapshotInfo, SandboxError> {
        let automatic = take.checkpoint.then_some(Automatic::Checkpoint);
        if let (true, Some(name)) = (take.checkpoint, &take.name) {
            return Err(ErrorCode::RequestConflict
                .error(format!("a checkpoint has no name, and `{name}` is one"))
                .hint("omit `name`, or `checkpoint`"));
        }
        let taken = self.take(name, take.name.clone(), take.how, automatic, caller).await?;
        if take.checkpoint {
            self.forget_old(name, Automatic::Checkpoint).await?;
        }
        Ok(taken)
    }

    /// The same for forks, until [`Fleet::forget_snapshot`].
    pub async fn snapshot_for_forks(
        &self,
        name: &str,
        how: SnapshotMethod,
        caller: &dyn Permission,
    ) -> Result<SnapshotInfo, SandboxError> {
        self.take(name, None, how, Some(Automatic::Fork), caller).await
    }

    async fn take(
        &self,
        name: &str,
        new: Option<SnapshotName>,
        how: SnapshotMethod,
        automatic: Option<Automatic>,
        caller: &dyn Permission,
    ) -> Result<SnapshotInfo, SandboxError> {
        let entry = self.allowed(name, caller)?;
        must_own(&entry, caller)?;
        let owner = caller.grant().to_string();
        let most = caller.most_snapshots().filter(|_| automatic.is_none());
        // Until it is taken: two at once would both find room for the last one.
        let mut _turn = None;
        if let Some(most) = most {
            _turn = Some(self.snapshot_turn(&owner).await);
            self.must_have_room(&owner, most).await?;
        }
        let order = SnapshotOrder::Take { new: RequestedSnapshot { name: new, owner, automatic }, how };
        let report = self.ask(&entry, |answer| Command::Snapshot(Box::new(order), answer)).await?;
        let id = report.snapshot.ok_or_else(|| ErrorCode::Internal.error("no snapshot was taken"))?;
        let info = self.snapshot_info(&id, caller).await?;
        Ok(SnapshotInfo { held_ms: Some(report.held_ms), ..info })
    }

    /// Those that the caller took, the oldest first.
    pub async fn snapshots(&self, caller: &dyn Permission) -> Result<Vec<SnapshotInfo>, SandboxError> {
        let owner = caller.grant().to_string();
        self.with_store(move |store| {
            let seen = |snapshot: &Snapshot| {
                (owner == OWNER || snapshot.owner == owner) && snapshot.automatic != Some(Automatic::Fork)
            };
            let all = store.all()?.into_iter().filter(seen).collect();
            Ok(store.with_users(all)?.into_iter().map(info_of).collect())
        })
        .await
    }

    /// One of them, by name or id, with its size.
    pub async fn snapshot_info(
        &self,
        name: &SnapshotName,
        caller: &dyn Permission,
    ) -> Result<SnapshotInfo, SandboxError> {
        let (name, owner) = (name.clone(), caller.grant().to_string());
        self.with_store(move |store| {
            let found = store.find(&name, &owner, owner == OWNER)?;
            let found = store.with_users(vec![found])?.pop().ok_or(SnapshotError::Unknown(name))?;
            Ok(info_of(found))
        })
        .await
    }

    /// How many bytes its topmost layer has.
    pub async fn snapshot_size(
        &self,
        name: &SnapshotName,
        caller: &dyn Permission,
    ) -> Result<u64, SandboxError> {
        let (name, owner) = (name.clone(), caller.grant().to_string());
        self.with_store(move |store| {
            let found = store.find(&name, &owner, owner == OWNER)?;
            Ok(found.layers.first().map(|layer| store.usage(*layer)).unwrap_or_default())
        })
        .await
    }

    /// Removes one. Sandboxes that were made from it keep their files.
    pub async fn remove_snapshot(
        &self,
        name: &SnapshotName,
        caller: &dyn Permission,
    ) -> Result<(), SandboxError> {
        let (name, owner) = (name.clone(), caller.grant().to_string());
        self.with_store(move |store| {
            store.remove(&store.find(&name, &owner, owner == OWNER)?)?;
            // What cannot be removed now is removed by the next sweep.
            let _ = store.collect(Forking::Perhaps);
            Ok(())
        })
        .await
    }

    /// The request of a sandbox that is to begin with a snapshot, with its id and, where changes of a root are in it, its root.
    pub async fn from_snapshot(
        &self,
        mut request: SandboxRequest,
        profile: &SandboxRequest,
        caller: &dyn Permission,
    ) -> Result<SandboxRequest, SandboxError> {
        let Some(name) = request.snapshot.clone() else { return Ok(request) };
        let (searched, owner) = (name.clone(), caller.grant().to_string());
        let found = self.with_store(move |store| Ok(store.find(&searched, &owner, owner == OWNER)?)).await?;
        if found.parts.contains(&Part::Root) {
            let root = super::root(&found.rootfs)?;
            let rootfs = request.rootfs.as_ref().or(profile.rootfs.as_ref());
            match rootfs {
                Some(rootfs) if *rootfs != root => {
                    return Err(super::other("root", &found.rootfs, &rootfs.to_string(), &name));
                }
                Some(_) => {}
                None => request.rootfs = Some(root),
            }
        }
        request.snapshot = Some(found.id);
        Ok(request)
    }

    /// What a fork of a sandbox is made of; refused where the caller may not make it anew.
    pub async fn forkable(&self, name: &str, caller: &dyn Permission) -> Result<Forkable, SandboxError> {
        let entry = self.allowed(name, caller)?;
        must_own(&entry, caller)?;
        self.ask(&entry, Command::Forkable).await
    }

    /// Puts a sandbox back to a snapshot of the caller.
    pub async fn restore(
        &self,
        name: &str,
        restore: &RestoreSandbox,
        caller: &dyn Permission,
    ) -> Result<Restored, SandboxError> {
        let to = self.snapshot_info(&restore.snapshot, caller).await?;
        self.go_back(name, to.id, !restore.force, caller).await
    }

    /// Puts a sandbox back to one of its checkpoints. That one and those that were taken after it are removed.
    pub async fn undo(
        &self,
        name: &str,
        undo: &UndoSandbox,
        caller: &dyn Permission,
    ) -> Result<Restored, SandboxError> {
        let entry = self.allowed(name, caller)?;
        must_own(&entry, caller)?;
        let steps = undo.steps as usize;
        let mut checkpoints = self.automatic_of(&entry.name, Automatic::Checkpoint).await?;
        // A removal that was interrupted may have left those of another sandbox that had this name.
        let made_ms = self.get(name, caller).await?.created_ms;
        checkpoints.retain(|checkpoint| checkpoint.created_ms >= made_ms);
        let at = checkpoints.len().checked_sub(steps).filter(|_| steps > 0);
        let Some(at) = at else {
            let message =
                format!("`{}` has {} checkpoints, and {steps} were asked for", entry.name, checkpoints.len());
            return Err(ErrorCode::NotFound
                .error(message)
                .hint("only a command that was started with a checkpoint has one"));
        };
        let restored = self.go_back(name, checkpoints[at].id.clone(), true, caller).await?;
        let undone = checkpoints[at..].to_vec();
        self.with_store(move |store| {
            for checkpoint in &undone {
                store.remove(checkpoint)?;
            }
            let _ = store.collect(Forking::Perhaps);
            Ok(())
        })
        .await?;
        Ok(restored)
    }

    async fn go_back(
        &self,
        name: &str,
        id: SnapshotName,
        saves: bool,
        caller: &dyn Permission,
    ) -> Result<Restored, SandboxError> {
        let entry = self.allowed(name, caller)?;
        must_own(&entry, caller)?;
        let owner = caller.grant().to_string();
        let saved =
            saves.then_some(RequestedSnapshot { name: None, owner, automatic: Some(Automatic::Restore) });
        let order = SnapshotOrder::Restore { snapshot: id, saved };
        let report = self.ask(&entry, |answer| Command::Snapshot(Box::new(order), answer)).await?;
        self.forget_old(name, Automatic::Restore).await?;
        let saved = match report.snapshot {
            Some(id) => Some(self.snapshot_info(&id, caller).await?),
            None => None,
        };
        let sandbox = shown(self.get(name, caller).await?, caller);
        Ok(Restored { sandbox, saved })
    }

    /// Removes layers that nothing needs, in the background of what removed their last user.
    pub(crate) async fn collect_layers(&self, forking: Forking) -> Result<usize, SandboxError> {
        self.with_store(move |store| Ok(store.collect(forking)?)).await
    }

    /// Removes the oldest of a kind, so that a few are left.
    async fn forget_old(&self, sandbox: &str, kind: Automatic) -> Result<(), SandboxError> {
        let mut all = self.automatic_of(sandbox, kind).await?;
        let old = all.len().saturating_sub(MAX_AUTOMATIC);
        if old == 0 {
            return Ok(());
        }
        all.truncate(old);
        self.with_store(move |store| {
            for snapshot in &all {
                store.remove(snapshot)?;
            }
            let _ = store.collect(Forking::Perhaps);
            Ok(())
        })
        .await
    }

    /// The oldest first.
    async fn automatic_of(&self, sandbox: &str, kind: Automatic) -> Result<Vec<Snapshot>, SandboxError> {
        let sandbox = sandbox.to_string();
        self.with_store(move |store| {
            let all = store.all()?.into_iter();
            Ok(all.filter(|known| known.sandbox == sandbox && known.automatic == Some(kind)).collect())
        })
        .await
    }

    async fn must_have_room(&self, owner: &str, most: u32) -> Result<(), SandboxError> {
        let of = owner.to_string();
        let has = self
            .with_store(move |store| {
                let all = store.all()?;
                Ok(all.iter().filter(|known| known.owner == of && known.automatic.is_none()).count())
            })
            .await?;
        if has < most as usize {
            return Ok(());
        }
        Err(ErrorCode::QuotaExceeded
            .error(format!("the grant `{owner}` has {has} snapshots, and may have {most}"))
            .hint("remove one that is not needed"))
    }

    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SnapshotStore) -> Result<T, SandboxError> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let store = SnapshotStore::at(self.registry.ground.directory());
        blocking(move || work(&store)).await
    }
}

impl Subject {
    /// Of a sandbox that is stopped, as its last shim told of it.
    pub(crate) fn stopped(
        place: crate::SandboxDir,
        record: &crate::record::Record,
    ) -> Result<Subject, SandboxError> {
        let alive = record.alive.as_ref().ok_or_else(|| crate::refusal::not_alive(&record.name))?;
        Ok(Subject {
            place,
            name: record.name.clone(),
            key: record.key.clone(),
            backend: alive.backend.clone(),
            keeps: alive.keeps.clone(),
        })
    }
}

/// Of a kind and a sandbox.
const MAX_AUTOMATIC: usize = 20;
