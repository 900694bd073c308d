//! The shapes in which a value may turn up in text: as it is, percent-encoded, escaped as JSON and HTML do it, and inside
//! base64, wherever it begins there. Most values have no letter that an encoding escapes, and only the last few shapes.
//! Pure.

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, Encoding};
use memchr::memmem;
use zeroize::Zeroizing;

/// A value, in every shape, and what is written in place of each.
pub(crate) struct Forms(Vec<Form>);

pub(crate) struct Form {
    pub(super) find: Zeroizing<Vec<u8>>,
    /// As long as what it stands for, so that no length has to change.
    pub(super) put: Vec<u8>,
    /// Letters of base64, which may have line breaks between them.
    pub(super) is_base64: bool,
}

impl Forms {
    /// Of a value; `mask` stands for it, cut or repeated to its length. How many there are, and how long, depends on its shape
    /// alone: on its length and on the letters in it that programs escape.
    pub(crate) fn of(value: &[u8], mask: &[u8]) -> Forms {
        let mut forms: Vec<Form> = Vec::new();
        let mask = filled(mask, value.len());
        let plain: [Escape; 1] = [|_| None];
        for escape in plain.iter().chain(&ESCAPES) {
            let find = Zeroizing::new(escaped(value, escape));
            if !find.is_empty() && !forms.iter().any(|form| form.find == find) {
                let put = filled(&mask, find.len());
                forms.push(Form { find, put, is_base64: false });
            }
        }
        // The same letters in both alphabets for most values, and looked for twice all the same: for which is not to be seen.
        for alphabet in [&BASE64_NOPAD, &BASE64URL_NOPAD] {
            for before in 0..3 {
                let find = Zeroizing::new(within_base64(value, before, alphabet));
                let put = within_base64(&mask, before, alphabet);
                if !find.is_empty() {
                    forms.push(Form { find, put, is_base64: true });
                }
            }
        }
        Forms(forms)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Form> {
        self.0.iter()
    }

    /// The longest shape.
    pub(crate) fn longest(&self) -> usize {
        self.0.iter().map(|form| form.find.len()).max().unwrap_or(0)
    }

    /// Is it in there, in any shape? For placeholders, which are known inside: how long this takes depends on the letters.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        self.0.iter().any(|form| memmem::find(text, &form.find).is_some())
    }
}

/// A text cut or repeated to a length.
pub(crate) fn filled(text: &[u8], length: usize) -> Vec<u8> {
    text.iter().copied().cycle().take(length).collect()
}

/// Everything but unreserved letters as `%XX` (RFC 3986, 2.1).
pub(crate) fn percent_encoded(value: &[u8]) -> Vec<u8> {
    escaped(value, |byte| percent(byte, b""))
}

/// How a program writes a letter that means something where it writes it; `None` for one that it writes as it is.
type Escape = fn(u8) -> Option<String>;

/// As programs differ: in a parameter, in lower case, in a path by Python and by browsers; in JSON by most, by PHP, by Go and
/// by .NET; in HTML by most, by Python and by Go.
const ESCAPES: [Escape; 11] = [
    |byte| percent(byte, b""),
    |byte| percent(byte, b"").map(|code| code.to_ascii_lowercase()),
    |byte| percent(byte, b"/"),
    |byte| percent(byte, b"/:@!$&'()*+,;="),
    json,
    |byte| json(byte).or_else(|| (byte == b'/').then(|| r"\/".into())),
    |byte| json(byte).or_else(|| b"<>&".contains(&byte).then(|| format!(r"\u{byte:04x}"))),
    |byte| match byte {
        b'"' | b'&' | b'\'' | b'+' | b'<' | b'>' | b'`' => Some(format!(r"\u{byte:04X}")),
        _ => json(byte),
    },
    |byte| html(byte, "&quot;", "&#39;"),
    |byte| html(byte, "&quot;", "&#x27;"),
    |byte| html(byte, "&#34;", "&#39;").or_else(|| (byte == b'+').then(|| "&#43;".into())),
];

fn escaped(value: &[u8], escape: impl Fn(u8) -> Option<String>) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    for byte in value {
        match escape(*byte) {
            Some(code) => text.extend_from_slice(code.as_bytes()),
            None => text.push(*byte),
        }
    }
    text
}

fn percent(byte: u8, unescaped: &[u8]) -> Option<String> {
    let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || unescaped.contains(&byte);
    (!plain).then(|| format!("%{byte:02X}"))
}

fn json(byte: u8) -> Option<String> {
    matches!(byte, b'"' | b'\\').then(|| format!("\\{}", char::from(byte)))
}

fn html(byte: u8, quote: &str, apostrophe: &str) -> Option<String> {
    let code = match byte {
        b'&' => "&amp;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        b'"' => quote,
        b'\'' => apostrophe,
        _ => return None,
    };
    Some(code.into())
}

/// The letters of base64 that depend on the value alone, with so many bytes (mod 3) before it: whatever the user in
/// front of it is called, and whatever follows.
fn within_base64(value: &[u8], before: usize, alphabet: &Encoding) -> Vec<u8> {
    let mut padded = Zeroizing::new(vec![0; before]);
    padded.extend_from_slice(value);
    let encoded = Zeroizing::new(alphabet.encode(&padded));
    let first = (before * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    encoded.as_bytes().get(first..end).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &[u8] = b"sk-ant-api03-0123456789abcdef";
    const MASK: &[u8] = b"sk-ant-api03-9876543210fedcba";

    #[test]
    fn a_value_is_found_in_base64_wherever_it_begins() {
        let forms = Forms::of(VALUE, MASK);
        for user in ["", "x", "ab", "abc", "x-access-token"] {
            for after in ["", "!", "!!", "\n\n\n"] {
                let text = format!("{user}:{}{after}", String::from_utf8_lossy(VALUE));
                assert!(forms.is_in(BASE64_NOPAD.encode(text.as_bytes()).as_bytes()), "{text}");
                assert!(forms.is_in(BASE64URL_NOPAD.encode(text.as_bytes()).as_bytes()), "{text}");
            }
        }
        assert!(!forms.is_in(MASK) && !forms.is_in(BASE64_NOPAD.encode(MASK).as_bytes()));
    }

    #[test]
    fn a_value_is_found_as_programs_write_it() {
        let forms = Forms::of(b"a/b+c=\"d\"<e>'f&", b"z/y+x=\"w\"<v>'u&");
        for text in [
            "a%2Fb%2Bc%3D%22d%22%3Ce%3E%27f%26",
            "a%2fb%2bc%3d%22d%22%3ce%3e%27f%26",
            "a/b%2Bc%3D%22d%22%3Ce%3E%27f%26",
            "a/b+c=%22d%22%3Ce%3E'f&",
            r#"a/b+c=\"d\"<e>'f&"#,
            r#"a\/b+c=\"d\"<e>'f&"#,
            r#"a/b+c=\"d\"\u003ce\u003e'f\u0026"#,
            r#"a/b\u002Bc=\u0022d\u0022\u003Ce\u003E\u0027f\u0026"#,
            "a/b+c=&quot;d&quot;&lt;e&gt;&#39;f&amp;",
            "a/b+c=&quot;d&quot;&lt;e&gt;&#x27;f&amp;",
            "a/b&#43;c=&#34;d&#34;&lt;e&gt;&#39;f&amp;",
        ] {
            assert!(forms.is_in(text.as_bytes()), "{text}");
        }
        assert_eq!(
            Forms::of(VALUE, MASK).iter().count(),
            7,
            "a plain value is looked for plainly, and in base64"
        );
    }

    #[test]
    fn what_is_put_is_as_long_as_what_it_stands_for() {
        for value in [&b"12345678"[..], b"a/b+c=\"d\"efgh", VALUE] {
            let forms = Forms::of(value, b"mask");
            for form in forms.iter() {
                assert_eq!(form.find.len(), form.put.len());
            }
        }
    }
}
