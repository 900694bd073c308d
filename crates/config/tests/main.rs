//! What files, profiles and requests make of each other, a subject a module.

mod credentials;
mod layers;
mod llm;
mod profiles;
