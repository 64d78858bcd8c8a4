//! Connections: the shell around HTTP and streams.
//!
//! One task per connection. It reads a request, asks the session, and writes the answer or the
//! stream itself; others reach it only through its [`handle::Handle`].

pub mod accept;
mod answer;
mod body;
pub mod conn;
mod dispatch;
mod get;
pub mod handle;
mod request;
mod socket;
mod writer;
