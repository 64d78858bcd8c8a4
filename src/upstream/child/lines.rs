//! Splits a byte stream at newlines, however it arrives.
//!
//! Only `\n` splits: not the line and paragraph separators of Unicode, which may stand inside a
//! JSON string, and not a lone carriage return. What is told does not depend on how the stream was
//! cut into pieces. At most one line's limit of bytes is held, and nothing between lines.

use memchr::memchr;

/// Bytes of a line over the limit that are told, so that its id may be found.
const HEAD_BYTES: usize = 512;
/// Room for the start of a line that came in pieces; more than this is made when it is needed.
const FIRST_ROOM_BYTES: usize = 1024;

/// What a stream is split into.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A whole line, without its newline and without a carriage return before that.
    Line(&'a [u8]),
    /// A line went over the limit. Its rest, up to the next newline, is thrown away.
    TooLong {
        /// Bytes of the line that had come by then.
        bytes: usize,
        /// Its first bytes, at most 512.
        head: &'a [u8],
    },
}

/// The splitter of one stream.
#[derive(Debug)]
pub(super) struct Lines {
    /// Bytes that a line may have before its newline.
    limit: usize,
    /// The start of a line whose newline has not come.
    partial: Vec<u8>,
    /// The line's limit was passed: wait for its newline.
    skipping: bool,
}

impl Lines {
    /// A splitter for lines of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, partial: Vec::new(), skipping: false }
    }

    /// Takes the next bytes and tells every line that they end, in order.
    pub(super) fn feed(&mut self, mut chunk: &[u8], mut tell: impl FnMut(Piece<'_>)) {
        while let Some(at) = memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..at], &chunk[at + 1..]);
            chunk = rest;
            if self.skipping {
                self.skipping = false;
            } else if self.partial.is_empty() && line.len() <= self.limit {
                tell(Piece::Line(without_cr(line)));
            } else if self.keep(line, &mut tell) {
                tell(Piece::Line(without_cr(&self.partial)));
                self.partial = Vec::new();
            } else {
                self.skipping = false;
            }
        }
        if !self.skipping && !chunk.is_empty() {
            self.keep(chunk, &mut tell);
        }
    }

    /// The stream is at its end: a last line without its newline counts as one.
    pub(super) fn finish(&mut self, mut tell: impl FnMut(Piece<'_>)) {
        if !self.partial.is_empty() {
            tell(Piece::Line(without_cr(&self.partial)));
            self.partial = Vec::new();
        }
    }

    /// Adds to the partial line, or gives it up when it grows too long: then false.
    fn keep(&mut self, more: &[u8], mut tell: impl FnMut(Piece<'_>)) -> bool {
        let bytes = self.partial.len() + more.len();
        if bytes <= self.limit {
            if bytes > self.partial.capacity() {
                // Doubled, but never beyond the limit.
                let room = (2 * self.partial.capacity()).max(FIRST_ROOM_BYTES).min(self.limit);
                self.partial.reserve_exact(room.max(bytes) - self.partial.len());
            }
            self.partial.extend_from_slice(more);
            return true;
        }
        let missing = HEAD_BYTES.saturating_sub(self.partial.len()).min(more.len());
        self.partial.extend_from_slice(&more[..missing]);
        self.partial.truncate(HEAD_BYTES);
        tell(Piece::TooLong { bytes, head: &self.partial });
        self.partial = Vec::new();
        self.skipping = true;
        false
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Told {
        Line(Vec<u8>),
        TooLong(Vec<u8>),
    }

    /// What is told of `text` in pieces of `step` bytes; the size of a long line depends on the
    /// pieces and is left out, but must be above the limit.
    fn told(text: &[u8], limit: usize, step: usize) -> Vec<Told> {
        let mut lines = Lines::new(limit);
        let mut told = Vec::new();
        let mut tell = |piece: Piece<'_>| match piece {
            Piece::Line(line) => told.push(Told::Line(line.to_vec())),
            Piece::TooLong { bytes, head } => {
                assert!(bytes > limit);
                told.push(Told::TooLong(head[..head.len().min(limit)].to_vec()));
            }
        };
        for chunk in text.chunks(step) {
            lines.feed(chunk, &mut tell);
            assert!(lines.partial.capacity() <= limit.max(HEAD_BYTES));
        }
        lines.finish(&mut tell);
        assert_eq!(lines.partial.capacity(), 0, "nothing is held between lines");
        told
    }

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let text = "one\n\ntwo\r\n  \r\n\u{2028}\u{85}\rthree\nfar too long a line\r\nfour!!!!!!\n\
                    five!!!!!!!\nlast"
            .as_bytes();
        let line = |text: &str| Told::Line(text.as_bytes().to_vec());
        let long = |text: &str| Told::TooLong(text.as_bytes().to_vec());
        let expected = vec![
            line("one"),
            line(""),
            line("two"),
            line("  "),
            long("\u{2028}\u{85}\rthre"),
            long("far too lo"),
            line("four!!!!!!"),
            long("five!!!!!!"),
            line("last"),
        ];
        for step in 1..=text.len() {
            let told = told(text, 10, step);
            assert_eq!(told, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_passes_and_one_more_byte_does_not() {
        for step in [1, 7, 100, 10_000] {
            let mut text = vec![b'a'; 1000];
            text.push(b'\n');
            text.extend_from_slice(&[b'b'; 1001]);
            text.extend_from_slice(b"\ngood\n");
            let told = told(&text, 1000, step);
            assert_eq!(told[0], Told::Line(vec![b'a'; 1000]));
            assert_eq!(told[1], Told::TooLong(vec![b'b'; 512]));
            assert_eq!(told[2..], [Told::Line(b"good".to_vec())]);
        }
    }

    #[test]
    fn a_line_without_end_is_told_once_and_holds_nothing() {
        let mut lines = Lines::new(4096);
        let mut long = 0;
        for _ in 0..1000 {
            lines.feed(&[b'x'; 1000], |_| long += 1);
            assert!(lines.partial.capacity() <= 4096);
        }
        lines.finish(|_| long += 1);
        assert_eq!((long, lines.partial.capacity()), (1, 0));
    }
}
