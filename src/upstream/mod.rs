//! What produces the messages behind the endpoint.

pub mod builtin;
pub mod child;
pub mod piped;
mod setup;
pub mod spawner;
pub mod stdio_server;
