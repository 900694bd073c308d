//! A typed client of the HTTP API.
