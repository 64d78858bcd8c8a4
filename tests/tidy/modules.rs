//! Which files the crate is made of: every Rust file must be reached from a root.

use std::collections::BTreeSet;

use crate::source::{Source, line_of, words};

/// Files of `src`, `tests`, `benches` and `fuzz` that no `mod` reaches.
pub fn dead_files(sources: &[Source]) -> Vec<String> {
    let in_tree = |path: &str| {
        path.ends_with(".rs")
            && ["src/", "tests/", "benches/", "examples/"].iter().any(|top| path.starts_with(top))
    };
    let mut open: Vec<&Source> = sources.iter().filter(|source| is_root(&source.path)).collect();
    let mut reached: BTreeSet<&str> = open.iter().map(|source| source.path.as_str()).collect();
    while let Some(source) = open.pop() {
        let wanted = children(source);
        for child in sources.iter().filter(|child| wanted.contains(&child.path)) {
            if reached.insert(&child.path) {
                open.push(child);
            }
        }
    }
    let all = sources.iter().map(|source| source.path.as_str()).filter(|path| in_tree(path));
    all.filter(|path| !reached.contains(path)).map(str::to_owned).collect()
}

/// Whether Cargo builds the file by itself.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] => true,
        ["tests" | "benches" | "examples", file] => file.ends_with(".rs"),
        ["tests" | "benches" | "examples", _, "main.rs"] => true,
        _ => false,
    }
}

/// The files that the `mod name;` of a file may mean.
fn children(source: &Source) -> Vec<String> {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let own = match file {
        "mod.rs" | "main.rs" | "lib.rs" => folder.to_owned(),
        _ if is_root(&source.path) => folder.to_owned(),
        _ => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    let mut files = Vec::new();
    for at in words(&source.code, "mod") {
        let Some((name, _)) = source.code[at + 3..].split_once(';') else { continue };
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        match path_attribute(source, at) {
            Some(path) => files.push(joined(folder, path)),
            None => files.extend([format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")]),
        }
    }
    files
}

/// The value of `#[path = "..."]` in the line above the `mod` at byte `at`.
fn path_attribute(source: &Source, at: usize) -> Option<&str> {
    let line = line_of(&source.code, at);
    let above = source.text.lines().nth(line.checked_sub(2)?)?;
    above.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]")
}

fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn a_file_that_no_mod_reaches_is_found() {
    let sources = [
        Source::new("src/lib.rs", "pub mod a;\nmod inline { fn f() {} }\n"),
        Source::new("src/a/mod.rs", "mod b;\n#[path = \"../odd.rs\"]\nmod c;\n// mod dead;\n"),
        Source::new("src/a/b.rs", "mod tests;\n"),
        Source::new("src/a/b/tests.rs", ""),
        Source::new("src/odd.rs", ""),
        Source::new("src/a/dead.rs", ""),
        Source::new("tests/it/main.rs", "mod story;\n"),
        Source::new("tests/it/story.rs", ""),
        Source::new("tests/it/lost.rs", ""),
    ];
    assert_eq!(dead_files(&sources), ["src/a/dead.rs", "tests/it/lost.rs"]);
}
