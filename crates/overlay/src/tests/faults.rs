//! An apply that is killed, runs out of space, or is not alone: each file old or new, and nothing left behind.

use super::*;
use crate::apply::{self, Mended, Point};
use crate::{Conflict, ConflictWhy};
use belljar_sys::rustix::process::{Signal, getpid, kill_process};
use std::process::Command;

/// One of everything that an apply does.
fn of_everything() -> Bench {
    let bench = Bench::with(&[
        ("modified", "old"),
        ("deleted", "old"),
        ("mode", "old"),
        ("file-to-dir", "old"),
        ("dir-to-file/x", "old"),
        ("tree/a", "old"),
        ("tree/sub/b", "old"),
        ("closed/x", "old"),
    ]);
    bench.copied("modified", "new");
    bench.whiteout("deleted");
    bench.copied("mode", "old");
    mode(&bench.upper().join("mode"), 0o755);
    bench.put("file-to-dir/inside", "new");
    bench.put("dir-to-file", "new");
    bench.whiteout("tree");
    bench.copied("closed/x", "new");
    mode(&bench.upper().join("closed"), 0o711);
    bench.put("added/deep/file", "new");
    link("new", &bench.upper().join("added/link"));
    bench
}

fn after(_: &Bench) -> Tree {
    let mut twin = of_everything();
    twin.apply(&[]).unwrap();
    twin.tree()
}

/// The other process: applies the layer of a folder, and is killed at the point of a number.
#[test]
#[ignore = "a part of the tests below"]
fn child() {
    let Some(root) = std::env::var_os("BELLJAR_LAYER_TEST") else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let root = PathBuf::from(root);
    let layers = Layers::at(&root.join("state"));
    let mut layer = layers.of(&root.join("folder")).unwrap().remove(0);
    if std::env::var_os("BELLJAR_LAYER_MOUNTED").is_some() {
        layer.identity = beneath::identity_of(File::open(&layer.folder).unwrap()).unwrap();
    }
    let selection: Vec<String> = std::env::var("BELLJAR_LAYER_PATHS")
        .map(|text| text.split(':').map(String::from).collect())
        .unwrap_or_default();
    let selection = selected(&selection.iter().map(String::as_str).collect::<Vec<_>>());
    let stop = number("BELLJAR_LAYER_STOP");
    let mut reached = 0;
    let held = layer.hold().unwrap();
    let result = apply::apply(&held, &selection, &mut |_| {
        if Some(reached) == stop {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        reached += 1;
    });
    match result {
        Ok(applied) if !applied.kept => held.discard().unwrap(),
        Ok(_) => {}
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

fn start(bench: &Bench) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "tests::faults::child", "--ignored", "--nocapture"])
        .env("BELLJAR_LAYER_TEST", bench.root.path());
    command
}

fn no_temporary_name(tree: &Tree) {
    assert!(tree.keys().all(|name| !name.starts_with(b".belljar-apply")), "{:?}", tree.keys());
}

/// Killed at the point of each number until it is no longer killed.
fn killed_everywhere(paths: &[&str], selected_after: &dyn Fn(&Bench) -> Tree) {
    let (mut undone, mut finished) = (0, 0);
    for stop in 0.. {
        let mut bench = of_everything();
        let before = bench.tree();
        bench.layer.take().unwrap().release();
        let mut command = start(&bench);
        if !paths.is_empty() {
            command.env("BELLJAR_LAYER_PATHS", paths.join(":"));
        }
        let output = command.env("BELLJAR_LAYER_STOP", stop.to_string()).output().unwrap();
        let expected = selected_after(&bench);
        if output.status.success() {
            assert_eq!(bench.tree(), expected);
            break;
        }
        assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
        // Each file is old or new, or (a directory or a deleted file) not there.
        for (path, found) in &bench.tree() {
            let known = [before.get(path), expected.get(path)].into_iter().flatten();
            let is_ours = path.starts_with(b".belljar-apply");
            // A directory that is being filled is open to its owner.
            let same = |other: &(Kind, u32, Vec<u8>)| other == found || found.0 == Kind::Directory;
            assert!(is_ours || known.clone().any(same), "{}: {found:?}", String::from_utf8_lossy(path));
        }
        assert!(bench.layers().sweep().unwrap().is_empty());
        let tree = bench.tree();
        no_temporary_name(&tree);
        if tree == before {
            undone += 1;
            // Nothing is lost: it can still be applied.
            bench.apply(paths).unwrap();
            assert_eq!(bench.tree(), expected);
        } else {
            finished += 1;
            assert_eq!(tree, expected, "stopped at {stop}");
        }
    }
    assert!(undone > 20 && finished > 0, "{undone} undone, {finished} finished");
}

#[test]
fn killed_at_any_step_each_file_is_old_or_new_and_the_next_command_mends_it() {
    killed_everywhere(&[], &after);
}

#[test]
fn killed_in_a_part_the_rest_of_the_layer_stays() {
    let paths = ["modified", "tree", "added", "file-to-dir"];
    killed_everywhere(&paths, &|_| {
        let mut twin = of_everything();
        assert!(twin.apply(&paths).unwrap().kept);
        twin.tree()
    });
}

#[test]
fn a_file_that_was_edited_after_a_kill_is_left_alone() {
    let mut bench = of_everything();
    bench.layer.take().unwrap().release();
    // Past every swap, before the commit.
    let stop = (0..200)
        .find(|stop| {
            let status = start(&bench).env("BELLJAR_LAYER_STOP", stop.to_string()).output().unwrap().status;
            assert!(!status.success(), "it is killed before the commit");
            if fs::read_to_string(bench.folder().join("added/deep/file")).is_ok() {
                return true;
            }
            bench.layers().sweep().unwrap();
            false
        })
        .unwrap();
    bench.host("added/deep/file", "mine");
    let layer = bench.layers().of(&bench.folder()).unwrap().remove(0);
    match layer.lock().unwrap().mend().unwrap() {
        Mended::Undone { left } => {
            assert_eq!(left, [rel("added"), rel("added/deep"), rel("added/deep/file")], "stopped at {stop}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(content(&bench.tree(), "added/deep/file"), Some("mine"));
    assert_eq!(content(&bench.tree(), "modified"), Some("old"));
    no_temporary_name(&bench.tree());
}

#[test]
fn a_full_disk_changes_nothing() {
    let mut bench = Bench { root: tempfile::tempdir().unwrap(), layer: None };
    fs::create_dir(bench.folder()).unwrap();
    // The folder is a small filesystem, in a namespace that ends with the test.
    let script = "mount -t tmpfs -o size=256k,mode=755 tmpfs $0/folder || exit 77
        cd $0/folder; echo old > a; echo old > z; find . | sort > $0/before; head -c 4096 /dev/zero | md5sum >/dev/null
        touch -r $0/old a z 2>/dev/null; $1 --exact tests::faults::child --ignored --nocapture 2> $0/said && exit 1
        find . | sort > $0/after; cat a z > $0/content; exit 0";
    bench = bench.layered();
    bench.put("a", "new");
    fs::write(bench.upper().join("b-large"), vec![b'x'; 1 << 20]).unwrap();
    bench.put("z", "new");
    bench.layer.take().unwrap().release();
    // Made after the layer, so the stamp would call every file a conflict: none was seen by a sandbox here.
    let record = bench.layers().of(&bench.folder()).unwrap().remove(0).directory.join("layer.json");
    let text = fs::read_to_string(&record).unwrap();
    let start = text.find("\"stamp\":[").unwrap();
    let end = start + text[start..].find(']').unwrap();
    fs::write(&record, format!("{}\"stamp\":[9999999999,0{}", &text[..start], &text[end..])).unwrap();
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", script])
        .arg(bench.root.path())
        .arg(std::env::current_exe().unwrap())
        .env("BELLJAR_LAYER_TEST", bench.root.path())
        // For the same reason, what is mounted counts as the folder that it was made for.
        .env("BELLJAR_LAYER_MOUNTED", "1")
        .output()
        .unwrap();
    if matches!(output.status.code(), Some(77) | None)
        || String::from_utf8_lossy(&output.stderr).contains("unshare")
    {
        skipped("no user namespace here");
        return;
    }
    let read = |name: &str| fs::read_to_string(bench.root.path().join(name)).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(read("said").contains("No space left"), "{}", read("said"));
    assert_eq!((read("content").as_str(), read("before")), ("old\nold\n", read("after")));
    let layer = bench.layers().of(&bench.folder()).unwrap().remove(0);
    assert!(!apply::is_unfinished(&layer));
}

/// Runs an action at each matching point of an apply.
fn disturbed(
    bench: &mut Bench,
    at: impl Fn(Point) -> bool,
    act: impl Fn(&Path),
) -> Result<Applied, LayerError> {
    let folder = bench.folder();
    let mut done = false;
    apply::apply(&bench.layer.take().unwrap(), &Selection::All, &mut |point| {
        if at(point) && !done {
            done = true;
            act(&folder);
        }
    })
}

fn conflict(result: Result<Applied, LayerError>, path: &str) {
    match result {
        Err(LayerError::Conflicts(list)) => {
            assert_eq!(list.len(), 1, "{list:?}");
            assert!(matches!(list[0].why, ConflictWhy::Meanwhile | ConflictWhy::InTheWay), "{list:?}");
            let Conflict { path: found, .. } = &list[0];
            assert_eq!(found.to_string(), path);
        }
        other => panic!("no conflict: {other:?}"),
    }
}

type Act = fn(&Path);

#[test]
fn an_edit_between_the_look_and_the_swap_is_never_lost() {
    // The edit on the host, the file that is named, the content that must be there afterwards.
    let edits: [(&str, Act, &str, &str, Option<&str>); 6] = [
        ("an edit in place", |f| write(&f.join("modified"), "mine"), "modified", "modified", Some("mine")),
        (
            "a file saved by rename",
            |f| {
                write(&f.join("tmp"), "mine");
                fs::rename(f.join("tmp"), f.join("modified")).unwrap();
            },
            "modified",
            "modified",
            Some("mine"),
        ),
        ("a file deleted", |f| fs::remove_file(f.join("modified")).unwrap(), "modified", "modified", None),
        ("a file made where one comes", |f| write(&f.join("added"), "mine"), "added", "added", Some("mine")),
        (
            "a file made in a directory that goes",
            |f| write(&f.join("tree/mine"), "mine"),
            "tree",
            "tree/mine",
            Some("mine"),
        ),
        (
            "a link in place of a directory",
            |f| {
                fs::rename(f.join("closed"), f.join("aside")).unwrap();
                symlink("/etc", f.join("closed")).unwrap();
            },
            "closed/x",
            "aside/x",
            Some("old"),
        ),
    ];
    for point in [Point::Judged, Point::Journaled] {
        for (what, act, named, path, after) in edits {
            let mut bench = of_everything();
            let mut expected = bench.tree();
            let result = disturbed(&mut bench, |reached| reached == point, act);
            conflict(result, named);
            let tree = bench.tree();
            no_temporary_name(&tree);
            assert_eq!(content(&tree, path), after, "{what}");
            // Everything else is unchanged.
            let touched = |name: &Vec<u8>| {
                let name = String::from_utf8_lossy(name).into_owned();
                !["modified", "added", "tree/mine", "closed", "aside"].iter().any(|own| name.starts_with(own))
            };
            expected.retain(|name, _| touched(name));
            let mut rest = tree.clone();
            rest.retain(|name, _| touched(name));
            assert_eq!(rest, expected, "{what}");
        }
    }
}

#[test]
fn a_late_writer_is_noticed_before_the_commit() {
    let mut bench = of_everything();
    // Opened before the swap, written after it.
    let open = File::options().append(true).open(bench.folder().join("modified")).unwrap();
    let result = disturbed(
        &mut bench,
        |point| matches!(point, Point::After(number) if number > 15),
        |_| std::io::Write::write_all(&mut &open, b" and more").unwrap(),
    );
    conflict(result, "modified");
    assert_eq!(content(&bench.tree(), "modified"), Some("old and more"));
    no_temporary_name(&bench.tree());
}

#[test]
fn an_edit_afterwards_is_an_edit_of_the_new() {
    let mut bench = of_everything();
    let result = disturbed(
        &mut bench,
        |point| point == Point::Committed,
        |folder| write(&folder.join("modified"), "mine"),
    );
    assert!(!result.unwrap().kept);
    assert_eq!(content(&bench.tree(), "modified"), Some("mine"));
}
