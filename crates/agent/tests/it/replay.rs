//! A recording gives one log, byte for byte, however it comes. After a change that is meant to change logs, run with
//! `BELLJAR_UPDATE_LOGS=1`, and look at the difference.

use super::{id, listen, recordings, tests, ticking};
use belljar_agent::entry::Line;
use belljar_agent::log::Log;
use belljar_agent::parse::Make;
use std::fs;

fn log(make: Make, bytes: &[u8], by: usize) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::create(folder.path(), id(), ticking()).unwrap();
    listen(make, bytes, by).0.iter().for_each(|event| log.event(event));
    assert!(log.failure().is_none());
    fs::read_to_string(log.path()).unwrap()
}

#[test]
fn a_recording_gives_the_same_log_byte_for_byte() {
    let update = std::env::var_os("BELLJAR_UPDATE_LOGS").is_some();
    for (folder, scenario, make, bytes) in recordings() {
        let path = tests().join(format!("logs/{folder}/{scenario}.log.jsonl"));
        let whole = log(make, &bytes, bytes.len());
        if update {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &whole).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(whole, expected, "{folder}/{scenario} differs from {}", path.display());
        for by in [1, 7, 1000] {
            assert_eq!(log(make, &bytes, by), whole, "{folder}/{scenario} in pieces of {by}");
        }
    }
}

#[test]
fn a_log_is_read_back_as_it_was_written() {
    for (folder, scenario, ..) in recordings() {
        let path = tests().join(format!("logs/{folder}/{scenario}.log.jsonl"));
        for text in fs::read_to_string(path).unwrap().lines() {
            let line: Line = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&line).unwrap(), text, "{folder}/{scenario}");
        }
    }
}
