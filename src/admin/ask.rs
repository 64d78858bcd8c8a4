//! Asking shards: a letter with a question in it, and the answers over a channel.

use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::shard::handoff::Letter;
use crate::shard::{Process, Shard};

/// How long a shard may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// What every shard answers to `question`, by index.
///
/// # Errors
/// The shard that did not answer in time.
pub(super) fn all<T: Send + 'static>(
    process: &Process,
    question: impl Fn(&Rc<Shard>) -> T + Clone + Send + 'static,
) -> Result<Vec<T>, usize> {
    let (sender, receiver) = mpsc::channel();
    for (index, mailbox) in process.mailboxes.iter().enumerate() {
        let (question, sender) = (question.clone(), sender.clone());
        let ask = Box::new(move |shard: &Rc<Shard>| {
            // Nobody waits any more only where it took too long.
            let _ = sender.send((index, question(shard)));
        });
        mailbox.try_send(Letter::Ask(ask)).map_err(|_| index)?;
    }
    let mut answers: Vec<Option<T>> = process.mailboxes.iter().map(|_| None).collect();
    let end = Instant::now() + ANSWER_TIME;
    while let Some(missing) = answers.iter().position(Option::is_none) {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((index, answer)) => answers[index] = Some(answer),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(missing),
        }
    }
    Ok(answers.into_iter().flatten().collect())
}
