//! Hosts that a sandbox may or may not reach: real servers on loopback, at free ports, gone when they are dropped.
//!
//! Nothing here knows belljar. A test starts a [`Dns`] that says where its names are, a server of some kind, and gives
//! the sandbox a policy with that resolver and the range 127.0.0.0/8. No root and no internet is needed, and any number
//! of tests run beside each other.

mod authority;
mod capture;
mod cgroups;
mod dns;
mod echo;
mod git;
mod github;
mod http;
mod model;
mod processes;
mod program;
mod server;
mod tls;
mod web;

pub use authority::{Authority, Leaf};
pub use capture::{Capture, Datagram};
pub use cgroups::cgroups;
pub use dns::{Dns, Query, Transport};
pub use echo::Echo;
pub use git::http_backend;
pub use github::{GitHub, Token};
pub use http::{HttpServer, Request, Response, serve};
pub use model::{Api, Delivery, Model, ModelCall, SCENARIOS, Step, Stop, Usage};
pub use processes::{
    around, beside, is_inside, kernel_around, look_into_sentries, process_file, processes_with,
};
pub use program::{Child, have, have_docker, have_runtime, known_to_work};
pub use server::{Server, own_address};
pub use tls::TlsServer;
pub use web::{Agreement, MODERN, Piece, WebBody, WebServer, piece, pieces, trailers, whole};

pub use {http_body_util, hyper, hyper_util, tokio};
