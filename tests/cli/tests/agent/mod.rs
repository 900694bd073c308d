//! `belljar agent`: what a person and a program see of agents. The agents here are small programs that keep the contract of
//! `program`; the real ones are in `tests/agents`.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod home;
mod hostile;
mod logs;
mod phases;
mod run;
mod unread;
mod words;
