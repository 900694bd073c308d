//! Tokens of a GitHub App: minted on the host, cut down to what one sandbox may do, renewed, and given back at its end.
//!
//! ```text
//! private key ──> jwt (app.rs) ──> POST …/access_tokens ──> token, kept here (token.rs)
//!                                                              └──> credentials put it into requests
//! ```
//!
//! The private key is read when a token is needed, and never kept. Neither it nor a token is in any message.

mod answer;
mod app;
mod token;

pub(crate) use token::Tokens;
