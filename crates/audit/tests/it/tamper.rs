//! An attacker who can write to the files.

use super::{ended_log, event, found, log_path, sandbox, verify};
use belljar_audit::{Log, Severity};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// Three logs that ended, of 6, 4 and 2 lines, and one whose writer was killed, closed by the ledger.
fn fixture() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    ended_log(folder.path(), 1, 6);
    let killed = Log::create(folder.path(), sandbox(4)).unwrap();
    (0..3).for_each(|number| killed.append(&event(number)).unwrap());
    drop(killed);
    ended_log(folder.path(), 2, 4);
    ended_log(folder.path(), 3, 2);
    folder
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().split_inclusive('\n').map(String::from).collect()
}

/// Changes the lines of a file.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let mut lines = lines(path);
    change(&mut lines);
    fs::write(path, lines.concat()).unwrap();
}

type Case = (&'static str, fn(&Path), &'static [(&'static str, Option<u64>, &'static str)]);

const LOG: &str = "0000000000000001.jsonl";
const OTHER: &str = "0000000000000002.jsonl";
const LEDGER: &str = "ledger.jsonl";

const CASES: &[Case] = &[
    (
        "a line is changed",
        |at| edit(&at.join(LOG), |lines| lines[2] = lines[2].replace("\"port\":443", "\"port\":444")),
        &[(LOG, Some(3), "line_changed")],
    ),
    (
        "the first line is changed",
        |at| edit(&at.join(LOG), |lines| lines[0] = lines[0].replace("\"port\":443", "\"port\":444")),
        &[(LOG, Some(1), "line_changed")],
    ),
    (
        "the last line is changed",
        |at| edit(&at.join(LOG), |lines| lines[5] = lines[5].replace("_ended", "_began")),
        &[(LOG, Some(6), "last_line_changed")],
    ),
    (
        "a line is made no record",
        |at| edit(&at.join(LOG), |lines| lines[2] = "hello\n".into()),
        &[(LOG, Some(3), "not_a_record")],
    ),
    (
        "a line is removed",
        |at| edit(&at.join(LOG), |lines| drop(lines.remove(3))),
        &[(LOG, Some(4), "lines_removed"), (LOG, Some(6), "cut_short")],
    ),
    (
        "the first line is removed",
        |at| edit(&at.join(LOG), |lines| drop(lines.remove(0))),
        &[(LOG, Some(1), "lines_removed"), (LOG, Some(6), "cut_short")],
    ),
    (
        "a line is put in",
        |at| edit(&at.join(LOG), |lines| lines.insert(3, lines[2].clone())),
        &[
            (LOG, Some(4), "out_of_place"),
            (LOG, Some(7), "written_after_end"),
            (LOG, Some(6), "last_line_changed"),
        ],
    ),
    (
        "text is put in",
        |at| edit(&at.join(LOG), |lines| lines.insert(3, "hello\n".into())),
        &[
            (LOG, Some(4), "not_a_record"),
            (LOG, Some(7), "written_after_end"),
            (LOG, Some(6), "last_line_changed"),
        ],
    ),
    (
        "two lines change places",
        |at| edit(&at.join(LOG), |lines| lines.swap(2, 3)),
        &[(LOG, Some(3), "lines_removed"), (LOG, Some(4), "out_of_place")],
    ),
    (
        "the last line is cut off",
        |at| edit(&at.join(LOG), |lines| drop(lines.pop())),
        &[(LOG, Some(6), "cut_short")],
    ),
    (
        "half of the last line is cut off",
        |at| edit(&at.join(LOG), |lines| lines[5].truncate(20)),
        &[(LOG, Some(6), "cut_short")],
    ),
    ("everything is cut off", |at| fs::write(at.join(LOG), "").unwrap(), &[(LOG, Some(1), "cut_short")]),
    (
        "a line is added",
        |at| edit(&at.join(LOG), |lines| lines.push("hello\n".into())),
        &[(LOG, Some(7), "not_a_record"), (LOG, Some(7), "written_after_end")],
    ),
    (
        "half a line is added",
        |at| edit(&at.join(LOG), |lines| lines.push("hello".into())),
        &[(LOG, Some(7), "written_after_end")],
    ),
    ("a log is removed", |at| fs::remove_file(at.join(LOG)).unwrap(), &[(LOG, None, "removed")]),
    (
        "two logs change places",
        |at| {
            fs::rename(at.join(LOG), at.join("x")).unwrap();
            fs::rename(at.join(OTHER), at.join(LOG)).unwrap();
            fs::rename(at.join("x"), at.join(OTHER)).unwrap();
        },
        &[
            (LOG, Some(1), "of_another_sandbox"),
            (LOG, Some(1), "not_from_ledger"),
            (LOG, Some(2), "of_another_sandbox"),
            (LOG, Some(3), "of_another_sandbox"),
            (LOG, Some(4), "of_another_sandbox"),
            (LOG, Some(5), "cut_short"),
            (OTHER, Some(1), "of_another_sandbox"),
            (OTHER, Some(1), "not_from_ledger"),
            (OTHER, Some(2), "of_another_sandbox"),
            (OTHER, Some(3), "of_another_sandbox"),
            (OTHER, Some(4), "of_another_sandbox"),
            (OTHER, Some(5), "of_another_sandbox"),
            (OTHER, Some(6), "of_another_sandbox"),
            (OTHER, Some(5), "written_after_end"),
            (OTHER, Some(4), "last_line_changed"),
        ],
    ),
    (
        "a log is copied under another name",
        |at| {
            fs::copy(at.join("0000000000000003.jsonl"), at.join("00000000000000ff.jsonl")).unwrap();
        },
        &[
            ("00000000000000ff.jsonl", Some(1), "of_another_sandbox"),
            ("00000000000000ff.jsonl", Some(2), "of_another_sandbox"),
            ("00000000000000ff.jsonl", None, "not_in_ledger"),
        ],
    ),
    (
        "the ledger forgets a line",
        |at| edit(&at.join(LEDGER), |lines| drop(lines.remove(1))),
        &[(LEDGER, Some(2), "lines_removed"), (LEDGER, None, "ledger_cut_short")],
    ),
    (
        "the ledger forgets a log",
        |at| edit(&at.join(LEDGER), |lines| drop(lines.drain(..2))),
        &[
            (LEDGER, Some(1), "lines_removed"),
            (LEDGER, None, "ledger_cut_short"),
            (LOG, None, "not_in_ledger"),
        ],
    ),
    (
        "the ledger forgets its last line",
        |at| edit(&at.join(LEDGER), |lines| drop(lines.pop())),
        &[(LEDGER, None, "ledger_cut_short")],
    ),
    (
        "the ledger's last line is changed",
        |at| edit(&at.join(LEDGER), |lines| lines[7] = lines[7].replace("true", "null")),
        &[(LEDGER, Some(8), "ledger_head_differs")],
    ),
    (
        "the ledger says that a log was shorter",
        |at| {
            edit(&at.join(LEDGER), |lines| lines[1] = lines[1].replace("\"lines\":6", "\"lines\":5"));
            edit(&at.join(LOG), |lines| drop(lines.pop()));
        },
        &[(LEDGER, Some(2), "line_changed"), (LOG, Some(5), "last_line_changed")],
    ),
    (
        "the ledger says something twice",
        |at| edit(&at.join(LEDGER), |lines| lines.push(lines[1].clone())),
        &[(LEDGER, Some(9), "out_of_place"), (LEDGER, Some(9), "ledger_contradiction")],
    ),
    (
        "the ledger is removed",
        |at| fs::remove_file(at.join(LEDGER)).unwrap(),
        &[
            (LEDGER, None, "ledger_cut_short"),
            (LOG, None, "not_in_ledger"),
            (OTHER, None, "not_in_ledger"),
            ("0000000000000003.jsonl", None, "not_in_ledger"),
            ("0000000000000004.jsonl", None, "not_in_ledger"),
        ],
    ),
    (
        "the ledger's head is removed",
        |at| fs::remove_file(at.join("ledger.head")).unwrap(),
        &[(LEDGER, None, "ledger_head_missing")],
    ),
    (
        "the ledger's head is changed",
        |at| edit(&at.join("ledger.head"), |lines| lines[0] = lines[0].replace(" ", " 0")[..86].into()),
        &[(LEDGER, None, "ledger_head_missing")],
    ),
    (
        "a log of a killed writer is cut off",
        |at| edit(&at.join("0000000000000004.jsonl"), |lines| drop(lines.pop())),
        &[("0000000000000004.jsonl", Some(3), "cut_short")],
    ),
];

#[test]
fn every_kind_of_tampering_is_found_by_file_and_line() {
    for (what, tamper, expected) in CASES {
        let folder = fixture();
        assert_eq!(found(&verify(folder.path()), Severity::Error), [], "before: {what}");
        tamper(folder.path());
        let report = verify(folder.path());
        let expected: Vec<_> =
            expected.iter().map(|(file, line, code)| (file.to_string(), *line, *code)).collect();
        assert_eq!(found(&report, Severity::Error), expected, "{what}");
        assert!(!report.is_fine(), "{what}");
        // And it does not heal.
        ended_log(folder.path(), 9, 2);
        let later = verify(folder.path());
        if what.contains("head is") {
            // There is a head again; that it was missing stays visible.
            let warned = found(&later, Severity::Warning);
            let is_reported = |(_, line, code): &(String, Option<u64>, &str)| {
                *code == "ledger_head_was_missing" && line.is_some()
            };
            assert_eq!(warned.iter().filter(|one| is_reported(one)).count(), 1, "later: {what}: {warned:?}");
        } else {
            assert!(!later.is_fine(), "later: {what}");
        }
    }
}

#[test]
fn a_chain_that_was_written_anew_is_found_by_a_hash_kept_elsewhere() {
    let folder = fixture();
    let kept = verify(folder.path()).ledger_head;
    let with = |hash| belljar_audit::verify(folder.path(), None, Some(hash), |_| {}).unwrap();
    assert!(with(kept).is_fine());
    ended_log(folder.path(), 5, 2);
    assert!(with(kept).is_fine(), "it stays in the ledger");
    // The whole log rewritten, with correct hashes.
    fs::read_dir(folder.path()).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
    (1..6).for_each(|number| ended_log(folder.path(), number, 3));
    assert!(verify(folder.path()).is_fine(), "a chain cannot know");
    let report = with(kept);
    assert_eq!(found(&report, Severity::Error), [(LEDGER.to_string(), None, "known_head_missing")]);
}

#[test]
fn one_log_can_be_asked_for() {
    let folder = fixture();
    fs::remove_file(log_path(folder.path(), sandbox(1))).unwrap();
    let only = |number| belljar_audit::verify(folder.path(), Some(sandbox(number)), None, |_| {}).unwrap();
    assert!(only(2).is_fine());
    assert_eq!(only(2).logs.len(), 1);
    assert_eq!(found(&only(1), Severity::Error), [(LOG.to_string(), None, "removed")]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any byte of any file.
    #[test]
    fn no_byte_can_be_changed(file in 0usize..6, at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let folder = fixture();
        let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut bytes = fs::read(&files[file]).unwrap();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != value);
        bytes[at] = value;
        fs::write(&files[file], bytes).unwrap();
        prop_assert!(!verify(folder.path()).is_fine(), "{:?} byte {at} to {value}", files[file]);
    }

    /// Any part of any file.
    #[test]
    fn no_part_can_be_taken_out(file in 0usize..6, from in any::<prop::sample::Index>(), count in 1usize..2000) {
        let folder = fixture();
        let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut bytes = fs::read(&files[file]).unwrap();
        let from = from.index(bytes.len());
        bytes.drain(from..(from + count).min(bytes.len()));
        fs::write(&files[file], bytes).unwrap();
        prop_assert!(!verify(folder.path()).is_fine(), "{:?} {count} bytes from {from}", files[file]);
    }

    /// Anything in the place of a file: an answer, not a crash.
    #[test]
    fn no_bytes_make_it_fall_over(file in 0usize..6, bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let folder = fixture();
        let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        fs::write(&files[file], bytes).unwrap();
        prop_assert!(!verify(folder.path()).is_fine());
        // A start continues, or says why not.
        let _ = Log::create(folder.path(), sandbox(77));
    }
}
