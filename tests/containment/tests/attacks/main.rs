//! Attacks from inside, judged from outside, one module for each subject. One program, since each is linked with the whole engine.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod counters;
mod credentials_elsewhere;
mod credentials_redacted;
mod deputies;
mod egress_audit;
mod egress_direct;
mod egress_ends;
mod egress_fetch;
mod egress_floods;
mod egress_http;
mod egress_inside;
mod egress_limits;
mod egress_names;
mod egress_own_address;
mod egress_repository;
mod egress_tls;
mod filesystem;
mod hidden_files;
mod kept;
mod limits;
mod living;
mod llm_route;
mod made_repositories;
mod network;
mod odd_names;
mod overlay_git;
mod path_races;
mod private_git;
mod private_git_again;
mod privileges;
mod processes;
mod protected_paths;
mod push_limits;
mod push_rules;
mod secrets;
mod secrets_home;
mod sockets;
mod terminate_floods;
mod terminate_requests;
mod terminate_trust;
mod vault;
mod workspace_backends;
mod workspace_modes;
mod workspace_mountpoints;
