//! The configuration as it was put together, to read and to use again: TOML, each line with where
//! its value comes from.
//!
//! Invariant: no value of a child's environment is shown, for it may be a secret.

use std::ffi::OsStr;
use std::fmt::Write;

use super::flags::{self, Known};
use super::words::{Given, Place, ServerWords, Words, is_of_a_server};

/// What `gapless config` prints.
pub(super) fn text(words: &Words) -> String {
    let mut out = String::new();
    for known in flags::known() {
        let given: Vec<&Given> = words.all(known.name).collect();
        if given.is_empty() {
            let _ = writeln!(out, "# {} = {} # default", known.key(), default(&known));
        } else {
            option(&mut out, &known, &given);
        }
    }
    if let Some(command) = &words.command {
        let _ = writeln!(out, "command = {}", array(command.iter().map(|word| quoted(word))));
    }
    for own in &words.servers {
        server(&mut out, own);
    }
    out
}

fn server(out: &mut String, own: &ServerWords) {
    let _ = writeln!(out, "\n[server.{}] # {}", own.name, own.place);
    if own.builtin {
        out.push_str("builtin = true\n");
    }
    if let Some(command) = &own.command {
        let _ = writeln!(out, "command = {}", array(command.iter().map(|word| quoted(word))));
    }
    for known in flags::known().filter(|known| is_of_a_server(known.name)) {
        let given: Vec<&Given> =
            own.given.iter().filter(|given| given.option == known.name).collect();
        if !given.is_empty() {
            option(out, &known, &given);
        }
    }
}

fn option(out: &mut String, known: &Known, given: &[&Given]) {
    let values = given.iter().map(|given| {
        let value = given.value.to_string_lossy();
        let shown =
            if known.name == "env" { value.split('=').next().unwrap_or("") } else { &value };
        quoted(OsStr::new(shown))
    });
    let value = if known.repeatable { array(values) } else { values.collect() };
    let place = match &given[0].place {
        Place::Typed => "command line",
        Place::Variable(name) => name,
        Place::File(place) => place,
    };
    let hidden = given.iter().any(|given| given.value.to_string_lossy().contains('='));
    let hint = if known.name == "env" && hidden { ", values not shown" } else { "" };
    let _ = writeln!(out, "{} = {value} # {place}{hint}", known.key());
}

/// The default as it would be written; one that is no value is told in words.
fn default(known: &Known) -> String {
    if known.repeatable { "[]".to_owned() } else { quoted(OsStr::new(&known.default)) }
}

fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// A basic string of TOML: what JSON escapes is escaped there in the same way, and DEL beside.
fn quoted(value: &OsStr) -> String {
    let text = serde_json::Value::from(value.to_string_lossy()).to_string();
    text.replace('\x7f', "\\u007f")
}
