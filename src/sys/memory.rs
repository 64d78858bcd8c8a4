//! Memory that has been freed, given back to the system.

// The function below is in this crate's library, also where the program has another allocator.
use mimalloc as _;

// SAFETY: that is its declaration in mimalloc.h.
unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// Gives what the calling thread has freed back to the system, as far as whole pages are free.
/// mimalloc does so in passing while it is used; a thread that has nothing to do keeps what it
/// had. Takes time in proportion to the pages of the thread.
pub fn give_back() {
    // SAFETY: it takes no pointer and may be called at any time, on any thread (mimalloc.h).
    unsafe { mi_collect(true) }
}
