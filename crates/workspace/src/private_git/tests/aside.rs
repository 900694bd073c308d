//! Commits that were set aside are judged again when a branch takes them over; and floods of refs that are no commits.

use super::pair::{ID, Pair, aside, commit, git};
use std::fs;
use std::time::{Duration, Instant};

/// A commit inside that makes `sub` a submodule.
fn gitlink(pair: &Pair, to: &str) {
    pair.agent(&["update-index", "--add", "--cacheinfo", &format!("160000,{to},sub")]);
    pair.agent(&["commit", "-q", "-m", "gitlink"]);
}

const ANY: &str = "1234567890123456789012345678901234567890";

#[test]
fn a_submodule_that_was_set_aside_stays_aside_on_another_branch() {
    let mut pair = Pair::new();
    let before = pair.at_host("main");
    pair.agent(&["checkout", "-q", "-b", "x"]);
    gitlink(&pair, ANY);
    pair.import();
    assert_eq!(pair.at_host(&format!("refs/belljar/{ID}/heads/x")), pair.agent(&["rev-parse", "x"]));
    pair.agent(&["checkout", "-q", "main"]);
    pair.import();
    pair.agent(&["merge", "-q", "--ff-only", "x"]);
    let report = pair.import();
    assert_eq!(pair.at_host("main"), before, "{report:?}");
    assert!(!pair.user(&["ls-files", "-s"]).contains("160000"));
    // Nor by a commit that builds on it, nor at the end.
    pair.agent_commits("more", "x\n");
    pair.import();
    let report = pair.finish();
    assert_eq!(pair.at_host("main"), before, "{report:?}");
    assert!(!pair.user(&["ls-files", "-s"]).contains("160000"));
}

#[test]
fn a_first_commit_that_was_set_aside_is_judged_again() {
    let mut pair = Pair::of(&["-b", "main"], |_| {});
    pair.agent(&["symbolic-ref", "HEAD", "refs/heads/x"]);
    gitlink(&pair, ANY);
    pair.agent_commits("more", "x\n");
    pair.import();
    pair.agent(&["update-ref", "refs/heads/main", "x"]);
    pair.agent(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    let report = pair.import();
    assert_eq!(pair.at_host("main"), "", "{report:?}");
    assert!(!pair.user(&["ls-files", "-s"]).contains("160000"));
}

#[test]
fn workflows_that_were_set_aside_stay_aside_on_another_branch() {
    let mut pair = Pair::new();
    pair.policy.workflows = false;
    let before = pair.at_host("main");
    pair.agent(&["checkout", "-q", "-b", "x"]);
    pair.agent_commits(".github/workflows/ci.yml", "on: push\n");
    pair.import();
    pair.agent(&["checkout", "-q", "main"]);
    pair.agent(&["merge", "-q", "--ff-only", "x"]);
    let report = pair.import();
    assert_eq!(pair.at_host("main"), before, "{report:?}");
}

#[test]
fn a_submodule_goes_to_no_commit_that_the_host_has_not_in_the_middle_of_others_either() {
    let mut pair = Pair::of(&["-b", "main"], |folder| {
        commit(folder, "README", "first\n");
        let entry = format!("160000,{ANY},sub");
        git(folder, &[], &["update-index", "--add", "--cacheinfo", &entry]);
        git(folder, &[], &["commit", "-q", "-m", "sub"]);
    });
    let before = pair.at_host("main");
    gitlink(&pair, &ANY.replace('1', "2"));
    pair.agent_commits("more", "x\n");
    let report = pair.import();
    assert_eq!(pair.at_host("main"), before, "{report:?}");
    assert!(aside(&report)[0].1.contains("has no commit"), "{report:?}");
}

#[test]
fn logs_that_name_anything_take_no_time() {
    let mut pair = Pair::new();
    let line = |number: u32| format!("{0:040x} {0:040x} A <a> 1 +0000\tx\n", u64::from(number) << 20 | 1);
    let lines = (0..50_000).map(line).collect::<String>();
    super::pair::write(&pair.private(), "logs/HEAD", &lines);
    super::pair::write(&pair.private(), "logs/refs/stash", &lines);
    super::pair::write(&pair.private(), "refs/stash", &format!("{}\n", &line(1)[..40]));
    let began = Instant::now();
    let tip = pair.agent_commits("work", "x\n");
    let report = pair.finish();
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    assert!(report.set_aside.len() < 300, "{}", report.set_aside.len());
    assert_eq!(pair.at_host("main"), tip);
}

#[test]
fn a_name_that_a_shell_would_run_is_kept_under_another() {
    let mut pair = Pair::new();
    pair.agent(&["checkout", "-q", "-b", "x;$(touch${IFS}canary)`id`"]);
    gitlink(&pair, ANY);
    let report = pair.import();
    let names = aside(&report).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert!(names.iter().any(|name| name.ends_with(": refs/belljar/ID/kept/0")), "{names:?}");
    let kept = pair.user(&["for-each-ref", "--format=%(refname)", "refs/belljar"]);
    assert!(!kept.contains('$'), "{kept}");
}

#[test]
fn a_link_in_the_place_of_packs_keeps_nothing_from_coming_out() {
    let mut pair = Pair::new();
    let tip = pair.agent_commits("work", "x\n");
    fs::remove_dir_all(pair.private().join("objects/pack")).unwrap();
    std::os::unix::fs::symlink("/", pair.private().join("objects/pack")).unwrap();
    pair.finish();
    assert_eq!(pair.at_host("main"), tip);
    pair.finish();
}

#[test]
fn trees_that_name_very_much_are_refused() {
    let mut pair = Pair::new();
    let mut inner = pair.agent(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let file = pair.place.join("tree");
    // Missing objects, more than a walk remembers.
    for number in 0..2_u8 {
        let mut tree = [b"40000 a\0".as_slice(), &super::hostile::hex(&inner)].concat();
        for entry in 0..600_000_u32 {
            tree.extend_from_slice(b"100644 b\0");
            tree.extend_from_slice(&[number; 16]);
            tree.extend_from_slice(&entry.to_be_bytes());
        }
        fs::write(&file, tree).unwrap();
        inner = pair.agent(&["hash-object", "-t", "tree", "-w", "--literally", file.to_str().unwrap()]);
    }
    let tip = pair.agent(&["commit-tree", "-m", "bomb", "-p", "HEAD", &inner]);
    pair.agent(&["update-ref", "refs/heads/bomb", &tip]);
    let report = pair.import();
    assert_eq!(aside(&report)[0].0, "refs/heads/bomb: -", "{report:?}");
    assert!(aside(&report)[0].1.contains("names of objects"), "{report:?}");
}
