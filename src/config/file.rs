//! The configuration file (TOML 1.0): a third place where the words of options stand.
//!
//! A key is an option of the command line, with underscores for its hyphens; `[server.NAME]` has
//! those of one server, and the command that it puts on the network. Every error names the line,
//! and a key that is not known the one that was probably meant.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::flags::{self, Known};
use super::words::{Given, Place, ServerWords, Words, is_of_a_server};
use crate::limits::{SERVER_NAME_CHARS_MAX, SERVERS_MAX};

/// How alike a wrong key and the one that is suggested have to be.
const ALIKE: f64 = 0.75;

/// The words of a file: `name` is how it is called in errors, `folder` where its paths begin.
pub(super) fn read(text: &str, name: &str, folder: &Path) -> Words {
    let mut reader = Reader { text, name, folder, words: Words::default() };
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().unwrap_or_default();
        reader.reject(&at, error.message());
    }
    reader.root(root.get_ref());
    reader.words
}

struct Reader<'a> {
    text: &'a str,
    name: &'a str,
    folder: &'a Path,
    words: Words,
}

/// A key or a value, with where it stands.
type Key<'k, 't> = &'k Spanned<toml::de::DeString<'t>>;
type Value<'k, 't> = &'k Spanned<DeValue<'t>>;

impl Reader<'_> {
    fn root(&mut self, root: &DeTable<'_>) {
        let (mut given, mut command) = (Vec::new(), None);
        for (key, value) in root {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("server", DeValue::Table(servers)) => self.servers(servers),
                ("command", _) => command = self.command(value),
                _ => self.option(key, value, &mut given, false),
            }
        }
        (self.words.given, self.words.command) = (given, command);
    }

    fn servers(&mut self, servers: &DeTable<'_>) {
        for (key, value) in servers {
            let name = key.get_ref().as_ref();
            if let Err(why) = server_name(name) {
                self.reject(&key.span(), &format!("[server.{name}]: {why}"));
                continue;
            }
            let DeValue::Table(table) = value.get_ref() else {
                self.reject(&key.span(), &format!("server.{name} is no table of options"));
                continue;
            };
            let mut server = ServerWords {
                name: name.to_owned(),
                place: self.place(&key.span()),
                ..ServerWords::default()
            };
            for (key, value) in table {
                match key.get_ref().as_ref() {
                    "command" => server.command = self.command(value),
                    "builtin" => server.builtin = self.is_true(value),
                    _ => self.option(key, value, &mut server.given, true),
                }
            }
            self.words.servers.push(server);
        }
        if self.words.servers.len() > SERVERS_MAX {
            let count = self.words.servers.len();
            self.words
                .wrong
                .push(format!("{}: {count} servers are more than {SERVERS_MAX}", self.name));
        }
    }

    /// One key with its value, to words.
    fn option(
        &mut self,
        key: Key<'_, '_>,
        value: Value<'_, '_>,
        given: &mut Vec<Given>,
        of_server: bool,
    ) {
        let written = key.get_ref().as_ref();
        let Some(option) = flags::option_named(&written.replace('_', "-")) else {
            let hint = suggestion(written, of_server);
            self.reject(&key.span(), &format!("there is no option {written}{hint}"));
            return;
        };
        if of_server && !is_of_a_server(option.name) {
            let told = format!("{written} is an option of the whole process, not of a server");
            self.reject(&key.span(), &told);
            return;
        }
        let place = Place::File(self.place(&key.span()));
        for value in self.values(&option, value) {
            given.push(Given { option: option.name, value, place: place.clone() });
        }
    }

    /// The words of a value: one, or for an option that may be repeated those of an array, or the
    /// `NAME=VALUE` of a table.
    fn values(&mut self, option: &Known, value: Value<'_, '_>) -> Vec<OsString> {
        match value.get_ref() {
            DeValue::Array(all) if option.repeatable => {
                all.iter().filter_map(|value| self.word(option, value)).collect()
            }
            DeValue::Table(all) if option.repeatable => {
                let mut words = Vec::new();
                for (name, value) in all {
                    let Some(word) = self.word(option, value) else { continue };
                    let mut pair = OsString::from(format!("{}=", name.get_ref()));
                    pair.push(word);
                    words.push(pair);
                }
                words
            }
            _ => self.word(option, value).into_iter().collect(),
        }
    }

    fn word(&mut self, option: &Known, value: Value<'_, '_>) -> Option<OsString> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref().to_owned(),
            // Decimal, as an option has it.
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().replace('_', ""),
            _ => {
                let several = if option.repeatable { " or an array of them" } else { "" };
                let key = option.key();
                self.reject(&value.span(), &format!("{key} wants a string{several}"));
                return None;
            }
        };
        let is_relative = option.is_path() && !text.is_empty() && Path::new(&text).is_relative();
        let is_url = text.contains("://");
        Some(if is_relative && !is_url { self.folder.join(text).into() } else { text.into() })
    }

    fn command(&mut self, value: Value<'_, '_>) -> Option<Vec<OsString>> {
        let words = match value.get_ref() {
            DeValue::Array(all) => all.iter().map(|word| word.get_ref().as_str()).collect(),
            _ => None,
        };
        let words: Option<Vec<&str>> = words;
        if words.is_none() {
            let told = r#"command wants an array of strings: ["program", "argument"]"#;
            self.reject(&value.span(), told);
        }
        Some(words?.into_iter().map(OsString::from).collect())
    }

    fn is_true(&mut self, value: Value<'_, '_>) -> bool {
        let is_true = matches!(value.get_ref(), DeValue::Boolean(true));
        if !is_true {
            self.reject(&value.span(), "builtin wants true, or is left out");
        }
        is_true
    }

    fn reject(&mut self, at: &Range<usize>, why: &str) {
        let place = self.place(at);
        self.words.wrong.push(format!("{place}: {why}"));
    }

    fn place(&self, at: &Range<usize>) -> String {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        format!("{}:{line}", self.name)
    }
}

/// Whether a server may be called so: the name is part of its path.
///
/// # Errors
/// Why not.
pub(super) fn server_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    if (1..=SERVER_NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!("a name has 1 to {SERVER_NAME_CHARS_MAX} of a-z, 0-9, - and _"))
}

fn suggestion(written: &str, of_server: bool) -> String {
    let others = if of_server { ["command", "builtin"] } else { ["command", "server"] };
    let known = flags::option_names().filter(|name| !of_server || is_of_a_server(name));
    let names =
        known.map(|name| name.replace('-', "_")).chain(others.into_iter().map(String::from));
    let alike = |name: &String| strsim::jaro_winkler(name, &written.replace('-', "_"));
    let best = names.max_by(|a, b| alike(a).total_cmp(&alike(b)));
    match best.filter(|best| alike(best) >= ALIKE) {
        Some(best) => format!("; did you mean {best}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Words {
        super::read(text, "g.toml", Path::new("/etc/g"))
    }

    fn shown(words: &Words) -> Vec<String> {
        words.given.iter().map(|given| format!("{given}={}", given.value.display())).collect()
    }

    #[test]
    fn a_key_is_an_option_and_its_line_is_known() {
        let words =
            read("listen = \"[::1]:1\"\n\nallow_origin = [\"a\", \"b\"]\nsessions = 1_000\n");
        assert_eq!(words.wrong, [""; 0]);
        let expected = [
            "g.toml:1: listen=[::1]:1",
            "g.toml:3: allow_origin=a",
            "g.toml:3: allow_origin=b",
            "g.toml:4: sessions=1000",
        ];
        let mut found = shown(&words);
        found.sort();
        let mut expected = expected.map(String::from).to_vec();
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_server_has_its_own_words_and_its_command() {
        let words = read(
            "[server.files]\ncommand = [\"npx\", \"-y\"]\nenv = { TOKEN = \"x\" }\n\
             cwd = \"data\"\nrequest-timeout = \"2m\"\n",
        );
        assert_eq!(words.wrong, [""; 0]);
        let server = &words.servers[0];
        assert_eq!((server.name.as_str(), server.place.as_str()), ("files", "g.toml:1"));
        assert_eq!(server.command, Some(vec!["npx".into(), "-y".into()]));
        let values: Vec<_> =
            server.given.iter().map(|given| (given.option, &given.value)).collect();
        assert!(values.contains(&("env", &"TOKEN=x".into())), "{values:?}");
        assert!(values.contains(&("cwd", &"/etc/g/data".into())), "{values:?}");
        assert!(values.contains(&("request-timeout", &"2m".into())), "{values:?}");
    }

    #[test]
    fn every_error_comes_with_its_line_and_what_was_meant() {
        let words = read(
            "idel_timeout = \"1m\"\nanswers = true\n[server.A]\n[server.b]\ncommand = \"npx\"\n\
             listen = \"x\"\npath = \"/b\"\nunheard_of = 1\n",
        );
        let expected = [
            "g.toml:1: there is no option idel_timeout; did you mean idle_timeout?",
            "g.toml:2: answers wants a string",
            "g.toml:3: [server.A]: a name has 1 to 32 of a-z, 0-9, - and _",
            "g.toml:5: command wants an array of strings: [\"program\", \"argument\"]",
            "g.toml:6: listen is an option of the whole process, not of a server",
            "g.toml:8: there is no option unheard_of",
        ];
        let mut wrong = words.wrong.clone();
        wrong.sort();
        assert_eq!(wrong, expected);
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let words = read("listen = \n");
        assert!(words.wrong[0].starts_with("g.toml:1: "), "{:?}", words.wrong);
        assert_eq!(read("").wrong, [""; 0]);
    }
}
