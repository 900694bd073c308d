//! What an agent is given to read: its prompt, and what it should know beside it. Checked before anything is started.

use crate::opened::{self, Named};
use crate::run::Attached;
use belljar_overlay::quote;
use belljar_spec::{ErrorCode, SandboxError};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A prompt from the user; `from` says where it came from: `--prompt`, standard input, a file.
pub fn prompt(bytes: Vec<u8>, from: &str) -> Result<String, SandboxError> {
    let text = text(bytes, from, MAX_PROMPT, "a prompt")?;
    if text.trim().is_empty() {
        let message = format!("the prompt from {from} is empty");
        return Err(ErrorCode::RequestValue.error(message).hint("say what the agent should do"));
    }
    Ok(text)
}

/// The same, from a file that a person named.
pub fn prompt_file(path: &Path) -> Result<String, SandboxError> {
    prompt_named(Named::ByPerson, path)
}

/// The same, from wherever it was named.
pub(crate) fn prompt_named(named: Named<'_>, path: &Path) -> Result<String, SandboxError> {
    let file = opened::file(named, path)?;
    prompt(read(path, file, MAX_PROMPT)?, &format!("`{}`", shown(path)))
}

/// The same, from something that is open: standard input.
pub fn prompt_from(stream: impl Read, from: &str) -> Result<String, SandboxError> {
    let bytes = bytes(stream, MAX_PROMPT).map_err(|error| unreadable(from, error))?;
    prompt(bytes, from)
}

/// Files, and those of folders that are meant to be read (`.md`, `.txt`, in the order of their names), each with its name.
pub fn context(paths: &[PathBuf]) -> Result<Vec<(String, String)>, SandboxError> {
    let mut known = Vec::new();
    paths.iter().try_for_each(|path| context_named(Named::ByPerson, path, &mut known))?;
    Ok(known)
}

/// One more of them, from wherever it was named.
pub(crate) fn context_named(
    named: Named<'_>,
    path: &Path,
    known: &mut Vec<(String, String)>,
) -> Result<(), SandboxError> {
    let found = opened::each(named, path, &TEXTS, |path, file| {
        let from = format!("`{}`", shown(path));
        let text = text(read(path, file, MAX_CONTEXT)?, &from, MAX_CONTEXT, "a context")?;
        known.push((shown(path), text));
        match known.iter().map(|(_, text)| text.len() as u64).sum::<u64>() {
            0..=MAX_CONTEXT => Ok(()),
            _ => Err(too_large("all files of a context together", MAX_CONTEXT)),
        }
    })?;
    if found == 0 {
        let message = format!("the folder `{}` has no file that ends in .md or .txt", shown(path));
        return Err(ErrorCode::RequestValue.error(message).hint("name the files themselves"));
    }
    Ok(())
}

/// Files that a user attaches to a prompt, whatever is in them. Two of one name are refused.
pub fn attached(paths: &[PathBuf]) -> Result<Vec<Attached>, SandboxError> {
    let mut all: Vec<Attached> = Vec::new();
    for path in paths {
        let content = read(path, opened::file(Named::ByPerson, path)?, MAX_ATTACHED)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
        let refused = |why: &str| {
            Err(ErrorCode::RequestValue
                .error(format!("`{}` cannot be attached: {why}", shown(path)))
                .hint("give it another name, or put it into the workspace"))
        };
        if name.is_empty() || name.contains(char::is_control) {
            return refused("its name is not text that an agent could read");
        }
        if all.iter().any(|other| other.name == name) {
            return refused("another attached file has the same name");
        }
        all.push(Attached { name, content });
        let bytes: u64 = all.iter().map(|file| file.content.len() as u64).sum();
        if bytes > MAX_ATTACHED {
            return Err(too_large("all attached files together", MAX_ATTACHED));
        }
    }
    Ok(all)
}

/// Text of a file that a person named, for what it is.
pub(crate) fn named(path: &Path, most: u64, what: &str) -> Result<String, SandboxError> {
    let file = opened::file(Named::ByPerson, path)?;
    text(read(path, file, most)?, &format!("`{}`", shown(path)), most, what)
}

fn read(path: &Path, file: File, most: u64) -> Result<Vec<u8>, SandboxError> {
    bytes(file, most).map_err(|error| unreadable(&format!("`{}`", shown(path)), error))
}

/// One byte more than is allowed, so that the caller sees that it is too much.
fn bytes(stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text(bytes: Vec<u8>, from: &str, most: u64, what: &str) -> Result<String, SandboxError> {
    if bytes.len() as u64 > most {
        return Err(too_large(&format!("{from} is too large for {what}: it"), most));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ErrorCode::RequestValue
            .error(format!("{from} is not UTF-8 text, from byte {at} on"))
            .hint("write it as UTF-8; put other files into the workspace")
    })
}

fn too_large(what: &str, most: u64) -> SandboxError {
    let message = format!("{what} may have {} MiB", most >> 20);
    ErrorCode::RequestValue
        .error(message)
        .hint("put it into a file of the workspace, and name that file in the prompt")
}

fn unreadable(from: &str, error: io::Error) -> SandboxError {
    ErrorCode::RequestValue
        .error(format!("{from} cannot be read: {error}"))
        .hint("name a file that exists and that you can read")
        .caused_by(error)
}

fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

/// More than any model takes; some agents get it as one message over standard input.
const MAX_PROMPT: u64 = 8 << 20;
/// It goes with every question to the model.
const MAX_CONTEXT: u64 = 1 << 20;
/// They are copied through memory.
const MAX_ATTACHED: u64 = 64 << 20;
const TEXTS: [&str; 2] = ["md", "txt"];

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn text_of(outcome: Result<impl std::fmt::Debug, SandboxError>) -> String {
        outcome.expect_err("it is not to be taken").to_string()
    }

    #[test]
    fn a_prompt_is_text_with_words_in_it() {
        assert_eq!(prompt(b"fix it".to_vec(), "--prompt").unwrap(), "fix it");
        assert_eq!(
            text_of(prompt(b" \n\t".to_vec(), "standard input")),
            "the prompt from standard input is empty"
        );
        assert_eq!(text_of(prompt(b"ab\xff".to_vec(), "`x`")), "`x` is not UTF-8 text, from byte 2 on");
        let long = vec![b'x'; MAX_PROMPT as usize + 1];
        assert_eq!(text_of(prompt(long, "`x`")), "`x` is too large for a prompt: it may have 8 MiB");
        let endless = io::repeat(b'x');
        assert!(text_of(prompt_from(endless, "standard input")).contains("may have 8 MiB"));
        assert!(
            text_of(prompt_file(Path::new("/no/such\nfile")))
                .starts_with("`\"/no/such\\nfile\"` cannot be read")
        );
        assert!(text_of(prompt_file(Path::new("/"))).starts_with("`/` cannot be read"));
    }

    #[test]
    fn a_person_may_name_a_link_to_a_file_and_nothing_that_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real.md"), "real").unwrap();
        symlink(at("real.md"), at("link.md")).unwrap();
        mknodat(CWD, at("pipe.md"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = UnixListener::bind(at("socket.md")).unwrap();
        assert_eq!(prompt_file(&at("link.md")).unwrap(), "real");
        assert_eq!(context(&[at("link.md")]).unwrap()[0].1, "real");
        for path in [at("pipe.md"), at("socket.md"), PathBuf::from("/dev/zero")] {
            let refused = "cannot be read: it is not a regular file";
            assert!(text_of(prompt_file(&path)).ends_with(refused), "{path:?}");
            assert!(text_of(context(std::slice::from_ref(&path))).ends_with(refused), "{path:?}");
        }
    }

    #[test]
    fn a_folder_of_context_leads_nowhere_else() {
        let (folder, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(host.path().join("secret"), "secret").unwrap();
        fs::write(folder.path().join("a.md"), "one").unwrap();
        mknodat(CWD, folder.path().join("b.md"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(context(&[folder.path().to_path_buf()]).unwrap().len(), 1, "a pipe is no text");
        symlink(host.path().join("secret"), folder.path().join("c.md")).unwrap();
        let error = context(&[folder.path().to_path_buf()]).unwrap_err();
        assert!(error.message.contains("/c.md` is a link"), "{error}");
        assert!(error.hint.unwrap().to_string().contains("--context FILE"));
        // The folder itself was named by a person.
        fs::remove_file(folder.path().join("c.md")).unwrap();
        symlink(folder.path(), host.path().join("folder")).unwrap();
        assert_eq!(context(&[host.path().join("folder")]).unwrap()[0].1, "one");
    }

    #[test]
    fn attached_files_are_any_bytes_under_names_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("other")).unwrap();
        fs::write(at("a.png"), b"\x89PNG\0\xff").unwrap();
        fs::write(at("other/a.png"), "x").unwrap();
        fs::write(at("line\nbreak"), "x").unwrap();
        let taken = attached(&[at("a.png")]).unwrap();
        assert_eq!((taken[0].name.as_str(), &taken[0].content[..]), ("a.png", &b"\x89PNG\0\xff"[..]));
        assert!(text_of(attached(&[at("a.png"), at("other/a.png")])).contains("the same name"));
        assert!(text_of(attached(&[at("line\nbreak")])).contains("not text"));
        assert!(text_of(attached(&[at("other")])).contains("cannot be read"));
    }

    #[test]
    fn a_folder_of_context_is_its_texts_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.md", "two"), ("a.txt", "one"), ("c.bin", "\0"), (".hidden", "no")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::create_dir(folder.path().join("d.md")).unwrap();
        fs::write(folder.path().join("d.md/e"), "three").unwrap();
        let known = context(&[folder.path().to_path_buf(), folder.path().join("d.md/e")]).unwrap();
        let texts: Vec<&str> = known.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["one", "two", "three"]);
        assert!(known[0].0.ends_with("/a.txt"));
        fs::write(folder.path().join("a.txt"), vec![b'x'; 600 << 10]).unwrap();
        fs::write(folder.path().join("b.md"), vec![b'x'; 600 << 10]).unwrap();
        assert!(text_of(context(&[folder.path().to_path_buf()])).contains("together may have 1 MiB"));
        let empty = tempfile::tempdir().unwrap();
        assert!(text_of(context(&[empty.path().to_path_buf()])).contains("no file that ends in .md"));
    }
}
