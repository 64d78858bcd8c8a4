//! The `gapless` program: words to configuration, configuration to running, and the exit code.

use std::io::{self, Write};

use gapless::auth::keys::KeyLine;
use gapless::config::{self, Command, Config, LogAction, LogCommand};
use gapless::obs::log;
use gapless::shard::boot;
use gapless::store::tool;
use gapless::sys::service;
use gapless::upstream::stdio_server;

/// Freed memory goes back to the system where it can: sessions come and go.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    // Not by returning: shards may have operations in flight (`shard::boot`).
    std::process::exit(run());
}

fn run() -> i32 {
    let env = |name: &str| std::env::var_os(name);
    match config::from_args(std::env::args_os(), env, |path| std::fs::read_to_string(path)) {
        Ok(Command::Serve(config)) => serve(*config),
        Ok(Command::Check(config)) => check(&config),
        Ok(Command::Show(text)) => print(&text),
        Ok(Command::Stdio) => stdio(),
        Ok(Command::Key(name)) => key(&name),
        Ok(Command::Log(command)) => log(command),
        Ok(Command::Manual(manual)) => match manual.write(io::stdout().lock()) {
            Ok(()) => 0,
            Err(error) => fail(&error.to_string()),
        },
        Err(usage) => {
            let code = usage.exit_code();
            // Nothing can be said where nobody listens.
            let _ = usage.print();
            code
        }
    }
}

fn serve(mut config: Config) -> i32 {
    if let Err(error) = boot::hold_signals() {
        return fail(&format!("signals: {error}"));
    }
    let inherited = match boot::inherit(&mut config) {
        Ok(inherited) => inherited,
        Err(reason) => return fail(&reason),
    };
    let guard = match log::start(&config.log) {
        Ok(guard) => guard,
        Err(error) => return fail(&error.to_string()),
    };
    if inherited.is_some() {
        tracing::info!(address = %config.listen, "the listening socket was handed over");
    }
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let admin = config.admin.clone();
    let paths: Vec<String> = config.servers.iter().map(|server| server.path.clone()).collect();
    let running = match boot::start(config, inherited) {
        Ok(running) => running,
        Err(reason) => {
            drop(guard);
            return fail(&reason);
        }
    };
    if let Some(admin) = admin {
        match gapless::admin::start(&admin, running.process(), guard.lost_lines_counter()) {
            Ok(address) => tracing::info!(%address, "the admin listener serves"),
            Err(reason) => {
                drop(guard);
                return fail(&reason);
            }
        }
    }
    // One line on stdout for each server; a reader that is gone does not matter.
    for path in paths {
        let url = format!("http://{}{path}", running.address);
        let _ = writeln!(
            io::stdout(),
            "gapless serves {url} (point an MCP client there; to try it by hand see the README)"
        );
        tracing::info!(url, "serving");
    }
    service::ready();
    let process = running.process();
    let code = running.wait();
    process.totals(guard.lost_lines()).log();
    drop(guard);
    code
}

/// Nothing is wrong; what is worth a word is said.
fn check(config: &Config) -> i32 {
    for warning in config.warnings() {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    let paths: Vec<&str> = config.servers.iter().map(|server| server.path.as_str()).collect();
    print(&format!("ok: {} would be served at {}\n", paths.join(", "), config.listen))
}

fn print(text: &str) -> i32 {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        // Enough was read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => fail(&error.to_string()),
    }
}

fn stdio() -> i32 {
    match stdio_server::run(io::stdin(), io::stdout().lock()) {
        Ok(()) => 0,
        // The other side has gone: the usual end of a pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => fail(&error.to_string()),
    }
}

/// Prints a key and its line for the file.
fn key(name: &str) -> i32 {
    let mut random = [0; 32];
    if let Err(error) = getrandom::fill(&mut random) {
        return fail(&format!("random numbers: {error}"));
    }
    match KeyLine::issue(name, &random) {
        Ok((line, key)) => match writeln!(io::stdout(), "{key}\n{line}") {
            Ok(()) => 0,
            Err(error) => fail(&error.to_string()),
        },
        Err(reason) => fail(&reason),
    }
}

/// 0 where the directory is sound and could be read, else 1.
fn log(command: LogCommand) -> i32 {
    let LogCommand { dir, action } = command;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = match action {
        LogAction::Check => tool::check(&dir, &mut out),
        LogAction::Dump { session, stream, bodies, secrets } => {
            tool::dump(&dir, &tool::Dump { session, stream, bodies, secrets }, &mut out)
        }
        LogAction::NewEpoch => tool::new_epoch(&dir, &mut out).map(|()| true),
    };
    match done.and_then(|sound| out.flush().map(|()| sound)) {
        Ok(sound) => i32::from(!sound),
        // Enough was read, as with `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(reason: &str) -> i32 {
    let _ = writeln!(io::stderr(), "gapless: {reason}");
    1
}
