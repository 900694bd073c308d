//! Exit codes of belljar itself, as timeout(1) and docker have them; docs/exit-codes.md is the table for people.

/// The command exceeded its time limit.
pub const TIMED_OUT: u8 = 124;
/// belljar itself failed.
pub const FAILED: u8 = 125;
/// Refused.
pub const REFUSED: u8 = 126;
