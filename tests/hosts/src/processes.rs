//! The processes of this machine, those in gVisor's kernels included.
//!
//! The host's list has nothing of what runs inside of a sentry: a test that looks there finds no process, whatever runs. So a test
//! that has such a container says so ([`look_into_sentries`]), and from then on its processes are listed with gVisor's own
//! `runsc exec`, which costs a sixth of Docker's. They get numbers that no process of the host has. A test that looks runs a process
//! inside for a moment, so no test looks into the sandboxes of the tests beside it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// From now on the containers of gVisor are looked into.
pub fn look_into_sentries() {
    HAS_SENTRIES.store(true, Ordering::Relaxed);
}

/// Every process that has `word` in its command line, ourselves left out. Zombies have no command line.
pub fn processes_with(word: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let carries = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != std::process::id() && words.windows(word.len()).any(|window| window == word.as_bytes())
    };
    let mut found: Vec<u32> = pids.filter(carries).collect();
    if HAS_SENTRIES.load(Ordering::Relaxed) {
        found.extend(sentries().iter().flat_map(|container| processes_in(container, word)));
    }
    found
}

/// A file of a process below /proc, wherever it runs.
pub fn process_file(pid: u32, file: &str) -> io::Result<String> {
    if pid < FIRST_INSIDE {
        return fs::read_to_string(format!("/proc/{pid}/{file}"));
    }
    let (container, inside) = known(pid).ok_or(io::ErrorKind::NotFound)?;
    let output = exec(&container, &format!("cat /proc/{inside}/{file}"), "")?;
    output.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Whether a process runs in a sentry, where the host has no number for it.
pub fn is_inside(pid: u32) -> bool {
    pid >= FIRST_INSIDE
}

/// The process that has this number where `pid` runs.
pub fn beside(pid: u32, number: u32) -> Option<u32> {
    if !is_inside(pid) {
        return Some(number);
    }
    let (container, _) = known(pid)?;
    Some(number_of(&container, number))
}

/// The processes of the host that a process in a sentry consists of: the kernel around it, and who serves files to that.
/// None for a process of the host's own.
pub fn around(pid: u32) -> Vec<u32> {
    let Some((container, _)) = known(pid) else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_of = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| groups.contains(&container))
    };
    pids.filter(is_of).collect()
}

/// The kernel that a process in a sentry asks, as a process of the host.
pub fn kernel_around(pid: u32) -> Option<u32> {
    let words = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    around(pid).into_iter().find(|pid| words(*pid).starts_with(b"runsc-sandbox"))
}

/// Container and number inside.
fn known(pid: u32) -> Option<(String, u32)> {
    let known = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().find(|(_, number)| **number == pid).map(|(place, _)| place.clone())
}

/// The number that tests know a process by.
fn number_of(container: &str, inside: u32) -> u32 {
    let mut known = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    let next = FIRST_INSIDE + u32::try_from(known.len()).unwrap_or_default();
    *known.entry((container.to_string(), inside)).or_insert(next)
}

/// The containers that gVisor runs, other tests' left out.
fn sentries() -> Vec<String> {
    let mut known = SENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let running = kernels();
    let new: Vec<&Kernel> = running.iter().filter(|kernel| !known.contains_key(&kernel.container)).collect();
    if !new.is_empty() {
        let ids: Vec<&str> = new.iter().map(|kernel| kernel.container.as_str()).collect();
        let format = "{{.Id}} {{.Config.User}}{{range .Mounts}} {{.Source}}{{end}}";
        for line in docker(&[&["inspect", "--format", format], &ids[..]].concat()).lines() {
            let mut words = line.split(' ');
            let (Some(id), Some(user)) = (words.next(), words.next()) else { continue };
            let Some(kernel) = new.iter().find(|kernel| kernel.container == id) else { continue };
            let held = words.find_map(place_of);
            known.insert(id.into(), Sentry { state: kernel.state.clone(), user: user.into(), held });
        }
    }
    let is_ours = |id: &&String| {
        let sentry = known.get(*id);
        sentry.is_some_and(|sentry| !sentry.held.as_deref().is_some_and(is_held_by_another_test))
    };
    running.iter().map(|kernel| &kernel.container).filter(is_ours).cloned().collect()
}

/// A container's kernel, as its words on the host tell.
struct Kernel {
    container: String,
    /// Where its runsc keeps what it knows of containers.
    state: String,
}

fn kernels() -> Vec<Kernel> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let kernel = |entry: fs::DirEntry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = words.strip_prefix(b"runsc-sandbox\0")?.strip_suffix(b"\0")?;
        let words: Vec<&str> = str::from_utf8(words).ok()?.split('\0').collect();
        let state = words.iter().find_map(|word| word.strip_prefix("--root="))?;
        Some(Kernel { container: (*words.last()?).into(), state: state.into() })
    };
    entries.filter_map(kernel).collect()
}

fn docker(words: &[&str]) -> String {
    let output = Command::new("docker").args(words).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// A container behind gVisor.
struct Sentry {
    /// See [`Kernel`].
    state: String,
    /// The user and group of its processes: the process that looks has them too.
    user: String,
    /// The directory that its launcher holds a lock on, as /proc/locks names it.
    held: Option<String>,
}

/// What is mounted comes from below the root in such a directory: `…/docker/ID/root/…`.
fn place_of(source: &str) -> Option<String> {
    let is_place = |place: &Path| place.parent().is_some_and(|above| above.ends_with("docker"));
    let mut places = source.match_indices("/root/").map(|(end, _)| Path::new(&source[..end]));
    let found = fs::metadata(places.find(|place| is_place(place))?).ok()?;
    let device = found.dev();
    let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
    Some(format!("{major:02x}:{minor:02x}:{}", found.ino()))
}

/// Whether a process of a test that runs beside this one, as a child of the same runner, holds a lock on this.
fn is_held_by_another_test(place: &str) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF` (proc_locks(5)).
    let mut holders = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (*words.get(5)? == place).then(|| words[4].parse::<u32>().ok())?
    });
    holders.any(is_of_another_test)
}

fn is_of_another_test(mut pid: u32) -> bool {
    let (us, runner) = (std::process::id(), parent_id());
    while pid > 1 && pid != us {
        let Some(parent) = parent(pid) else { return false };
        if parent == runner {
            return true;
        }
        pid = parent;
    }
    false
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn processes_in(container: &str, word: &str) -> Vec<u32> {
    // The word comes by standard input: the processes that look must not have it in their own command lines.
    let script = "read -r word; cd /proc; grep -lasF -- \"$word\" [0-9]*/cmdline; :";
    // A container that is ending has no processes any more.
    let Ok(Some(found)) = exec(container, script, word) else { return Vec::new() };
    let inside = found.lines().filter_map(|line| line.strip_suffix("/cmdline")?.parse::<u32>().ok());
    inside.map(|pid| number_of(container, pid)).collect()
}

/// What a script in a container wrote; nothing if it failed.
fn exec(container: &str, script: &str, input: &str) -> io::Result<Option<String>> {
    let (state, user) = {
        let known = SENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        let sentry = known.get(container).ok_or(io::ErrorKind::NotFound)?;
        (format!("--root={}", sentry.state), sentry.user.clone())
    };
    // In a paused sandbox the process that looks may be paused as well.
    let mut child = Command::new("timeout")
        .args(["20", "runsc", &state, "exec", "-user", &user, container, "/bin/sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read is no failure.
        let _ = writeln!(stdin, "{input}");
    }
    let output = child.wait_with_output()?;
    Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

static HAS_SENTRIES: AtomicBool = AtomicBool::new(false);
/// What is known of each container.
static SENTRIES: LazyLock<Mutex<HashMap<String, Sentry>>> = LazyLock::new(Mutex::default);
/// Container and number inside, and the number that tests know it by.
static INSIDE: LazyLock<Mutex<HashMap<(String, u32), u32>>> = LazyLock::new(Mutex::default);
/// Above the largest number that the kernel gives (PID_MAX_LIMIT, 2^22).
const FIRST_INSIDE: u32 = 1 << 24;
