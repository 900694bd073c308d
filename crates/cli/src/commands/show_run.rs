//! `belljar sandbox plan`: the sandbox that `run` would make.

use super::build::with_own_image;
use super::{persistent, print};
use crate::args::ShowRunArgs;
use crate::failure::say_notes;
use belljar_engine::describe;
use belljar_spec::{ErrorCode, SandboxError};

pub(crate) fn show_run(options: ShowRunArgs) -> Result<u8, SandboxError> {
    let ShowRunArgs { folder, once, image, sandbox_options, command_line, .. } = options;
    let sandbox_options = with_own_image(
        sandbox_options.on(folder),
        &image,
        |sandbox_options| persistent::folder(sandbox_options.folder()),
        true,
    )?;
    let spec = match !once && sandbox_options.is_silent() {
        true => persistent::show::spec(sandbox_options.folder().as_deref(), sandbox_options.branch())?,
        false => None,
    };
    let spec = match spec {
        Some(spec) => spec,
        None => {
            let (spec, notes) = sandbox_options.spec()?;
            say_notes(&notes);
            spec
        }
    };
    let description = describe(&spec)?;
    if !command_line {
        return print(format!("{:#}\n", description.json).as_bytes());
    }
    let Some(words) = description.command else {
        let message = "no command builds this sandbox: belljar does it itself";
        return Err(ErrorCode::NotSupported.error(message).hint(
            "add `--backend bwrap` or `--backend docker`, or look at `steps` without `--command-line`",
        ));
    };
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    print(format!("{}\n", quoted.join(" ")).as_bytes())
}

/// As a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        for (word, expected) in [
            ("--ro-bind", "--ro-bind"),
            ("/a b", "'/a b'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
