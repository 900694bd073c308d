//! The first message of TLS: which server is meant, and whether that is hidden.
//!
//! Pure: the caller hands over all that has arrived so far and asks again when more came. How the bytes were cut into
//! segments and records makes no difference to the answer. Anything that two readers could understand in two ways is
//! malformed, since the second reader is the server, and a hello that says one name to us and another to it bypasses the
//! policy. Bytes behind the record in which the hello ends are not looked at: they may be early data.
//!
//! RFC 8446 §4.1.2 and §5.1, RFC 5246 §7.4.1.2, RFC 6066 §3, RFC 7301 §3.1, RFC 9849 (encrypted client hello).

use std::borrow::Cow;

use crate::bytes;

/// What the bytes so far are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// The beginning of a hello, as far as one can tell. Never said of [`MAX`] bytes or more.
    Incomplete,
    /// Not a hello, or one that could be read in two ways; with what is wrong.
    Malformed(&'static str),
    /// All of it.
    Complete(ClientHello),
}

/// What a hello says, as far as the gateway wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The server that is asked for, as written: visible ASCII, not more. It may still be no host name.
    pub server_name: Option<String>,
    /// Another hello is hidden in this one (ECH, ESNI), or it pretends to be: the two look alike on purpose.
    pub encrypted: bool,
    /// The protocols that the client would speak inside of TLS.
    pub alpn: ProtocolNames,
}

/// The list of protocols in a hello (`h2`, `http/1.1`): one piece of memory, whatever the client thought of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtocolNames(Vec<u8>);

impl ProtocolNames {
    /// The names, in the client's order. They are bytes: nothing says that they are text.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || bytes::vector8(&mut rest))
    }

    /// Whether the client named this protocol.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.iter().any(|offered| offered == name)
    }

    /// Whether the client named this protocol and no other, so that the server cannot choose one.
    pub fn is_only(&self, name: &[u8]) -> bool {
        let mut offered = self.iter();
        offered.next() == Some(name) && offered.all(|again| again == name)
    }

    /// Whether the client left it open what it will speak.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a hello from all bytes that have arrived since the connection began.
pub fn read(bytes: &[u8]) -> Hello {
    // What is beyond the limit must not matter: it may have arrived in one read or in the next.
    let seen = &bytes[..bytes.len().min(MAX)];
    match message(seen) {
        Ok(Some((message, _))) => match client_hello(&message[HANDSHAKE_HEADER..]) {
            Ok(hello) => Hello::Complete(hello),
            Err(why) => Hello::Malformed(why),
        },
        Ok(None) if seen.len() == MAX => Hello::Malformed(TOO_LONG),
        Ok(None) => Hello::Incomplete,
        Err(why) => Hello::Malformed(why),
    }
}

/// How many of the bytes are the hello; all of them while it is not complete.
pub(crate) fn length(bytes: &[u8]) -> usize {
    match message(bytes) {
        Ok(Some((_, length))) => length,
        Ok(None) | Err(_) => bytes.len(),
    }
}

/// The handshake message without the headers of its records, and how long it is with them.
type Message<'a> = (Cow<'a, [u8]>, usize);

/// The message; `None` while a part of it is missing. Nothing is copied until all of it is there: a client that sends
/// byte by byte should cost it more than us.
fn message(bytes: &[u8]) -> Result<Option<Message<'_>>, &'static str> {
    let mut rest = bytes;
    let mut start = [0; HANDSHAKE_HEADER];
    let mut gathered = 0;
    while let Some(record) = record(&mut rest)? {
        let before = gathered;
        gathered += record.payload.len();
        for (place, byte) in start.iter_mut().skip(before).zip(record.payload) {
            *place = *byte;
        }
        let Some(length) = message_length(&start[..gathered.min(HANDSHAKE_HEADER)])? else { continue };
        if before + record.length > length {
            // A second message in the record of the first: no client may send one before the server has spoken.
            return Err("there is something behind the client hello in its record");
        }
        let end = bytes.len() - rest.len();
        if gathered == length && before == 0 {
            return Ok(Some((Cow::Borrowed(record.payload), end)));
        }
        if gathered == length {
            return Ok(Some((Cow::Owned(joined(bytes, length)?), end)));
        }
    }
    Ok(None)
}

fn joined(bytes: &[u8], length: usize) -> Result<Vec<u8>, &'static str> {
    let mut rest = bytes;
    let mut message = Vec::with_capacity(length);
    while message.len() < length
        && let Some(record) = record(&mut rest)?
    {
        message.extend_from_slice(record.payload);
    }
    Ok(message)
}

struct Record<'a> {
    /// As its header says.
    length: usize,
    /// As much of it as has arrived.
    payload: &'a [u8],
}

fn record<'a>(rest: &mut &'a [u8]) -> Result<Option<Record<'a>>, &'static str> {
    if rest.first().is_some_and(|kind| *kind != RECORD_HANDSHAKE) {
        return Err("the record is not one of a handshake");
    }
    let Some((header, body)) = rest.split_first_chunk::<RECORD_HEADER>() else { return Ok(None) };
    let [_, major, minor, high, low] = *header;
    if major != MAJOR || minor > LAST_MINOR {
        return Err("the record is of an unknown version of tls");
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 {
        return Err("the record is empty");
    }
    if length > MAX_RECORD {
        return Err("the record is longer than 16 KiB");
    }
    let (payload, after) = body.split_at(body.len().min(length));
    *rest = after;
    Ok(Some(Record { length, payload }))
}

/// How long the message will be, header included; `None` while the header is not all there.
fn message_length(gathered: &[u8]) -> Result<Option<usize>, &'static str> {
    if gathered.first().is_some_and(|kind| *kind != MESSAGE_CLIENT_HELLO) {
        return Err("the handshake does not begin with a client hello");
    }
    let Some(&[_, a, b, c]) = gathered.first_chunk::<HANDSHAKE_HEADER>() else { return Ok(None) };
    let length = HANDSHAKE_HEADER + u32::from_be_bytes([0, a, b, c]) as usize;
    if length > MAX { Err(TOO_LONG) } else { Ok(Some(length)) }
}

fn client_hello(body: &[u8]) -> Result<ClientHello, &'static str> {
    let mut rest = body;
    let version = bytes::u16(&mut rest).ok_or(CUT_SHORT)?;
    if version >> 8 != u16::from(MAJOR) {
        return Err("the client hello is of an unknown version of tls");
    }
    bytes::take(&mut rest, RANDOM).ok_or(CUT_SHORT)?;
    let session_id = bytes::vector8(&mut rest).ok_or(CUT_SHORT)?;
    let cipher_suites = bytes::vector16(&mut rest).ok_or(CUT_SHORT)?;
    let compression_methods = bytes::vector8(&mut rest).ok_or(CUT_SHORT)?;
    if session_id.len() > MAX_SESSION_ID {
        return Err("the session id is longer than 32 bytes");
    }
    if cipher_suites.is_empty() || !cipher_suites.len().is_multiple_of(2) {
        return Err("the list of cipher suites is empty or torn");
    }
    if compression_methods.is_empty() {
        return Err("the list of compression methods is empty");
    }
    // Clients older than extensions stop here.
    let extensions = if rest.is_empty() { rest } else { bytes::vector16(&mut rest).ok_or(CUT_SHORT)? };
    if !rest.is_empty() {
        return Err("there is something behind the extensions");
    }
    read_extensions(extensions)
}

fn read_extensions(mut rest: &[u8]) -> Result<ClientHello, &'static str> {
    let mut hello = ClientHello { server_name: None, encrypted: false, alpn: ProtocolNames::default() };
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let kind = bytes::u16(&mut rest).ok_or(CUT_SHORT)?;
        let data = bytes::vector16(&mut rest).ok_or(CUT_SHORT)?;
        kinds.push(kind);
        match kind {
            SERVER_NAME => hello.server_name = Some(server_name(data)?),
            ALPN => hello.alpn = protocol_names(data)?,
            ENCRYPTED_HELLO_FIRST..=ENCRYPTED_HELLO | ENCRYPTED_NAME => hello.encrypted = true,
            _ => {}
        }
    }
    // Sorted, because there is room for sixteen thousand of them. Which of two counts differs between servers.
    kinds.sort_unstable();
    if kinds.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("an extension is there twice");
    }
    Ok(hello)
}

/// A list of names that can only ever hold one, of the only type there is.
fn server_name(mut data: &[u8]) -> Result<String, &'static str> {
    const TORN: &str = "the server name is torn";
    let mut list = bytes::vector16(&mut data).ok_or(TORN)?;
    let kind = bytes::u8(&mut list).ok_or(TORN)?;
    let name = bytes::vector16(&mut list).ok_or(TORN)?;
    if !data.is_empty() || !list.is_empty() {
        return Err("there is something behind the server name");
    }
    if kind != NAME_TYPE_HOST {
        return Err("the server name is not a host name");
    }
    if name.is_empty() || name.len() > MAX_NAME {
        return Err("the server name is empty or longer than 255 bytes");
    }
    // NUL ends a name for servers written in C; a space or a line end could forge a line of a log.
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err("the server name holds bytes that no name has");
    }
    String::from_utf8(name.to_vec()).map_err(|_| "the server name holds bytes that no name has")
}

fn protocol_names(mut data: &[u8]) -> Result<ProtocolNames, &'static str> {
    const TORN: &str = "the list of protocols is torn";
    let list = bytes::vector16(&mut data).ok_or(TORN)?;
    if list.is_empty() || !data.is_empty() {
        return Err(TORN);
    }
    let mut rest = list;
    while !rest.is_empty() {
        if bytes::vector8(&mut rest).ok_or(TORN)?.is_empty() {
            return Err("a protocol's name is empty");
        }
    }
    Ok(ProtocolNames(list.to_vec()))
}

/// The most that is read before a hello must be complete, headers included. Real ones have 200 to 2,000 bytes; tickets
/// and keys of the years to come may double that many times.
pub const MAX: usize = 64 * 1024;

const TOO_LONG: &str = "the client hello is longer than 64 KiB";
const CUT_SHORT: &str = "a length in the client hello goes beyond its end";

/// Type, version (two bytes), length (two bytes).
pub(crate) const RECORD_HEADER: usize = 5;
pub(crate) const RECORD_HANDSHAKE: u8 = 22;
/// TLS counts as SSL 3. Clients write 3.1 or 3.3 into records whatever they speak; up to 3.4 is let pass.
pub(crate) const MAJOR: u8 = 3;
pub(crate) const LAST_MINOR: u8 = 4;
/// A record that is not encrypted may not be longer.
const MAX_RECORD: usize = 1 << 14;

/// Type, length (three bytes).
const HANDSHAKE_HEADER: usize = 4;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const RANDOM: usize = 32;
const MAX_SESSION_ID: usize = 32;

const SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;
const MAX_NAME: usize = 255;
const ALPN: u16 = 16;
/// `encrypted_client_hello`, and the numbers that its drafts had before it.
const ENCRYPTED_HELLO_FIRST: u16 = 0xfe08;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
/// `encrypted_server_name`, which came before it.
const ENCRYPTED_NAME: u16 = 0xffce;

#[cfg(test)]
mod tests {
    use super::*;

    /// An extension.
    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
    }

    /// A list of server names: type and name of each.
    fn names(entries: &[(u8, &[u8])]) -> Vec<u8> {
        let entries = entries
            .iter()
            .map(|(kind, name)| [&[*kind][..], &(name.len() as u16).to_be_bytes(), name].concat());
        let list = entries.collect::<Vec<_>>().concat();
        [&(list.len() as u16).to_be_bytes()[..], &list].concat()
    }

    fn sni(name: &[u8]) -> Vec<u8> {
        extension(SERVER_NAME, &names(&[(0, name)]))
    }

    /// A message in one record; what comes behind the compression methods is given.
    fn hello(tail: &[u8]) -> Vec<u8> {
        let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], tail].concat();
        record_of(&message_of(1, &body))
    }

    fn with_extensions(extensions: &[Vec<u8>]) -> Vec<u8> {
        let all = extensions.concat();
        hello(&[&(all.len() as u16).to_be_bytes()[..], &all].concat())
    }

    fn message_of(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat()
    }

    fn record_of(payload: &[u8]) -> Vec<u8> {
        [&[22, 3, 1][..], &(payload.len() as u16).to_be_bytes(), payload].concat()
    }

    fn complete(bytes: &[u8]) -> ClientHello {
        match read(bytes) {
            Hello::Complete(hello) => hello,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_and_protocols_are_read_as_written() {
        let hello = complete(&with_extensions(&[
            extension(0x0a0a, b"grease"),
            sni(b"Api.Example.com"),
            extension(ALPN, b"\0\x0c\x02h2\x08http/1.1"),
        ]));
        assert_eq!(hello.server_name.as_deref(), Some("Api.Example.com"));
        assert!(!hello.encrypted);
        assert_eq!(hello.alpn.iter().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
        assert!(hello.alpn.contains(b"h2") && !hello.alpn.contains(b"h3"));
    }

    #[test]
    fn a_hello_without_extensions_has_no_name() {
        assert_eq!(complete(&hello(b"")).server_name, None);
        assert_eq!(complete(&hello(b"\0\0")).server_name, None);
    }

    #[test]
    fn hidden_names_are_noticed() {
        for kind in [0xfe0d, 0xfe09, 0xffce] {
            let hello = complete(&with_extensions(&[sni(b"front.example.com"), extension(kind, b"")]));
            assert!(hello.encrypted, "{kind:#x}");
        }
    }

    #[test]
    fn early_data_behind_the_hello_is_not_its_business() {
        let whole = with_extensions(&[sni(b"example.com")]);
        let with_data = [&whole[..], &[23, 3, 3, 0, 1, 9]].concat();
        assert_eq!(read(&with_data), read(&whole));
        assert_eq!(length(&with_data), whole.len());
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_malformed() {
        let whole = with_extensions(&[sni(b"example.com")]);
        let cases: &[(&str, Vec<u8>)] = &[
            (
                "two names in the list",
                with_extensions(&[extension(0, &names(&[(0, b"a.com"), (0, b"b.com")]))]),
            ),
            ("two lists of names", with_extensions(&[sni(b"a.com"), sni(b"b.com")])),
            ("two of some other extension", with_extensions(&[extension(9, b""), extension(9, b"")])),
            ("a name of another type", with_extensions(&[extension(0, &names(&[(1, b"a.com")]))])),
            (
                "another type behind the name",
                with_extensions(&[extension(0, &names(&[(0, b"a.com"), (9, b"b")]))]),
            ),
            ("an empty name", with_extensions(&[sni(b"")])),
            ("an empty list of names", with_extensions(&[extension(0, b"\0\0")])),
            ("no list of names", with_extensions(&[extension(0, b"")])),
            (
                "bytes behind the list",
                with_extensions(&[extension(0, &[names(&[(0, b"a.com")]), vec![0]].concat())]),
            ),
            ("a name with NUL", with_extensions(&[sni(b"a.com\0.b.com")])),
            ("a name with a line end", with_extensions(&[sni(b"a.com\nb.com")])),
            ("a name beyond ASCII", with_extensions(&[sni("ä.com".as_bytes())])),
            ("a name of 256 bytes", with_extensions(&[sni(&[b'a'; 256])])),
            ("an empty list of protocols", with_extensions(&[extension(ALPN, b"\0\0")])),
            ("an empty protocol", with_extensions(&[extension(ALPN, b"\0\x01\0")])),
            ("a torn protocol", with_extensions(&[extension(ALPN, b"\0\x02\x05h")])),
            ("extensions beyond the message", hello(b"\0\x05\0\0")),
            ("bytes behind the extensions", hello(b"\0\0\0")),
            ("an extension beyond the others", hello(b"\0\x04\0\x17\0\x01")),
            ("a torn extension", hello(b"\0\x03\0\x17\0")),
            ("an empty record first", [record_of(b""), whole.clone()].concat()),
            (
                "an empty record in between",
                [record_of(&whole[5..40]), record_of(b""), record_of(&whole[40..])].concat(),
            ),
            (
                "a record of another type in between",
                [&record_of(&whole[5..40])[..], &[21, 3, 3, 0, 2, 1, 0]].concat(),
            ),
            ("a second message in the record", record_of(&[&whole[5..], &[1, 0]].concat())),
            ("a record of 16 KiB and one", [22, 3, 1, 0x40, 1].to_vec()),
            ("a message beyond the limit", record_of(&[1, 1, 0, 0])),
            ("a server's hello", record_of(&message_of(2, &whole[9..]))),
            ("a record of another version", [&[22, 2, 0][..], &whole[3..]].concat()),
            ("a hello of ssl 2", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10".to_vec()),
            ("plain http", b"GET / HTTP/1.1\r\n".to_vec()),
            ("no body", record_of(&message_of(1, b""))),
        ];
        for (what, bytes) in cases {
            assert!(matches!(read(bytes), Hello::Malformed(_)), "{what}: {:?}", read(bytes));
        }
    }

    #[test]
    fn nothing_is_incomplete_at_the_limit() {
        // Records of one byte: six on the wire for each that counts.
        let mut bytes: Vec<u8> =
            message_of(1, &[3; 20_000]).iter().flat_map(|byte| record_of(&[*byte])).collect();
        assert!(bytes.len() > MAX);
        assert_eq!(read(&bytes[..MAX - 1]), Hello::Incomplete);
        assert_eq!(read(&bytes[..MAX]), Hello::Malformed(TOO_LONG));
        bytes.truncate(MAX + 1);
        assert_eq!(read(&bytes), Hello::Malformed(TOO_LONG));
    }

    #[test]
    fn thousands_of_extensions_are_read_in_one_go() {
        let many: Vec<_> = (100..16_000).map(|kind| extension(kind, b"")).collect();
        let all = [many.concat(), sni(b"example.com")].concat();
        let body =
            [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &(all.len() as u16).to_be_bytes(), &all];
        let message = message_of(1, &body.concat());
        let bytes: Vec<u8> = message.chunks(MAX_RECORD).flat_map(record_of).collect();
        assert_eq!(complete(&bytes).server_name.as_deref(), Some("example.com"));
    }
}
