//! What the program tells about itself: log lines, counters, metrics, where everything stands. None
//! of it blocks a core thread.

pub mod counters;
pub mod log;
pub mod prometheus;
pub mod snapshot;
