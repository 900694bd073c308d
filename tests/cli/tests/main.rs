//! belljar as a person uses it, a subject a module.

mod agent;
mod agent_context;
mod audit;
mod bad_input;
mod completions;
mod config;
mod credentials;
mod credentials_used;
mod daemon;
mod git_daily;
mod git_killed;
mod guarded;
mod images;
mod kept;
mod layers;
mod limits;
mod llm;
mod loud;
mod mistakes;
mod remote_killed;
mod run;
mod secrets;
mod signals;
mod terminal;
mod words;
mod workspaces;
