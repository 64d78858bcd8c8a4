//! The house rules that a compiler does not know. Each is a test over the whole repository, and
//! has beside it a test that shows it biting on planted text.

mod modules;
mod rules;
mod source;

use rules::Finding;
use source::Source;

/// Fails with one `file:line: sentence` for each place where the rule is broken.
fn keep(rule: impl Fn(&Source) -> Vec<Finding>) {
    let mut broken = Vec::new();
    for source in source::all() {
        for (line, sentence) in rule(&source) {
            broken.push(format!("{}:{line}: {sentence}", source.path));
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

/// The lines on which a rule finds something in planted text.
fn bites(rule: impl Fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
    rule(&Source::new(path, text)).into_iter().map(|(line, _)| line).collect()
}

#[test]
fn lines_have_at_most_100_columns() {
    keep(rules::columns);
}

#[test]
fn the_columns_rule_bites() {
    let text = format!("{}\n{}\n", "é".repeat(100), "x".repeat(101));
    assert_eq!(bites(rules::columns, "src/a.rs", &text), [2]);
}

#[test]
fn files_have_at_most_800_lines() {
    keep(rules::file_lines);
}

#[test]
fn the_file_length_rule_bites() {
    assert_eq!(bites(rules::file_lines, "src/a.rs", &"//\n".repeat(801)), [800]);
    assert!(bites(rules::file_lines, "src/a.rs", &"//\n".repeat(800)).is_empty());
}

#[test]
fn functions_have_at_most_70_lines() {
    keep(rules::function_lines);
}

#[test]
fn the_function_length_rule_bites() {
    let function = |lines: usize| {
        format!(
            "type F = fn(u8);\nfn f<T>(a: [u8; 2]) -> T\nwhere\n    T: X,\n{{\n{}}}\n",
            "    g(\"}\"); // }\n".repeat(lines - 5)
        )
    };
    assert_eq!(bites(rules::function_lines, "src/a.rs", &function(71)), [2]);
    assert!(bites(rules::function_lines, "src/a.rs", &function(70)).is_empty());
}

#[test]
fn no_work_is_left_over() {
    keep(rules::leftovers);
}

#[test]
fn the_leftovers_rule_bites() {
    let text = ["fn f() {", "    todo!()", "    // dbg!(told of)", "    // FIX", "}"].join("\n");
    let text = text.replace("// FIX", concat!("// FIX", "ME: later"));
    assert_eq!(bites(rules::leftovers, "src/a.rs", &text), [2, 4]);
}

#[test]
fn unsafe_code_is_in_sys_and_says_why_it_is_sound() {
    keep(rules::unsafe_code);
}

#[test]
fn the_unsafe_rule_bites() {
    let bare = "fn f() {\n    let a = 1;\n    unsafe { g() }\n}\n";
    let told = "fn f() {\n    // SAFETY: g has\n    // no demands\n    let x =\n\
                        unsafe { g() };\n}\n";
    assert_eq!(bites(rules::unsafe_code, "src/net/a.rs", told), [5]);
    assert_eq!(bites(rules::unsafe_code, "src/sys/a.rs", bare), [3]);
    assert!(bites(rules::unsafe_code, "src/sys/a.rs", told).is_empty());
    assert!(
        bites(rules::unsafe_code, "src/a.rs", "// unsafe\nconst A: &str = \"unsafe\";").is_empty()
    );
}

#[test]
fn pure_code_does_not_name_the_machine() {
    keep(rules::purity);
}

#[test]
fn the_purity_rule_bites() {
    let text = "use std::time::Instant;\nuse std::{fmt, thread};\nfn f() { Instant::now(); }\n\
                use monoio::net;\nuse std::net::{SocketAddr, TcpStream};\n\
                #[cfg(test)]\nmod tests { fn f() { std::fs::read(Instant::now()) } }\n\
                fn g() { getrandom::fill(b) }\n";
    assert_eq!(bites(rules::purity, "src/stream/a.rs", text), [2, 3, 4, 4, 5, 5, 8]);
    assert_eq!(bites(rules::purity, "src/config/a.rs", text), [2, 3, 4, 4, 5, 8]);
    assert!(bites(rules::purity, "src/net/a.rs", text).is_empty());
    assert!(bites(rules::purity, "src/stream/tests.rs", text).is_empty());
}

#[test]
fn layers_know_nothing_of_those_above_them() {
    keep(rules::layers);
}

#[test]
fn the_layers_rule_bites() {
    let text = "use crate::{limits, mcp::Id};\nfn f() { super::super::session::f() }\n\
                use super::super::http;\nuse crate::upstream::{builtin, stdio};\n\
                use super::net;\n";
    assert_eq!(bites(rules::layers, "src/stream/a.rs", text), [1, 3, 4, 4, 2]);
    assert_eq!(bites(rules::layers, "src/session/a.rs", text), [4]);
    assert_eq!(bites(rules::layers, "src/mcp/mod.rs", "use super::net;\n"), [1]);
    assert!(bites(rules::layers, "src/shard/a.rs", text).is_empty());
}

#[test]
fn no_select_drops_what_the_ring_has_read() {
    keep(rules::select);
}

#[test]
fn the_select_rule_bites() {
    let text = "monoio::select! {\n    n = stream.read(buf) => {}\n    _ = stop => {}\n}\n\
                monoio::select! {\n    _ = stream.readable() => {}\n    _ = stop => {}\n}\n\
                select!(a = TcpListener::accept(l) => {});\n";
    assert_eq!(bites(rules::select, "src/net/a.rs", text), [1, 9]);
}

#[test]
fn nothing_names_a_folder_of_one_machine() {
    let root = source::root().to_string_lossy().into_owned();
    keep(|source| rules::machine_paths(source, &root));
}

#[test]
fn the_machine_paths_rule_bites() {
    let text = format!("a\n{}{}\n/srv/here/x\n", "/ho", "me/somebody");
    let rule = |source: &Source| rules::machine_paths(source, "/srv/here");
    assert_eq!(bites(rule, "docs/a.md", &text), [2, 3]);
}

#[test]
fn lock_files_name_public_registries() {
    keep(rules::registries);
}

#[test]
fn the_registries_rule_bites() {
    let text =
        "  \"resolved\": \"https://registry.npmjs.org/a\",\n  \"resolved\": \"http://m/a\",\n";
    assert_eq!(bites(rules::registries, "tests/c/package-lock.json", text), [2]);
    assert_eq!(bites(rules::registries, "a/uv.lock", "source = { registry = \"http://m\" }"), [1]);
}

#[test]
fn every_file_is_part_of_the_crate() {
    let dead = modules::dead_files(&source::all());
    assert!(dead.is_empty(), "no mod reaches:\n{}\n", dead.join("\n"));
}
