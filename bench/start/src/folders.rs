//! What a folder costs: one command in a new sandbox in an empty folder, in one with 100,000 files, and in the same as a repository with
//! 1 GB of objects. The ratio of the last two is what git costs.

use crate::cold::WARM_UP;
use crate::peers::belljar;
use belljar_bench_sample::{Case, print};
use std::error::Error;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) fn run(runs: usize) -> Result<(), Box<dyn Error>> {
    let place = std::env::temp_dir().join(format!("belljar-bench-folders-{}", std::process::id()));
    let outcome = compare(&place, runs);
    let _ = fs::remove_dir_all(&place);
    outcome
}

fn compare(place: &Path, runs: usize) -> Result<(), Box<dyn Error>> {
    let empty = place.join("empty");
    fs::create_dir_all(&empty)?;
    let (files, repository) = (place.join("files"), place.join("repository"));
    make_repository(&repository)?;
    make_files(&files)?;
    let folders: [(&str, PathBuf); 3] =
        [("empty folder", empty), (FILES, files), ("the same, a repository with 1 GB", repository)];
    let mut starts: Vec<Case> = folders.iter().map(|(name, _)| Case::new(*name)).collect();
    let mut wholes: Vec<Case> = folders.iter().map(|(name, _)| Case::new(*name)).collect();
    for round in 0..runs + WARM_UP {
        for (number, (_, folder)) in folders.iter().enumerate() {
            let (start, whole) = turn(folder)?;
            if round >= WARM_UP {
                starts[number].add(start);
                wholes[number].add(whole);
            }
        }
    }
    print("Folders: from exec until the command runs", &starts, FILES);
    print("Folders: from exec to exit", &wholes, FILES);
    Ok(())
}

/// One command that says when it ran: how long that took, and how long all of it did.
fn turn(folder: &Path) -> Result<(Duration, Duration), Box<dyn Error>> {
    let mut command = Command::new(belljar()?);
    command.args(["run", "--", "date", "+%s.%N"]).current_dir(folder).stdin(Stdio::null());
    let (began, start) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    let output = command.output()?;
    let whole = began.elapsed();
    let printed = String::from_utf8_lossy(&output.stdout).trim().parse::<f64>();
    let printed = printed.map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((Duration::from_secs_f64(printed).saturating_sub(start), whole))
}

/// A repository whose first commit has large files that do not compress, and whose second has the small ones of [`make_files`].
fn make_repository(folder: &Path) -> Result<(), Box<dyn Error>> {
    let git = || {
        let mut command = Command::new("git");
        command.arg("-C").arg(folder);
        command
    };
    fs::create_dir_all(folder)?;
    git().args(["init", "-q", "-b", "main"]).status()?;
    let mut import = git().args(["fast-import", "--quiet", "--done"]).stdin(Stdio::piped()).spawn()?;
    let mut input = BufWriter::new(import.stdin.take().ok_or("git takes no input")?);
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for commit in 0..2 {
        write!(input, "commit refs/heads/main\ncommitter A <a@example.org> {commit} +0000\ndata 1\nx\n")?;
        for number in 0..NUMBER {
            let content = match commit {
                0 => incompressible(&mut noise),
                _ => content(number).into_bytes(),
            };
            write!(input, "M 100644 inline {}\ndata {}\n", name(number), content.len())?;
            input.write_all(&content)?;
            input.write_all(b"\n")?;
        }
        input.write_all(b"\n")?;
    }
    input.write_all(b"done\n")?;
    drop(input);
    let is_made = import.wait()?.success() && git().args(["reset", "-q", "--hard"]).status()?.success();
    if is_made { Ok(()) } else { Err("the repository cannot be made".into()) }
}

fn make_files(folder: &Path) -> Result<(), Box<dyn Error>> {
    for number in 0..NUMBER {
        let file = folder.join(name(number));
        if number % 100 == 0 {
            fs::create_dir_all(file.parent().unwrap_or(folder))?;
        }
        fs::write(file, content(number))?;
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("src{:02}/part{}/file{number:05}.txt", number / 1000, number / 100 % 10)
}

fn content(number: usize) -> String {
    format!("file number {number}\n")
}

/// Ten kilobytes of noise: <https://en.wikipedia.org/wiki/Xorshift>.
fn incompressible(noise: &mut u64) -> Vec<u8> {
    let mut next = || {
        *noise ^= *noise << 13;
        *noise ^= *noise >> 7;
        *noise ^= *noise << 17;
        noise.to_le_bytes()
    };
    (0..BLOB_BYTES / 8).flat_map(|_| next()).collect()
}

const FILES: &str = "100,000 files";
const NUMBER: usize = 100_000;
const BLOB_BYTES: usize = 10_496;
