//! `gapless log check`: what a restart would find.

use std::io::{self, Write};

use super::dump::{describe, kind_name, level_name};
use super::walk::{Found, Walk};
use crate::store::directory::{Layout, SegmentFile, boot_id};
use crate::store::meta::Meta;
use crate::store::record::Kind;
use crate::store::recovery::{Recovered, Scanner};
use crate::store::scan::{ForeignFormat, scan};
use crate::store::segment::position;

/// Writes what is there; tells whether it is sound.
pub(super) fn run(layout: &Layout, meta: &Meta, out: &mut impl Write) -> io::Result<bool> {
    let boot = boot_id()?;
    writeln!(
        out,
        "{}: generation {}, {} shards, epoch {}, opened {} times",
        layout.root().display(),
        meta.generation,
        meta.shards,
        meta.epoch,
        meta.runs
    )?;
    let mut sound = true;
    for shard in 0..meta.shards {
        let segments = layout.segments(meta.generation, shard)?;
        let scanner = |sure| Scanner::new(shard, meta.generation, boot, sure);
        let recovered = match scan(&segments, scanner, |_| ())? {
            Ok(recovered) => recovered,
            Err(ForeignFormat { segment, version }) => {
                writeln!(
                    out,
                    "shard {shard}: segment {segment} has format {version}, which this gapless \
                     does not read"
                )?;
                sound = false;
                continue;
            }
        };
        let report = Report { layout, shard, segments: &segments, recovered: &recovered };
        sound &= report.write(&boot, out)?;
    }
    writeln!(out, "{}", if sound { "sound" } else { "DAMAGED" })?;
    Ok(sound)
}

/// What one shard's log says.
struct Report<'r> {
    layout: &'r Layout,
    shard: u16,
    segments: &'r [SegmentFile],
    recovered: &'r Recovered,
}

impl Report<'_> {
    fn write(&self, boot: &[u8; 16], out: &mut impl Write) -> io::Result<bool> {
        let recovered = self.recovered;
        let counts = &recovered.counts;
        writeln!(
            out,
            "shard {}: {} segments of {} bytes, {}",
            self.shard,
            counts.segments,
            counts.bytes,
            self.ending(boot)
        )?;
        let kinds = Kind::ALL.map(|kind| (kind_name(kind), counts.records[kind as usize]));
        let kinds = kinds.iter().filter(|(_, count)| *count > 0);
        let kinds: Vec<_> = kinds.map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(out, "  records: {}", kinds.join(", "))?;
        let streams = || recovered.sessions.iter().flat_map(|session| &session.streams);
        let runs = streams().flat_map(|stream| &stream.runs);
        let lengths = || runs.clone().flat_map(|run| &run.lengths);
        let (events, bytes) =
            (lengths().count(), lengths().map(|&length| u64::from(length)).sum::<u64>());
        writeln!(
            out,
            "  sessions: {} live, {} ended; streams: {}; events kept: {events} of {bytes} bytes",
            recovered.sessions.len(),
            recovered.ended.len(),
            streams().count()
        )?;
        if let Some(torn) = recovered.torn {
            let (segment, offset) = (torn.segment, torn.offset);
            let behind = counts.discarded;
            writeln!(
                out,
                "  ends without a seal at {segment}:{offset}; {behind} whole records behind it are \
                 dropped"
            )?;
        }
        self.damage(out)
    }

    fn ending(&self, boot: &[u8; 16]) -> String {
        let Some(ending) = self.recovered.ending else { return "never written to".to_owned() };
        let how = if ending.clean { "ended as planned" } else { "did not end as planned" };
        let when = if ending.boot_id == *boot { "this boot" } else { "an earlier boot" };
        format!("{how}, at level {}, on {when}", level_name(ending.level))
    }

    /// Says what is damaged and where; whether nothing is.
    fn damage(&self, out: &mut impl Write) -> io::Result<bool> {
        let counts = &self.recovered.counts;
        let places = counts.bad_segments + counts.bad_headers + counts.bad_bodies;
        let mut sound = places == 0;
        if places > 0 {
            self.missing(out)?;
            for segment in self.segments {
                self.bad_places(segment, out)?;
            }
        }
        for session in &self.recovered.sessions {
            for stream in session.streams.iter().filter(|stream| stream.broken) {
                sound = false;
                let (name, number) = (session.body.id.short(), stream.number);
                writeln!(out, "  DAMAGED stream {number} of session {name}: it is refused")?;
            }
            if session.broken {
                sound = false;
                writeln!(out, "  DAMAGED session {}: it is refused", session.body.id.short())?;
            }
        }
        for slot in &self.recovered.lost {
            sound = false;
            writeln!(out, "  DAMAGED session of slot {slot}: nothing says whose it is")?;
        }
        Ok(sound)
    }

    fn missing(&self, out: &mut impl Write) -> io::Result<()> {
        for pair in self.segments.windows(2) {
            let (before, after) = (pair[0].number, pair[1].number);
            if after - before > 1 {
                writeln!(out, "  DAMAGED nothing is there between segments {before} and {after}")?;
            }
        }
        Ok(())
    }

    /// The bad places of a segment that are before the log's end.
    fn bad_places(&self, segment: &SegmentFile, out: &mut impl Write) -> io::Result<()> {
        let number = segment.number;
        let torn = self.recovered.torn.map(|torn| position(torn.segment, torn.offset));
        let discarded = self.recovered.discard.first().map(|&first| position(first, 0));
        let end = torn.or(discarded).unwrap_or(u64::MAX);
        let name = segment.path.strip_prefix(self.layout.root()).unwrap_or(&segment.path);
        let name = name.display();
        let (mut walk, header) = Walk::open(&segment.path, number)?;
        match header {
            Ok(header) if header.shard == self.shard => {}
            Ok(header) => {
                let what = describe(&header, segment.bytes);
                writeln!(out, "  DAMAGED {name} belongs to another shard: {what}")?;
            }
            Err(bad) if position(number, 0) < end => {
                writeln!(out, "  DAMAGED {name}: no header of this segment: {bad:?}")?;
            }
            Err(_) => {}
        }
        while let Some((at, found)) = walk.next()? {
            if position(number, u32::try_from(at).unwrap_or(u32::MAX)) >= end {
                return Ok(());
            }
            match found {
                Found::Record(..) => {}
                Found::BadBody(header, bytes) => writeln!(
                    out,
                    "  DAMAGED {name}:{at} {} slot={} stream={} number={}: its {bytes} bytes have \
                     changed",
                    kind_name(header.kind),
                    header.slot,
                    header.stream,
                    header.number
                )?,
                Found::Unreadable(bytes) | Found::Rest { bytes, .. } => {
                    writeln!(out, "  DAMAGED {name}:{at}: {bytes} bytes are no record")?;
                }
            }
        }
        Ok(())
    }
}
