//! Write buffers of a shard, lent for one burst: an idle connection holds none.

use std::cell::RefCell;

use crate::limits::WRITE_BYTES_MAX;

/// Free buffers of [`WRITE_BYTES_MAX`] bytes each. What is given back beyond the cap is freed.
///
/// The cap bounds what is kept, not what is lent: wait until a socket takes bytes before a buffer
/// is taken for it, or stalled readers hold one each.
#[derive(Debug)]
pub struct Pool {
    free: RefCell<Vec<Vec<u8>>>,
    cap: usize,
}

impl Pool {
    /// An empty pool that keeps at most `cap` buffers.
    pub fn new(cap: usize) -> Self {
        Self { free: RefCell::default(), cap }
    }

    /// An empty buffer with room for [`WRITE_BYTES_MAX`] bytes.
    pub fn take(&self) -> Vec<u8> {
        let free = self.free.borrow_mut().pop();
        free.unwrap_or_else(|| Vec::with_capacity(WRITE_BYTES_MAX))
    }

    /// Takes a buffer back, whatever is in it. One that grew is not kept: it would stay large.
    pub fn give(&self, mut buffer: Vec<u8>) {
        let mut free = self.free.borrow_mut();
        if buffer.capacity() == WRITE_BYTES_MAX && free.len() < self.cap {
            buffer.clear();
            free.push(buffer);
        }
    }

    /// Frees all buffers that are kept, for a sweep after a burst.
    pub fn shrink(&self) {
        self.free.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_of_the_same_memory() {
        let pool = Pool::new(1);
        let mut first = pool.take();
        assert_eq!((first.len(), first.capacity()), (0, WRITE_BYTES_MAX));
        first.extend_from_slice(b"somebody's event");
        let address = first.as_ptr();
        pool.give(first);
        let second = pool.take();
        assert!(second.is_empty());
        assert_eq!(second.as_ptr(), address);
    }

    #[test]
    fn only_whole_buffers_up_to_the_cap_are_kept() {
        let pool = Pool::new(2);
        pool.give(Vec::new());
        pool.give(Vec::with_capacity(WRITE_BYTES_MAX + 1));
        assert_eq!(pool.free.borrow().len(), 0);
        for buffer in [pool.take(), pool.take(), pool.take()] {
            pool.give(buffer);
        }
        assert_eq!(pool.free.borrow().len(), 2);
        pool.shrink();
        assert_eq!(pool.free.borrow().len(), 0);
    }
}
