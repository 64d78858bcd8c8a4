//! The `mcpServers` of desktop clients: a JSON file that names commands, read as the servers of a
//! configuration file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde::Deserialize;

use super::file::server_name;
use super::words::{Given, Place, ServerWords, Words};

/// What such a file has; what else is in it is for other programs.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "mcpServers")]
    servers: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    disabled: bool,
}

/// The words of such a file: `name` is how it is called in errors, `folder` where its paths begin.
pub(super) fn read(text: &str, name: &str, folder: &Path) -> Words {
    let mut words = Words::default();
    let document: Document = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(error) => {
            words.wrong.push(format!("{name}:{}: {error}", error.line()));
            return words;
        }
    };
    if document.servers.is_empty() {
        words.wrong.push(format!("{name}: mcpServers has no server"));
    }
    for (server, entry) in document.servers {
        let place = format!("{name}: mcpServers.{server}");
        if entry.disabled {
            continue;
        }
        match to_words(&server, entry, &place, folder) {
            Ok(server) => words.servers.push(server),
            Err(why) => words.wrong.push(format!("{place}: {why}")),
        }
    }
    words
}

fn to_words(name: &str, entry: Entry, place: &str, folder: &Path) -> Result<ServerWords, String> {
    // Desktop clients call servers as people write: "My Server".
    let plain: String = name.to_lowercase().replace([' ', '.'], "-");
    server_name(&plain)?;
    let Some(program) = entry.command else {
        return Err(match entry.url {
            Some(_) => "a server behind a URL is not served yet, only a command".to_owned(),
            None => "there is no command".to_owned(),
        });
    };
    let mut given = Vec::new();
    let mut give = |option, value: OsString| {
        given.push(Given { option, value, place: Place::File(place.to_owned()) });
    };
    for (variable, value) in entry.env {
        give("env", format!("{variable}={value}").into());
    }
    if let Some(cwd) = entry.cwd {
        give("cwd", folder.join(cwd).into());
    }
    let command = std::iter::once(program).chain(entry.args).map(OsString::from).collect();
    Ok(ServerWords {
        name: plain,
        place: place.to_owned(),
        given,
        builtin: false,
        command: Some(command),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desktop_clients_file_is_read() {
        let text = r#"{"theme": "dark", "mcpServers": {
            "My Files": {"command": "npx", "args": ["-y", "files"], "env": {"A": "b=c"},
                         "cwd": "x"},
            "off": {"command": "x", "disabled": true}}}"#;
        let words = read(text, "c.json", Path::new("/srv/u"));
        assert_eq!(words.wrong, [""; 0]);
        assert_eq!(words.servers.len(), 1);
        let server = &words.servers[0];
        assert_eq!(server.name, "my-files");
        assert_eq!(server.command, Some(["npx", "-y", "files"].map(OsString::from).to_vec()));
        let values: Vec<_> =
            server.given.iter().map(|given| (given.option, &given.value)).collect();
        assert_eq!(values, [("env", &"A=b=c".into()), ("cwd", &"/srv/u/x".into())]);
    }

    #[test]
    fn what_cannot_be_served_is_told_by_name() {
        let text =
            r#"{"mcpServers": {"far": {"url": "https://a"}, "none": {}, "ü": {"command": "x"}}}"#;
        let words = read(text, "c.json", Path::new("/"));
        assert_eq!(words.wrong.len(), 3, "{:?}", words.wrong);
        assert!(words.wrong[0].starts_with("c.json: mcpServers.far: a server behind a URL"));
        assert!(read("{\n", "c.json", Path::new("/")).wrong[0].starts_with("c.json:2: "));
        assert_eq!(read("{\"mcpServers\":{}}", "c", Path::new("/")).wrong.len(), 1);
    }
}
