//! The rules. Each takes one file and tells where it is broken: line and sentence.

use crate::source::{Source, block_end, item_end, line_of, paths, words};

/// Where a rule is broken.
pub type Finding = (usize, String);

/// Columns of a line.
const COLUMNS_MAX: usize = 100;
/// Lines of a file.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Folders and files that neither touch the machine nor ask what time it is.
const PURE: [&str; 16] = [
    "src/http/",
    "src/mcp/",
    "src/session/",
    "src/stream/",
    "src/auth/",
    "src/config/",
    "src/upstream/builtin/",
    "src/store/meta.rs",
    "src/store/record.rs",
    "src/store/body.rs",
    "src/store/segment.rs",
    "src/store/journal",
    "src/store/recovery",
    "src/store/epoch.rs",
    "src/limits.rs",
    "src/error.rs",
];

/// What pure code does not name.
const IMPURE: [&str; 10] = [
    "monoio",
    "libc",
    "std::net",
    "core::net",
    "std::thread",
    "std::fs",
    "Instant::now",
    "SystemTime::now",
    "getrandom",
    "io_uring",
];

/// Folders, and the modules of the crate that they know nothing of.
const LAYERS: [(&str, &[&str]); 10] = [
    ("src/stream/", &["http", "mcp", "session", "net", "shard", "store", "upstream", "sys"]),
    ("src/http/", &["mcp", "session", "stream", "net", "shard", "store", "upstream", "sys"]),
    ("src/mcp/", &["session", "stream", "net", "shard", "store", "upstream", "sys"]),
    ("src/session/", &["net", "shard", "sys", "upstream::stdio", "upstream::http"]),
    ("src/store/record.rs", &BESIDE_STORE),
    ("src/store/body.rs", &BESIDE_STORE),
    ("src/store/segment.rs", &BESIDE_STORE),
    ("src/store/journal", &BESIDE_STORE),
    ("src/store/recovery", &BESIDE_STORE),
    ("src/store/epoch.rs", &BESIDE_STORE),
];
/// What the pure part of `store` does not know.
const BESIDE_STORE: [&str; 6] = ["http", "session", "net", "shard", "upstream", "sys"];

/// The one thing in `sys` that is no system call: the ring between a producer and its stream,
/// there because of its `unsafe`.
const PRODUCERS_RING: &str = "sys::mpsc::";

/// Lines of at most [`COLUMNS_MAX`] columns.
pub fn columns(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate().filter(|_| source.path.ends_with(".rs"));
    lines
        .filter(|(_, line)| line.chars().count() > COLUMNS_MAX)
        .map(|(at, line)| (at + 1, format!("{} columns, not 100", line.chars().count())))
        .collect()
}

/// Files of at most [`FILE_LINES_MAX`] lines.
pub fn file_lines(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    if source.path.ends_with(".rs") && lines > FILE_LINES_MAX {
        return vec![(FILE_LINES_MAX, format!("{lines} lines, not {FILE_LINES_MAX}: split it"))];
    }
    Vec::new()
}

/// Functions of at most [`FUNCTION_LINES_MAX`] lines.
pub fn function_lines(source: &Source) -> Vec<Finding> {
    let code = &source.code;
    let mut found = Vec::new();
    for at in words(code, "fn") {
        // `fn(` is a type.
        if !code[at + 2..].starts_with(' ') {
            continue;
        }
        let lines = code[at..item_end(code, at)].lines().count();
        if lines > FUNCTION_LINES_MAX {
            let name = code[at + 3..].split(['(', '<']).next().unwrap_or_default();
            let sentence = format!("{name} has {lines} lines, not {FUNCTION_LINES_MAX}");
            found.push((line_of(code, at), sentence));
        }
    }
    found
}

/// No leftovers of work in progress.
pub fn leftovers(source: &Source) -> Vec<Finding> {
    let in_code = ["todo!", "dbg!", "unimplemented!"];
    // Put together here, so that this file does not break its own rule.
    let anywhere = [concat!("FIX", "ME"), concat!("XX", "X")];
    let mut found = Vec::new();
    for word in in_code {
        found.extend(source.code.match_indices(word).map(|(at, _)| (at, word)));
    }
    for word in anywhere.iter().filter(|_| source.path.ends_with(".rs")) {
        found.extend(words(&source.text, word).map(|at| (at, *word)));
    }
    found.into_iter().map(|(at, word)| (line_of(&source.text, at), word.to_owned())).collect()
}

/// `unsafe` only under `src/sys/`, each with its reason.
pub fn unsafe_code(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for at in words(&source.code, "unsafe") {
        let line = line_of(&source.code, at);
        if !source.path.starts_with("src/sys/") {
            found.push((line, "unsafe outside src/sys/".to_owned()));
        } else if !has_reason(&source.text, line) {
            found.push((line, "unsafe without // SAFETY: above it".to_owned()));
        }
    }
    found
}

/// Whether the comment above a line says why it is sound. Between them may stand attributes, other
/// `unsafe` lines of the same reason and the start of the statement that the line belongs to.
fn has_reason(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().take(line).map(str::trim).collect();
    let mut above = lines.iter().rev();
    if above.next().is_some_and(|own| own.contains("SAFETY:")) {
        return true;
    }
    for text in above {
        if text.starts_with("//") {
            if text.contains("SAFETY:") || text.contains("# Safety") {
                return true;
            }
        } else if text.is_empty() || text.ends_with([';', '}']) && !text.contains("unsafe") {
            return false;
        }
    }
    false
}

/// Pure code does not name the machine.
pub fn purity(source: &Source) -> Vec<Finding> {
    if !PURE.iter().any(|pure| source.path.starts_with(pure)) {
        return Vec::new();
    }
    let addresses = ["src/config/", "src/auth/"].iter().any(|at| source.path.starts_with(at));
    let shipped = source.shipped();
    let mut named = paths(&shipped);
    named.extend(["monoio", "libc"].iter().flat_map(|word| {
        words(&shipped, word).map(|at| (at, (*word).to_owned())).collect::<Vec<_>>()
    }));
    let mut found = Vec::new();
    for (at, path) in named {
        for impure in IMPURE {
            let names = words(&path, impure).next().is_some();
            let is_address = addresses && is_address_type(&path);
            if names && !is_address {
                found.push((line_of(&shipped, at), format!("pure code names {path}")));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn is_address_type(path: &str) -> bool {
    let rest = path.strip_prefix("std::net::").or_else(|| path.strip_prefix("core::net::"));
    let name = rest.and_then(|rest| rest.split("::").next());
    name.is_some_and(|name| ["SocketAddr", "IpAddr", "Ipv4Addr", "Ipv6Addr"].contains(&name))
}

/// A layer knows nothing of those above it.
pub fn layers(source: &Source) -> Vec<Finding> {
    let shipped = source.shipped();
    let mut found = Vec::new();
    for (folder, forbidden) in LAYERS {
        if !source.path.starts_with(folder) {
            continue;
        }
        for (at, path) in paths(&shipped) {
            let Some(target) = in_crate(&source.path, &path) else { continue };
            if target.starts_with(PRODUCERS_RING) {
                continue;
            }
            let is =
                |module: &&&str| target == **module || target.starts_with(&format!("{module}::"));
            if let Some(module) = forbidden.iter().find(is) {
                let sentence = format!("{folder} names {path}, of crate::{module}");
                found.push((line_of(&shipped, at), sentence));
            }
        }
    }
    found
}

/// The path below the crate's root that `path` means in the file `file`, if it starts there.
fn in_crate(file: &str, path: &str) -> Option<String> {
    if let Some(below) = path.strip_prefix("crate::") {
        return Some(below.to_owned());
    }
    let inner = file.strip_prefix("src/")?.strip_suffix(".rs")?;
    let mut module: Vec<&str> = inner.split('/').filter(|part| *part != "mod").collect();
    let mut rest = path;
    if !rest.starts_with("super::") {
        return None;
    }
    while let Some(next) = rest.strip_prefix("super::") {
        module.pop()?;
        rest = next;
    }
    module.push(rest);
    Some(module.join("::"))
}

/// No `select!` over an operation that the ring may complete although nobody waits any more: the
/// bytes or the connection would be lost.
pub fn select(source: &Source) -> Vec<Finding> {
    let operations = [
        "read",
        "readv",
        "read_exact",
        "read_at",
        "write",
        "writev",
        "write_all",
        "accept",
        "recv",
        "recv_from",
        "send_to",
    ];
    let code = &source.code;
    let mut found = Vec::new();
    for at in words(code, "select").filter(|at| code[at + 6..].starts_with('!')) {
        let body =
            &code[at..code[at..].find(['{', '(']).map_or(at, |open| block_end(code, at + open))];
        for operation in operations {
            let calls = words(body, operation).any(|call| {
                body[..call].ends_with(['.', ':'])
                    && body[call + operation.len()..].starts_with('(')
            });
            if calls {
                found.push((line_of(code, at), format!("select! over {operation}")));
            }
        }
    }
    found
}

/// Nothing names a folder of the machine that it was written on.
pub fn machine_paths(source: &Source, root: &str) -> Vec<Finding> {
    let needles = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
        root,
    ];
    let mut found = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        if let Some(needle) = needles.iter().find(|needle| line.contains(**needle)) {
            found.push((at + 1, format!("names {needle}, a folder of one machine")));
        }
    }
    found
}

/// Lock files name the public registries, not a mirror that only one machine can reach.
pub fn registries(source: &Source) -> Vec<Finding> {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    let (key, good): (&str, &[&str]) = match name {
        "package-lock.json" => ("\"resolved\": \"", &["https://registry.npmjs.org/"]),
        "uv.lock" => ("registry = \"", &["https://pypi.org/simple"]),
        "Cargo.lock" => ("source = \"", &["registry+https://github.com/rust-lang/crates.io-index"]),
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let Some((_, place)) = line.split_once(key) else { continue };
        if !good.iter().any(|good| place.starts_with(good)) {
            found.push((at + 1, format!("comes from {place}")));
        }
    }
    found
}
