//! Writes changes as a patch that `git apply` and `patch -p1` accept.

use super::beneath::Beneath;
use super::change::Change;
use super::error::LayerError;
use super::path::RelPath;
use super::quote;
use super::record::Layer;
use super::stat::{Kind, Stat};
use imara_diff::{Algorithm, Diff, Hunk, InternedInput, Token, sources};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::ops::Range;

/// Writes changes of one layer.
#[derive(Debug)]
pub struct Patch {
    upper: Beneath,
    host: Beneath,
}

/// How many lines a change adds and removes; `None` if it is not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lines {
    pub added: u32,
    pub removed: u32,
}

impl Patch {
    pub fn of(layer: &Layer) -> Result<Patch, LayerError> {
        let (upper, host) = layer.sides()?;
        Ok(Patch { upper, host })
    }

    /// Writes one change. Directories and attributes, which git does not track, are skipped.
    pub fn write(&self, change: &Change, out: &mut dyn Write) -> io::Result<()> {
        let side = |stat: Option<Stat>| stat.filter(|stat| stat.kind != Kind::Directory);
        let (old, new) = (side(change.old), side(change.new));
        match (old, new) {
            (None, None) => Ok(()),
            // As git does it: a deletion and an addition.
            (Some(old), Some(new)) if old.kind != new.kind => {
                self.one(change, Some(old), None, out)?;
                self.one(change, None, Some(new), out)
            }
            (old, new) => self.one(change, old, new, out),
        }
    }

    /// How many lines it adds and removes; `None` if it is not text.
    pub fn lines(&self, change: &Change) -> io::Result<Option<Lines>> {
        let is_same_kind = change.old.map(|old| old.kind) == change.new.map(|new| new.kind);
        if !change.content && is_same_kind {
            return Ok(Some(Lines { added: 0, removed: 0 }));
        }
        let (before, after) = self.texts(change, change.old, change.new)?;
        let (Some(before), Some(after)) = (before, after) else { return Ok(None) };
        let input = InternedInput::new(sources::byte_lines(&before), sources::byte_lines(&after));
        let diff = Diff::compute(Algorithm::Histogram, &input);
        Ok(Some(Lines { added: diff.count_additions(), removed: diff.count_removals() }))
    }

    fn one(
        &self,
        change: &Change,
        old: Option<Stat>,
        new: Option<Stat>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let from = change.from.as_ref().unwrap_or(&change.path);
        let (a, b) = (quote::prefixed("a/", from.as_bytes()), quote::prefixed("b/", change.path.as_bytes()));
        let mut header = Vec::new();
        let final_mode = change.mode();
        let mode = |stat: &Stat| match stat.kind {
            Kind::Link => 0o120000,
            _ => 0o100000 | if stat.mode & 0o100 != 0 { 0o755 } else { 0o644 },
        };
        match (&old, &new) {
            (None, Some(new)) => writeln!(header, "new file mode {:o}", mode(new))?,
            (Some(old), None) => writeln!(header, "deleted file mode {:o}", mode(old))?,
            (Some(old), Some(new)) if old.kind == Kind::File && Some(old.permissions()) != final_mode => {
                // git knows two modes of a file; if both are the same for git, the full mode is written, which git accepts too.
                let (before, after) = match (mode(old), mode(new)) {
                    (before, after) if before != after => (before, after),
                    _ => (0o100000 | old.permissions(), 0o100000 | new.permissions()),
                };
                if before != after {
                    writeln!(header, "old mode {before:o}\nnew mode {after:o}")?;
                }
            }
            _ => {}
        }
        if change.from.is_some() {
            writeln!(header, "similarity index 100%\nrename from {from}\nrename to {}", change.path)?;
        }
        let stays = old.is_some() && new.is_some() && !change.content;
        // git refuses the whole patch because of a file without any change line.
        if stays && header.is_empty() {
            return Ok(());
        }
        line(out, &[b"diff --git ", &a, b" ", &b])?;
        out.write_all(&header)?;
        let empty = |stat: &Option<Stat>| stat.is_none_or(|stat| stat.kind == Kind::File && stat.size == 0);
        if empty(&old) && empty(&new) {
            // An empty file has no hunks. patch(1) needs this line to recognize the file.
            let blob = |stat: &Option<Stat>| if stat.is_some() { "e69de29" } else { "0000000" };
            return if old.is_some() && new.is_some() {
                Ok(())
            } else {
                writeln!(out, "index {}..{}", blob(&old), blob(&new))
            };
        }
        // A file that becomes a directory is deleted without its content.
        if stays {
            return Ok(());
        }
        let nowhere = b"/dev/null".to_vec();
        let a = if old.is_some() { a } else { nowhere.clone() };
        let b = if new.is_some() { b } else { nowhere };
        match self.texts(change, old, new)? {
            (Some(before), Some(after)) => {
                line(out, &[b"--- ", &a, ending(&a)])?;
                line(out, &[b"+++ ", &b, ending(&b)])?;
                hunks(&before, &after, out)
            }
            _ => {
                // Without this line, git takes the next file's header for a part of this one, and the whole patch for a
                // bad one; with it, it names this file, and takes the rest with `--exclude`. Zeros: we have no blob.
                line(out, &[b"index 0000000..0000000"])?;
                line(out, &[b"Binary files ", &a, b" and ", &b, b" differ"])
            }
        }
    }

    /// Both contents, if they are text; a missing file is empty.
    fn texts(&self, change: &Change, old: Option<Stat>, new: Option<Stat>) -> io::Result<(Text, Text)> {
        let from = change.from.as_ref().unwrap_or(&change.path);
        Ok((text(&self.host, from, old)?, text(&self.upper, &change.path, new)?))
    }
}

/// Content, if it is text.
type Text = Option<Vec<u8>>;

fn text(side: &Beneath, path: &RelPath, stat: Option<Stat>) -> io::Result<Text> {
    let Some(stat) = stat else { return Ok(Some(Vec::new())) };
    match stat.kind {
        Kind::Link => Ok(Some(side.link(path)?)),
        Kind::File if stat.size > LARGEST => Ok(None),
        Kind::File => {
            let mut content = Vec::new();
            // It may have grown.
            match side.file(path) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
                file => file?.take(LARGEST + 1).read_to_end(&mut content)?,
            };
            let binary =
                content.len() as u64 > LARGEST || content.iter().take(GIT_LOOKS).any(|byte| *byte == 0);
            Ok((!binary).then_some(content))
        }
        Kind::Directory | Kind::Fifo | Kind::Socket | Kind::Device => Ok(Some(Vec::new())),
    }
}

/// A unified diff, in bytes: a file need not be in any encoding.
fn hunks(before: &[u8], after: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let input = InternedInput::new(sources::byte_lines(before), sources::byte_lines(after));
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let mut group: Vec<Hunk> = Vec::new();
    for hunk in diff.hunks() {
        if group.last().is_some_and(|last| hunk.before.start - last.before.end > 2 * CONTEXT) {
            write_group(&input, &group, out)?;
            group.clear();
        }
        group.push(hunk);
    }
    write_group(&input, &group, out)
}

fn write_group(input: &InternedInput<&[u8]>, group: &[Hunk], out: &mut dyn Write) -> io::Result<()> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
    let lead = first.before.start.min(CONTEXT);
    let trail = (u32::try_from(input.before.len()).unwrap_or(u32::MAX) - last.before.end).min(CONTEXT);
    let before = first.before.start - lead..last.before.end + trail;
    let after = first.after.start - lead..last.after.end + trail;
    writeln!(out, "@@ -{} +{} @@", range(&before), range(&after))?;
    let mut at = before.start;
    for hunk in group {
        lines(input, b" ", &input.before[slice(&(at..hunk.before.start))], out)?;
        lines(input, b"-", &input.before[slice(&hunk.before)], out)?;
        lines(input, b"+", &input.after[slice(&hunk.after)], out)?;
        at = hunk.before.end;
    }
    lines(input, b" ", &input.before[slice(&(at..before.end))], out)
}

fn lines(input: &InternedInput<&[u8]>, sign: &[u8], tokens: &[Token], out: &mut dyn Write) -> io::Result<()> {
    for token in tokens {
        let text = input.interner[*token];
        out.write_all(sign)?;
        out.write_all(text)?;
        if !text.ends_with(b"\n") {
            out.write_all(b"\n\\ No newline at end of file\n")?;
        }
    }
    Ok(())
}

/// As `diff -u` counts: from one; an empty range comes after its line.
fn range(lines: &Range<u32>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        more => format!("{},{more}", lines.start + 1),
    }
}

fn slice(lines: &Range<u32>) -> Range<usize> {
    lines.start as usize..lines.end as usize
}

/// git ends a name that contains white space with a tab, so that patch(1) finds its end.
fn ending(name: &[u8]) -> &'static [u8] {
    if name.contains(&b' ') { b"\t" } else { b"" }
}

fn line(out: &mut dyn Write, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part))?;
    out.write_all(b"\n")
}

const CONTEXT: u32 = 3;
/// A user does not read larger files.
const LARGEST: u64 = 8 << 20;
/// As git does: a file with a NUL in its first bytes is binary (`buffer_is_binary`).
const GIT_LOOKS: usize = 8000;
