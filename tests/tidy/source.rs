//! The files of the repository, and just enough of Rust's syntax to ask them questions.
//!
//! The code is rustfmt's, and it compiles: nothing here has to survive anything else.

use std::fs;
use std::path::{Path, PathBuf};

/// One file.
pub struct Source {
    /// From the root of the repository, with `/`.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// The text with comments and the insides of literals blanked; the same lines and columns.
    pub code: String,
}

impl Source {
    /// A file of this text; `path` decides which rules look at it.
    pub fn new(path: &str, text: &str) -> Self {
        let is_rust = path.ends_with(".rs");
        let code = if is_rust { blank(text) } else { String::new() };
        Source { path: path.to_owned(), text: text.to_owned(), code }
    }

    /// The code without its unit tests.
    pub fn shipped(&self) -> String {
        if self.path.ends_with("/tests.rs") || self.path.ends_with("_tests.rs") {
            return String::new();
        }
        let mut code = self.code.clone();
        let attribute = "#[cfg(test)]";
        let mut from = 0;
        while let Some(at) = code[from..].find(attribute).map(|at| from + at) {
            from = at + attribute.len();
            let end = item_end(&code, from);
            code.replace_range(at..end, &blanked(&code[at..end]));
        }
        code
    }
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the repository that git could know.
pub fn all() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder of the repository") {
            let entry = entry.expect("an entry of a folder");
            let path = folder.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().expect("the kind of an entry");
            if kind.is_dir() && !is_made(&name) {
                folders.push(path);
            } else if kind.is_file()
                && name != ".git"
                && let Ok(text) = fs::read_to_string(root().join(&path))
            {
                sources.push(Source::new(&path.to_string_lossy(), &text));
            }
        }
    }
    assert!(sources.iter().any(|source| source.path == "src/lib.rs"), "src/lib.rs is not there");
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

/// Folders that tools make (`.gitignore` has them).
fn is_made(name: &str) -> bool {
    [".git", "target", "node_modules", ".venv", "__pycache__", ".cache", "corpus", "artifacts"]
        .contains(&name)
}

/// The number of the line that holds byte `at`.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Where the block that opens at byte `open` ends, behind its closing bracket.
pub fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return open + at + 1;
        }
    }
    code.len()
}

/// Where the item that starts at byte `from` ends: behind its `;` or its `{}`.
pub fn item_end(code: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(found) = code[at..].find(['{', ';', '(', '[']).map(|found| at + found) {
        match code.as_bytes()[found] {
            b'{' => return block_end(code, found),
            b';' => return found + 1,
            _ => at = block_end(code, found),
        }
    }
    code.len()
}

/// Where `word` stands alone, not inside a longer name.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !code[..at].ends_with(in_name) && !code[at + word.len()..].starts_with(in_name)
    })
}

/// Every path of the code (`a::b::c`), with the byte it starts at. A `use` with braces counts as
/// the paths it spells.
pub fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut rest = code.to_owned();
    for at in words(code, "use") {
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        let tree: String = code[at + 3..end].split_whitespace().collect::<Vec<_>>().join(" ");
        spell("", &tree, &mut |path| found.push((at, path)));
        rest.replace_range(at..end, &blanked(&code[at..end]));
    }
    let mut start = None;
    for (at, c) in rest.char_indices().chain([(rest.len(), ' ')]) {
        if c.is_alphanumeric() || c == '_' || c == ':' {
            start.get_or_insert(at);
        } else if let Some(from) = start.take()
            && rest[from..at].contains("::")
        {
            found.push((from, rest[from..at].to_owned()));
        }
    }
    found
}

fn spell(prefix: &str, tree: &str, found: &mut impl FnMut(String)) {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return found(format!("{prefix}{path}"));
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    spell(&prefix, &inner[start..at], found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The same lines and columns with nothing in them.
fn blanked(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { c.to_string() } else { " ".repeat(c.len_utf8()) }).collect()
}

/// Blanks comments and the insides of string and character literals.
pub fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let before = code.chars().next_back();
        let (kept, hidden) = next_piece(rest, before);
        code.push_str(&rest[..kept]);
        code.push_str(&blanked(&rest[kept..kept + hidden]));
        rest = &rest[kept + hidden..];
    }
    code
}

/// How many bytes of `rest` are code, and how many behind them are not.
fn next_piece(rest: &str, before: Option<char>) -> (usize, usize) {
    let first = rest.chars().next().map_or(0, char::len_utf8);
    if rest.starts_with("//") {
        return (0, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (0, comment_bytes(rest));
    }
    if let Some(inside) = rest.strip_prefix('"') {
        return (1, quoted_bytes(inside, '"'));
    }
    let in_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !in_name && (rest.starts_with("r\"") || rest.starts_with("r#") || rest.starts_with("br")) {
        let hashes = rest.trim_start_matches(['b', 'r']);
        let marks = hashes.len() - hashes.trim_start_matches('#').len();
        if let Some(inside) = hashes[marks..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(marks));
            let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
            return (rest.len() - inside.len(), length);
        }
    }
    if let Some(inside) = rest.strip_prefix('\'') {
        let mut chars = inside.chars();
        let (one, two) = (chars.next(), chars.next());
        // A lifetime is not closed behind its first character.
        if one == Some('\\') || two == Some('\'') {
            return (1, quoted_bytes(inside, '\''));
        }
    }
    (first, 0)
}

fn quoted_bytes(inside: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        if !escaped && c == quote {
            return at + 1;
        }
        escaped = !escaped && c == '\\';
    }
    inside.len()
}

fn comment_bytes(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        let step = if rest[at..].starts_with("/*") {
            depth += 1;
            2
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

#[test]
fn blanking_keeps_lines_and_columns_and_hides_what_is_no_code() {
    let text = "let a = \"x { \\\" }\"; // y {\nlet b = r#\"z \" {\"#; \
                /* { /* { */ } */ c('{', '\\'');\n\
                fn f<'a>(s: &'a str) {}\n";
    let code = blank(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.matches('{').count(), 1, "{code}");
    assert_eq!(code.matches('\n').count(), 3);
    assert!(code.contains("fn f<'a>(s: &'a str) {}"), "{code}");
    assert!(code.contains("c('"), "{code}");
}

#[test]
fn a_use_with_braces_is_spelt_out() {
    let code = "use std::{fs, io::{self, Read as R}};\nlet x = crate::a::b(é::f);";
    let found: Vec<_> = paths(code).into_iter().map(|(_, path)| path).collect();
    assert_eq!(found, ["std::fs", "std::io::self", "std::io::Read", "crate::a::b", "é::f"]);
}

#[test]
fn shipped_code_has_no_unit_tests() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { x() }\n}\nfn c() {}\n";
    let shipped = Source::new("src/x.rs", text).shipped();
    assert!(shipped.contains("fn a") && shipped.contains("fn c") && !shipped.contains("fn b"));
    assert_eq!(shipped.len(), text.len());
}
