//! A hidden file is read under no name and by no way, and is not changed on the host; neither is a value behind a placeholder.

use belljar_spec::workspace::{HidePattern, WorkspaceMode};
use belljar_spec::{Permission, SandboxSpec};
use belljar_tests_containment::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const PATTERNS: [&str; 5] = [".env", ".env.*", "*.pem", "keys", "config/secret"];
const HIDDEN: [&str; 5] = [".env", "web/.env.local", "tls/server.pem", "keys/a", "config/secret"];

fn fill(workspace: &Path, secret: &str) {
    for path in HIDDEN {
        let file = workspace.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, secret).unwrap();
    }
    fs::hard_link(workspace.join(".env"), workspace.join("second-name")).unwrap();
    symlink("target.txt", workspace.join("web/.env.linked")).unwrap();
    fs::write(workspace.join("web/target.txt"), secret).unwrap();
    fs::write(workspace.join("seen.txt"), "seen").unwrap();
}

/// How many files have the secret and nothing else.
fn kept(folder: &Path, secret: &str) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: std::path::PathBuf| match path.symlink_metadata().unwrap() {
        found if found.is_dir() => kept(&path, secret),
        found if found.is_file() => usize::from(fs::read_to_string(&path).is_ok_and(|text| text == secret)),
        _ => 0,
    };
    entries.map(count).sum()
}

/// By path, by link, by a new name, through /proc, with another mount; as a file and as a folder.
const ATTACK: &str = r#"
cat .env web/.env.local web/.env.linked web/target.txt tls/server.pem keys/a config/secret second-name
ln .env hard; cat hard; ln -s .env soft; cat soft; ln -s "$PWD/tls" linked; cat linked/server.pem
mv .env moved; cat moved; mv keys moved-keys; cat moved-keys/a; mv tls moved-tls; cat moved-tls/server.pem
cp -r . /tmp/copy; cp -a web /tmp/web; tar cf - . ; cat /tmp/copy/.env /tmp/web/.env.local
exec 3< .env; cat /proc/self/fd/3; cat "/proc/self/root$PWD/.env" "/proc/self/cwd/.env" "/proc/1/root$PWD/.env"
umount .env; umount -l .env; rm -f .env; rm -rf keys; cat .env keys/a
mount --bind . /tmp/bound; cat /tmp/bound/.env; unshare -Urm sh -c 'umount .env; cat .env'
echo changed > .env; echo changed > second-name; dd if=/dev/zero of=tls/server.pem count=1; touch keys/new; truncate -s 0 .env
chmod 777 .env; chmod -R 777 keys; grep -r . . 2>/dev/null
cat seen.txt; echo END
"#;

#[test]
fn a_hidden_file_is_read_under_no_name_and_by_no_way() {
    for backend in backends() {
        for mode in [WorkspaceMode::Bind, WorkspaceMode::Overlay { layer: None }] {
            let secret = canary("hidden");
            let jail = jail_with(*backend, |spec, workspace| {
                fill(workspace, &secret);
                spec.hidden = PATTERNS.map(|pattern| pattern.parse::<HidePattern>().unwrap()).to_vec();
                spec.mode = mode.clone();
                // Another way to the same files.
                spec.shared.push(share(&workspace.join("web"), Permission::Read));
            });
            let shared = jail.workspace.path().join("web");
            let script = format!("cat {0}/.env.local {0}/target.txt\n{ATTACK}", shared.display());
            let result = jail.sh(&script);
            let printed = text(&result.stdout);
            assert!(printed.ends_with("seenEND\n"), "{backend} {mode:?}: {}", text(&result.stderr));
            assert!(!printed.contains(&secret), "{backend} {mode:?}: {printed}");
            // A folder around them may have been renamed; no byte of what is hidden is lost.
            let kept = kept(jail.workspace.path(), &secret);
            assert_eq!(kept, HIDDEN.len() + 2, "{backend} {mode:?}: something was changed");
        }
    }
}

/// A file with placeholders: its values are read under no name and by no way, and are in no change set; its names are.
#[test]
fn a_value_behind_a_placeholder_is_read_under_no_name_and_by_no_way() {
    for backend in backends() {
        for mode in [WorkspaceMode::Bind, WorkspaceMode::Overlay { layer: None }] {
            let secret = canary("value");
            let file =
                format!("# old: {secret}\nexport TOKEN={secret}\nKEY=\"{secret}\n{secret}\" # {secret}\n");
            let jail = jail_with(*backend, |spec, workspace| {
                fill(workspace, &file);
                let files = [".env", ".env.*", "server.pem", "keys/a", "config/secret"];
                spec.placeholders = files.map(|pattern| pattern.parse::<HidePattern>().unwrap()).to_vec();
                spec.mode = mode.clone();
                spec.shared.push(share(&workspace.join("web"), Permission::Read));
            });
            let shared = jail.workspace.path().join("web");
            let script = format!("cat {0}/.env.local {0}/target.txt\n{ATTACK}", shared.display());
            let result = jail.sh(&script);
            let printed = text(&result.stdout);
            assert!(printed.ends_with("seenEND\n"), "{backend} {mode:?}: {}", text(&result.stderr));
            assert!(!printed.contains(&secret), "{backend} {mode:?}: {printed}");
            assert!(printed.contains("export TOKEN="), "{backend} {mode:?}: {printed}");
            let kept = kept(jail.workspace.path(), &file);
            assert_eq!(kept, HIDDEN.len() + 2, "{backend} {mode:?}: something was changed");
        }
    }
}

/// Another sandbox of the folder, which hides the same, moves the folder around it all the time.
#[test]
fn a_neighbour_cannot_move_it_out_of_the_way_of_a_start() {
    for backend in backends() {
        let secret = canary("hidden");
        let workspace = folder();
        fill(workspace.path(), &secret);
        let hidden = |spec: &mut SandboxSpec, _: &Path| {
            spec.workspace = Some(workspace.path().to_path_buf());
            spec.hidden = PATTERNS.map(|pattern| pattern.parse::<HidePattern>().unwrap()).to_vec();
        };
        let neighbour = jail_with(*backend, hidden);
        let moving = "while :; do mv web web2; mv web2 web; mv tls tls2; mv tls2 tls; sleep 0.01; done >/dev/null 2>&1 &";
        neighbour.sh(moving);
        for _ in 0..8 {
            let jail = jail_with(*backend, hidden);
            let printed = text(
                &jail
                    .sh("cat web/.env.local web2/.env.local tls/server.pem tls2/server.pem; echo END")
                    .stdout,
            );
            assert!(printed.ends_with("END\n") && !printed.contains(&secret), "{backend}: {printed}");
        }
    }
}
