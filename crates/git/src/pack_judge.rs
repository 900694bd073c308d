//! Who looks at packs. Whoever passes a push on knows the wire, and whoever looks knows git: neither knows the other.

use crate::judge::Facts;
use crate::push::Update;
use crate::{ObjectFormat, ObjectId, PushRefusal};
use belljar_spec::git::PushLimits;
use std::fs::File;
use std::io;

/// Looks at packs. All of it blocks.
pub trait PackJudge: Send + Sync {
    /// An empty file without a name, to keep a push in until it is judged.
    fn spool(&self) -> io::Result<File>;

    /// Takes a pack, from where the file stands to its end.
    fn take(
        &self,
        pack: File,
        format: ObjectFormat,
        limits: PushLimits,
    ) -> Result<Box<dyn TakenPack>, PushRefusal>;
}

/// A pack that is being looked at.
pub trait TakenPack: Send {
    /// Commits that the server has, whose trees would show what cannot be seen yet.
    fn wanted(&self) -> Vec<ObjectId>;

    /// Commits that the server has, whose history would show where an update's new place comes from.
    fn origins(&self, update: &Update) -> Vec<ObjectId>;

    /// More of what the server has.
    fn add(&mut self, pack: File) -> Result<(), PushRefusal>;

    /// What was seen of an update.
    fn facts(&self, update: &Update) -> Facts;
}
