//! The integration tests, in one binary: it links once.

mod runtime_facts;
mod stdio_child;
