//! What the program tells about itself: log lines and counters. Neither blocks a core thread.

pub mod counters;
pub mod log;
