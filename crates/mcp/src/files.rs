//! Files: read, written, listed. The sandbox opens them, as its own user.

use crate::conversation::{Conversation, failed};
use crate::tools::{LINES, ListFiles, ReadFile, WriteFile};
use belljar_api::{FileEntry, FileKind};
use belljar_spec::{ErrorCode, SandboxError};

impl Conversation {
    pub(crate) async fn read_file(&self, arguments: ReadFile) -> Result<String, SandboxError> {
        let path = &arguments.path;
        let bytes = self
            .with(|held| async move {
                let stat = held.sandbox.stat(&held.inside(path)).await.map_err(failed)?;
                if stat.size > MAX_FILE_BYTES as u64 {
                    return Err(too_large(path, stat.size));
                }
                held.sandbox.file(&held.inside(path), MAX_FILE_BYTES).await.map_err(failed)
            })
            .await?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let message = format!("`{path}` is not valid UTF-8, and has {} bytes", error.as_bytes().len());
            ErrorCode::FileOperation
                .error(message)
                .hint("look at it with run_command: `xxd`, `file`, `strings`")
        })?;
        Ok(part(&text, arguments.first_line.unwrap_or(1), arguments.lines.unwrap_or(LINES)))
    }

    pub(crate) async fn write_file(&self, arguments: WriteFile) -> Result<String, SandboxError> {
        let (path, content) = (&arguments.path, &arguments.content);
        self.with(|held| async move {
            held.sandbox.write_file(&held.inside(path), content.clone().into_bytes()).await.map_err(failed)
        })
        .await?;
        Ok(format!("wrote {} bytes to {path}", content.len()))
    }

    pub(crate) async fn list_files(&self, arguments: ListFiles) -> Result<String, SandboxError> {
        let path = arguments.path.as_deref();
        let mut entries = self
            .with(|held| async move {
                let folder = held.directory(path).unwrap_or_else(|| ".".into());
                held.sandbox.list(&folder).await.map_err(failed)
            })
            .await?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let more = entries.len().saturating_sub(MAX_ENTRIES);
        let mut lines: Vec<String> = entries.iter().take(MAX_ENTRIES).map(line).collect();
        if more > 0 {
            lines.push(format!("[... and {more} more ...]"));
        }
        Ok(if lines.is_empty() { "[the folder is empty]".into() } else { lines.join("\n") })
    }
}

/// Some lines of a text, and which they are if they are not all.
fn part(text: &str, first: usize, most: usize) -> String {
    let all = text.lines().count();
    let skipped = first.saturating_sub(1);
    if skipped == 0 && all <= most {
        return text.to_string();
    }
    if skipped >= all {
        return format!("[the file has {all} lines]");
    }
    let shown: Vec<&str> = text.lines().skip(skipped).take(most).collect();
    format!("{}\n[lines {first} to {} of {all}]", shown.join("\n"), skipped + shown.len())
}

fn line(entry: &FileEntry) -> String {
    match entry.kind {
        FileKind::Directory => format!("{}/", entry.name),
        FileKind::File | FileKind::Symlink | FileKind::Other => entry.name.clone(),
    }
}

fn too_large(path: &str, size: u64) -> SandboxError {
    ErrorCode::FileOperation
        .error(format!("`{path}` has {size} bytes, more than the {MAX_FILE_BYTES} that are read at once"))
        .hint("read a part with run_command: `head -c`, `sed -n`, `grep`")
}

const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
const MAX_ENTRIES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_file_says_which_part() {
        let text = "one\ntwo\nthree\n";
        for (first, most, expected) in [
            (1, 10, text),
            (1, 2, "one\ntwo\n[lines 1 to 2 of 3]"),
            (2, 1, "two\n[lines 2 to 2 of 3]"),
            (3, 10, "three\n[lines 3 to 3 of 3]"),
            (4, 10, "[the file has 3 lines]"),
        ] {
            assert_eq!(part(text, first, most), expected);
        }
        assert_eq!(part("", 1, 10), "");
    }
}
