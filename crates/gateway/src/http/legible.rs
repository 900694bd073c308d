//! Whether an answer can be searched: a body that is compressed, or written in a charset in which ASCII does not stand as it is,
//! hides a value. Pure.

use belljar_spec::egress::Printable;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use std::fmt;

/// Why a body cannot be searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Illegible {
    /// It is compressed: the header that says so, and how.
    Compressed(&'static str, Printable),
    /// It is in a charset that is not like ASCII, or that is not known.
    Charset(Printable),
}

/// Whether a body is text as it stands, by what its head says.
pub(crate) fn illegible(headers: &HeaderMap) -> Option<Illegible> {
    for (name, plain) in ENCODINGS {
        for value in headers.get_all(name) {
            if !plain.iter().any(|plain| value.as_bytes().eq_ignore_ascii_case(plain.as_bytes())) {
                return Some(Illegible::Compressed(name, printable(value.as_bytes())));
            }
        }
    }
    let kinds = headers.get_all(CONTENT_TYPE).iter();
    kinds
        .flat_map(|kind| charsets(kind.as_bytes()))
        .find(|charset| !is_like_ascii(charset))
        .map(|charset| Illegible::Charset(printable(charset.as_bytes())))
}

impl fmt::Display for Illegible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Illegible::Compressed(header, how) => {
                write!(
                    f,
                    "it is compressed ({header}: {how}) though it was asked not to be; a host that always compresses can \
                     be used only by a sandbox without its credential"
                )
            }
            Illegible::Charset(charset) => write!(
                f,
                "its charset `{charset}` is not known to contain ASCII as it is; ask the server for UTF-8"
            ),
        }
    }
}

fn printable(bytes: &[u8]) -> Printable {
    String::from_utf8_lossy(bytes).chars().take(WORDS).collect::<String>().as_str().into()
}

/// The charsets that a content type names.
fn charsets(kind: &[u8]) -> Vec<String> {
    let kind = String::from_utf8_lossy(kind).to_ascii_lowercase();
    let parameters = kind.split(';').skip(1);
    let charset = |parameter: &str| {
        let (name, charset) = parameter.split_once('=')?;
        (name.trim() == "charset").then(|| charset.trim().trim_matches(['"', '\'']).trim().to_string())
    };
    parameters.filter_map(charset).collect()
}

/// In these, a visible letter of ASCII is one byte, the same as in ASCII, whatever stands before it. So values are found in
/// them as they are. In Shift_JIS, GBK, GB18030 and Big5 the second byte of a character may be one of ASCII's as well: that
/// makes no value unseen. UTF-16, UTF-32, UTF-7, ISO-2022 and HZ, which have states, and EBCDIC are not here, nor are
/// unknown names.
fn is_like_ascii(charset: &str) -> bool {
    // `ISO8859_1`, `iso-8859-1` and `ISO_8859-1:1987` are one.
    let mut name: String =
        charset.chars().filter(|letter| !matches!(letter, '-' | '_' | ' ' | '.' | ':')).collect();
    for prefix in ["x", "cs"] {
        if let Some(rest) = name.strip_prefix(prefix).filter(|rest| LIKE_ASCII.contains(rest)) {
            name = rest.to_string();
        }
    }
    let family = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    LIKE_ASCII.contains(&name.as_str()) || FAMILIES.iter().any(|prefix| family(prefix))
}

/// How a body, or each message of a stream (gRPC, and the Connect protocol), may be compressed; and what says that it is not.
const ENCODINGS: [(&str, &[&str]); 4] = [
    ("content-encoding", &["identity", ""]),
    ("transfer-encoding", &["chunked", "identity"]),
    ("grpc-encoding", &["identity"]),
    ("connect-content-encoding", &["identity"]),
];

/// Names of the IANA and the WHATWG, without what stands between their letters. An empty name, `binary` and `none` say nothing.
const LIKE_ASCII: [&str; 62] = [
    "",
    "binary",
    "none",
    "8bit",
    "utf8",
    "utf8mb4",
    "unicode11utf8",
    "usascii",
    "ascii",
    "ansix341968",
    "iso646us",
    "latin1",
    "latin2",
    "latin5",
    "latin9",
    "l1",
    "l2",
    "l9",
    "ansi",
    "macintosh",
    "mac",
    "macroman",
    "maccyrillic",
    "koi8",
    "koi8r",
    "koi8u",
    "koi8ru",
    "tis620",
    "viscii",
    "shiftjis",
    "sjis",
    "mskanji",
    "eucjp",
    "euckr",
    "korean",
    "ksc56011987",
    "uhc",
    "gbk",
    "gb2312",
    "gb231280",
    "gb18030",
    "euccn",
    "chinese",
    "big5",
    "big5hkscs",
    "euctw",
    "windows31j",
    "windows874",
    "windows936",
    "windows949",
    "windows65001",
    "cp65001",
    "cp932",
    "ms932",
    "cp936",
    "cp949",
    "cp950",
    "cp437",
    "ibm437",
    "cp850",
    "cp866",
    "ibm866",
];
const FAMILIES: [&str; 3] = ["iso8859", "windows125", "cp125"];
/// Of a name that a server made up.
const WORDS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Option<Illegible> {
        illegible(&HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]))
    }

    #[test]
    fn only_a_body_that_is_not_compressed_can_be_searched() {
        for (name, value, legible) in [
            ("content-encoding", "identity", true),
            ("content-encoding", "gzip", false),
            ("content-encoding", "identity, gzip", false),
            ("transfer-encoding", "chunked", true),
            ("transfer-encoding", "gzip, chunked", false),
            ("grpc-encoding", "identity", true),
            ("grpc-encoding", "gzip", false),
            ("connect-content-encoding", "gzip", false),
        ] {
            assert_eq!(of(name, value).is_none(), legible, "{name}: {value}");
        }
        assert_eq!(illegible(&HeaderMap::new()), None);
        let text = of("content-encoding", "br").unwrap().to_string();
        assert!(text.contains("compressed (content-encoding: br)"), "{text}");
    }

    #[test]
    fn a_charset_that_contains_ascii_can_be_searched() {
        for kind in [
            "application/json",
            "text/html; charset=UTF-8",
            "text/html;boundary=x; Charset=\"iso-8859-1\"",
            "text/html; charset=",
            "text/html; charset=\"\"",
            "text/html; charset=binary",
            "text/html; charset=ISO8859-1",
            "text/html; charset=ISO_8859-15",
            "text/html; charset=ISO_8859-1:1987",
            "text/html; charset='utf-8'",
            "text/html; charset=windows-1252",
            "text/html; charset=cp1251",
            "text/html; charset=windows-31j",
            "text/html; charset=Shift_JIS",
            "text/html; charset=x-sjis",
            "text/html; charset=GB18030",
            "text/html; charset=GBK",
            "text/html; charset=EUC-KR",
            "text/html; charset=EUC-JP",
            "text/html; charset=Big5",
            "text/html; charset=koi8-r",
        ] {
            assert_eq!(of("content-type", kind), None, "{kind}");
        }
    }

    #[test]
    fn a_charset_that_hides_ascii_is_named_as_the_reason() {
        for charset in [
            "utf-16",
            "UTF-16LE",
            "utf-32",
            "ucs-2",
            "utf-7",
            "utf-7-imap",
            "iso-2022-jp",
            "iso-2022-kr",
            "hz-gb-2312",
            "IBM037",
            "cp037",
            "cp500",
            "windows-1200",
            "cp1200",
            "ebcdic-cp-us",
            "scsu",
            "bocu-1",
            "x-anything",
        ] {
            let why = of("content-type", &format!("text/plain;x=y;charset=\"{charset}\"")).expect(charset);
            assert_eq!(why, Illegible::Charset(charset.to_ascii_lowercase().as_str().into()));
            assert!(!why.to_string().contains("compressed") && why.to_string().contains("UTF-8"), "{why}");
        }
    }
}
