//! A data directory of a test, and the tool that looks into it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::server::PROGRAM;

/// A data directory, removed at the end.
pub struct Data(PathBuf);

impl Data {
    /// One that is not there yet; `name` is no other test's.
    pub fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("gapless-{name}-{}", std::process::id())))
    }

    /// Its path, as a flag has it.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("names of tests are UTF-8")
    }

    /// The path of something inside.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `gapless log ACTION DIR FLAGS`: exit code, stdout and stderr.
    pub fn log(&self, action: &str, flags: &[&str]) -> (Option<i32>, String, String) {
        let mut program = Command::new(PROGRAM);
        program.args(["log", action]).arg(&self.0).args(flags).stdin(Stdio::null());
        let output = program.output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
