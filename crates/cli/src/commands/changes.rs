//! What became of a workspace, said at the end of a run.

use belljar_engine::{Changes, Sandbox};
use belljar_overlay::quote;
use belljar_spec::SandboxError;
use belljar_spec::git::BranchName;
use belljar_workspace::managed::{LeftInManagedClone, MAX_UNCOMMITTED, OnHost};
use belljar_workspace::private_git::{ImportReport, SetAside};
use belljar_workspace::protect::{Executed, Findings, Left};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Says where changes are, if they are anywhere but in the folder.
pub(super) fn say(sandbox: &Sandbox) -> Result<(), SandboxError> {
    if let Some(changes) = sandbox.changes().transpose()? {
        say_of(&changes);
    }
    Ok(())
}

/// Only what has to be known before the host uses the folder.
pub(super) fn say_warnings(sandbox: &Sandbox) -> Result<(), SandboxError> {
    if let Some(changes @ Changes::Folder { .. }) = sandbox.changes().transpose()? {
        say_of(&changes);
    }
    Ok(())
}

/// The same, of a workspace that is in order.
pub(super) fn say_of(changes: &Changes) {
    match changes {
        Changes::None => {}
        Changes::Folder { findings: Findings { left, executed, is_whole }, git } => {
            say_of_git(git);
            say_left(left);
            let more = if *is_whole { "" } else { " (not all of the folder was looked at)" };
            say_executed(&format!("changed during this run{more}"), executed);
        }
        Changes::Layer { id, summary, git, unnoted } => {
            git.notes.iter().for_each(|note| eprintln!("belljar: {note}"));
            if let Some(why) = unnoted {
                eprintln!("belljar: {why}; the layer is kept all the same");
            }
            let what = match summary.files() {
                0 if !git.set_aside.is_empty() => "commits are".to_string(),
                files => counted(files),
            };
            eprintln!("belljar: the folder is as it was; {what} kept in layer {id}");
            for SetAside { reference, kept_as, commit, reason, .. } in &git.set_aside {
                let short = &commit.as_str()[..10];
                match kept_as {
                    Some(kept_as) if kept_as.contains("/dropped/") => {}
                    Some(kept_as) => {
                        eprintln!("belljar: {reference} inside is at {short}, here as {kept_as}")
                    }
                    None => {
                        eprintln!("belljar: {reference} inside ({short}) is in the layer alone: {reason}")
                    }
                }
            }
            let them = if summary.files() == 1 && git.set_aside.is_empty() { "it" } else { "them" };
            eprintln!(
                "  hint: `belljar diff {id}` shows {them}, `belljar apply {id}` applies {them}, `belljar changes discard {id}` discards \
                 {them}"
            );
        }
        Changes::ManagedClone { clone_name, branch, folder, left } => {
            say_of_managed_clone(clone_name, branch, folder, left)
        }
        Changes::Clone { id, url, collected } => {
            let commits = counted_as(collected.count, "commit");
            eprintln!("belljar: {commits} on branch {} of {url}", collected.branch);
            for commit in &collected.commits {
                eprintln!("  {} {}", &commit.hash.as_str()[..10], commit.subject);
            }
            if !collected.others.is_empty() {
                let names: Vec<&str> = collected.others.iter().map(|branch| branch.as_str()).collect();
                eprintln!("belljar: what is on other branches stays in the clone: {}", names.join(", "));
                eprintln!("  hint: only commits on {} are taken over and can be published", collected.branch);
            }
            if let Some(commit) = collected.left_at() {
                eprintln!("belljar: it was left at {} and on no branch", &commit.as_str()[..10]);
            }
            if !collected.uncommitted.is_empty() {
                let files = counted_as(collected.uncommitted.len() as u64, "file");
                eprintln!("belljar: {files} changed and not committed; only commits leave a clone");
            }
            let them = if collected.count == 1 { "it" } else { "them" };
            eprintln!(
                "  hint: `belljar changes publish {id}` pushes {them}, `belljar changes discard {id}` discards {them}"
            );
        }
    }
}

/// Warns of what the host's programs would run or believe; of each kind only some.
pub(super) fn say_left(left: &[Left]) {
    for (number, one) in left.iter().enumerate() {
        let before = left[..number].iter().filter(|other| other.what == one.what).count();
        if before < MAX_SHOWN_OF_KIND {
            eprintln!("belljar: warning: `{}`: {}", shown(&one.path), one.what.sentence());
        } else if before == MAX_SHOWN_OF_KIND {
            let all = left.iter().filter(|other| other.what == one.what).count();
            eprintln!("belljar: warning: and {} more of the same", all - MAX_SHOWN_OF_KIND);
        }
    }
}

/// Lists files that commonly run on the host, under one heading.
pub(super) fn say_executed(what: &str, executed: &[Executed]) {
    if executed.is_empty() {
        return;
    }
    eprintln!("belljar: {what}, and programs on this machine commonly run it; read it first:");
    for Executed { path, reason } in executed.iter().take(MAX_EXECUTED) {
        eprintln!("  {} ({reason})", shown(path));
    }
    if executed.len() > MAX_EXECUTED {
        eprintln!("  and {} more", executed.len() - MAX_EXECUTED);
    }
}

/// Commits that the host's branches did not take; those that they took are where one looks for them.
pub(super) fn say_of_git(git: &ImportReport) {
    for note in &git.notes {
        eprintln!("belljar: {note}");
    }
    for SetAside { reference, kept_as, commit, reason, makes_submodule, is_on_host: _ } in &git.set_aside {
        let short = &commit.as_str()[..10];
        match kept_as.as_deref() {
            // What an agent amended or rebased away itself: there, and no news.
            Some(kept_as) if kept_as.contains("/dropped/") => {}
            Some(kept_as) => {
                let name = reference.to_string();
                let how = match makes_submodule {
                    true => format!("`git diff HEAD...{kept_as}` shows it"),
                    false => how_to_take(&name, kept_as),
                };
                eprintln!("belljar: {name} of the sandbox ({short}) was not taken over: {reason}");
                eprintln!("  hint: kept as {kept_as}; {how}");
            }
            None => eprintln!("belljar: {reference} of the sandbox ({short}) was not taken over: {reason}"),
        }
    }
}

/// The command that takes a ref from where it is kept.
fn how_to_take(name: &str, kept_as: &str) -> String {
    match name.strip_prefix("refs/tags/") {
        // One that says nothing to a shell is kept under its own name; the user is to run no other.
        Some(tag) if kept_as.ends_with(&format!("/tags/{tag}")) && !tag.starts_with('-') => {
            format!("`git tag {tag} {kept_as}` takes it")
        }
        Some(_) => format!("`git tag NAME {kept_as}` takes it"),
        None if name.starts_with("stash@") => format!("`git stash apply {kept_as}` brings it back"),
        None => format!("`git merge {kept_as}` takes them"),
    }
}

fn say_of_managed_clone(clone_name: &str, branch: &BranchName, folder: &Path, left: &LeftInManagedClone) {
    match left.branch {
        OnHost::Yes if left.is_on_host() => {
            eprintln!("belljar: branch {branch} is up to date with what was committed inside");
        }
        OnHost::Yes => eprintln!("belljar: branch {branch} has all that was committed inside"),
        OnHost::No => {
            eprintln!("belljar: commits on branch {branch} were not pushed; they are kept in {clone_name}");
            eprintln!("  hint: `belljar run --branch {branch} -- git push` brings them here");
        }
        OnHost::Gone => {
            eprintln!("belljar: branch {branch} is gone from {clone_name}: it was deleted or damaged inside");
            eprintln!("  hint: `belljar run --branch {branch} -- git reflog` shows what was committed");
        }
        OnHost::Nothing => eprintln!("belljar: nothing new was committed on branch {branch}"),
    }
    if let Some(why) = &left.unknown {
        eprintln!(
            "belljar: what is not committed cannot be told ({why}); all of it is kept in `{}`",
            shown(folder)
        );
    }
    if !left.uncommitted.is_empty() {
        let (files, are) = match left.uncommitted.len() {
            1 => ("1 file".to_string(), "is"),
            more if more >= MAX_UNCOMMITTED => (format!("{more} files or more"), "are"),
            more => (format!("{more} files"), "are"),
        };
        let they = if are == "is" { "it is" } else { "they are" };
        eprintln!("belljar: {files} {are} not committed; {they} kept in `{}`", shown(folder));
        eprintln!(
            "  hint: `belljar diff {clone_name}:{branch}` shows the changes, `belljar apply {clone_name}:{branch}` brings them here; or commit them: \
             `belljar run --branch {branch} -- sh -c 'git add -A && git commit -m MESSAGE && git push'`"
        );
    }
}

/// Says what should be known before anything runs.
pub(super) fn warn(sandbox: &Sandbox) {
    if let Some(warning) = sandbox.warning() {
        eprintln!("belljar: {warning}");
    }
}

/// An agent may have chosen the name.
pub(super) fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

fn counted_as(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn counted(files: usize) -> String {
    match files {
        1 => "1 change is".to_string(),
        more => format!("{more} changes are"),
    }
}

/// Warnings of one kind, and files under a heading, that are listed: the rest is in `--json`.
const MAX_SHOWN_OF_KIND: usize = 5;
const MAX_EXECUTED: usize = 20;

#[cfg(test)]
mod tests {
    use super::how_to_take;

    #[test]
    fn a_command_to_run_has_no_word_that_an_agent_made_for_a_shell() {
        for (name, kept_as, command) in [
            ("refs/heads/x", "refs/belljar/a/heads/x", "git merge refs/belljar/a/heads/x"),
            ("refs/tags/v1", "refs/belljar/a/tags/v1", "git tag v1 refs/belljar/a/tags/v1"),
            ("refs/tags/$(touch${IFS}x)", "refs/belljar/a/kept/1", "git tag NAME refs/belljar/a/kept/1"),
            ("refs/tags/-d", "refs/belljar/a/tags/-d", "git tag NAME refs/belljar/a/tags/-d"),
            ("stash@{0}", "refs/belljar/a/stash/0", "git stash apply refs/belljar/a/stash/0"),
        ] {
            assert!(how_to_take(name, kept_as).starts_with(&format!("`{command}` ")), "{name}");
        }
    }
}
