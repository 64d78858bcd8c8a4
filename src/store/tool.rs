//! `gapless log`: what an operator can ask of a data directory, and do to one that was restored.
//!
//! Nothing but `new-epoch` changes anything. `check` holds the lock shared, so that no process can
//! write meanwhile; `dump` needs no lock: while a process writes, its newest records may be missing
//! and a segment may go while it is read, which is then said in its place.

mod check;
mod dump;
#[cfg(test)]
mod tests;
mod walk;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::directory::{Directory, Layout};
use super::meta::Meta;
pub use dump::Dump;

/// `gapless log check`: reads everything as a restart would and says what is there. Tells whether
/// all of it is sound; a torn tail is, for that is how a crash leaves the log.
///
/// # Errors
/// Those of reading and of writing to `out`; another process uses the directory.
pub fn check(root: &Path, out: &mut impl Write) -> io::Result<bool> {
    let (layout, meta) = open(root)?;
    let _held = layout.hold_shared()?;
    check::run(&layout, &meta, out)
}

/// `gapless log dump`: one line for each record, in the order of the log. Tells whether everything
/// could be read.
///
/// # Errors
/// Those of reading and of writing to `out`.
pub fn dump(root: &Path, what: &Dump, out: &mut impl Write) -> io::Result<bool> {
    let (layout, meta) = open(root)?;
    match layout.hold_shared() {
        Err(held) if held.kind() == io::ErrorKind::WouldBlock => {
            writeln!(out, "# {held}: records that it writes now may be missing")?;
        }
        // Given up again: a process may start meanwhile, and looking must not keep it from that.
        held => drop(held?),
    }
    dump::run(&layout, &meta, what, out)
}

/// `gapless log new-epoch`: the next epoch for a directory whose content is older than what clients
/// have seen, such as a restored backup. Every cursor of before is then told so.
///
/// # Errors
/// Those of reading and of writing; another process uses the directory.
pub fn new_epoch(root: &Path, out: &mut impl Write) -> io::Result<()> {
    // Looked at before it is opened, which would make a directory that is not there.
    open(root)?;
    let mut directory = Directory::open(root).map_err(io::Error::other)?;
    let Some(meta) = directory.meta().cloned() else { return Err(unused(root)) };
    let (old, epoch) = (meta.epoch, meta.epoch.checked_add(1));
    let epoch = epoch.ok_or_else(|| io::Error::other("no epoch is left after 2^32"))?;
    directory.replace_meta(Meta { epoch, ..meta })?;
    writeln!(out, "epoch {old} -> {epoch}: cursors that clients hold now will be refused as stale")
}

fn open(root: &Path) -> io::Result<(Layout, Meta)> {
    let layout = Layout::new(root);
    let meta = layout.read_meta().map_err(io::Error::other)?;
    meta.map(|meta| (layout, meta)).ok_or_else(|| unused(root))
}

fn unused(root: &Path) -> io::Error {
    io::Error::other(format!("{} is no data directory that has been used", root.display()))
}

/// Whether a file that was opened as `path` still is that file: a segment that is retired loses
/// its name before its bytes change.
fn is_still(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |there: std::fs::Metadata| {
        file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    };
    std::fs::metadata(path).is_ok_and(same)
}
