//! Extended headers: lines of `LENGTH KEY=VALUE`, whose length counts the whole line.

use super::TarError;

/// What an extended header says of the next entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    /// Seconds and nanoseconds.
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Pax {
    /// Adds what these lines say; a key that comes again counts.
    pub(super) fn read(&mut self, mut lines: &[u8]) -> Result<(), TarError> {
        while !lines.is_empty() {
            let (key, value, rest) = split(lines).ok_or(TarError::Header("an extended header is none"))?;
            self.set(key, value)?;
            lines = rest;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.mtime = moment(value),
            _ if key.starts_with(b"GNU.sparse.") => return Err(TarError::Sparse),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.attributes.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

fn split(lines: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = memchr::memchr(b' ', lines.get(..20.min(lines.len()))?)?;
    let length = usize::try_from(number(&lines[..blank]).ok()?).ok()?;
    let line = lines.get(..length).filter(|line| line.len() > blank)?;
    let line = line[blank + 1..].strip_suffix(b"\n")?;
    let equals = memchr::memchr(b'=', line)?;
    (equals > 0).then(|| (&line[..equals], &line[equals + 1..], &lines[length..]))
}

fn number(text: &[u8]) -> Result<u64, TarError> {
    let digits = Some(text).filter(|text| !text.is_empty() && text.iter().all(u8::is_ascii_digit));
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .ok_or(TarError::Header("a number of an extended header is none"))
}

/// Seconds with a fraction. What is none is no reason to refuse a file.
fn moment(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits: String = fraction.chars().take_while(char::is_ascii_digit).take(9).collect();
    digits.extend(std::iter::repeat_n('0', 9 - digits.len()));
    Some((seconds.parse().ok()?, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_how_long_they_are() {
        let mut pax = Pax::default();
        pax.read(b"12 path=a\nb\n").unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a\nb"[..]));
        pax.read(b"22 mtime=12.500000001\n").unwrap();
        assert_eq!(pax.mtime, Some((12, 500_000_001)));
        pax.read(b"28 SCHILY.xattr.user.a=b\0=d\n").unwrap();
        assert_eq!(pax.attributes, [(b"user.a".to_vec(), b"b\0=d".to_vec())]);
        for bad in [
            &b"5 a=b\n"[..],
            b"11 path=a\nb\n",
            b"13 path=a\nb\n",
            b"7 a=b\n",
            b"x a=b\n",
            b"6 a b\n",
            b"99999999999999999999999 a=b\n",
            b"-6 a=b\n",
            b"9 size=x\n",
            b"10 size=-1\n",
            b"0 ",
            b"5 =b\n",
            b"22 GNU.sparse.major=1\n",
        ] {
            assert!(Pax::default().read(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
