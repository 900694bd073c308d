//! A push: what is said to the client, and when.

use super::RelayEvent;
use super::line::{Line, PIECE};
use super::server::Terms;
use super::upload::unreadable;
use super::verdict::{Judged, Moves};
use crate::quarantine::{HostRef, Quarantine, QuarantineError};
use belljar_git::advertisement::{Advertised, Advertisement};
use belljar_git::judge;
use belljar_git::push::{Collect, Push, Update};
use belljar_git::report::{Arrived, Band, Outcome, Report, side_band};
use belljar_git::{PushRefusal, RefName, pkt};
use std::io;
use std::time::Duration;

/// Serves a push.
pub(super) fn serve(line: &Line, terms: &Terms, version: u8) {
    match begin(line, terms, version) {
        Ok(None) => line.cut(),
        Ok(Some((push, pack))) => {
            let report = answer(line, terms, &push, &pack);
            let _ = line.write(&report.bytes(&push));
            // A client writes all of its pack before it reads what became of it.
            line.finish(terms.policy.limits.bytes.as_u64());
        }
        Err(why) => {
            // Clients of git that come this far all take a side band.
            let mut answer = Vec::new();
            side_band(&mut answer, Band::Fatal, format!("{why}\n").as_bytes());
            let _ = line.write(&answer);
            line.finish(terms.policy.limits.bytes.as_u64());
            terms.note(RelayEvent::Broken { why });
        }
    }
}

/// Shows what there is, and reads what is asked for; and the beginning of the pack. None if nothing is.
fn begin(line: &Line, terms: &Terms, version: u8) -> Result<Option<(Push, Vec<u8>)>, String> {
    let refs = match terms.repository.refs() {
        Ok(refs) => refs,
        Err(error) => {
            let why = match &error {
                QuarantineError::Git(error) => unreadable(error),
                error => format!("ERR {}", error.refusal()),
            };
            let _ = line.write(&pkt::data(why.as_bytes()));
            return Err(error.to_string());
        }
    };
    let text = |error: io::Error| error.to_string();
    if version == 1 {
        line.write(&pkt::data(b"version 1\n")).map_err(text)?;
    }
    line.write(&advertisement(terms, &refs).bytes()).map_err(text)?;
    let mut collect = Collect::default();
    let mut buffer = vec![0; PIECE];
    loop {
        let count = line.read(&mut buffer, COMMANDS).map_err(text)?;
        if count == 0 {
            // Looked, and went: `git push` with nothing to push, `git ls-remote`.
            return Ok(None);
        }
        if collect.feed(&buffer[..count]).map_err(|error| error.to_string())? {
            break;
        }
    }
    let (push, pack) = collect.finish().map_err(|error| error.to_string())?;
    if push.updates.is_empty() {
        return Ok(None);
    }
    match push.format() == terms.repository.format() {
        true => Ok(Some((push, pack))),
        false => Err(format!("objects are named by {} here", terms.repository.format().name())),
    }
}

fn advertisement(terms: &Terms, refs: &[HostRef]) -> Advertisement {
    let shown = refs.iter().filter(|one| one.is_shown());
    let refs = shown.map(|one| Advertised { id: one.id.clone(), name: one.name.clone() }).collect();
    let format = terms.repository.format();
    let mut words = CAPABILITIES.map(str::to_string).to_vec();
    words.push(format!("object-format={}", format.name()));
    if terms.policy.delete {
        words.push("delete-refs".to_string());
    }
    Advertisement {
        service: None,
        refs,
        capabilities: words.into_iter().collect(),
        shallow: Vec::new(),
        format,
    }
}

/// What becomes of it all.
fn answer(line: &Line, terms: &Terms, push: &Push, pack: &[u8]) -> Report {
    let mut moves = Moves::new(push, |update| judge::by_name(&terms.policy, update));
    let mut unpack = Ok(());
    if moves.any() {
        // One push at a time: its limits must not be available to eight at once.
        let mut landed = terms.turn();
        let mut line = line.clone();
        if let Err(error) = receive(&mut line, terms, push, pack, &mut moves, &mut landed) {
            // The message of a killed git says nothing about the push.
            let error = match terms.is_too_late() {
                true => QuarantineError::Broken(io::Error::other(
                    "the sandbox has ended, and it took too long to land",
                )),
                false => error,
            };
            let refusal = error.refusal();
            if !matches!(error, QuarantineError::Refused(_)) {
                terms.note(RelayEvent::Broken { why: described(&error) });
            }
            unpack = Err(refusal.to_string());
            moves.refuse_all(&refusal);
        }
    }
    let mut progress = String::new();
    let outcomes = moves.all.into_iter().map(|Judged { update, result }| {
        let result = result.map(|landing| {
            let (asked, landed) = (update.name.clone(), landing.name.clone());
            let (old, new) = (landing.old.clone(), landing.new.clone());
            terms.note(RelayEvent::Moved { asked, landed, old: old.clone(), new: new.clone() });
            match landing.name == update.name {
                true => Arrived::AsAsked,
                false => {
                    progress += &how_to_take(&update.name, &landing.name);
                    Arrived::Elsewhere(Update { old, new, name: landing.name })
                }
            }
        });
        if let Err(refusal) = &result {
            let (asked, refusal) = (update.name.clone(), refusal.clone());
            terms.note(RelayEvent::Refused { asked, refusal });
        }
        Outcome { name: update.name, result }
    });
    let outcomes = outcomes.collect();
    Report { unpack, outcomes, progress }
}

/// From the pack to refs that moved; `landed` is what has come to the host so far. An error means that nothing did.
fn receive(
    line: &mut Line,
    terms: &Terms,
    push: &Push,
    pack: &[u8],
    moves: &mut Moves,
    landed: &mut u64,
) -> Result<(), QuarantineError> {
    let host = &terms.repository;
    let quarantine = Quarantine::create(&terms.state, host)?;
    let taken = match push.brings_pack() {
        true => Some(quarantine.take(pack, line, terms.policy.limits)?),
        false => None,
    };
    // Only now, since the host's owner works on while a pack arrives.
    let refs = host.refs()?;
    moves.place(host, &refs)?;
    if let Some(taken) = &taken {
        moves.look(&quarantine, taken, &terms.policy, &refs)?;
    }
    let landings = moves.landings();
    if landings.is_empty() {
        return Ok(());
    }
    let most = terms.policy.limits.together();
    let with_this = landed.saturating_add(quarantine.cost(taken.as_ref(), &landings));
    if with_this > most.as_u64() {
        return Err(QuarantineError::Refused(PushRefusal::Total { most }));
    }
    *landed = with_this;
    let _admitted = quarantine.admit(taken.as_ref(), host, &landings)?;
    // Looking takes a while, in which the host's owner may have begun to work on one of them.
    moves.leave(&host.busy_branches()?);
    moves.land(host);
    Ok(())
}

/// What the agent, and through it its owner, reads behind `remote:`.
fn how_to_take(asked: &RefName, landed: &RefName) -> String {
    let branch = asked.branch().map_or_else(|| asked.to_string(), |branch| branch.to_string());
    format!(
        "`{branch}` is checked out on the host: your commits wait there at {landed}\n\
         to take them, run in that worktree: git merge --ff-only {landed}\n"
    )
}

fn described(error: &QuarantineError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// What we can do. No `delete-refs` but by policy, no `push-options`, no `push-cert`; `no-thin` as the quarantine needs it.
const CAPABILITIES: [&str; 8] = [
    "report-status",
    "report-status-v2",
    "side-band-64k",
    "quiet",
    "atomic",
    "ofs-delta",
    "no-thin",
    concat!("agent=belljar/", env!("CARGO_PKG_VERSION")),
];
/// git knows its commands when it has seen the list; a person with a prompt in a hook takes longer.
const COMMANDS: Duration = Duration::from_secs(120);
