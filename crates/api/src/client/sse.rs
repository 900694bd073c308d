//! Server-sent events: bytes in, events out. As WHATWG HTML 9.2 has it, without `retry`.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

/// Collects bytes until they are events.
#[derive(Default)]
pub(crate) struct Reader {
    /// What was not taken yet.
    bytes: Vec<u8>,
    /// How much of it was looked at and has no end of a line.
    seen: usize,
    event: Event,
    has_data: bool,
}

impl Reader {
    /// More bytes came.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next event, if all of it is there.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut taken = 0;
        let mut found = None;
        while let Some(length) = self.bytes[self.seen.max(taken)..].iter().position(|byte| *byte == b'\n') {
            let end = self.seen.max(taken) + length;
            let line = self.bytes[taken..end].to_vec();
            taken = end + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if !line.is_empty() {
                self.line(&String::from_utf8_lossy(line));
                continue;
            }
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                found = Some(event);
                break;
            }
        }
        self.bytes.drain(..taken);
        self.seen = if found.is_some() { 0 } else { self.bytes.len() };
        found
    }

    fn line(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => self.event.name = Some(value.into()),
            "id" => self.event.id = Some(value.into()),
            // A comment keeps the connection alive; other fields are not ours.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: Option<&str>, id: Option<&str>, data: &str) -> Event {
        Event { name: name.map(Into::into), id: id.map(Into::into), data: data.into() }
    }

    const STREAM: &[u8] =
        b": hello\n\nid: 7\nevent: output\ndata: {\"a\":1}\n\nid: 8\r\ndata: x\r\ndata:y\r\n\r\nretry: 3\n\ndata\n\ndata: half";

    #[test]
    fn events_are_found_wherever_the_bytes_were_cut() {
        let expected = [
            event(Some("output"), Some("7"), "{\"a\":1}"),
            event(None, Some("8"), "x\ny"),
            event(None, None, ""),
        ];
        for size in 1..STREAM.len() {
            let mut reader = Reader::default();
            let mut found = Vec::new();
            for piece in STREAM.chunks(size) {
                reader.feed(piece);
                while let Some(event) = reader.next() {
                    found.push(event);
                }
            }
            assert_eq!(found, expected, "pieces of {size}");
        }
    }
}
