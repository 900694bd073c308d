//! belljar is killed while a sandbox works: what was committed inside comes out at the next start, into the repository that it was made
//! for and into no other.

use belljar_tests_cli::Home;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn git(folder: &Path, line: &str) -> String {
    let output = Command::new("git")
        .args(line.split(' '))
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .expect("there is git");
    assert!(output.status.success(), "git {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

fn wait_for(path: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < until, "`{}` does not appear", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A repository with one commit.
fn with_repository() -> Home {
    let home = Home::new("").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let folder = home.path("work");
    git(&folder, "init -q -b main .");
    git(&folder, "config user.name Ada");
    git(&folder, "config user.email ada@example.org");
    git(&folder, "commit -q --allow-empty -m first");
    home
}

/// A repository with a commit inside that belljar, stopped and then killed, had no time to import.
fn killed() -> Home {
    let home = with_repository();
    let folder = home.path("work");
    let script = "touch ready; until [ -e go ]; do sleep 0.02; done; git commit -q --allow-empty -m late; touch done; sleep 1000";
    let mut belljar = home.belljar(&["run", "--", "sh", "-c", script]).spawn().expect("it starts");
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &belljar.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    };
    wait_for(&folder.join("ready"));
    signal("-STOP");
    fs::write(folder.join("go"), "").expect("a file");
    wait_for(&folder.join("done"));
    signal("-KILL");
    belljar.wait().expect("it is gone");
    assert_eq!(git(&folder, "log -1 --format=%s main"), "first");
    home
}

/// What a start says of the killed sandbox. Its last process may take a moment to go, and holds the lock until then.
fn next_start(home: &Home) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let run = home.run(&["run", "--", "true"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        if run.stderr.contains(MESSAGE) {
            return run.stderr;
        }
        assert!(Instant::now() < until, "nothing is said: {}", run.stderr);
    }
}

/// The next start says nothing of it.
fn is_silent(home: &Home) {
    let printed = home.run(&["run", "--", "true"]).stderr;
    assert!(!printed.contains(MESSAGE), "it says so once: {printed}");
}

const MESSAGE: &str = "ended before";

#[test]
fn commits_of_a_killed_sandbox_are_there_after_the_next_start() {
    let home = killed();
    let folder = home.path("work");
    let printed = next_start(&home);
    let (_, kept) = printed
        .split_once("ended before its commits were imported; they are kept as ")
        .expect("it says where");
    let kept = kept.lines().next().expect("a ref");
    assert_eq!(git(&folder, &format!("log -1 --format=%s {kept}")), "late");
    assert_eq!(git(&folder, "log -1 --format=%s main"), "first");
    is_silent(&home);
}

#[test]
fn commits_of_a_killed_sandbox_go_into_no_other_repository() {
    let home = killed();
    let folder = home.path("work");
    fs::remove_dir_all(folder.join(".git")).expect("it goes");
    git(&folder, "init -q -b main .");
    let printed = next_start(&home);
    assert!(printed.contains("is another repository now"), "{printed}");
    assert_eq!(git(&folder, "for-each-ref"), "");
    is_silent(&home);
}

#[test]
fn a_start_that_fails_says_where_commits_of_a_killed_sandbox_are() {
    let home = killed();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let run = home.run(&["run", "--backend", "host", "--at-least", "namespace", "--", "true"]);
        assert_eq!(run.code, 125, "{}", run.stderr);
        assert!(run.stderr.contains("below namespace"), "{}", run.stderr);
        if run.stderr.contains("ended before its commits were imported; they are kept as refs/belljar/") {
            break;
        }
        assert!(Instant::now() < until, "nothing is said: {}", run.stderr);
    }
    is_silent(&home);
}

/// The one layer there is.
fn layer(home: &Home) -> std::path::PathBuf {
    let layers = fs::read_dir(home.path("state/belljar/layers")).expect("there are layers");
    let mut layers =
        layers.map(|one| one.expect("a name").path()).filter(|path| path.join("layer.json").exists());
    layers.next().expect("a layer")
}

/// A repository, and a layer of it with a commit and a new branch.
fn with_layer() -> (Home, String) {
    let home = with_repository();
    let script = "git checkout -q -b topic; echo x > file; git add file; git commit -qm inside";
    let run = home.run(&["run", "--overlay", "--", "sh", "-c", script]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let id = layer(&home).file_name().expect("a name").to_string_lossy().into_owned();
    (home, id)
}

#[test]
fn an_apply_writes_through_no_link_of_the_git_directory() {
    for link in ["logs/HEAD", "refs/heads", "index"] {
        let (home, id) = with_layer();
        let (git_dir, outside) = (home.path("work/.git"), home.path("outside"));
        let place = git_dir.join(link);
        if place.is_dir() { fs::rename(&place, &outside) } else { fs::copy(&place, &outside).map(|_| ()) }
            .expect("it moves");
        let _ = fs::remove_file(&place);
        std::os::unix::fs::symlink(&outside, &place).expect("a link");
        let seen = |path: &Path| match path.is_dir() {
            true => fs::read_dir(path)
                .expect("a folder")
                .map(|one| one.expect("a name").file_name().into_encoded_bytes())
                .collect::<Vec<_>>()
                .concat(),
            false => fs::read(path).expect("a file"),
        };
        let before = seen(&outside);
        let apply = home.run(&["apply", &id]);
        assert!(apply.stderr.contains("is a link"), "{link}: {}", apply.stderr);
        assert_eq!(seen(&outside), before, "{link}");
        assert!(home.path("state/belljar/layers").join(&id).exists(), "{link}: the commits are gone");
    }
}

#[test]
fn an_apply_of_a_part_keeps_commits_that_were_not_imported() {
    let home = with_repository();
    let folder = home.path("work");
    let script = "touch ready; sleep 1; git commit -q --allow-empty -m late; touch done; sleep 1000";
    let mut belljar =
        home.belljar(&["run", "--overlay", "--", "sh", "-c", script]).spawn().expect("it starts");
    wait_for(&home.path("state/belljar/layers"));
    let until = Instant::now() + Duration::from_secs(60);
    let is_made = |name: &str| {
        let layers = fs::read_dir(home.path("state/belljar/layers")).expect("there are layers");
        layers.flatten().any(|layer| layer.path().join("upper").join(name).exists())
    };
    for (file, signal) in [("ready", "-STOP"), ("done", "-KILL")] {
        while !is_made(file) {
            assert!(Instant::now() < until, "`{file}` does not appear");
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent = Command::new("kill").args([signal, &belljar.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }
    belljar.wait().expect("it is gone");
    let id = layer(&home).file_name().expect("a name").to_string_lossy().into_owned();
    // The last process of the sandbox may take a moment to go.
    while home.run(&["apply", &id, "ready"]).code != 0 {
        assert!(Instant::now() < until, "it stays in use");
    }
    let kept = git(&folder, "log --all --format=%s");
    assert!(kept.contains("late"), "the commit is lost: {kept}");
}

#[test]
fn a_layer_with_commits_survives_failed_starts_and_another_repository() {
    let (home, id) = with_layer();
    let place = layer(&home);
    // Only commits are left of it.
    let reset = home.run(&["run", "--overlay", "--layer", &id, "--", "git", "checkout", "-q", "main"]);
    assert_eq!(reset.code, 0, "{}", reset.stderr);
    let failed = home.run(&["run", "--overlay", "--layer", &id, "--ro", "/nonexistent", "--", "true"]);
    assert_ne!(failed.code, 0);
    assert!(place.exists(), "a start that failed removed the layer");
    // Another repository in its place: the earlier git directory is put aside, and stays.
    let folder = home.path("work");
    fs::rename(folder.join(".git"), home.path("other.git")).expect("it moves");
    git(&folder, "init -q -b main .");
    git(&folder, "-c user.name=a -c user.email=a@example.org commit -q --allow-empty -m other");
    let run = home.run(&["run", "--overlay", "--layer", &id, "--", "true"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let gits = fs::read_dir(place.join("git")).expect("git directories").count();
    assert!(place.exists() && gits >= 2, "commits of the layer are gone: {}", run.stderr);
}

#[test]
fn a_damaged_record_costs_no_commit() {
    let (home, id) = with_layer();
    let label = layer(&home).join("git").join(&id).join("label.json");
    fs::write(&label, "").expect("it is there");
    let apply = home.run(&["apply", &id]);
    assert_ne!(apply.code, 0, "{}", apply.stderr);
    assert!(apply.stderr.contains("label.json` cannot be read"), "{}", apply.stderr);
    assert!(label.exists());
    // One of the folder itself is told of once, and kept.
    let home = killed();
    let gits = home.path("state/belljar/git");
    for one in fs::read_dir(&gits).expect("it is there") {
        let _ = fs::write(one.expect("a name").path().join("label.json"), "{");
    }
    let until = Instant::now() + Duration::from_secs(60);
    while !home.run(&["run", "--", "true"]).stderr.contains("its record is damaged") {
        assert!(Instant::now() < until, "nothing is said");
    }
    assert!(!home.run(&["run", "--", "true"]).stderr.contains("damaged"), "it says so once");
    let names = fs::read_dir(&gits).expect("it is there").map(|one| one.expect("a name").file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().ends_with(".damaged")).count(), 1);
}

/// Kills belljar, or a process of the host that works for it, while commits are imported, at moments that come by chance. How often:
/// `BELLJAR_TEST_KILLS`, for those who want to know better.
#[test]
fn a_kill_during_an_import_loses_no_commit() {
    let kills = std::env::var("BELLJAR_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let home = with_repository();
    let folder = home.path("work");
    fs::write(folder.join(".git/info/exclude"), "made\n").expect("a file");
    fs::write(folder.join("made"), "").expect("a file");
    let mut on_host = Vec::new();
    for round in 0..kills {
        let before = git(&folder, "rev-parse main");
        let made_before = lines(&folder.join("made")).len();
        let script = "while :; do date +%N > file && git add file && git commit -qm inside && git rev-parse HEAD >> made; sleep 0.05; done";
        let mut belljar = home.belljar(&["run", "--", "sh", "-c", script]).spawn().expect("it starts");
        let until = Instant::now() + Duration::from_secs(60);
        while lines(&folder.join("made")).len() == made_before {
            assert!(Instant::now() < until, "no commit is made inside");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_micros(chance(150_000)));
        if round % 3 == 2 {
            on_host.extend(commit_of_user(&folder));
        }
        let victims = workers(belljar.id());
        let victim = victims[usize::try_from(chance(victims.len() as u64)).expect("few")];
        kill(victim);
        std::thread::sleep(Duration::from_millis(20));
        kill(belljar.id());
        belljar.wait().expect("it is gone");
        // Old or new, and never anything before it.
        git(&folder, &format!("merge-base --is-ancestor {before} main"));
        git(&folder, "fsck --strict --no-dangling --no-progress");
    }
    // The last process of a killed sandbox may take a moment to go, and holds the lock until then.
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read_dir(home.path("state/belljar/git"))
        .expect("it is there")
        .all(|one| one.expect("a name").file_name() == "lock")
    {
        assert!(Instant::now() < until, "a git directory stays");
        assert_eq!(home.run(&["run", "--", "true"]).code, 0);
    }
    git(&folder, "fsck --strict --no-dangling --no-progress");
    let reachable = git(&folder, "rev-list --all");
    let reachable: HashSet<&str> = reachable.lines().collect();
    let made = lines(&folder.join("made"));
    assert!(made.len() >= kills);
    for commit in made.iter().chain(&on_host) {
        assert!(
            reachable.contains(commit.as_str()),
            "{commit} is lost: {} inside, {} on the host",
            made.len(),
            on_host.len()
        );
    }
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("it can be read");
    // The last line may be half written.
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_string).collect()
}

/// A number below `end`.
fn chance(end: u64) -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0) % end
}

fn kill(process: u32) {
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-KILL", &process.to_string()]).stderr(Stdio::null()).status();
}

/// A commit that the user makes meanwhile, if git lets them: an import may hold the index.
fn commit_of_user(folder: &Path) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["commit", "-q", "--allow-empty", "-m", "user"]).current_dir(folder).stderr(Stdio::null());
    let is_made = command.status().expect("there is git").success();
    // An import may have followed it at once.
    is_made.then(|| git(folder, "log -1 --format=%H --grep=^user$ main"))
}

/// belljar, and the programs of the host that it waits for: not those inside.
fn workers(belljar: u32) -> Vec<u32> {
    let children = fs::read_dir(format!("/proc/{belljar}/task")).into_iter().flatten().flatten();
    let children = children.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|text| text.split(' ').filter_map(|one| one.parse().ok()).collect::<Vec<u32>>())
        .collect();
    let is_git = |child: &u32| {
        fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| {
            line.starts_with(b"/")
                && line.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"/git"))
        })
    };
    let gits: Vec<u32> = children.into_iter().filter(is_git).collect();
    std::iter::once(belljar).chain(gits).collect()
}
