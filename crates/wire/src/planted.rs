//! The note of mount points that were made in a folder of the host: written before they are made, read by the process that
//! removes them. A note is a file of frames, one for each sandbox that made mount points in the same folder.

use crate::frame::{self, Frame, FrameReader, Tag};
use crate::message::{self, Bytes, Mountpoint};
use serde::{Deserialize, Serialize};

/// Mount points that one sandbox made in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planted {
    /// Where the folder was.
    pub folder: Bytes,
    /// Which one it was: mount points are looked for in no other folder of the same name.
    pub device: u64,
    pub inode: u64,
    /// In the order in which they were made.
    pub mountpoints: Vec<Mountpoint>,
}

/// What is added to a note, at once.
pub fn encode(planted: &Planted) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(Tag::Message, &message::encode(planted), &mut bytes);
    bytes
}

/// All that a note says, up to where it makes no sense any more.
pub fn decode(note: &[u8]) -> Vec<Planted> {
    let mut reader = FrameReader::default();
    reader.push(note);
    let next = || match reader.next_frame() {
        Ok(Some(Frame { tag: Tag::Message, payload })) => message::decode(&payload),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

/// The mount points that a note names in this folder, the last one made first.
pub fn mountpoints_of(note: &[u8], device: u64, inode: u64) -> Vec<Mountpoint> {
    let here = decode(note).into_iter().filter(|planted| (planted.device, planted.inode) == (device, inode));
    let mut mountpoints: Vec<Mountpoint> = here.flat_map(|planted| planted.mountpoints).collect();
    mountpoints.reverse();
    mountpoints
}

/// A note of very many sandboxes, in bytes.
pub const MAX_NOTE_BYTES: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MountpointKind;

    #[test]
    fn a_note_keeps_what_was_added_and_a_torn_end_spoils_nothing() {
        let planted = |path: &str| Planted {
            folder: Bytes(b"/w".to_vec()),
            device: 1,
            inode: 300,
            mountpoints: vec![Mountpoint { path: path.into(), kind: MountpointKind::Directory }],
        };
        let first = encode(&planted("a"));
        assert_eq!(first, [11, 0, 0, 0, 0, 2, b'/', b'w', 1, 0xac, 2, 1, 1, b'a', 0]);
        let both = [first, encode(&planted("b"))].concat();
        assert_eq!(decode(&both), [planted("a"), planted("b")]);
        assert_eq!(decode(&both[..both.len() - 1]), [planted("a")]);
        assert_eq!(decode(&[]), []);
        let paths = |inode: u64| -> Vec<String> {
            mountpoints_of(&both, 1, inode).into_iter().map(|mountpoint| mountpoint.path).collect()
        };
        assert_eq!(paths(300), ["b", "a"]);
        assert_eq!(paths(301), Vec::<String>::new());
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..512)) {
            let _ = decode(&bytes);
        }
    }
}
