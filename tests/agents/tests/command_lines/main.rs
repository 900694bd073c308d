//! The agents' real command lines under glass, a subject a module.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod container;
mod conversations;
mod failures;
mod hostile;
mod landlock;
mod limits;
mod outside;
mod shell;
mod stopped;
mod task;
mod tutorial;
