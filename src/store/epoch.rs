//! Whether a log can have lost its tail, in which case its cursors are of an older epoch.

use super::journal::Level;

/// How the last process that wrote a shard's log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// In the planned way, and everything up to there is readable.
    pub clean: bool,
    /// What it promised.
    pub level: Level,
    /// The kernel's boot id then.
    pub boot_id: [u8; 16],
}

impl Ending {
    /// Whether everything that the process sent is in its log, read on the boot `boot_id`.
    fn holds(&self, boot_id: &[u8; 16]) -> bool {
        let same_boot = self.boot_id == *boot_id;
        match self.level {
            Level::None => self.clean,
            Level::Process => self.clean || same_boot,
            Level::Power => true,
        }
    }
}

/// The epoch of a process that goes on with logs of the epoch `epoch` on the boot `boot_id`: the
/// next one where any of them can have lost what was sent.
pub fn next(epoch: u32, endings: impl IntoIterator<Item = Ending>, boot_id: &[u8; 16]) -> u32 {
    let holds = endings.into_iter().all(|ending| ending.holds(boot_id));
    if holds { epoch } else { epoch.checked_add(1).expect("2^32 restarts") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_changes_exactly_where_the_tail_may_be_lost() {
        const HERE: [u8; 16] = [1; 16];
        const BEFORE: [u8; 16] = [2; 16];
        for (clean, level, boot_id, epoch) in [
            (true, Level::None, HERE, 7),
            (true, Level::None, BEFORE, 7),
            (true, Level::Process, HERE, 7),
            (true, Level::Process, BEFORE, 7),
            (true, Level::Power, HERE, 7),
            (true, Level::Power, BEFORE, 7),
            (false, Level::None, HERE, 8),
            (false, Level::None, BEFORE, 8),
            (false, Level::Process, HERE, 7),
            (false, Level::Process, BEFORE, 8),
            (false, Level::Power, HERE, 7),
            (false, Level::Power, BEFORE, 7),
        ] {
            let ending = Ending { clean, level, boot_id };
            assert_eq!(next(7, [ending], &HERE), epoch, "{ending:?}");
            let whole = Ending { clean: true, level: Level::Power, boot_id: HERE };
            assert_eq!(next(7, [whole, ending, whole], &HERE), epoch, "one of three: {ending:?}");
        }
        assert_eq!(next(1, [], &HERE), 1);
    }
}
