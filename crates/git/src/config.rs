//! Parses git's config files as git does (git-config(1), "SYNTAX"; config.c) and without git: no program is started and no include
//! followed. Parsing ends at the first error, as git's does.

/// One variable of a config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its full name, as `git config --list` prints it: `core.hookspath`, `includeif.gitdir:~/Work/.path`. Only the part between
    /// the first and the last dot can have upper-case letters.
    pub name: String,
    /// Its value; `None` means true.
    pub value: Option<Vec<u8>>,
}

impl Variable {
    /// The last part of its name.
    pub fn key(&self) -> &str {
        self.name.rsplit_once('.').map_or(self.name.as_str(), |(_, key)| key)
    }

    /// Its value, if it is valid UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.value.as_deref()?).ok()
    }

    /// Its value as a boolean, by git's rules.
    pub fn is_true(&self) -> bool {
        match &self.value {
            None => true,
            Some(value) => {
                let value = value.to_ascii_lowercase();
                let is_number = std::str::from_utf8(&value).is_ok_and(|text| {
                    text.trim_end_matches(['k', 'm', 'g']).parse::<i64>().is_ok_and(|number| number != 0)
                });
                is_number || [&b"true"[..], b"yes", b"on"].contains(&value.as_slice())
            }
        }
    }
}

/// The variables of a file, in order, up to the first error.
pub fn variables(bytes: &[u8]) -> Vec<Variable> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = Reader { bytes, at: 0 };
    // Before the first section a variable has a name without a dot; git accepts it.
    let mut prefix = String::new();
    let mut found = Vec::new();
    while let Some(byte) = reader.next() {
        match byte {
            b'#' | b';' => reader.skip_line(),
            byte if is_space(byte) => {}
            b'[' => match reader.section() {
                Some(name) => prefix = name + ".",
                None => break,
            },
            byte if byte.is_ascii_alphabetic() => match reader.variable(byte) {
                Some((key, value)) => found.push(Variable { name: format!("{prefix}{key}"), value }),
                None => break,
            },
            _ => break,
        }
    }
    found
}

/// A value quoted for a file: git reads any content back as one value.
pub fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            // Git has no escape for the others, and a zero byte ends its strings.
            character if character.is_control() => {}
            character => text.push(character),
        }
    }
    text.push('"');
    text
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next byte; a line may end in CR LF.
    fn next(&mut self) -> Option<u8> {
        let mut byte = *self.bytes.get(self.at)?;
        self.at += 1;
        if byte == b'\r' && self.bytes.get(self.at) == Some(&b'\n') {
            self.at += 1;
            byte = b'\n';
        }
        Some(byte)
    }

    /// The same, with the end of the file counting as a newline.
    fn next_in_line(&mut self) -> u8 {
        self.next().unwrap_or(b'\n')
    }

    fn skip_line(&mut self) {
        while self.next_in_line() != b'\n' {}
    }

    /// The name between brackets; the opening one has been read.
    fn section(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.next()? {
                b']' => return Some(name),
                byte if is_space(byte) && byte != b'\n' => return self.subsection(name),
                byte if is_key(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase().into()),
                _ => return None,
            }
        }
    }

    fn subsection(&mut self, mut name: String) -> Option<String> {
        let mut byte = self.next()?;
        while is_space(byte) && byte != b'\n' {
            byte = self.next()?;
        }
        if byte != b'"' {
            return None;
        }
        let mut subsection = Vec::new();
        loop {
            match self.next()? {
                b'\n' => return None,
                b'"' => break,
                b'\\' => match self.next()? {
                    b'\n' => return None,
                    byte => subsection.push(byte),
                },
                byte => subsection.push(byte),
            }
        }
        name.push('.');
        name.push_str(&String::from_utf8_lossy(&subsection));
        (self.next()? == b']').then_some(name)
    }

    /// A key, whose first byte has been read, and its value.
    fn variable(&mut self, first: u8) -> Option<(String, Option<Vec<u8>>)> {
        let mut key = String::from(char::from(first.to_ascii_lowercase()));
        let mut byte = self.next_in_line();
        while is_key(byte) {
            key.push(byte.to_ascii_lowercase().into());
            byte = self.next_in_line();
        }
        while byte == b' ' || byte == b'\t' {
            byte = self.next_in_line();
        }
        match byte {
            b'\n' => Some((key, None)),
            b'=' => Some((key, Some(self.value()?))),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        // The end of the value if only space follows.
        let mut end = 0;
        let mut is_quoted = false;
        loop {
            match self.next_in_line() {
                b'\n' if is_quoted => return None,
                b'\n' => {
                    value.truncate(end);
                    return Some(value);
                }
                byte if is_space(byte) && !is_quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                b'#' | b';' if !is_quoted => {
                    self.skip_line();
                    value.truncate(end);
                    return Some(value);
                }
                b'\\' => match self.next_in_line() {
                    b'\n' => continue,
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    byte @ (b'\\' | b'"') => value.push(byte),
                    _ => return None,
                },
                b'"' => is_quoted = !is_quoted,
                byte => value.push(byte),
            }
            end = value.len();
        }
    }
}

/// Like git's own isspace: no vertical tab, no form feed.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn files_are_read_as_git_reads_them() {
        let many = "\u{feff}[core] hooksPath = a b  # no\n\tbare\n[Remote \"Or \\\"i\\\\gin\"]\r\n url = \"x # y\" z ;c\r\n\
                    [include]path=~/x\n[includeIf \"gitdir:/a/\"]\npath = q\\\nr\n[a.B]\n c=\\t\\\"\\n\nd-9= \"\"\n e = f \"g  h\" \n f =";
        let broken = "[core]\nhooksPath = good\nx = \"open\nhooksPath = never\n";
        let values = ["[a]\nb=true\nc=0\nd=YES\ne=2k\nf\ng=off\nh=x\n"];
        for text in
            [many, broken, values[0], "", "[a", "[a \"b]\nc=d\n", "x=y\n", "[a]\n-=1\n", "[a]\nb=c\\q\n"]
        {
            compare(text.as_bytes());
        }
        let yes: Vec<bool> = variables(values[0].as_bytes()).iter().map(Variable::is_true).collect();
        assert_eq!(yes, [true, false, true, true, true, false, false]);
    }

    #[test]
    fn whatever_is_quoted_comes_back() {
        for value in ["plain", "  spaces  ", "a\"b\\c", "two\nlines\t# no comment", "Ünïcode; [x]", ""] {
            let text = format!("[user]\n\tname = {}\n", quoted(value));
            assert_eq!(variables(text.as_bytes())[0].text(), Some(value));
            compare(text.as_bytes());
        }
        assert_eq!(quoted("a\0b\rc"), "\"abc\"");
    }

    #[test]
    fn any_bytes_are_read_as_git_reads_them() {
        // Random text rarely hits the grammar: so the text is combined from pieces of it, in every order that a small counter
        // gives.
        let pieces =
            ["[a]", "[b \"c\"]", "\n", "k", "=", " ", "\"", "\\", "#", "v w", ";", "\r\n", "]", "9", "[x.Y]"];
        let mut seed = 1u64;
        for _ in 0..60 {
            let mut text = String::from("[s]\n");
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            compare(text.as_bytes());
        }
    }

    /// Git lists everything or fails; we read at least as far as git would have.
    fn compare(bytes: &[u8]) {
        let Some(theirs) = listed(bytes) else { return };
        let mut ours = Vec::new();
        for Variable { name, value } in variables(bytes) {
            ours.extend_from_slice(name.as_bytes());
            value.iter().for_each(|value| {
                ours.push(b'\n');
                ours.extend_from_slice(value);
            });
            ours.push(0);
        }
        assert_eq!(
            String::from_utf8_lossy(&ours),
            String::from_utf8_lossy(&theirs),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }

    /// Git's result; `None` if it fails, or is not installed.
    fn listed(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut git = Command::new("git")
            .args(["config", "--file", "-", "--no-includes", "--list", "-z"])
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        git.stdin.take()?.write_all(bytes).ok()?;
        let output = git.wait_with_output().ok()?;
        output.status.success().then_some(output.stdout)
    }
}
