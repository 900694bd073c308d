use super::*;
use crate::pkt;
use proptest::prelude::*;

const ZERO: &str = "0000000000000000000000000000000000000000";
const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn read(lines: &[&[u8]], behind: &[u8]) -> Result<(Push, Vec<u8>), PushError> {
    let mut bytes = Vec::new();
    for line in lines {
        pkt::append(&mut bytes, line);
    }
    bytes.extend_from_slice(behind);
    let mut collect = Collect::default();
    collect.feed(&bytes)?;
    collect.finish()
}

fn command(name: &str, capabilities: &str) -> Vec<u8> {
    let nul = if capabilities.is_empty() { "" } else { "\0 " };
    format!("{ZERO} {A} {name}{nul}{capabilities}").into_bytes()
}

#[test]
fn commands_then_a_pack() {
    let first = command("refs/heads/x", "report-status side-band-64k object-format=sha1 agent=git/2.47.3");
    let second = command("refs/heads/y", "");
    let (push, pack) = read(&[&first, &second], b"0000PACK").unwrap();
    assert_eq!(push.updates.len(), 2);
    assert_eq!(push.updates[1].name.as_str(), "refs/heads/y");
    assert_eq!(push.updates[0].change(), Change::Create);
    assert!(push.capabilities.has("side-band-64k"));
    assert_eq!(push.capabilities.value("agent"), Some("git/2.47.3"));
    assert_eq!(pack, b"PACK");
}

#[test]
fn options_come_between() {
    let first = command("refs/heads/x", "report-status push-options");
    let (push, pack) = read(&[&first], b"00000008ci.s0000PACK").unwrap();
    assert_eq!((push.options, pack), (vec![b"ci.s".to_vec()], b"PACK".to_vec()));
}

#[test]
fn a_list_of_nothing_is_a_probe() {
    let (push, pack) = read(&[], b"0000").unwrap();
    assert_eq!((push.updates.len(), pack.len(), push.brings_pack()), (0, 0, false));
}

/// The error, the lines, and the bytes that follow them.
type Case<'a> = (&'a str, Vec<&'a [u8]>, &'a [u8]);

#[test]
fn pushes_that_are_refused() {
    let fine = command("refs/heads/x", "report-status");
    let sha256 = format!("{} {} refs/heads/y", "0".repeat(64), "a".repeat(64));
    let cases: [Case<'_>; 18] = [
        ("cut off", vec![&fine], b""),
        ("cut off in a packet", vec![&fine], b"00"),
        ("a pack without an end of the commands", vec![&fine], b"PACK"),
        ("a signed push", vec![b"push-cert\0 report-status\n"], b"0000"),
        ("capabilities twice", vec![&fine, b"\0\0"], b"0000"),
        ("twice the same ref", vec![&fine, &fine[..94]], b"0000"),
        ("two lengths of ids", vec![&fine, sha256.as_bytes()], b"0000"),
        ("ids of another kind", vec![b"shallow aa"], b"0000"),
        ("not a name", vec![b"0000000000000000000000000000000000000000 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa main"], b"0000"),
        ("a tab", vec![b"0000000000000000000000000000000000000000\taaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa refs/heads/x"], b"0000"),
        ("two spaces", vec![b"0000000000000000000000000000000000000000  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa refs/heads/x"], b"0000"),
        ("two newlines", vec![b"0000000000000000000000000000000000000000 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa refs/heads/x\n\n"], b"0000"),
        ("nothing", vec![b""], b"0000"),
        ("one id", vec![b"0000000000000000000000000000000000000000"], b"0000"),
        ("a delimiter", vec![&fine], b"00010000"),
        ("an end of a response", vec![&fine], b"00020000"),
        ("a length that is none", vec![&fine], b"00030000"),
        ("a space in front", vec![b" 0000000000000000000000000000000000000000 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa refs/heads/x"], b"0000"),
    ];
    for (what, lines, behind) in cases {
        assert!(read(&lines, behind).is_err(), "{what}");
    }
}

#[test]
fn too_many_refs_are_refused() {
    let lines: Vec<Vec<u8>> =
        (0..=MAX_UPDATES).map(|index| command(&format!("refs/heads/{index}"), "")).collect();
    let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
    assert_eq!(read(&lines, b"0000"), Err(PushError::TooMany));
    assert!(read(&lines[1..], b"0000").is_ok());
}

/// Pushes of git 2.47, up to where the pack begins: `git push origin x`, with `-o`, of two refs at once, a deletion, and
/// out of a shallow clone.
#[test]
fn golden_pushes_of_git() {
    for (bytes, updates, options, shallow) in GOLDEN {
        let mut collect = Collect::default();
        assert_eq!(collect.feed(bytes.as_bytes()), Ok(true), "{bytes}");
        let (push, rest) = collect.finish().unwrap();
        let found = (push.updates.len(), push.options.len(), push.shallow.len());
        assert_eq!(found, (updates, options, shallow), "{bytes}");
        assert_eq!(rest, b"", "{bytes}");
        assert_eq!(String::from_utf8(push.bytes()).as_deref(), Ok(bytes), "written as git writes it");
    }
}

fn any_push() -> impl Strategy<Value = Push> {
    let id = "[0-9a-f]{40}".prop_map(|text| text.parse::<ObjectId>().unwrap());
    let name = "[a-z]{1,8}(/[a-z]{1,8})?"
        .prop_map(|name| RefName::parse(format!("refs/heads/{name}").as_bytes()).unwrap());
    let update = (id.clone(), id.clone(), name).prop_map(|(old, new, name)| Update { old, new, name });
    let options = proptest::option::of(proptest::collection::vec("[a-z=.]{0,10}", 0..3));
    (proptest::collection::vec(update, 1..5), proptest::collection::vec(id, 0..3), options).prop_map(
        |(mut updates, shallow, options)| {
            let mut names = HashSet::new();
            updates.retain(|update| names.insert(update.name.clone()));
            let mut capabilities: Capabilities =
                ["report-status", "object-format=sha1"].into_iter().collect();
            if options.is_some() {
                capabilities.add("push-options");
            }
            let options = options.unwrap_or_default().into_iter().map(String::into_bytes).collect();
            Push { updates, shallow, capabilities, options }
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let mut collect = Collect::default();
        if collect.feed(&bytes).is_ok() {
            let _ = collect.finish();
        }
    }

    #[test]
    fn any_lines_are_read_or_refused(lines in proptest::collection::vec("[0a \\x00s]{0,100}", 0..4)) {
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let _ = read(&lines, b"0000");
    }

    #[test]
    fn what_is_written_is_read(push in any_push(), pack: Vec<u8>, cut in 0usize..500) {
        let mut bytes = push.bytes();
        bytes.extend_from_slice(&pack);
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let mut collect = Collect::default();
        collect.feed(first).unwrap();
        prop_assert!(collect.feed(second).unwrap());
        prop_assert_eq!(collect.finish().unwrap(), (push, pack));
    }
}

/// The bytes, and their number of refs, options and shallow lines.
const GOLDEN: [(&str, usize, usize, usize); 5] = [
    (
        "00ac0000000000000000000000000000000000000000 ccaf1094fc47312a900ced43b069cb0de8c22942 refs/heads/x\0 \
         report-status-v2 side-band-64k quiet object-format=sha1 agent=git/2.47.30000",
        1,
        0,
        0,
    ),
    (
        "00b90000000000000000000000000000000000000000 ccaf1094fc47312a900ced43b069cb0de8c22942 refs/heads/y\0 \
         report-status-v2 side-band-64k quiet push-options object-format=sha1 agent=git/2.47.3\
         0000000bci.skip0005b0000",
        1,
        2,
        0,
    ),
    (
        "00ac0000000000000000000000000000000000000000 ccaf1094fc47312a900ced43b069cb0de8c22942 refs/heads/z\0 \
         report-status-v2 side-band-64k quiet object-format=sha1 agent=git/2.47.3\
         00620000000000000000000000000000000000000000 ccaf1094fc47312a900ced43b069cb0de8c22942 refs/tags/v1\
         0000",
        2,
        0,
        0,
    ),
    (
        "00acccaf1094fc47312a900ced43b069cb0de8c22942 0000000000000000000000000000000000000000 refs/heads/z\0 \
         report-status-v2 side-band-64k quiet object-format=sha1 agent=git/2.47.30000",
        1,
        0,
        0,
    ),
    (
        "0035shallow ccaf1094fc47312a900ced43b069cb0de8c22942\n\
         00acccaf1094fc47312a900ced43b069cb0de8c22942 990ca793a39ec5582a45fc1855378b566b6743d0 refs/heads/x\0 \
         report-status-v2 side-band-64k quiet object-format=sha1 agent=git/2.47.30000",
        1,
        0,
        1,
    ),
];
