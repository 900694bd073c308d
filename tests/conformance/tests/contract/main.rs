//! The contract that every backend keeps, a subject a module. One program, since each is linked with the whole engine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agent_context;
mod credentials_git;
mod credentials_github;
mod credentials_requests;
mod described;
mod devoured;
mod egress_clients;
mod egress_fetch;
mod egress_http;
mod egress_limits;
mod egress_modes;
mod egress_names;
mod egress_postgres;
mod egress_record;
mod egress_ssh;
mod egress_streams;
mod environment;
mod errors;
mod exec;
mod files;
mod git_inside;
mod image_roots;
mod kept;
mod lifecycle;
mod limits;
mod llm_budget;
mod llm_outcomes;
mod llm_route;
mod pause;
mod ports;
mod pty;
mod ready;
mod registry_tls;
mod rename;
mod roots;
mod silence;
mod streams;
mod terminate_bulk;
mod terminate_clients;
mod terminate_http1;
mod terminate_http2;
mod transfers;
mod tree;
mod watch;
