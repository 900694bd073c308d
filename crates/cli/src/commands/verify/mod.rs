//! `belljar verify`: attacks on a sandbox of this machine and this configuration, judged from outside; or the same attacks on another
//! sandbox, by which one sees that they can succeed.
//!
//! ```text
//!   scene: canaries outside ──> attacks: a script and its evidence each ──> target: one sandbox runs all of them
//!                    └────────────────────── judged here: what arrived, changed, ended, or was seen ──────────┘
//! ```

mod attacks;
mod scene;
mod target;

use super::print;
use super::table::table;
use crate::args::VerifyArgs;
pub(crate) use attacks::Promise;
use attacks::{Attack, Evidence, slug};
use belljar_engine::Engine;
use belljar_fleet::Profiles;
use belljar_spec::{BackendName, ErrorCode, SandboxError, SandboxSpec};
use scene::Scene;
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use target::Target;

pub(crate) fn verify(options: VerifyArgs) -> Result<u8, SandboxError> {
    let all = options.backend.as_deref() == Some("all");
    let mut reports = Vec::new();
    if let Some(command) = &options.command {
        reports.push(attacked(&options.promise, |_| Ok(Target::Peer(command.clone())))?);
    } else if all {
        for report in Engine::new().backends() {
            let backend = report.backend;
            if matches!(backend, BackendName::Host | BackendName::Container) {
                continue;
            }
            match report.outcome {
                Ok(()) => reports.push(attacked(&options.promise, |scene| {
                    Target::ours(&spec(&options, scene, Some(backend))?)
                })?),
                Err(error) => eprintln!("belljar: {backend} does not work here: {error}"),
            }
        }
    } else {
        let named = options.backend.as_deref().map(|name| {
            let known = BackendName::ALL.into_iter().find(|backend| backend.as_str() == name);
            known.ok_or_else(|| {
                let names: Vec<&str> = BackendName::ALL.iter().map(|backend| backend.as_str()).collect();
                ErrorCode::RequestValue
                    .error(format!("`{name}` is no backend"))
                    .hint(format!("write `all`, or one of {}", names.join(", ")))
            })
        });
        let named = named.transpose()?;
        reports.push(attacked(&options.promise, |scene| Target::ours(&spec(&options, scene, named)?))?);
    }
    let holes = reports.iter().map(Report::holes).sum::<usize>();
    match options.json {
        true => {
            let listed: Vec<Value> = reports.iter().map(Report::as_json).collect();
            print(format!("{:#}\n", json!({ "holes": holes, "targets": listed })).as_bytes())?;
        }
        false => {
            for report in &reports {
                print(report.as_text(options.all).as_bytes())?;
            }
        }
    }
    Ok(if holes == 0 && reports.iter().all(Report::is_whole) { 0 } else { HOLE })
}

/// As `belljar run` would make it in the folder of the attacks, with a resolver that notes what it is asked.
fn spec(
    options: &VerifyArgs,
    scene: &Scene,
    backend: Option<BackendName>,
) -> Result<SandboxSpec, SandboxError> {
    let sandbox_options = crate::args::SandboxOptions::default().on(Some(scene.workspace()));
    let (mut spec, _) = match &options.profile {
        None => sandbox_options.spec()?,
        Some(name) => sandbox_options.spec_over(|request| {
            let profiles = Profiles::of_this_machine(&Engine::new().backends())?;
            profiles.choose(Some(name))?.apply(request)
        })?,
    };
    if let Some(backend) = backend {
        spec.backend = belljar_spec::BackendChoice::Named(backend);
    }
    // That a limit holds is shown by one that the attacks reach.
    spec.limits.pids = Some(MAX_PIDS);
    let egress = spec.egress.get_or_insert_default();
    egress.resolvers = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), scene.resolver)];
    Ok(spec)
}

/// What became of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Held,
    Hole,
    /// The target has no program for it, or it cannot be judged there.
    NotTried,
}

struct Report {
    target: String,
    attacks: Vec<(Attack, Outcome)>,
    /// What is left of the attacks, outside.
    left: Vec<String>,
    /// The last attack was tried: nothing ended them all before.
    is_over: bool,
    took: Duration,
}

fn attacked(
    promises: &[Promise],
    target: impl FnOnce(&Scene) -> Result<Target, SandboxError>,
) -> Result<Report, SandboxError> {
    let began = Instant::now();
    let mut scene = Scene::set()?;
    let mut attacks = attacks::all(&scene);
    attacks.retain(|attack| promises.is_empty() || promises.contains(&attack.promise));
    let target = target(&scene)?;
    let name = target.name();
    let is_ours = matches!(target, Target::Ours(_));
    let marker = number(&scene.call);
    let (script, sleeper) = script(&scene, &attacks, is_ours, &marker);
    let attempt = target.begin(&script, &scene.workspace())?;
    // What only shows while an attack runs is looked at beside it.
    let is_over = AtomicBool::new(false);
    let watching = thread::scope(|scope| {
        let seen = scope.spawn(|| watch(&sleeper, &marker, &is_over));
        let output = attempt.finish(TIMEOUT);
        is_over.store(true, Ordering::Relaxed);
        let seen = seen.join().unwrap_or_default();
        output.map(|output| (output, seen))
    });
    let (output, seen) = watching?;
    // What was sent is on its way for a moment.
    thread::sleep(SETTLES);
    let is_over = output.contains(&format!("@@{} all@@", scene.token));
    // Commits and the like come out when it ends.
    target.end();
    let judged = attacks
        .into_iter()
        .map(|attack| {
            let outcome = judge(&attack, &mut scene, &output, &seen, is_ours);
            (attack, outcome)
        })
        .collect();
    let left = processes_with(&marker).into_iter().map(|pid| format!("process {pid}")).collect();
    for folder in ["/etc", "/usr/bin", "/var/tmp", "/tmp"] {
        let _ = fs::remove_file(Path::new(folder).join(format!("belljar-verify-{}", scene.call)));
    }
    Ok(Report { target: name, attacks: judged, left, is_over, took: began.elapsed() })
}

/// A number of seconds that no other process sleeps: it marks those of the attacks.
fn number(call: &str) -> String {
    format!("7.{}", scene::digits(call))
}

/// What was seen of an attack's own processes.
#[derive(Debug, Default)]
struct Seen {
    /// Lines of the status of the process that only sleeps.
    statuses: Vec<String>,
    most_processes: usize,
}

/// One script for all attacks, each in a shell of its own, and the word that the sleeping process can be found by.
fn script(scene: &Scene, attacks: &[Attack], is_ours: bool, marker: &str) -> (String, String) {
    let sleeper = format!("8{}", &marker[1..]);
    let script = PRELUDE.replace("NUMBER_HERE", marker).replace("SECRET_HERE", &scrambled(&scene.secret));
    let mut script = script.replace("TOKEN_HERE", &scrambled(&scene.token));
    let mut has_slept = false;
    for attack in attacks.iter().filter(|attack| is_ours || !attack.ours_only) {
        let body = match &attack.evidence {
            // One process shows all lines.
            Evidence::Status(..) if has_slept => "true".to_string(),
            Evidence::Status(..) => {
                has_slept = true;
                format!("sleep {sleeper} & pid=$!; sleep 1.5; kill $pid")
            }
            _ => attack.script.clone(),
        };
        // The token stands in no command line: an attack that prints those does not print the frame of another one.
        let slug = slug(&attack.name);
        script.push_str(&format!(
            "echo \"@@$TOKEN begin {slug}@@\"\n( set +e\n{body}\n) 2>&1 < /dev/null\necho \"@@$TOKEN end {slug}@@\"\n"
        ));
    }
    script.push_str("echo \"@@$TOKEN all@@\"\n");
    (script, sleeper)
}

/// The secret, so that it does not stand in the script: what prints the script has found nothing.
fn scrambled(secret: &str) -> String {
    secret.chars().rev().collect()
}

fn judge(attack: &Attack, scene: &mut Scene, output: &str, seen: &Seen, is_ours: bool) -> Outcome {
    if attack.ours_only && !is_ours {
        return Outcome::NotTried;
    }
    let slug = slug(&attack.name);
    let [begin, end] = ["begin", "end"].map(|word| format!("@@{} {word} {slug}@@", scene.token));
    let output = output.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let Some((output, _)) = output else { return Outcome::NotTried };
    let worked = match &attack.evidence {
        Evidence::Secret => output.contains(&scene.secret),
        Evidence::Arrived => scene.was_reached(&slug),
        Evidence::Exists(path) => fs::symlink_metadata(path).is_ok(),
        Evidence::Changed(path, content) => fs::read(path).ok().as_deref() != Some(content),
        Evidence::CanaryEnded => !scene.canary_lives(),
        Evidence::Status(line, is_fine) => {
            let value = seen.statuses.iter().find_map(|status| status.strip_prefix(&format!("{line}:")));
            match value {
                Some(value) => !is_fine(value.trim()),
                None => return Outcome::NotTried,
            }
        }
        Evidence::Processes(most) => seen.most_processes > *most,
    };
    match worked {
        true => Outcome::Hole,
        false if output.contains("@@no program@@") => Outcome::NotTried,
        false => Outcome::Held,
    }
}

/// Looks at the attack's processes from outside until it is over.
fn watch(sleeper: &str, marker: &str, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !is_over.load(Ordering::Relaxed) {
        seen.most_processes = seen.most_processes.max(processes_with(marker).len());
        if seen.statuses.is_empty()
            && let Some(pid) = processes_with(sleeper).first()
        {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            seen.statuses = status.lines().map(String::from).collect();
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    seen
}

/// Processes that sleep for this long.
fn processes_with(word: &str) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"sleep"))
            && words.next() == Some(word.as_bytes())
    })
    .collect()
}

impl Report {
    fn holes(&self) -> usize {
        self.attacks.iter().filter(|(_, outcome)| *outcome == Outcome::Hole).count() + self.left.len()
    }

    /// Whether all of them were tried: a sandbox that did not start, or ended in the middle, shows nothing.
    fn is_whole(&self) -> bool {
        self.is_over
    }

    fn count(&self, promise: Promise, outcome: Outcome) -> usize {
        self.attacks.iter().filter(|(attack, found)| attack.promise == promise && *found == outcome).count()
    }

    fn as_json(&self) -> Value {
        let attack = |(attack, outcome): &(Attack, Outcome)| {
            let outcome = match outcome {
                Outcome::Held => "held",
                Outcome::Hole => "hole",
                Outcome::NotTried => "not_tried",
            };
            json!({ "promise": attack.promise.word(), "attack": attack.name, "outcome": outcome })
        };
        json!({
            "target": self.target,
            "holes": self.holes(),
            "left": self.left,
            "complete": self.is_over,
            "duration_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "attacks": self.attacks.iter().map(attack).collect::<Vec<_>>(),
        })
    }

    fn as_text(&self, is_long: bool) -> String {
        let rows: Vec<[String; 5]> = Promise::ALL
            .into_iter()
            .filter(|promise| self.attacks.iter().any(|(attack, _)| attack.promise == *promise))
            .map(|promise| {
                let [held, holes, not_tried] = [Outcome::Held, Outcome::Hole, Outcome::NotTried]
                    .map(|outcome| self.count(promise, outcome));
                let judgement = match (held, holes) {
                    (_, 1..) => "HOLE",
                    (0, 0) => "not tried",
                    (1.., 0) => "held",
                };
                let tried = (held + holes).to_string();
                let not_tried = if not_tried == 0 { String::new() } else { not_tried.to_string() };
                [judgement.into(), tried, holes.to_string(), not_tried, promise.sentence().into()]
            })
            .collect();
        let mut text =
            format!("{}: {} attacks in {:.1} s\n", self.target, self.attacks.len(), self.took.as_secs_f64());
        text.push_str(&table(["", "TRIED", "HOLES", "NOT TRIED", "PROMISE"], &rows));
        for (attack, outcome) in &self.attacks {
            let word = match outcome {
                Outcome::Hole => "HOLE",
                Outcome::Held if is_long => "held",
                Outcome::NotTried if is_long => "not tried",
                Outcome::Held | Outcome::NotTried => continue,
            };
            text.push_str(&format!("  {word:<10}{}: {}\n", attack.promise.word(), attack.name));
        }
        for left in &self.left {
            text.push_str(&format!("  HOLE      left behind: {left}\n"));
        }
        if !self.is_whole() {
            text.push_str("  not all attacks were tried: it did not start, or ended before the last one\n");
        }
        text
    }
}

/// What scripts use. `$WORD` is the secret, put together from what is not the secret.
const PRELUDE: &str = r#"
NUMBER=NUMBER_HERE
export RES_OPTIONS='timeout:1 attempts:1'
WORD=; rest=SECRET_HERE
while [ -n "$rest" ]; do WORD="${rest%"${rest#?}"}$WORD"; rest="${rest#?}"; done
TOKEN=; rest=TOKEN_HERE
while [ -n "$rest" ]; do TOKEN="${rest%"${rest#?}"}$TOKEN"; rest="${rest#?}"; done
SOCKET_WORD=$WORD
have() { command -v "$1" > /dev/null 2>&1 || { echo '@@no program@@'; return 1; }; }
dial() {
  if command -v python3 > /dev/null 2>&1; then
    python3 -c '
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
s.sendall((sys.argv[3] + " ").encode())' "$@"
  elif command -v nc > /dev/null 2>&1; then echo "$3 " | timeout 3 nc -w 2 "$1" "$2"
  elif command -v bash > /dev/null 2>&1; then timeout 3 bash -c 'exec 3<>/dev/tcp/$0/$1 && echo "$2 " >&3' "$@"
  else echo '@@no program@@'; fi
}
"#;

const TIMEOUT: Duration = Duration::from_secs(90);
const SETTLES: Duration = Duration::from_millis(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Fewer than the attack on processes starts.
const MAX_PIDS: u32 = 128;
/// There is a hole, or nothing could be tried.
const HOLE: u8 = 1;
