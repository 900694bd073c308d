//! What a model's answer says of itself, whole or as events. The first byte says how it is cut.
#![no_main]

use belljar_gateway::llm::usage::{Dialect, Reader, Shape, Usage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    for dialect in [Dialect::Anthropic, Dialect::OpenAi, Dialect::Gemini] {
        for shape in [Shape::Json, Shape::Events] {
            let whole = read(dialect, shape, bytes, bytes.len().max(1));
            assert_eq!(read(dialect, shape, bytes, usize::from(cut) + 1), whole);
            assert!(whole.counted || whole.input + whole.output + whole.cache_read + whole.cache_write == 0);
        }
    }
});

/// The same, however it is cut.
fn read(dialect: Dialect, shape: Shape, bytes: &[u8], cut: usize) -> Usage {
    let mut reader = Reader::new(dialect, shape);
    bytes.chunks(cut).for_each(|piece| reader.feed(piece));
    reader.finish()
}
