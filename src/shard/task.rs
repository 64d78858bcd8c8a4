//! Tasks of a shard. A panic would unwind monoio's thread and take all its sessions along, so each
//! task is wrapped: its panic ends it alone, is counted, and is logged with its name.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Panics of tasks in this process since its start.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Starts a task on this shard and lets it go; `name` says in the log what it was.
///
/// `on_panic` runs if it panics: to give back what the task's own values do not give back when
/// they are dropped. Whatever the task shared must be in order at each of its awaits.
pub fn spawn<F>(name: &'static str, future: F, on_panic: impl FnOnce() + 'static)
where
    F: Future<Output = ()> + 'static,
{
    // By combinators: an async block would hold the future twice, as what it captures and as what
    // it awaits. The handle has no abort, and dropping it detaches.
    drop(monoio::spawn(AssertUnwindSafe(future).catch_unwind().map(move |result| {
        if let Err(payload) = result {
            report(name, &*payload);
            on_panic();
        }
    })));
}

/// Calls `work` on behalf of one of many that a task serves; `name` says in the log what it was.
/// None if it panicked: that is counted, and what `work` shared may be in any state.
pub fn contain<R>(name: &'static str, work: impl FnOnce() -> R) -> Option<R> {
    let result = std::panic::catch_unwind(AssertUnwindSafe(work));
    result.map_err(|payload| report(name, &*payload)).ok()
}

fn report(name: &'static str, payload: &(dyn Any + Send)) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    tracing::error!(task = name, message = message(payload), "a task panicked");
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::shard::run;

    #[test]
    fn a_panic_ends_its_own_task_or_its_own_part_of_one_and_is_counted() {
        let before = panics();
        let told = Rc::new(Cell::new(false));
        let finished = Rc::new(Cell::new(false));
        run({
            let (told, finished) = (told.clone(), finished.clone());
            async move {
                let owned = Rc::new(());
                let held = owned.clone();
                spawn(
                    "broken",
                    async move {
                        let _held = held;
                        monoio::time::sleep(Duration::from_millis(1)).await;
                        panic!("on purpose");
                    },
                    move || told.set(true),
                );
                spawn("sound", async move { finished.set(true) }, || unreachable!("it is sound"));
                monoio::time::sleep(Duration::from_millis(20)).await;
                assert_eq!(Rc::strong_count(&owned), 1, "the task's values were dropped");
            }
        });
        assert!(told.get() && finished.get());
        assert_eq!(panics(), before + 1);
        assert_eq!(contain("sound", || 7), Some(7));
        assert_eq!(contain("broken", || -> u8 { panic!("on purpose") }), None);
        assert_eq!(panics(), before + 2);
    }

    #[test]
    fn both_kinds_of_panic_text_are_read() {
        assert_eq!(message(&"fixed"), "fixed");
        assert_eq!(message(&String::from("made")), "made");
        assert_eq!(message(&1), "(no text)");
    }
}
