//! The bytes of each message, and what is none.

use super::*;

#[test]
fn golden_bytes_of_messages() {
    let exec = Request::Exec(Exec {
        argv: vec![Bytes(b"true".to_vec())],
        env: vec![(Bytes(b"A".to_vec()), Bytes(b"b".to_vec()))],
        cwd: "/w".into(),
        stdio: Stdio::Terminal(WindowSize { rows: 24, cols: 80 }),
    });
    assert_eq!(
        encode(&exec),
        [0, 1, 4, b't', b'r', b'u', b'e', 1, 1, b'A', 1, b'b', 2, b'/', b'w', 1, 24, 80]
    );
    assert_eq!(encode(&ExecEvent::Ended { ending: Ending::Exited(1), disk: Disk::Free }), [0, 0, 2, 0]);
    assert_eq!(encode(&ExecEvent::Ended { ending: Ending::Signaled(9), disk: Disk::Full }), [0, 1, 18, 1]);
    assert_eq!(encode(&ExecControl::Signal(15)), [2, 30]);
    assert_eq!(
        encode(&SetupReply::Ready(Confined { landlock_abi: 7, egress: None, is_supervised: false })),
        [0, 7, 0, 0]
    );
    let egress =
        EgressReport { families: Families::Both, caught: Caught::Nothing, listeners: 0, routes: vec![2, 1] };
    assert_eq!(
        encode(&SetupReply::Ready(Confined { landlock_abi: 7, egress: Some(egress), is_supervised: false })),
        [0, 7, 1, 1, 2, 0, 2, 2, 1, 0]
    );
}

#[test]
fn golden_bytes_of_what_living_sandboxes_need() {
    let rename = Request::Rename { from: "a".into(), to: "b".into() };
    assert_eq!(encode(&rename), [7, 1, b'a', 1, b'b']);
    assert_eq!(encode(&Request::Connect { port: 8080 }), [8, 0x90, 0x3f]);
    assert_eq!(encode(&Request::Pause), [9]);
    assert_eq!(encode(&Request::Resume), [10]);
    assert_eq!(encode(&Request::Watch { path: ".".into(), recursive: true }), [11, 1, b'.', 1]);
    assert_eq!(encode(&ExecEvent::Paused), [3]);
    assert_eq!(encode(&ExecEvent::Taken(65_536)), [4, 0x80, 0x80, 4]);
    assert_eq!(encode(&ExecEvent::Stopped), [5]);
    assert_eq!(encode(&ExecEvent::Started(300)), [6, 0xac, 2]);
    let link = Some(Bytes(b"t".to_vec()));
    let attributes = vec![(Bytes(b"a".to_vec()), Bytes(Vec::new()))];
    let (kind, owner) = (EntryKind::Symlink, (0, 5));
    let metadata = Metadata { kind, size: 1, mtime_ms: 1, mode: 0o777, owner, link, attributes };
    assert_eq!(encode(&metadata), [2, 1, 2, 0xff, 3, 0, 5, 1, 1, b't', 1, 1, b'a', 0]);
    let attributes = vec![("a".into(), Bytes(b"b".to_vec()))];
    let set = Request::SetAttributes { path: "p".into(), prefix: "x".into(), attributes };
    assert_eq!(encode(&set), [12, 1, b'p', 1, b'x', 1, 1, b'a', 1, b'b']);
    let change = |kind, path: &[u8]| Change { kind, path: Bytes(path.to_vec()) };
    let changes = vec![change(ChangeKind::Created, b"f"), change(ChangeKind::Overflow, b"")];
    assert_eq!(encode(&Reply::Changes(changes)), [5, 2, 0, 1, b'f', 3, 0]);
}

#[test]
fn golden_bytes_of_an_egress_setup() {
    let routes = EgressSetup { catch: None, routes: vec![8080, 9418] };
    assert_eq!(encode(&Step::OpenEgress(routes)), [18, 0, 2, 0x90, 0x3f, 0xca, 0x49]);
    let catch = Catch { ipv4: [198, 18, 0, 1], ipv6: [6; 16], port: 1, ports_without_netfilter: vec![443] };
    let mut expected = vec![18, 1, 198, 18, 0, 1];
    expected.extend([6; 16]);
    expected.extend([1, 1, 0xbb, 0x03, 0]);
    assert_eq!(encode(&Step::OpenEgress(EgressSetup { catch: Some(catch), routes: Vec::new() })), expected);
}

#[test]
fn golden_bytes_of_a_root_of_layers() {
    let root = Step::RootOverlay {
        holder: Source::Passed(1),
        lowers: vec!["b".into(), "a".into()],
        layer: None,
        mountpoints: vec![Mountpoint { path: "d".into(), kind: MountpointKind::Directory }],
        links: vec![("l".into(), "/d".into())],
        owner: Some((0, 0)),
        sealed: Some((Source::Passed(2), vec!["s".into()])),
    };
    let bytes = [
        22, 1, 1, 2, 1, b'b', 1, b'a', 0, 1, 1, b'd', 0, 1, 1, b'l', 2, b'/', b'd', 1, 0, 0, 1, 1, 2, 1, 1,
        b's',
    ];
    assert_eq!(encode(&root), bytes);
    assert_eq!(decode(&bytes), Some(root));
}

#[test]
fn golden_bytes_of_a_prepared_root() {
    let step = Step::PreparedRoot { source: Source::Passed(2), holds: vec!["usr".into()] };
    assert_eq!(encode(&step), [29, 1, 2, 1, 3, b'u', b's', b'r']);
    assert_eq!(encode(&Step::Restrict(Restriction::NoSetuid)), [30, 1]);
    let files = vec![("id".into(), Bytes(b"7".to_vec()))];
    let bytes = [31, 3, b'o', b'w', b'n', 1, 2, b'i', b'd', 1, b'7'];
    assert_eq!(encode(&Step::OwnFiles { target: "own".into(), files }), bytes);
}

#[test]
fn golden_bytes_of_what_a_container_needs() {
    assert_eq!(encode(&Step::Stage { place: "/s".into() }), [23, 2, b'/', b's']);
    assert_eq!(encode(&Step::Uncover { cover: "/s".into() }), [24, 2, b'/', b's']);
    assert_eq!(encode(&Step::ActAs { uid: 1, gid: 2 }), [25, 1, 2]);
    assert_eq!(encode(&Step::JoinNetwork), [26]);
    assert_eq!(encode(&Step::NetworkIsReady { egress: None, report: None }), [27, 0, 0]);
    let routes = EgressSetup { catch: None, routes: vec![80] };
    assert_eq!(encode(&Step::RelayEgress(routes)), [28, 0, 1, 80]);
}

#[test]
fn golden_bytes_of_an_overlay() {
    let mountpoint = |path: &str, kind: MountpointKind| Mountpoint { path: path.into(), kind };
    let overlay = Step::Overlay {
        target: "w".into(),
        folder: Source::Path("/f".into()),
        layer: Source::Passed(1),
        upper: "u".into(),
        work: "k".into(),
        mountpoints: vec![
            mountpoint("d", MountpointKind::Directory),
            mountpoint("f", MountpointKind::File(Bytes(b".".to_vec()))),
        ],
        lowers: vec!["l".into()],
    };
    let expected = [
        21, 1, b'w', 0, 2, b'/', b'f', 1, 1, 1, b'u', 1, b'k', 2, 1, b'd', 0, 1, b'f', 1, 1, b'.', 1, 1, b'l',
    ];
    assert_eq!(encode(&overlay), expected);
    let held = Step::Bind {
        source: Source::Inside("w".into()),
        target: "w".into(),
        kind: NodeKind::Directory,
        access: Access::ReadOnly,
    };
    assert_eq!(encode(&held), [5, 2, 1, b'w', 1, b'w', 0, 0]);
    assert_eq!(encode(&Source::Planted("p".into())), [3, 1, b'p']);
    let judged = Source::Judged { path: "/j".into(), device: 300, inode: 7 };
    assert_eq!(encode(&judged), [4, 2, b'/', b'j', 0xac, 2, 7]);
    assert_eq!(encode(&Source::OwnProgram), [5]);
    assert_eq!(encode(&Source::Script(Bytes(b"#".to_vec()))), [6, 1, b'#']);
    assert_eq!(encode(&Access::Reopened), [3]);
}

#[test]
fn trailing_bytes_are_not_a_message() {
    let mut bytes = encode(&ExecControl::CloseStdin);
    bytes.push(0);
    assert_eq!(decode::<ExecControl>(&bytes), None);
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..512)) {
        let _ = decode::<ExecEvent>(&bytes);
        let _ = decode::<Reply>(&bytes);
        let _ = decode::<SetupReply>(&bytes);
        let _ = decode::<Request>(&bytes);
        let _ = decode::<Setup>(&bytes);
    }
}
