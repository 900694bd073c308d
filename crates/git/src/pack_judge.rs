//! The interface for inspecting packs: the gateway, which forwards a push, knows only the protocol, and the implementation in
//! `workspace` knows only git.

use crate::judge::Facts;
use crate::push::Update;
use crate::{ObjectFormat, ObjectId, PushRefusal};
use belljar_spec::git::PushLimits;
use std::fs::File;
use std::io;

/// Inspects packs. All methods block.
pub trait PackJudge: Send + Sync {
    /// An empty, unnamed file that stores a push until it is judged.
    fn spool(&self) -> io::Result<File>;

    /// Takes a pack, from the file's position to its end.
    fn take(
        &self,
        pack: File,
        format: ObjectFormat,
        limits: PushLimits,
    ) -> Result<Box<dyn TakenPack>, PushRefusal>;
}

/// A pack that is being inspected.
pub trait TakenPack: Send {
    /// Commits on the server whose trees are needed to complete the inspection.
    fn needed_commits(&self) -> Vec<ObjectId>;

    /// Commits on the server whose history is needed to tell where an update's new commit comes from.
    fn origins(&self, update: &Update) -> Vec<ObjectId>;

    /// Adds more objects that the server has.
    fn add(&mut self, pack: File) -> Result<(), PushRefusal>;

    /// The findings on an update.
    fn facts(&self, update: &Update) -> Facts;
}
