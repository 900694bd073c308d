//! Images that Docker builds: `belljar-base`, and what a repository makes of it.
//!
//! ```text
//!   words --> versions: what is meant <-- ask: registries       folder --> context: what is sent <-- walk, ignore
//!                 \                                                          /
//!                  base: a plan                                 repository: a plan
//!                          \                                   /
//!                           daemon_build: one build --> progress: what happens
//! ```
//!
//! A plan is made before the daemon is spoken to, and says all that the build depends on: the same plan is the same build, which Docker
//! knows again. Prints nothing; called by the command line.

mod ask;
mod authorities;
mod base;
mod context;
mod daemon_build;
mod dockerfile;
mod ignore;
mod progress;
mod published;
mod repository;
mod versions;
mod walk;

pub use authorities::Authorities;
pub use base::{BASE, BasePlan, BaseRequest, DEFAULT_FROM, GIT_DELTA, NPM, NoWebAddress, WebAddress};
pub use belljar_docker::Daemon;
pub use daemon_build::{Built, Ended, Failed, How, OnEvent};
pub use progress::Event;
pub use repository::{DOCKERFILE, Planned, RepositoryPlan, RepositoryRequest, TEMPLATE, image_of, is_here};
pub use versions::{NoVersion, VersionRequest};
