//! Server-sent events (WHATWG HTML, 9.2): lines that begin with `data:`, until an empty one. Any of the three line
//! ends, cut anywhere.

/// Puts events together.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    /// The last byte was a carriage return, so that a line feed ends no second line.
    after_return: bool,
    /// More than is kept came in this line or event; it is passed over.
    line_too_long: bool,
    event_too_long: bool,
    has_data: bool,
}

impl Events {
    /// Hands out the data of each event that is whole.
    pub(super) fn feed(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.extend(rest);
                return;
            };
            self.extend(&rest[..end]);
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_line(&mut event);
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.line_too_long || self.line.len() + bytes.len() > MAX_EVENT_BYTES {
            self.line_too_long = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self, event: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.line_too_long) {
            self.event_too_long = true;
        } else if self.line.is_empty() {
            if self.has_data && !self.event_too_long {
                event(&self.data);
            }
            self.data.clear();
            (self.has_data, self.event_too_long) = (false, false);
        } else if let Some(data) = self.line.strip_prefix(b"data:") {
            let data = data.strip_prefix(b" ").unwrap_or(data);
            if self.data.len() + data.len() > MAX_EVENT_BYTES {
                self.event_too_long = true;
                self.data = Vec::new();
            } else if !self.event_too_long {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(data);
                self.has_data = true;
            }
        }
        self.line.clear();
    }
}

/// The last event of a Responses stream repeats the whole answer.
const MAX_EVENT_BYTES: usize = 16 << 20;
