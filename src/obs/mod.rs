//! What the program tells about itself: log lines and counters.
