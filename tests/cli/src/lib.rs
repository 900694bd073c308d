//! See `tests/`: one file a subject.
