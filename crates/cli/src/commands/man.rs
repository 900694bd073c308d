//! `belljar man`: the manual pages, made from the help of the commands: one of belljar, and one of each command.

use super::print;
use crate::args::{ManArgs, command};
use belljar_spec::{ErrorCode, SandboxError};
use clap::Command;
use std::path::Path;

pub(crate) fn man(options: &ManArgs) -> Result<u8, SandboxError> {
    let root = built();
    if let Some(folder) = &options.all {
        return write_all(&root, folder);
    }
    let found = options.command.iter().try_fold(&root, |command, word| command.find_subcommand(word));
    let found = found.ok_or_else(|| {
        let message = format!("there is no command `{}`", options.command.join(" "));
        ErrorCode::NameUnknown.error(message).hint("`belljar help` lists commands")
    })?;
    print(&page(found)?)
}

/// Every command, which knows what it is called in full: `belljar-images-build`.
fn built() -> Command {
    let mut root = command();
    root.build();
    root
}

fn write_all(root: &Command, folder: &Path) -> Result<u8, SandboxError> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot write manual pages into `{}`: {error}", folder.display());
        ErrorCode::PathInvalid.error(message).hint("name a folder that you can write to").caused_by(error)
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for command in with_all_below(root) {
        std::fs::write(folder.join(format!("{}.1", name(command))), page(command)?).map_err(failed)?;
    }
    Ok(0)
}

/// A command and those below it, without hidden ones.
fn with_all_below(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    std::iter::once(command).chain(below.flat_map(with_all_below)).collect()
}

/// What its page is called.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> Result<Vec<u8>, SandboxError> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone()).title(name(command)).manual("belljar");
    man.render(&mut page).map_err(|error| {
        ErrorCode::Internal.error(format!("cannot make the page: {error}")).caused_by(error)
    })?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_that_a_page_names_is_made() {
        let root = built();
        let names: Vec<String> = with_all_below(&root).into_iter().map(|one| name(one).to_string()).collect();
        for command in with_all_below(&root) {
            let text = String::from_utf8(page(command).unwrap()).unwrap().replace('\\', "");
            for line in text.lines().filter(|line| line.ends_with("(1)") && line.starts_with("belljar")) {
                assert!(
                    names.contains(&line.trim_end_matches("(1)").to_string()),
                    "{}: {line}",
                    name(command)
                );
            }
        }
        assert!(names.contains(&"belljar-images-build".to_string()), "{names:?}");
    }
}
