//! Actions that the relay must prevent, tried without git, byte by byte. Judged by the host's repository.

use crate::relay::{Raw, Stage, commands, pack_of, policy, push, raw_push};
use crate::repository::Repository;
use belljar_git::pkt;
use belljar_spec::ByteSize;
use belljar_spec::git::{PushLimits, RefPolicy};
use std::net::{Shutdown, TcpStream};

const ZERO: &str = "0000000000000000000000000000000000000000";

/// With a branch `agent/x` on the host, one commit on top of it that the host lacks, and a pack of it.
struct Prepared {
    stage: Stage,
    clone: Repository,
    main: String,
    old: String,
    new: String,
    pack: Vec<u8>,
}

fn prepared(policy: RefPolicy) -> Prepared {
    let stage = Stage::with(policy);
    let main = stage.host.git(&["rev-parse", "main"]);
    let clone = stage.clone_as("clone");
    clone.git(&["checkout", "-q", "-b", "agent/x"]);
    let old = clone.commit("work", "one\n", "work");
    push(&clone, &["agent/x"]);
    let new = clone.commit("work", "two\n", "work");
    let list = clone.git(&["rev-list", "--objects", "--no-object-names", "agent/x", "^host/agent/x"]) + "\n";
    let pack = pack_of(&clone.folder, &list);
    Prepared { stage, clone, main, old, new, pack }
}

/// Nothing on the host has changed, and a correct push still arrives.
fn unchanged(prepared: &Prepared, attack: impl FnOnce(&Prepared)) {
    let before = prepared.stage.everything();
    attack(prepared);
    let after = prepared.stage.everything();
    let changed =
        after.iter().filter(|(path, content)| before.get(*path) != Some(*content)).map(|(path, _)| path);
    assert_eq!(changed.collect::<Vec<_>>(), Vec::<&std::path::PathBuf>::new());
    assert_eq!(before.len(), after.len());
}

fn still_works(prepared: &Prepared) {
    push(&prepared.clone, &["agent/x"]);
    assert_eq!(prepared.stage.host.git(&["rev-parse", "agent/x"]), prepared.new);
    prepared.stage.host.git(&["fsck", "--strict"]);
    prepared.stage.assert_swept();
}

#[test]
fn a_hand_written_push_that_is_right_arrives() {
    let Prepared { stage, old, new, pack, .. } = prepared(policy());
    let answer = raw_push(stage.address, &[(old, new.clone(), "refs/heads/agent/x")], &pack);
    assert_eq!(answer, "000eunpack ok\n001aok refs/heads/agent/x\n0000");
    assert_eq!(stage.host.git(&["rev-parse", "agent/x"]), new);
}

#[test]
fn requests_for_something_else() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, .. }| {
        for request in [
            &b"git-upload-archive /repo\0host=x\0"[..],
            b"git-receive-pack /etc\0host=x\0",
            b"git-receive-pack /repo/\0host=x\0",
            b"git-receive-pack /repo/../repo\0host=x\0",
            b"git-upload-pack /~root/repo\0host=x\0",
            b"git-upload-pack '/repo'\0host=x\0",
            b"git-receive-pack --help\0",
            b"upload-pack /repo\0",
            b"",
        ] {
            let answer = Raw::ask(stage.address, &pkt::data(request)).rest();
            assert!(answer[4..].starts_with("ERR "), "{}: {answer}", request.escape_ascii());
        }
        for garbage in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            b"0000",
            b"fff0",
            b"ffff",
            b"zzzz",
            b"\0\0\0\0",
            b"001",
        ] {
            let raw = Raw::ask(stage.address, garbage);
            let _ = raw.socket.shutdown(Shutdown::Write);
            let answer = raw.rest();
            assert!(answer.is_empty() || answer[4..].starts_with("ERR "), "{answer}");
        }
    });
    still_works(&prepared);
}

#[test]
fn names_that_lead_elsewhere() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, new, pack, .. }| {
        for name in [
            "refs/heads/../../config",
            "refs/heads/agent/../../../config",
            "refs/heads/agent/../../../hooks/post-checkout",
            "refs/heads/agent/x.lock",
            "refs/heads/agent//x",
            "refs/heads/agent/",
            "refs/heads/agent/-x/..",
            "refs/heads/agent/x\n",
            "refs/heads/agent/\u{1b}[2J",
            "refs/heads/agent/x y",
            "HEAD",
            "config",
            "index",
            "../config",
            "/etc/passwd",
            "ORIG_HEAD",
            "refs/stash",
            "refs/heads",
            "refs/",
            "",
        ] {
            let answer = raw_push(stage.address, &[(ZERO.to_string(), new.clone(), name)], pack);
            assert!(!answer.contains("ok refs"), "{name}: {answer}");
        }
    });
    still_works(&prepared);
}

#[test]
fn force_and_deletion_without_asking_git() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, main, old, new, pack, .. }| {
        let (stage, zero) = (stage.address, ZERO.to_string());
        for (from, to, name, code) in [
            (old, &zero, "refs/heads/agent/x", "deleted"),
            (main, &zero, "refs/heads/main", "deleted"),
            (&zero, &zero, "refs/heads/agent/x", "deleted"),
            (old, main, "refs/heads/agent/x", "not a fast-forward"),
            (&zero, new, "refs/heads/agent/x", "it moved meanwhile"),
            (main, new, "refs/heads/agent/x", "it moved meanwhile"),
            (new, new, "refs/heads/agent/x", "it moved meanwhile"),
            (old, new, "refs/heads/agent/none", "it moved meanwhile"),
            (old, new, "refs/heads/other", "may not be pushed"),
            (&zero, new, "refs/tags/v1", "tags may not"),
        ] {
            let answer = raw_push(stage, &[(from.clone(), to.clone(), name)], pack);
            assert!(
                answer.contains(&format!("ng {name} ")) && answer.contains(code),
                "{name} {code}: {answer}"
            );
        }
    });
    still_works(&prepared);
}

#[test]
fn lists_of_commands_that_mean_two_things() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, old, new, pack, .. }| {
        let good = format!("{old} {new} refs/heads/agent/x");
        let lists: [Vec<String>; 8] = [
            vec![format!("{good}\0report-status"), good.clone()],
            vec![format!("{good}\0report-status"), format!("{ZERO} {new} refs/heads/agent/y\0report-status")],
            vec!["push-cert\0report-status".to_string(), good.clone()],
            vec![format!("{good}\0report-status object-format=sha256")],
            vec![format!("{old}  {new} refs/heads/agent/x\0report-status")],
            vec![format!("{} {} refs/heads/agent/x\0report-status", &old[1..], &new[1..])],
            vec!["shallow x".to_string(), format!("{good}\0report-status")],
            vec![format!("{good} refs/heads/agent/y\0report-status")],
        ];
        for lines in lists {
            let mut raw = Raw::push(stage.address);
            for line in &lines {
                raw.send(&pkt::data(line.as_bytes()));
            }
            raw.send(b"0000");
            raw.send(pack);
            let _ = raw.socket.shutdown(Shutdown::Write);
            let answer = raw.rest();
            assert!(!answer.contains("ok refs"), "{lines:?}: {answer}");
        }
    });
    still_works(&prepared);
}

#[test]
fn packs_that_are_none() {
    let limits = PushLimits { bytes: ByteSize::mebibytes(1), objects: 100 };
    let prepared = prepared(RefPolicy { limits, ..policy() });
    unchanged(&prepared, |Prepared { stage, clone, old, new, pack, .. }| {
        let changed = |at: usize, byte: u8| {
            let mut pack = pack.clone();
            pack[at] ^= byte;
            pack
        };
        let whole = clone.git(&["rev-list", "--objects", "--no-object-names", "agent/x", "^host/agent/x"]);
        let without = |kind: &str| {
            let mut list = String::new();
            for id in whole.lines().filter(|id| clone.git(&["cat-file", "-t", id]) != kind) {
                list += &format!("{id}\n");
            }
            pack_of(&clone.folder, &list)
        };
        let mut many = b"PACK\0\0\0\x02\xff\xff\xff\xff".to_vec();
        many.extend_from_slice(&pack[12..]);
        // A tree that claims to be a tebibyte.
        let mut huge = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
        huge.extend_from_slice(&[0xa0, 0x80, 0x80, 0x80, 0x80, 0x40, 0x78, 0x9c]);
        for (what, pack) in [
            ("nothing", Vec::new()),
            ("garbage", b"hello, this is no pack".repeat(100)),
            ("another version", changed(7, 8)),
            ("a byte of an object", changed(20, 0x55)),
            ("its last byte", changed(pack.len() - 1, 1)),
            ("half of it", pack[..pack.len() / 2].to_vec()),
            ("no commit", without("commit")),
            ("no tree", without("tree")),
            ("no blob", without("blob")),
            ("none of them", pack_of(&clone.folder, "")),
            ("more than there are", many),
            ("a tebibyte", huge),
            (
                "too long",
                [pack.clone(), vec![0; 2 << 20]].concat()[..12]
                    .iter()
                    .copied()
                    .chain(vec![7; 2 << 20])
                    .collect(),
            ),
        ] {
            let answer = raw_push(stage.address, &[(old.clone(), new.clone(), "refs/heads/agent/x")], &pack);
            assert!(!answer.contains("ok refs"), "{what}: {answer}");
            assert!(answer.contains("ng refs/heads/agent/x") || answer.is_empty(), "{what}: {answer}");
        }
    });
    still_works(&prepared);
}

#[test]
fn a_branch_is_made_of_commits() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, clone, .. }| {
        clone.git(&["tag", "-a", "v1", "-m", "one", "HEAD~1"]);
        for what in ["HEAD~1:work", "HEAD~1^{tree}", "v1"] {
            let id = clone.git(&["rev-parse", what]);
            let pack = pack_of(&clone.folder, &format!("{id}\n"));
            let answer = raw_push(stage.address, &[(ZERO.to_string(), id, "refs/heads/agent/y")], &pack);
            assert!(answer.contains("ng refs/heads/agent/y"), "{what}: {answer}");
        }
    });
    still_works(&prepared);
}

#[test]
fn a_delta_on_what_is_not_in_the_pack_is_not_taken() {
    let prepared = prepared(policy());
    let clone = &prepared.clone;
    let lines = "a line that is long enough\n".repeat(1000);
    let base = clone.commit("large", &lines, "large");
    push(clone, &["HEAD:agent/large"]);
    let tip = clone.commit("large", &format!("one\n{lines}"), "larger");
    unchanged(&prepared, |Prepared { stage, clone, .. }| {
        let thin = std::process::Command::new("sh")
            .args([
                "-c",
                &format!("printf '{tip}\\n^{base}\\n' | git pack-objects --thin --revs --stdout -q"),
            ])
            .current_dir(&clone.folder)
            .output()
            .unwrap();
        let answer = raw_push(stage.address, &[(base, tip.clone(), "refs/heads/agent/large")], &thin.stdout);
        assert!(
            answer.contains("ng refs/heads/agent/large bad pack: pack has 1 unresolved delta"),
            "{answer}"
        );
    });
    // git itself does not try: the capabilities exclude it.
    push(clone, &["HEAD:agent/large"]);
    assert_eq!(prepared.stage.host.git(&["rev-parse", "agent/large"]), tip);
}

#[test]
fn the_pack_of_a_refused_push_is_read_to_its_end() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, new, .. }| {
        let mut raw = Raw::push(stage.address);
        raw.send(&commands(&[(ZERO.to_string(), new.clone(), "refs/heads/other")]));
        // Much more than any buffer holds; a client that is disconnected here would not see why.
        for _ in 0..256 {
            assert!(raw.send(&[0; 1 << 16]));
        }
        let _ = raw.socket.shutdown(Shutdown::Write);
        assert!(raw.rest().contains("ng refs/heads/other branch other may not be pushed"));
    });
    still_works(&prepared);
}

#[test]
fn clients_that_go_away_in_the_middle() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, old, new, pack, .. }| {
        let whole = [commands(&[(old.clone(), new.clone(), "refs/heads/agent/x")]), pack.clone()].concat();
        for end in (0..whole.len() - 1).step_by(23) {
            let mut raw = Raw::push(stage.address);
            raw.send(&whole[..end]);
        }
        // The relay sees that all of them are gone before the host is checked.
        for _ in 0..8 {
            Raw::push(stage.address);
        }
    });
    still_works(&prepared);
}

#[test]
fn a_thousand_connections_and_endless_commands() {
    let prepared = prepared(policy());
    unchanged(&prepared, |Prepared { stage, .. }| {
        let mut endless = Raw::push(stage.address);
        let mut line = format!("{ZERO} {} refs/heads/agent/", "a".repeat(40));
        line += &"x".repeat(100);
        let mut sent = 0;
        // One more line each time; it ends after a megabyte, not when memory is full.
        while sent < 64 << 20 && endless.send(&pkt::data(format!("{line}{sent}").as_bytes())) {
            sent += line.len();
        }
        // As many as the kernel's queue holds; the others are not even answered.
        let time_limit = std::time::Duration::from_millis(100);
        let connect = || TcpStream::connect_timeout(&stage.address, time_limit);
        let silent = (0..1000).map_while(|_| connect().ok()).collect::<Vec<_>>();
        assert!(silent.len() > 8, "{}", silent.len());
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        assert!(threads < 40, "{threads} threads for {} connections", silent.len());
        drop(silent);
    });
    still_works(&prepared);
}

/// `deepen` requests the parents of the commits where a client claims that its history ends. Git does not check whether those are
/// visible.
#[test]
fn no_history_is_deepened_into_what_is_not_shown() {
    let stage = Stage::with(policy());
    let main = stage.host.git(&["rev-parse", "main"]);
    std::fs::write(stage.host.folder.join("hidden"), "THE-SECRET\n").unwrap();
    stage.host.git(&["add", "hidden"]);
    stage.host.git(&["stash", "-q"]);
    let stash = stage.host.git(&["rev-parse", "refs/stash"]);
    for lines in [
        vec![format!("shallow {stash}\n"), "deepen 2147483647\n".into()],
        vec!["deepen 2147483647\n".into(), format!("shallow {stash}\n")],
    ] {
        let mut raw = Raw::ask(stage.address, &pkt::data(b"git-upload-pack /repo\0host=x\0"));
        raw.list();
        let mut request = pkt::data(format!("want {main} ofs-delta\n").as_bytes());
        lines.iter().for_each(|line| request.extend(pkt::data(line.as_bytes())));
        request.extend(pkt::FLUSH);
        request.extend(pkt::data(b"done\n"));
        raw.send(&request);
        assert!(!raw.rest().contains("PACK"), "{lines:?}");
    }
    // One of them alone is ordinary use.
    let mut raw = Raw::ask(stage.address, &pkt::data(b"git-upload-pack /repo\0host=x\0"));
    raw.list();
    let mut request = pkt::data(format!("want {main} ofs-delta\n").as_bytes());
    request.extend(pkt::data(b"deepen 1\n"));
    request.extend(pkt::FLUSH);
    raw.send(&request);
    raw.list();
    raw.send(&pkt::data(b"done\n"));
    assert!(raw.rest().contains("PACK"));
}
