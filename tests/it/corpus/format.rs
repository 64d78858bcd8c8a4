//! Reading the corpus: `README.md` beside this file has the format.

use std::path::Path;

/// One case.
#[derive(Debug, Default)]
pub struct Case {
    /// File and line, for a failure.
    pub place: String,
    /// A row of the table in `docs/wire.md`, or `served`.
    pub kind: String,
    /// What it tells.
    pub title: String,
    /// The revision of its session.
    pub revision: String,
    /// Which server runs it.
    pub server: String,
    /// Whether it ends its session.
    pub ends_session: bool,
    /// What is sent and what must come, in turn.
    pub steps: Vec<Step>,
    /// The connection afterwards.
    pub after: After,
}

/// A part of a case.
#[derive(Debug)]
pub enum Step {
    /// Requests that leave in one write, with their placeholders.
    Send(Vec<String>),
    /// An answer.
    Expect(Expected),
}

/// What an answer must be.
#[derive(Debug, Default)]
pub struct Expected {
    /// The status code.
    pub status: u16,
    /// Names and values; none where the field must be absent.
    pub fields: Vec<(String, Option<String>)>,
    /// The body, or where none is given any.
    pub body: Option<String>,
    /// Whether only the head comes, as for HEAD.
    pub bodiless: bool,
    /// The messages of a stream.
    pub messages: Vec<String>,
}

/// The connection after a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// The case does not say, which is a mistake in it.
    #[default]
    Unsaid,
    /// Closed by the server.
    Closed,
    /// It serves the next request.
    Kept,
    /// It carries a stream.
    Stream,
}

/// Every case of every file of this folder.
pub fn read_all(folder: &Path) -> Vec<Case> {
    let entries = std::fs::read_dir(folder).expect("the corpus is there");
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "http"));
    files.sort();
    files.iter().flat_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Vec<Case> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).expect("a file of the corpus is UTF-8");
    let mut cases: Vec<Case> = Vec::new();
    // Whether the next line to send belongs to the request before it.
    let mut within = false;
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        if let Some(title) = line.strip_prefix("=== ") {
            let (kind, title) = title.split_once(": ").unwrap_or_else(|| panic!("{place}: {line}"));
            let (kind, title) = (kind.to_owned(), title.to_owned());
            let (revision, server) = (crate::client::NEWEST.to_owned(), "builtin".to_owned());
            cases.push(Case { place, kind, title, revision, server, ..Case::default() });
            within = false;
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        match line.split_at_checked(1).unwrap_or((line, "")) {
            (">", text) => {
                take_sent(case, text.strip_prefix(' ').unwrap_or(text), within);
                within = true;
                continue;
            }
            ("<", text) => take_expected(case, text.trim_start(), &place),
            ("@", text) => take_setting(case, text.trim_start(), &place),
            ("=", " closed") => case.after = After::Closed,
            ("=", " kept") => case.after = After::Kept,
            ("=", " stream") => case.after = After::Stream,
            ("" | "#", _) => {}
            _ => panic!("{place}: {line:?} means nothing"),
        }
        within = false;
    }
    cases
}

fn take_setting(case: &mut Case, text: &str, place: &str) {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("session", revision) => case.revision = revision.to_owned(),
        ("server", server) => case.server = server.to_owned(),
        ("ended", "") => case.ends_session = true,
        _ => panic!("{place}: {text:?} is no setting"),
    }
}

fn take_sent(case: &mut Case, text: &str, within: bool) {
    let line = match text.strip_suffix('\\') {
        Some(text) => text.to_owned(),
        None => format!("{text}\\r\\n"),
    };
    match case.steps.last_mut() {
        Some(Step::Send(requests)) => match requests.last_mut() {
            Some(request) if within => request.push_str(&line),
            _ => requests.push(line),
        },
        _ => case.steps.push(Step::Send(vec![line])),
    }
}

fn take_expected(case: &mut Case, text: &str, place: &str) {
    if text == "pong" {
        let body = r#"{"jsonrpc":"2.0","id":"ping","result":{}}"#.to_owned();
        let expected = Expected { status: 200, body: Some(body), ..Expected::default() };
        case.steps.push(Step::Expect(expected));
        return;
    }
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let mut words = text.splitn(3, ' ');
        let status = words.next().and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{place}: no status"));
        let body = words.next().map(|code| {
            let id = words.next().unwrap_or_else(|| panic!("{place}: an error has an id"));
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{{ANY}}"}}}}"#
            )
        });
        case.steps.push(Step::Expect(Expected { status, body, ..Expected::default() }));
        return;
    }
    let Some(Step::Expect(expected)) = case.steps.last_mut() else {
        panic!("{place}: no answer begins with {text:?}");
    };
    match text.split_once(' ').unwrap_or((text, "")) {
        ("no", "body") => expected.bodiless = true,
        ("no", name) => expected.fields.push((name.to_owned(), None)),
        ("body", body) => expected.body = Some(body.to_owned()),
        ("message", message) => expected.messages.push(message.to_owned()),
        (name, value) => {
            let name = name.strip_suffix(':').unwrap_or_else(|| panic!("{place}: {text:?}"));
            expected.fields.push((name.to_owned(), Some(value.to_owned())));
        }
    }
}

/// What the placeholders stand for.
pub struct Names {
    /// Names without braces, and their bytes in the notation of the corpus.
    pub known: Vec<(&'static str, String)>,
}

impl Names {
    /// The bytes that a text of the corpus stands for. `{LENGTH}` and `{ANY}` stay.
    pub fn expand(&self, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (used, bytes) = match first {
                '\\' => escape(rest),
                '{' => self.placeholder(rest),
                _ => (first.len_utf8(), rest.as_bytes()[..first.len_utf8()].to_vec()),
            };
            out.extend_from_slice(&bytes);
            rest = &rest[used..];
        }
        out
    }

    /// The bytes of one request.
    pub fn request(&self, text: &str) -> Vec<u8> {
        let bytes = self.expand(text);
        let mark = b"{LENGTH}";
        let Some(at) = find(&bytes, mark) else { return bytes };
        let head = find(&bytes, b"\r\n\r\n").expect("a request with a length has an empty line");
        let length = (bytes.len() - head - 4).to_string();
        [&bytes[..at], length.as_bytes(), &bytes[at + mark.len()..]].concat()
    }

    fn placeholder(&self, rest: &str) -> (usize, Vec<u8>) {
        if let Some(repeat) = rest.strip_prefix("{REPEAT ") {
            let end = repeat.find('}').expect("a repetition ends");
            let (times, text) = repeat[..end].split_once(' ').expect("a repetition has a text");
            let times = times.parse().expect("a repetition has a number");
            return ("{REPEAT ".len() + end + 1, self.expand(text).repeat(times));
        }
        let found = self.known.iter().find_map(|(name, text)| {
            let behind = rest[1..].strip_prefix(name)?.strip_prefix('}')?;
            Some((rest.len() - behind.len(), self.expand(text)))
        });
        found.unwrap_or((1, b"{".to_vec()))
    }
}

fn escape(rest: &str) -> (usize, Vec<u8>) {
    match rest.as_bytes().get(1) {
        Some(b'r') => (2, b"\r".to_vec()),
        Some(b'n') => (2, b"\n".to_vec()),
        Some(b't') => (2, b"\t".to_vec()),
        Some(b'\\') => (2, b"\\".to_vec()),
        Some(b'x') => {
            let byte = rest.get(2..4).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            (4, vec![byte.unwrap_or_else(|| panic!("no byte: {rest:?}"))])
        }
        _ => panic!("no escape: {rest:?}"),
    }
}

/// Where `part` begins.
pub fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// Whether the bytes are these, `{ANY}` being any.
pub fn matches(pattern: &[u8], bytes: &[u8]) -> bool {
    let mark = b"{ANY}";
    let Some(at) = find(pattern, mark) else { return pattern == bytes };
    let Some(rest) = bytes.strip_prefix(&pattern[..at]) else { return false };
    let behind = &pattern[at + mark.len()..];
    (0..=rest.len()).any(|from| matches(behind, &rest[from..]))
}
