//! Folders in which a sandbox worked.

use super::*;
use belljar_spec::workspace::Shield;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn view(folder: &Path) -> View {
    View::plain(folder.into())
}

fn words(compared: Compared) -> Vec<String> {
    let Compared::Touched(touched) = compared else { return vec!["too many".into()] };
    let all = touched.added + touched.modified + touched.deleted;
    assert!(touched.paths.len() as u64 == all.min(NAMED as u64));
    touched.paths.iter().map(|one| format!("{:?} {}", one.how, one.path)).collect()
}

#[test]
fn what_was_added_modified_and_deleted_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for directory in ["kept/deep", "emptied", "gone/too", "becomes", ".git/objects"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for file in ["kept/deep/same", "kept/written", "emptied/file", "mode", "replaced", "becomes/file"] {
        fs::write(at(file), "x").unwrap();
    }
    symlink("nowhere", at("link")).unwrap();
    let look = Look::at(&view(folder.path()));
    assert_eq!(words(look.compare()), Vec::<String>::new());

    fs::write(at("kept/written"), "y").unwrap();
    fs::remove_file(at("emptied/file")).unwrap();
    fs::remove_dir_all(at("gone")).unwrap();
    fs::remove_dir_all(at("becomes")).unwrap();
    fs::write(at("becomes"), "").unwrap();
    fs::set_permissions(at("mode"), Permissions::from_mode(0o700)).unwrap();
    fs::write(at("new"), "x").unwrap();
    fs::rename(at("new"), at("replaced")).unwrap();
    fs::create_dir_all(at("made/below")).unwrap();
    fs::create_dir_all(at("kept/empty")).unwrap();
    fs::write(at("made/below/file"), "").unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("elsewhere", at("link")).unwrap();
    fs::write(at(".git/objects/pack"), "").unwrap();
    fs::create_dir_all(at("sub/.git/hooks")).unwrap();
    let expected = [
        "Modified becomes",
        "Deleted becomes/file",
        "Deleted emptied/file",
        "Deleted gone/too",
        "Added kept/empty",
        "Modified kept/written",
        "Modified link",
        "Added made/below/file",
        "Modified mode",
        "Modified replaced",
        "Added sub/.git",
    ];
    assert_eq!(words(look.compare()), expected);
}

#[test]
fn no_link_is_followed_and_nothing_waited_for() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let look = Look::at(&view(folder.path()));
    symlink(outside.path(), folder.path().join("out")).unwrap();
    symlink("/", folder.path().join("root")).unwrap();
    symlink("loop", folder.path().join("loop")).unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert_eq!(words(look.compare()), ["Added loop", "Added out", "Added pipe", "Added root"]);
    // The folder itself may be gone.
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(words(look.compare()), Vec::<String>::new());
}

#[test]
fn what_is_held_is_not_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let shield = |path: &str, what| Shield { path: path.into(), what };
    let shields = vec![
        shield(".husky", Shielded::MissingDirectory),
        shield("kept", Shielded::Existing),
        shield("anchor", Shielded::Anchored),
    ];
    fs::create_dir_all(folder.path().join("kept")).unwrap();
    fs::create_dir_all(folder.path().join("anchor")).unwrap();
    let look = Look::at(&View { shields, ..view(folder.path()) });
    for path in [".husky", "kept/more", "anchor/free"] {
        fs::create_dir_all(folder.path().join(path)).unwrap();
    }
    assert_eq!(words(look.compare()), ["Added anchor/free"]);
}

#[test]
fn names_are_bytes_and_paths_may_be_long() {
    use belljar_sys::rustix::fs::{Mode, OFlags, mkdirat, openat};
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let look = Look::at(&view(folder.path()));
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"a\nb\xff")), "").unwrap();
    let mut deepest = OwnedFd::from(fs::File::open(folder.path()).unwrap());
    for _ in 0..30 {
        let name = "n".repeat(200);
        mkdirat(&deepest, &name, Mode::RWXU).unwrap();
        deepest = openat(&deepest, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    openat(&deepest, "end", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU).unwrap();
    let found = words(look.compare());
    assert!(found.len() == 2 && found[0].contains("\\n") && found[1].ends_with("/end"), "{found:?}");
}

#[test]
fn branches_and_tags_that_moved_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for git in [".git", "sub/.git"] {
        for directory in ["refs/heads", "refs/tags", "objects/ab", "logs"] {
            fs::create_dir_all(at(git).join(directory)).unwrap();
        }
        for file in ["HEAD", "packed-refs", "index", "refs/heads/main", "refs/tags/v1", "logs/HEAD"] {
            fs::write(at(git).join(file), "x").unwrap();
        }
    }
    let look = Look::at(&view(folder.path()));
    for file in [".git/index", ".git/logs/HEAD", ".git/objects/ab/cd", ".git/ORIG_HEAD"] {
        fs::write(at(file), "y").unwrap();
    }
    assert_eq!(words(look.compare()), Vec::<String>::new());

    for file in [".git/HEAD", ".git/packed-refs", ".git/refs/heads/main", ".git/refs/tags/v2"] {
        fs::write(at(file), "y").unwrap();
    }
    fs::remove_file(at("sub/.git/refs/tags/v1")).unwrap();
    symlink("/", at("sub/.git/refs/remotes")).unwrap();
    let expected = [
        "Modified .git/HEAD",
        "Modified .git/packed-refs",
        "Modified .git/refs/heads/main",
        "Added .git/refs/tags/v2",
        "Added sub/.git/refs/remotes",
        "Deleted sub/.git/refs/tags/v1",
    ];
    assert_eq!(words(look.compare()), expected);
}

#[test]
fn too_many_are_not_compared_and_hide_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("deep/kept")).unwrap();
    fs::create_dir_all(at("becomes")).unwrap();
    for file in ["deep/kept/same", "deep/gone", "written", "becomes/file"] {
        fs::write(at(file), "x").unwrap();
    }
    let look = Look::at(&view(folder.path()));
    for number in 0..=NAMED {
        fs::write(at(&format!("{number}")), "").unwrap();
    }
    let Compared::Touched(touched) = look.compare() else { panic!("not so many") };
    assert_eq!((touched.added, touched.paths.len(), touched.more), (NAMED as u64 + 1, NAMED, false));
    for directory in ["a", "b"] {
        fs::create_dir(at(directory)).unwrap();
        for number in 0..MAX_TOUCHED_PATHS / 2 {
            fs::hard_link(at("0"), at(&format!("{directory}/{number}"))).unwrap();
        }
    }
    fs::remove_file(at("deep/gone")).unwrap();
    fs::write(at("written"), "y").unwrap();
    fs::remove_dir_all(at("becomes")).unwrap();
    symlink("deep", at("becomes")).unwrap();
    let Compared::Touched(touched) = look.compare() else { panic!("not so many before") };
    assert_eq!((touched.added, touched.more), (0, true));
    let expected = ["Modified becomes", "Deleted becomes/file", "Deleted deep/gone", "Modified written"];
    assert_eq!(words(Compared::Touched(touched)), expected);
    assert_eq!(Look::at(&view(folder.path())).compare(), Compared::TooMany);
}
