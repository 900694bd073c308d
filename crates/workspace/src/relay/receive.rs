//! A push: the dialogue with the client.

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
            // A client writes its whole pack before it reads the result.
            line.finish(terms.policy.limits.bytes.as_u64());
        }
        Err(why) => {
            // All git clients that get this far support a side band.
            let mut answer = Vec::new();
            side_band(&mut answer, Band::Fatal, format!("{why}\n").as_bytes());
            let _ = line.write(&answer);
            line.finish(terms.policy.limits.bytes.as_u64());
            terms.note(RelayEvent::Broken { why });
        }
    }
}

/// Sends the refs, and reads the commands and the beginning of the pack. `None` if there are no commands.
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
            // The client only read the refs: `git push` with nothing to push, `git ls-remote`.
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

/// Processes the push and reports the result.
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
            let (requested, landed) = (update.name.clone(), landing.name.clone());
            let (old, new) = (landing.old.clone(), landing.new.clone());
            terms.note(RelayEvent::Moved { requested, landed, old: old.clone(), new: new.clone() });
            match landing.name == update.name {
                true => Arrived::AsRequested,
                false => {
                    progress += &how_to_take(&update.name, &landing.name);
                    Arrived::Elsewhere(Update { old, new, name: landing.name })
                }
            }
        });
        if let Err(refusal) = &result {
            let (requested, refusal) = (update.name.clone(), refusal.clone());
            terms.note(RelayEvent::Refused { requested, refusal });
        }
        Outcome { name: update.name, result }
    });
    let outcomes = outcomes.collect();
    Report { unpack, outcomes, progress }
}

/// Takes the pack and moves the refs; `landed` counts the bytes that have come to the host so far. An error means that nothing
/// moved.
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
    // The check takes a while, in which the host's owner may have started to work on one of the branches.
    moves.leave(&host.busy_branches()?);
    moves.land(host);
    Ok(())
}

/// The text that the agent, and through it its owner, reads after `remote:`.
fn how_to_take(requested: &RefName, landed: &RefName) -> String {
    let branch = requested.branch().map_or_else(|| requested.to_string(), |branch| branch.to_string());
    format!(
        "`{branch}` is checked out on the host: your commits wait there at {landed}\n\
         to take them, run in that worktree: git merge --ff-only {landed}\n"
    )
}

fn described(error: &QuarantineError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// Our capabilities. `delete-refs` only by policy, no `push-options`, no `push-cert`; `no-thin` as the quarantine needs it.
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
/// git knows its commands once it has read the refs; a user with a prompt in a hook takes longer.
const COMMANDS: Duration = Duration::from_secs(120);
