//! What produces the messages behind the endpoint.

pub mod builtin;
pub mod piped;
mod setup;
pub mod stdio_server;
