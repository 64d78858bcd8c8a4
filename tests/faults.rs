//! Faults planted in the heart and in the durable log, each of which its simulator has to catch.
//!
//! A fault is a patch in `tests/sim/faults` or `tests/durable_sim/faults` against the shipped
//! sources, so that those carry no switches. Each is applied to a copy of the pure sources in a
//! small crate of its own, on which the simulator runs. A patch that no longer applies, or that
//! nothing catches, fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A simulator with the faults that it has to notice.
struct Suite {
    /// Its name among the tests, and its folder.
    test: &'static str,
    /// How the names of its variables begin.
    variable: &'static str,
    /// Seeds that a fault may take until it is caught: as many as the simulator tries by itself.
    seeds: u32,
    /// What it needs of the crate; each name is a file or a folder under `src`.
    sources: &'static [&'static str],
    /// Of the folders that are copied in part, the modules that are.
    modules: &'static [(&'static str, &'static str)],
    dependencies: &'static [&'static str],
}

/// The heart, on its own.
const HEART: Suite = Suite {
    test: "sim",
    variable: "GAPLESS_SIM",
    seeds: 2_000,
    sources: &[
        "limits.rs",
        "stream",
        "mcp/event_id.rs",
        "mcp/opaque.rs",
        "mcp/session_id.rs",
        "sys/atomics.rs",
        "sys/mpsc.rs",
    ],
    modules: &[
        ("src/lib.rs", "pub mod limits;\npub mod mcp;\npub mod stream;\npub mod sys;\n"),
        ("src/mcp/mod.rs", "pub mod event_id;\nmod opaque;\npub mod session_id;\n"),
        ("src/sys/mod.rs", "pub mod atomics;\npub mod mpsc;\n"),
    ],
    dependencies: &["base64 = ", "blake3 = ", "bytes = ", "crossbeam-utils = ", "itoa = "],
};

/// The durable log and what is built on it.
const DURABLE: Suite = Suite {
    test: "durable_sim",
    variable: "GAPLESS_DURABLE",
    seeds: 800,
    sources: &[
        "limits.rs",
        "stream",
        "session",
        "mcp",
        "http",
        "store/body.rs",
        "store/epoch.rs",
        "store/journal.rs",
        "store/journal",
        "store/record.rs",
        "store/recovery.rs",
        "store/recovery",
        "store/segment.rs",
        "sys/atomics.rs",
        "sys/mpsc.rs",
    ],
    modules: &[
        (
            "src/lib.rs",
            "pub mod http;\npub mod limits;\npub mod mcp;\npub mod session;\npub mod store;\n\
             pub mod stream;\npub mod sys;\n",
        ),
        (
            "src/store/mod.rs",
            "pub mod body;\npub mod epoch;\npub mod journal;\npub mod record;\n\
             pub mod recovery;\npub mod segment;\n",
        ),
        ("src/sys/mod.rs", "pub mod atomics;\npub mod mpsc;\n"),
    ],
    dependencies: &[
        "base64 = ",
        "blake3 = ",
        "bytes = ",
        "crc32fast = ",
        "crossbeam-utils = ",
        "httparse = ",
        "httpdate = ",
        "itoa = ",
        "memchr = ",
        "serde_json = ",
    ],
};

/// A planted fault: what is wrong, the checks that may catch it, and the patch.
struct Fault {
    name: String,
    checks: Vec<String>,
    files: Vec<(PathBuf, Vec<Hunk>)>,
}

/// Lines that are replaced, and by what.
#[derive(Default)]
struct Hunk {
    old: String,
    new: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn faults(suite: &Suite) -> Vec<Fault> {
    let folder = root().join("tests").join(suite.test).join("faults");
    let entries = fs::read_dir(&folder).expect("the faults' folder");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| parse(path)).collect()
}

/// Reads a unified diff that has two lines on top: what is wrong, and `Caught by: check or check`.
fn parse(path: &Path) -> Fault {
    let text = fs::read_to_string(path).expect("a patch");
    let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let mut files: Vec<(PathBuf, Vec<Hunk>)> = Vec::new();
    let mut checks = Vec::new();
    for line in text.lines() {
        if let Some(caught) = line.strip_prefix("Caught by: ") {
            checks = caught.split(" or ").map(str::to_owned).collect();
        } else if let Some(file) = line.strip_prefix("+++ b/src/") {
            files.push((PathBuf::from(file), Vec::new()));
        } else if let Some((_, hunks)) = files.last_mut().filter(|_| !line.starts_with("---")) {
            if line.starts_with("@@") {
                hunks.push(Hunk::default());
            } else if let Some(hunk) = hunks.last_mut() {
                hunk.push(line);
            }
        }
    }
    assert!(!checks.is_empty() && !files.is_empty(), "{name}: not the form of a fault");
    Fault { name, checks, files }
}

impl Hunk {
    fn push(&mut self, line: &str) {
        let (sign, text) = line.split_at_checked(1).unwrap_or((" ", ""));
        if sign != "+" {
            self.old.push_str(text);
            self.old.push('\n');
        }
        if sign != "-" {
            self.new.push_str(text);
            self.new.push('\n');
        }
    }

    /// Applies to `text`, wherever the lines are now, but only if they are there once.
    fn apply(&self, text: &str) -> Option<String> {
        let mut found = text.match_indices(&self.old);
        let (at, _) = found.next()?;
        let rest = text.get(at + self.old.len()..)?;
        let start = text.get(..at)?;
        found.next().is_none().then(|| format!("{start}{}{rest}", self.new))
    }
}

/// The small crate that holds the copy.
struct Copy {
    root: PathBuf,
    suite: &'static Suite,
}

impl Copy {
    fn new(suite: &'static Suite) -> Self {
        let root_of_copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(suite.test);
        let copy = Self { root: root_of_copy, suite };
        copy.write("Cargo.toml", &manifest(suite));
        let lock = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file");
        // Cargo drops from its lock file what the small crate does not need; start again only
        // where the project's has changed.
        if fs::read_to_string(copy.root.join("project.lock")).ok().as_ref() != Some(&lock) {
            copy.write("Cargo.lock", &lock);
            copy.write("project.lock", &lock);
        }
        // A file that was moved since the last run must not stay behind under its old name.
        if copy.root.join("src").exists() {
            fs::remove_dir_all(copy.root.join("src")).expect("the old copy goes");
        }
        suite.modules.iter().for_each(|(file, modules)| copy.write(file, modules));
        copy
    }

    /// Writes a file unless it is the same already: what is unchanged is not built again.
    fn write(&self, file: impl AsRef<Path>, text: &str) {
        let path = self.root.join(file);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            return;
        }
        fs::create_dir_all(path.parent().expect("a folder")).expect("the copy's folders");
        fs::write(path, text).expect("the copy is written");
    }

    /// Brings every source back to what is shipped, except for the files of `fault`.
    fn restore(&self, fault: Option<&Fault>) {
        for source in self.suite.sources {
            self.restore_from(Path::new(source), fault);
        }
    }

    fn restore_from(&self, source: &Path, fault: Option<&Fault>) {
        let path = root().join("src").join(source);
        if path.is_dir() {
            for entry in fs::read_dir(path).expect("a folder of sources") {
                self.restore_from(&source.join(entry.expect("an entry").file_name()), fault);
            }
            return;
        }
        let mut text = fs::read_to_string(path).expect("a source");
        if let Some(fault) = fault {
            text = fault.apply(source, text);
        }
        self.write(Path::new("src").join(source), &text);
    }

    /// Runs the simulator on the copy: the check that fails first and its seed.
    fn simulate(&self, seeds: u32) -> Option<Caught> {
        let variable = |name: &str| format!("{}_{name}", self.suite.variable);
        let test = self.suite.test;
        let output = Command::new(env!("CARGO"))
            .args(["test", "--offline", "--test", test, "--", "every_seed", "--nocapture"])
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .env(variable("SEEDS"), seeds.to_string())
            .env(variable("THREADS"), "1")
            .env("RUST_BACKTRACE", "0")
            .env_remove(variable("SEED"))
            .env_remove(variable("FIRST"))
            .output()
            .expect("cargo runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = format!("{}{text}", String::from_utf8_lossy(&output.stdout));
        assert!(said.contains("running 1 test"), "the simulator was not built:\n{said}");
        if output.status.success() {
            return None;
        }
        let check = match between(&text, "check `", "`") {
            Some(check) => check,
            None if text.contains("panicked at src/") => "heart",
            None => panic!("the simulator failed by itself:\n{said}"),
        };
        let seed = between(&text, "the last steps of seed ", ":").unwrap_or("unknown");
        Some(Caught { check: check.to_owned(), seed: seed.to_owned() })
    }
}

struct Caught {
    check: String,
    seed: String,
}

impl Fault {
    fn apply(&self, source: &Path, text: String) -> String {
        let hunks = self.files.iter().filter(|(file, _)| file == source);
        hunks.flat_map(|(_, hunks)| hunks).fold(text, |text, hunk| {
            let applied = hunk.apply(&text);
            let (name, old) = (&self.name, &hunk.old);
            applied.unwrap_or_else(|| panic!("{name} no longer applies to {source:?}:\n{old}"))
        })
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(inside, _)| inside)
}

fn manifest(suite: &Suite) -> String {
    let simulator = root().join("tests").join(suite.test).join("main.rs");
    let test = suite.test;
    let project = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let dependency = |line: &&str| suite.dependencies.iter().any(|name| line.starts_with(name));
    let dependencies: Vec<_> = project.lines().filter(dependency).collect();
    format!(
        "[package]\nname = \"gapless\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [workspace]\n\n[features]\nloom = []\n\n[dependencies]\n{}\n\n\
         [[test]]\nname = {test:?}\npath = {simulator:?}\n\n\
         [profile.dev]\ndebug = false\n\n[profile.dev.package.\"*\"]\nopt-level = 1\n",
        dependencies.join("\n")
    )
}

/// The shipped sources pass, and every planted fault is caught by a check that names it.
fn all_are_caught(suite: &'static Suite) {
    let copy = Copy::new(suite);
    copy.restore(None);
    let alarm = copy.simulate(50).map(|caught| caught.check);
    assert_eq!(alarm, None, "the copy of the shipped sources fails");
    let mut wrong = Vec::new();
    for fault in faults(suite) {
        copy.restore(Some(&fault));
        let name = &fault.name;
        match copy.simulate(suite.seeds) {
            Some(Caught { check, seed }) => {
                println!("{name:26} {check:10} seed {seed}");
                if !fault.checks.contains(&check) {
                    wrong.push(format!("{name} is caught by `{check}`"));
                }
            }
            None => wrong.push(format!("{name} is not caught")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fault_planted_in_the_heart_is_caught() {
    all_are_caught(&HEART);
}

#[test]
fn every_fault_planted_in_the_durable_log_is_caught() {
    all_are_caught(&DURABLE);
}

#[test]
fn a_patch_that_does_not_apply_is_noticed() {
    let hunk = Hunk { old: "b\n".to_owned(), new: "x\n".to_owned() };
    assert_eq!(hunk.apply("a\nb\nc\n").as_deref(), Some("a\nx\nc\n"));
    assert_eq!(hunk.apply("a\nc\n"), None, "gone");
    assert_eq!(hunk.apply("b\nb\n"), None, "in two places");
}
