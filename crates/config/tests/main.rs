//! Merging files, profiles and requests, one module per subject.

mod credentials;
mod layers;
mod llm;
mod profiles;
