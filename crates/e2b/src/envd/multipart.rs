//! Forms with files in them (RFC 7578), piece by piece: no whole file is in memory. Pure functions over bytes.

/// What comes next in a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A part begins: the name of its field, and that of its file.
    Begin { field: String, file: Option<String> },
    /// Bytes of it.
    Data(Vec<u8>),
    /// It ends.
    End,
}

/// What is no form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormError {
    /// The head of a part is longer than 16 KiB, or says no name.
    Head,
    /// Something else stands behind a boundary than its line's end.
    Boundary,
}

impl FormError {
    pub(crate) fn message(self) -> &'static str {
        match self {
            FormError::Head => "a part of the form has a head that is too long or names no field",
            FormError::Boundary => "a boundary of the form is not the end of a line",
        }
    }
}

/// Collects bytes until they are pieces.
#[derive(Debug)]
pub struct FormReader {
    /// What stands between parts, with the end of the line before it.
    delimiter: Vec<u8>,
    bytes: Vec<u8>,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the first part.
    Preamble,
    Boundary,
    Head,
    Data,
    /// Behind the last part.
    Over,
}

impl FormReader {
    pub fn new(boundary: &str) -> FormReader {
        // The first boundary may be at the very beginning.
        FormReader {
            delimiter: format!("\r\n--{boundary}").into(),
            bytes: b"\r\n".to_vec(),
            at: At::Preamble,
        }
    }

    /// More bytes came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at != At::Over {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether the end of the form was read.
    pub fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// What comes next, if all of it is there.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, FormError> {
        loop {
            match self.at {
                At::Over => return Ok(None),
                At::Preamble => match find(&self.bytes, &self.delimiter) {
                    Some(at) => {
                        self.bytes.drain(..at + self.delimiter.len());
                        self.at = At::Boundary;
                    }
                    None => {
                        self.take_all_but_a_begun_delimiter();
                        return Ok(None);
                    }
                },
                At::Boundary => match self.bytes.get(..2) {
                    None => return Ok(None),
                    Some(b"--") => {
                        self.at = At::Over;
                        self.bytes = Vec::new();
                    }
                    Some(b"\r\n") => {
                        // Its end may begin the empty line of a head without fields.
                        self.at = At::Head;
                    }
                    Some([b' ' | b'\t', _]) => drop(self.bytes.drain(..1)),
                    Some(_) => return Err(FormError::Boundary),
                },
                At::Head => match find(&self.bytes, b"\r\n\r\n") {
                    Some(at) if at <= MAX_HEAD_BYTES => {
                        let head: Vec<u8> = self.bytes.drain(..at + 4).collect();
                        self.at = At::Data;
                        return begin(&String::from_utf8_lossy(&head)).map(Some).ok_or(FormError::Head);
                    }
                    None if self.bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
                    _ => return Err(FormError::Head),
                },
                At::Data => match find(&self.bytes, &self.delimiter) {
                    Some(0) => {
                        self.bytes.drain(..self.delimiter.len());
                        self.at = At::Boundary;
                        return Ok(Some(Piece::End));
                    }
                    Some(at) => return Ok(Some(Piece::Data(self.bytes.drain(..at).collect()))),
                    None => {
                        let data = self.take_all_but_a_begun_delimiter();
                        return Ok((!data.is_empty()).then_some(Piece::Data(data)));
                    }
                },
            }
        }
    }

    fn take_all_but_a_begun_delimiter(&mut self) -> Vec<u8> {
        let kept = self.bytes.len().min(self.delimiter.len() - 1);
        self.bytes.drain(..self.bytes.len() - kept).collect()
    }
}

/// The boundary of a form, from its content type.
pub(crate) fn boundary(content_type: &str) -> Option<String> {
    let (kind, rest) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters(rest).into_iter().find(|(name, _)| name == "boundary")?.1;
    (!boundary.is_empty() && boundary.len() <= MAX_BOUNDARY).then_some(boundary)
}

fn begin(head: &str) -> Option<Piece> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"))?;
    let (kind, rest) = value.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return None;
    }
    let parameters = parameters(rest);
    let of =
        |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    // RFC 5987: some clients write it for names that are not ASCII.
    let extended = of("filename*").and_then(|value| {
        let (charset, rest) = value.split_once('\'')?;
        let (_, encoded) = rest.split_once('\'')?;
        charset
            .eq_ignore_ascii_case("utf-8")
            .then(|| percent_encoding::percent_decode_str(encoded))?
            .decode_utf8()
            .ok()
            .map(String::from)
    });
    let plain =
        || of("filename").map(|name| name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"));
    Some(Piece::Begin { field: of("name")?, file: extended.or_else(plain) })
}

/// `; name=value; name="value"`, names in small letters.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, behind)) = rest.split_once('=') {
        let name = name.trim_matches([';', ' ', '\t']).to_ascii_lowercase();
        let behind = behind.trim_start();
        let value = match behind.strip_prefix('"') {
            Some(quoted) => {
                let mut value = String::new();
                let mut letters = quoted.char_indices().peekable();
                let mut end = quoted.len();
                while let Some((at, letter)) = letters.next() {
                    match letter {
                        '"' => {
                            end = at + 1;
                            break;
                        }
                        '\\' => match letters.next_if(|(_, next)| matches!(next, '"' | '\\')) {
                            Some((_, escaped)) => value.push(escaped),
                            // Clients write a backslash of a name as it is.
                            None => value.push('\\'),
                        },
                        letter => value.push(letter),
                    }
                }
                rest = &quoted[end..];
                value
            }
            None => {
                let end = behind.find(';').unwrap_or(behind.len());
                rest = &behind[end..];
                behind[..end].trim().to_string()
            }
        };
        found.push((name, value));
    }
    found
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

const MAX_HEAD_BYTES: usize = 16 * 1024;
/// RFC 2046, 5.1.1.
const MAX_BOUNDARY: usize = 70;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORM: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/\\\"x\\\"%22.txt\"\r\nContent-Type: x\r\n\r\n\
        one\r\n--\r\n-b\r\n--b \r\ncontent-disposition: form-data; name=file; filename*=UTF-8''%c3%a4\r\n\r\n\r\n--b--\r\nrest";

    /// Field, file name, content.
    type Part = (String, Option<String>, Vec<u8>);

    fn read(form: &[u8], size: usize) -> Result<(Vec<Part>, bool), FormError> {
        let mut reader = FormReader::new("b");
        let mut parts: Vec<Part> = Vec::new();
        for piece in form.chunks(size) {
            reader.push(piece);
            while let Some(piece) = reader.next_piece()? {
                match piece {
                    Piece::Begin { field, file } => parts.push((field, file, Vec::new())),
                    Piece::Data(bytes) => parts.last_mut().unwrap().2.extend(bytes),
                    Piece::End => {}
                }
            }
        }
        Ok((parts, reader.is_over()))
    }

    #[test]
    fn parts_are_found_wherever_the_bytes_were_cut() {
        let expected = vec![
            ("file".to_string(), Some("/a/\"x\"\".txt".to_string()), b"one\r\n--\r\n-b".to_vec()),
            ("file".to_string(), Some("\u{e4}".to_string()), Vec::new()),
        ];
        for size in 1..=FORM.len() {
            assert_eq!(read(FORM, size), Ok((expected.clone(), true)), "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_form_is_refused() {
        assert_eq!(read(b"--b\r\nx: y\r\n\r\n", 64), Err(FormError::Head));
        assert_eq!(read(b"--bxy", 64), Err(FormError::Boundary));
        let long = [b"--b\r\n".to_vec(), vec![b'a'; MAX_HEAD_BYTES + 8]].concat();
        assert_eq!(read(&long, 999), Err(FormError::Head));
        let cut = &FORM[..FORM.len() - 20];
        assert!(!read(cut, 7).unwrap().1, "a form that was cut is not over");
    }

    #[test]
    fn the_boundary_is_in_the_content_type() {
        for (text, expected) in [
            ("multipart/form-data; boundary=x", Some("x")),
            ("Multipart/Form-Data; charset=utf-8; boundary=\"a b\"", Some("a b")),
            ("multipart/mixed; boundary=x", None),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
        ] {
            assert_eq!(boundary(text).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..8)) {
            let mut reader = FormReader::new("b");
            for piece in pieces {
                reader.push(&piece);
                while let Ok(Some(_)) = reader.next_piece() {}
            }
        }

        #[test]
        fn content_comes_out_as_it_went_in(content in prop::collection::vec(prop::sample::select(b"\r\n-bx".to_vec()), 0..64), size in 1_usize..40) {
            prop_assume!(find(&content, b"\r\n--b").is_none() && !content.starts_with(b"--b"));
            let head = b"--b\r\ncontent-disposition: form-data; name=f\r\n\r\n".to_vec();
            let form = [head, content.clone(), b"\r\n--b--".to_vec()].concat();
            let (parts, is_over) = read(&form, size).unwrap();
            prop_assert!(is_over);
            prop_assert_eq!(parts, vec![("f".to_string(), None, content)]);
        }
    }
}
