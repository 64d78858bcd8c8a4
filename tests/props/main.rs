//! Properties that hold for every input, checked on random ones.

mod http;
mod mcp;
mod store;
