//! The reference of the options, `docs/configuration.md`: its text, which is written by hand, and a
//! table for each heading of the help, out of the same rows as the help.

use std::fmt::Write;

use super::flags::{self, Known};
use super::words::is_of_a_server;

/// What stands before the tables.
const BEFORE: &str = include_str!("reference.md");

/// The text of `docs/configuration.md`.
pub fn reference() -> String {
    let mut out = BEFORE.to_owned();
    for heading in flags::HEADINGS {
        let _ = write!(
            out,
            "\n### {heading}\n\n\
             | key | option and variable | default | meaning | of |\n\
             | --- | --- | --- | --- | --- |\n"
        );
        for known in flags::all().filter(|known| known.heading == heading) {
            row(&mut out, &known);
        }
    }
    out
}

fn row(out: &mut String, known: &Known) {
    let key = if known.is_of_a_file() { format!("`{}`", known.key()) } else { "none".to_owned() };
    let value = known.value_name.replace('|', "\\|");
    let owner = if is_of_a_server(known.name) { "server" } else { "process" };
    let _ = writeln!(
        out,
        "| {key} | `--{} {value}` `{}` | {} | {} | {owner} |",
        known.name,
        flags::variable(known.name),
        known.default,
        known.help,
    );
}
