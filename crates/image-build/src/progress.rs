//! What Docker's builder says while it works, understood: which step it is at, what a step wrote, what came out of it.
//!
//! The builder writes text for people. A step's own output comes in the same stream and may say anything, so only a whole line that
//! follows from the one before counts as the builder's.

use std::collections::VecDeque;

/// What happens during a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// So much of the folder is with the daemon.
    Sent { bytes: u64, of: u64 },
    /// An image comes from a registry; what the registry says of a part of it.
    Pulling { image: String, status: String },
    /// A step begins.
    Step { number: u32, of: u32, instruction: String },
    /// It was done before: nothing is to do.
    Cached { number: u32 },
    /// A line that a step wrote.
    Output { line: String },
    /// What the builder has to say besides.
    Warning { text: String },
}

/// How far a build is.
#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) number: u32,
    pub(super) of: u32,
    pub(super) cached: u32,
    pub(super) instruction: String,
    /// What the step wrote, the end of it.
    wrote: VecDeque<String>,
    wrote_bytes: usize,
    /// The beginning of a line whose end has not come.
    begun: String,
    /// The builder still speaks of the step itself.
    at_head: bool,
}

impl Listener {
    /// What was heard now; it need not end at the end of a line.
    pub(super) fn hear(&mut self, text: &str, on_event: &mut dyn FnMut(Event)) {
        self.begun.push_str(text);
        while let Some(end) = self.begun.find('\n') {
            let line: String = self.begun.drain(..=end).collect();
            self.line(line.trim_end_matches(['\n', '\r']), on_event);
        }
        if self.begun.len() > MAX_LINE_BYTES {
            let line = std::mem::take(&mut self.begun);
            self.line(&line, on_event);
        }
    }

    /// What the step that is being done wrote, as much as is kept.
    pub(super) fn written(&self) -> String {
        self.wrote.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    fn line(&mut self, line: &str, on_event: &mut dyn FnMut(Event)) {
        self.plain_line(&plain(line), on_event);
    }

    fn plain_line(&mut self, line: &str, on_event: &mut dyn FnMut(Event)) {
        if let Some((number, of, instruction)) = step(line)
            && number == self.number + 1
            && (self.of == 0 || of == self.of)
        {
            self.number = number;
            self.of = of;
            self.instruction = instruction.to_string();
            self.wrote.clear();
            self.wrote_bytes = 0;
            self.at_head = true;
            on_event(Event::Step { number, of, instruction: instruction.to_string() });
            return;
        }
        if self.at_head && line == " ---> Using cache" {
            self.cached += 1;
            on_event(Event::Cached { number: self.number });
            return;
        }
        if let Some(text) = line.strip_prefix("[Warning] ") {
            on_event(Event::Warning { text: text.to_string() });
            return;
        }
        if self.at_head && line.starts_with(" ---> Running in ") {
            // From here on the step itself speaks.
            self.at_head = false;
            return;
        }
        let is_builders = line.starts_with(" ---> ")
            || line.starts_with("Removing intermediate container ")
            || line.starts_with("Successfully built ")
            || line.starts_with("Successfully tagged ");
        if is_builders || line.trim().is_empty() {
            return;
        }
        self.keep(line);
        on_event(Event::Output { line: line.to_string() });
    }

    fn keep(&mut self, line: &str) {
        self.wrote_bytes += line.len();
        self.wrote.push_back(line.to_string());
        while self.wrote_bytes > MAX_OUTPUT_BYTES && self.wrote.len() > 1 {
            self.wrote_bytes -= self.wrote.pop_front().map_or(0, |line| line.len());
        }
    }
}

/// A line without colours, which the builder gives to what went to standard error, and without what was drawn over.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.peek() == Some(&'[') => {
                letters.next();
                // Up to the letter that says what is meant.
                while letters.next().is_some_and(|next| !('@'..='~').contains(&next)) {}
            }
            '\r' => plain.clear(),
            '\t' => plain.push(' '),
            letter if letter.is_control() => {}
            letter => plain.push(letter),
        }
    }
    plain
}

/// `Step 3/12 : RUN make`.
fn step(line: &str) -> Option<(u32, u32, &str)> {
    let (numbers, instruction) = line.strip_prefix("Step ")?.split_once(" : ")?;
    let (number, of) = numbers.split_once('/')?;
    Some((number.parse().ok()?, of.parse().ok()?, instruction))
}

/// A bar that is drawn anew a thousand times is one line to us.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Enough to see why a step failed.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn listened(pieces: &[&str]) -> (Listener, Vec<Event>) {
        let (mut listener, mut events) = (Listener::default(), Vec::new());
        for piece in pieces {
            listener.hear(piece, &mut |event| events.push(event));
        }
        (listener, events)
    }

    #[test]
    fn steps_their_output_and_the_cache_are_told_apart() {
        let (listener, events) = listened(&[
            "Step 1/3 : FROM bb:1\n",
            " ---> 760c7e2ef9c8\n",
            "Step 2/3 : RUN make\n",
            " ---> Using cache\n ---> 1234\n",
            "Step 3/3 : RUN echo one; echo two\n",
            " ---> Running in 0123\n",
            "o",
            "ne\n\x1b[91m1%\r2%\rtwo\n\x1b[0m",
            "Removing intermediate container 0123\n ---> 5678\n",
            "[Warning] One or more build-args [X] were not consumed\n",
            "Successfully built 5678\nSuccessfully tagged x:1\n",
        ]);
        let step = |number, instruction: &str| Event::Step { number, of: 3, instruction: instruction.into() };
        let output = |line: &str| Event::Output { line: line.into() };
        assert_eq!(
            events,
            [
                step(1, "FROM bb:1"),
                step(2, "RUN make"),
                Event::Cached { number: 2 },
                step(3, "RUN echo one; echo two"),
                output("one"),
                output("two"),
                Event::Warning { text: "One or more build-args [X] were not consumed".into() },
            ]
        );
        assert_eq!((listener.number, listener.of, listener.cached), (3, 3, 1));
        assert_eq!(listener.written(), "one\ntwo");
    }

    #[test]
    fn a_step_cannot_speak_for_the_builder() {
        let (listener, _) = listened(&[
            "Step 1/2 : RUN evil\n ---> Running in 01\n",
            " ---> Using cache\nStep 9/9 : RUN nothing\nStep 2/7 : RUN nothing\n",
        ]);
        assert_eq!((listener.number, listener.of, listener.cached), (1, 2, 0));
    }

    #[test]
    fn of_much_output_the_end_is_kept() {
        let mut listener = Listener::default();
        for number in 0..100_000 {
            listener.hear(&format!("line {number}\n"), &mut |_| {});
        }
        let written = listener.written();
        assert!(written.ends_with("line 99999") && written.len() < 2 * MAX_OUTPUT_BYTES, "{}", written.len());
        listener.hear(&"x".repeat(10 << 20), &mut |_| {});
        assert!(listener.begun.len() <= MAX_LINE_BYTES);
    }
}
