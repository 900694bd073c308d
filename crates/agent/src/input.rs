//! What an agent is given to read: its prompt, and what it should know beside it. Checked before anything is started.

use belljar_engine::layer::quote;
use belljar_spec::SandboxError;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A prompt from what somebody gave; `from` says where it came from: `--prompt`, standard input, a file.
pub fn prompt(bytes: Vec<u8>, from: &str) -> Result<String, SandboxError> {
    let text = text(bytes, from, MAX_PROMPT, "a prompt")?;
    if text.trim().is_empty() {
        let message = format!("the prompt from {from} is empty");
        return Err(SandboxError::policy("prompt_empty", message).hint("say what the agent should do"));
    }
    Ok(text)
}

/// The same, from a file, or from whatever else can be read at that path.
pub fn prompt_file(path: &Path) -> Result<String, SandboxError> {
    prompt(read(path, MAX_PROMPT)?, &format!("`{}`", shown(path)))
}

/// The same, from something that is open: standard input.
pub fn prompt_from(stream: impl Read, from: &str) -> Result<String, SandboxError> {
    let bytes = bytes(stream, MAX_PROMPT).map_err(|error| unreadable(from, &error))?;
    prompt(bytes, from)
}

/// Files, and those of folders that are meant to be read (`.md`, `.txt`, in the order of their names), each with its name.
pub fn context(paths: &[PathBuf]) -> Result<Vec<(String, String)>, SandboxError> {
    let mut known = Vec::new();
    let mut room = MAX_CONTEXT;
    for path in paths {
        for file in files(path)? {
            let from = format!("`{}`", shown(&file));
            let text = text(read(&file, MAX_CONTEXT)?, &from, MAX_CONTEXT, "a context")?;
            room = room
                .checked_sub(text.len() as u64)
                .ok_or_else(|| too_large("all files of a context together", MAX_CONTEXT))?;
            known.push((shown(&file), text));
        }
    }
    Ok(known)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, SandboxError> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let from = format!("`{}`", shown(path));
    let failed = |error: io::Error| unreadable(&from, &error);
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_text = file.extension().is_some_and(|end| TEXTS.iter().any(|text| end == *text));
        if is_text && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        let message = format!("the folder {from} has no file that ends in .md or .txt");
        return Err(SandboxError::policy("context_empty", message).hint("name the files themselves"));
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, SandboxError> {
    let from = format!("`{}`", shown(path));
    File::open(path).and_then(|file| bytes(file, most)).map_err(|error| unreadable(&from, &error))
}

/// One more than may be, so that whoever looks sees that it is too much.
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
        SandboxError::policy("input_not_text", format!("{from} is not UTF-8 text, from byte {at} on"))
            .hint("write it as UTF-8; a file that is no text goes into the workspace")
    })
}

fn too_large(what: &str, most: u64) -> SandboxError {
    let message = format!("{what} may have {} MiB", most >> 20);
    SandboxError::policy("input_too_large", message)
        .hint("put it into a file of the workspace, and name that file in the prompt")
}

fn unreadable(from: &str, error: &io::Error) -> SandboxError {
    SandboxError::policy("input_unreadable", format!("{from} cannot be read: {error}"))
        .hint("name a file that is there and that you may read")
}

fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

/// More than any model takes; some agents get it as one message over standard input.
const MAX_PROMPT: u64 = 8 << 20;
/// It goes with every question to the model.
const MAX_CONTEXT: u64 = 1 << 20;
const TEXTS: [&str; 2] = ["md", "txt"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn said(outcome: Result<impl std::fmt::Debug, SandboxError>) -> String {
        outcome.expect_err("it is not to be taken").to_string()
    }

    #[test]
    fn a_prompt_is_text_with_words_in_it() {
        assert_eq!(prompt(b"fix it".to_vec(), "--prompt").unwrap(), "fix it");
        assert_eq!(
            said(prompt(b" \n\t".to_vec(), "standard input")),
            "the prompt from standard input is empty"
        );
        assert_eq!(said(prompt(b"ab\xff".to_vec(), "`x`")), "`x` is not UTF-8 text, from byte 2 on");
        let long = vec![b'x'; MAX_PROMPT as usize + 1];
        assert_eq!(said(prompt(long, "`x`")), "`x` is too large for a prompt: it may have 8 MiB");
        let endless = io::repeat(b'x');
        assert!(said(prompt_from(endless, "standard input")).contains("may have 8 MiB"));
        assert!(
            said(prompt_file(Path::new("/no/such\nfile")))
                .starts_with("`\"/no/such\\nfile\"` cannot be read")
        );
        assert!(said(prompt_file(Path::new("/"))).starts_with("`/` cannot be read"));
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
        assert!(said(context(&[folder.path().to_path_buf()])).contains("together may have 1 MiB"));
        let empty = tempfile::tempdir().unwrap();
        assert!(said(context(&[empty.path().to_path_buf()])).contains("no file that ends in .md"));
    }
}
