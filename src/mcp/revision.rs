//! MCP's protocol revisions, dates that sort as text.
//!
//! A session's revision is what the upstream answered, as text; [`Revision::behaviour_of`] says
//! which known revision's rules apply to it.

/// A revision whose rules are known here, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05: the HTTP+SSE transport.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, batches.
    V2025_03_26,
    /// 2025-06-18: the `MCP-Protocol-Version` field, no batches.
    V2025_06_18,
    /// 2025-11-25: the priming event with empty data.
    V2025_11_25,
}

/// The newest revision that is served.
pub const NEWEST: Revision = Revision::V2025_11_25;

const ALL: [Revision; 4] =
    [Revision::V2024_11_05, Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2025_11_25];

impl Revision {
    /// The revision of exactly this name.
    pub fn parse(name: &str) -> Option<Self> {
        ALL.into_iter().find(|revision| revision.as_str() == name)
    }

    /// The revision's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// The rules for a session whose upstream answered `name`, which may be unknown here: those of
    /// the newest known revision that is not newer, or the oldest.
    pub fn behaviour_of(name: &str) -> Self {
        let known = ALL.into_iter().rev().find(|revision| revision.as_str() <= name);
        known.unwrap_or(Self::V2024_11_05)
    }

    /// Whether messages may come as batch arrays (added in 2025-03-26, removed in 2025-06-18; the
    /// base protocol of 2024-11-05 takes them as JSON-RPC has them).
    pub fn has_batches(self) -> bool {
        self <= Self::V2025_03_26
    }

    /// Whether a stream starts with an event of empty data (2025-11-25, Transports, Sending
    /// Messages to the Server). Clients of older revisions parse its data as JSON.
    pub fn has_empty_priming(self) -> bool {
        self >= Self::V2025_11_25
    }
}

/// Whether `MCP-Protocol-Version` may name this revision whatever its session's own is.
pub fn is_served(name: &str) -> bool {
    Revision::parse(name).is_some()
}

/// The revision to ask the upstream for when a client requests `requested`: the same, also where
/// it is unknown, unless it is newer than [`NEWEST`].
pub fn ask_down(requested: &str) -> &str {
    if requested > NEWEST.as_str() { NEWEST.as_str() } else { requested }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_revisions_are_in_order_and_read_back() {
        assert!(ALL.is_sorted() && ALL.is_sorted_by_key(|revision| revision.as_str()));
        assert_eq!(ALL.last(), Some(&NEWEST));
        for revision in ALL {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
            assert_eq!(Revision::behaviour_of(revision.as_str()), revision);
        }
        assert!(is_served("2025-06-18"));
        for name in ["2026-07-28", "2024-10-07", "", "2025-06-18 ", "2025-11-25x"] {
            assert!(!is_served(name));
        }
    }

    #[test]
    fn a_newer_revision_is_asked_down() {
        for name in ["2026-07-28", "2025-11-26", "DRAFT-2026-v1"] {
            assert_eq!(ask_down(name), "2025-11-25");
        }
        for name in ["2025-11-25", "2025-06-18", "2024-11-05", "2024-10-07", "1.0", ""] {
            assert_eq!(ask_down(name), name);
        }
    }

    #[test]
    fn an_unknown_revision_behaves_as_the_one_before_it() {
        assert_eq!(Revision::behaviour_of("2024-10-07"), Revision::V2024_11_05);
        assert_eq!(Revision::behaviour_of("2025-04-01"), Revision::V2025_03_26);
        assert_eq!(Revision::behaviour_of("2026-07-28"), NEWEST);
    }

    #[test]
    fn rules_differ_by_revision() {
        let batches = ALL.map(Revision::has_batches);
        assert_eq!(batches, [true, true, false, false]);
        let priming = ALL.map(Revision::has_empty_priming);
        assert_eq!(priming, [false, false, false, true]);
    }
}
