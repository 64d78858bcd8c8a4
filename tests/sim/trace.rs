//! The last steps of a run, for the one who has to understand its failure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::steps::Step;

/// Steps kept.
const STEPS_MAX: usize = 50;

#[derive(Default)]
pub struct Trace {
    lines: VecDeque<(Duration, Step, String)>,
    /// Print each line at once.
    pub aloud: bool,
}

impl Trace {
    pub fn step(&mut self, at: Duration, step: Step) {
        if self.aloud {
            eprintln!("{at:>12?}  {step:?}");
        }
        if self.lines.len() == STEPS_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back((at, step, String::new()));
    }

    /// Says more about the step under way.
    pub fn note(&mut self, note: String) {
        if self.aloud {
            eprintln!("              {note}");
        }
        if let Some((_, _, notes)) = self.lines.back_mut() {
            *notes = note;
        }
    }
}

impl std::fmt::Display for Trace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lines
            .iter()
            .try_for_each(|(at, step, note)| writeln!(out, "{at:>12?}  {step:?}  {note}"))
    }
}
