//! Runs agents in sandboxes: a prompt and a folder in; finished work, a truthful account and a bill out.
//!
//! ```text
//! request ─> adapter: what to start, where its model is ─> sandbox ─> its output ─> parser ─> log ─┐
//!                                                             │                                    ├─> result
//!                                                             └──────────> gateway's own count ────┘
//! ```
//!
//! What an agent says of itself is a claim, and is kept as one. What it used, what it cost and what it was refused comes from
//! the gateway; how it ended, from the kernel; what it changed, from the workspace. Prints nothing.
//!
//! ```no_run
//! # async fn example() -> Result<(), belljar_spec::SandboxError> {
//! use belljar_agent::run::{Agent, Conversation, RunRequest, run};
//! use belljar_engine::Engine;
//! use belljar_spec::SandboxSpec;
//! use belljar_spec::llm::LlmRoute;
//!
//! let mut route = LlmRoute::to("https://api.anthropic.com".parse().expect("a URL"));
//! route.key = Some("secret:anthropic".parse().expect("a reference"));
//! route.budget = "usd=5,turns=30".parse().expect("a budget");
//! let request = RunRequest {
//!     agent: Agent::named("claude")?,
//!     prompt: "Fix the failing test.".into(),
//!     messages: Default::default(),
//!     model: None,
//!     effort: None,
//!     web_search: false,
//!     context: Vec::new(),
//!     attached: Vec::new(),
//!     cwd: None,
//!     time: None,
//!     conversation: Conversation::New,
//!     own_arguments: Vec::new(),
//!     path: std::env::var_os("PATH").unwrap_or_default(),
//!     sandbox: SandboxSpec { workspace: Some("/srv/project".into()), llm: Some(route), ..Default::default() },
//! };
//! let state = std::path::Path::new("/srv/state");
//! let result = run(&Engine::new(), request, state, None, std::future::pending()).await?;
//! println!("{}: {}", result.stop_reason, result.output);
//! # Ok(())
//! # }
//! ```

pub mod adapter;
pub mod billing;
pub mod budget;
pub mod claims;
mod clip;
pub mod entry;
pub mod event;
pub mod home;
pub mod input;
pub mod lines;
pub mod log;
pub mod messages;
mod opened;
pub mod parse;
pub mod phases;
pub mod provider;
pub mod prune;
pub mod read;
mod recent;
pub mod run;
pub mod stop;
pub mod stream;
pub mod transcript;
