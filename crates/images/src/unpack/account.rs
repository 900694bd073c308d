//! What a layer takes of the disk. Not what its headers say: one name makes all the directories on its way, and a file without a
//! byte takes an inode.

use super::error::UnpackError;
use crate::disk::{self, INODE, LOOK};
use crate::limits::Limits;
use std::os::fd::AsFd;

pub(super) struct Account {
    limits: Limits,
    pub(super) entries: u64,
    /// Of files.
    pub(super) bytes: u64,
    /// With what everything takes beside.
    pub(super) taken: u64,
    /// Written since the disk was last looked at.
    unseen: u64,
}

impl Account {
    pub(super) fn new(limits: &Limits) -> Account {
        // So that the disk is looked at with the first entry.
        Account { limits: limits.clone(), entries: 0, bytes: 0, taken: 0, unseen: LOOK }
    }

    /// Another file, directory or link, with so many bytes to come. Before it is made.
    pub(super) fn entry(&mut self, size: u64, place: impl AsFd) -> Result<(), UnpackError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(UnpackError::TooMany(self.limits.entries));
        }
        self.taken = self.taken.saturating_add(INODE);
        // Before a byte of it is written.
        if self.taken.saturating_add(size) > self.limits.layer_bytes {
            return Err(UnpackError::TooLarge(self.limits.layer_bytes));
        }
        self.look(INODE, size, place)
    }

    /// Content. Before it is written.
    pub(super) fn content(&mut self, length: u64, place: impl AsFd) -> Result<(), UnpackError> {
        self.bytes += length;
        self.taken = self.taken.saturating_add(length);
        self.look(length, 0, place)
    }

    fn look(&mut self, more: u64, to_come: u64, place: impl AsFd) -> Result<(), UnpackError> {
        self.unseen = self.unseen.saturating_add(more);
        if self.unseen < LOOK && to_come < LOOK {
            return Ok(());
        }
        self.unseen = 0;
        let reserve = self.limits.reserve;
        disk::look(place, more.saturating_add(to_come), reserve).map_err(|source| match disk::full(&source) {
            Some(full) => UnpackError::NoSpace(full),
            None => UnpackError::File { step: "look at", path: "`.`".into(), source },
        })
    }
}
