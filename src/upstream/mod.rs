//! What produces the messages behind the endpoint.
//!
//! Pure: [`builtin`] (the demo server), [`in_process`] and [`piped`] (the protocol between a
//! session and its server). Shells: [`child`] and [`spawner`] (processes), [`stdio_server`] (the
//! demo server over stdin and stdout).

pub mod behind;
pub mod builtin;
pub mod child;
pub mod in_process;
pub mod off_core;
pub mod piped;
mod setup;
pub mod spawner;
pub mod stdio_server;
