//! What [`super::mpsc`] and the shards' doorbell synchronise with: std's, or loom's under the
//! feature `loom`, where `tests/loom.rs` runs every interleaving of it.

#[cfg(feature = "loom")]
pub use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
    thread,
};

#[cfg(not(feature = "loom"))]
pub use self::cell::UnsafeCell;
#[cfg(not(feature = "loom"))]
pub use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
    thread,
};

#[cfg(not(feature = "loom"))]
mod cell {
    /// std's cell behind loom's interface: access is a closure, so that loom can see its extent.
    #[derive(Debug)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Gives the content's address for exclusive access; dereferencing it is up to the caller.
        pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}
