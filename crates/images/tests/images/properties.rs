//! Archives by chance: whatever is in them, nothing happens beside the layer, and nothing panics.

use crate::archive::{Header, Tar};
use crate::hostile::Cage;
use belljar_images::Limits;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => "[ab]",
        1 => Just("..".to_string()),
        1 => Just(".".to_string()),
        1 => Just(String::new()),
        1 => Just("canary".to_string()),
        1 => Just(".wh.a".to_string()),
        1 => Just(".wh..wh..opq".to_string()),
        1 => Just(".wh...".to_string()),
    ];
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

fn entry() -> impl Strategy<Value = (Header, Vec<u8>, Option<String>)> {
    let kind = prop::sample::select(b"00001122255536xLKgS7".to_vec());
    (kind, name(), name(), 0u32..0o10000, prop::collection::vec(any::<u8>(), 0..40), prop::option::of(name()))
        .prop_map(|(kind, name, link, mode, content, long)| {
            let size = if matches!(kind, b'0' | b'7' | b'x' | b'L' | b'K' | b'g') {
                content.len() as u64
            } else {
                0
            };
            let link = link.into_bytes();
            (Header { link, mode, size, ..Header::new(kind, name) }, content[..size as usize].to_vec(), long)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_layer_holds_it_stays_in_its_directory(
        entries in prop::collection::vec(entry(), 0..12),
        flip in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut tar = Tar::default();
        for (header, content, long) in entries {
            if let Some(long) = long {
                tar = tar.long_name(long);
            }
            tar = tar.raw(&header, &content);
        }
        let mut layer = tar.end();
        if let Some((at, byte)) = flip {
            let at = at.index(layer.len());
            layer[at] = byte;
        }
        if let Some(cut) = cut {
            layer.truncate(cut.index(layer.len()));
        }
        // The cage looks at what is beside the layer, whatever comes of it.
        let _ = Cage::new().unpack_with(&layer, &Limits { layer_bytes: 1 << 20, entries: 100, ..Limits::default() });
    }

    #[test]
    fn any_bytes_are_a_layer_or_none(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = Cage::new().unpack(&bytes);
    }
}
