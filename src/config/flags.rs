//! Stage 1: what was typed, as words, with the place each word came from.
//!
//! Values stay words here, so that clap never stops at the first bad one: `check` looks at all.
//! The environment is asked through a function, because clap's own reads the process's.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, Styles, styling::AnsiColor};
use clap::{Arg, ArgAction, ArgMatches};

use super::limits::{ADMISSION, BOUNDS, CHILDREN, DATA, LOGS, TIMEOUTS};
use super::manual::{self, Manual};
use super::words::{Given, Place, Words};
use super::{LogAction, LogCommand, Usage};
use crate::limits::Limits;

/// What was typed.
pub(super) enum Typed {
    /// `gapless serve`.
    Serve(Words),
    /// `gapless check`.
    Check(Words),
    /// `gapless config`.
    Show(Words),
    /// `gapless stdio`.
    Stdio,
    /// `gapless key NAME`.
    Key(String),
    /// `gapless log`, which has no options that the environment could stand in for.
    Log(LogCommand),
    /// `gapless man` and `gapless completions`.
    Manual(Manual),
}

/// An option that is not a bound.
struct Choice {
    name: &'static str,
    value_name: &'static str,
    heading: &'static str,
    repeatable: bool,
    help: &'static str,
}

const FILES: &str = "Configuration files";
const ENDPOINT: &str = "Endpoint";
const ADMIN: &str = "Admin listener";
const LOGGING: &str = "Logging (to stderr)";
const AUTHENTICATION: &str = "Authentication";

/// The headings of the help, in their order.
pub(super) const HEADINGS: [&str; 10] =
    [FILES, ENDPOINT, CHILDREN, ADMISSION, LOGS, DATA, TIMEOUTS, ADMIN, AUTHENTICATION, LOGGING];

const CHOICES: &[Choice] = &[
    Choice {
        name: "config",
        value_name: "FILE",
        heading: FILES,
        repeatable: false,
        help: "A TOML file with options, and with servers as [server.NAME]; what is typed here or \
               in the environment wins over it [default: none]",
    },
    Choice {
        name: "mcp-config",
        value_name: "FILE",
        heading: FILES,
        repeatable: false,
        help: "A JSON file with mcpServers, as desktop clients have it; each is served at \
               /NAME/mcp [default: none]",
    },
    Choice {
        name: "listen",
        value_name: "ADDR:PORT",
        heading: ENDPOINT,
        repeatable: false,
        help: "Where to listen; 'localhost' is 127.0.0.1, port 0 lets the system choose \
               [default: 127.0.0.1:8383]",
    },
    Choice {
        name: "path",
        value_name: "PATH",
        heading: ENDPOINT,
        repeatable: false,
        help: "Path of the MCP endpoint [default: /mcp]",
    },
    Choice {
        name: "sse-path",
        value_name: "PATH|off",
        heading: ENDPOINT,
        repeatable: false,
        help: "Path of the stream of the older HTTP+SSE transport, or off [default: /sse]",
    },
    Choice {
        name: "messages-path",
        value_name: "PATH",
        heading: ENDPOINT,
        repeatable: false,
        help: "Path where clients of that transport post [default: /messages]",
    },
    Choice {
        name: "public-base",
        value_name: "URL",
        heading: ENDPOINT,
        repeatable: false,
        help: "What that transport's clients are told to post to, before the path, such as \
               https://mcp.example.org [default: a relative reference]",
    },
    Choice {
        name: "shards",
        value_name: "N|auto",
        heading: ENDPOINT,
        repeatable: false,
        help: "Threads that serve, up to 64; auto is one for each CPU this process may use \
               [default: auto]",
    },
    Choice {
        name: "answers",
        value_name: "auto|sse|json",
        heading: ENDPOINT,
        repeatable: false,
        help: "How a POST is answered; auto is JSON where the answer is there at once, else a \
               stream [default: auto]",
    },
    Choice {
        name: "overflow",
        value_name: "auto|pause|cut",
        heading: ENDPOINT,
        repeatable: false,
        help: "When a reader is slower than its producer: pause the producer, or cut the reader, \
               who is told; auto pauses where nobody else has to wait [default: auto]",
    },
    Choice {
        name: "allow-origin",
        value_name: "ORIGIN",
        heading: ENDPOINT,
        repeatable: true,
        help: "A web origin that may call, such as https://app.example.org; may be repeated \
               [default: on loopback, pages of this machine; else none]",
    },
    Choice {
        name: "allow-host",
        value_name: "HOST[:PORT]",
        heading: ENDPOINT,
        repeatable: true,
        help: "A Host header that is served; may be repeated \
               [default: on loopback, names of this machine; else any]",
    },
    Choice {
        name: "on-child-exit",
        value_name: "MODE",
        heading: CHILDREN,
        repeatable: false,
        help: "respawn: the next call starts a fresh one; end-session: the client starts over \
               [default: respawn]",
    },
    Choice {
        name: "env",
        value_name: "NAME[=VALUE]",
        heading: CHILDREN,
        repeatable: true,
        help: "A variable of the child's environment: gapless's own, or this value; may be \
               repeated [default: only PATH, HOME, USER, LANG and the like]",
    },
    Choice {
        name: "cwd",
        value_name: "DIR",
        heading: CHILDREN,
        repeatable: false,
        help: "Where the child starts [default: where gapless runs]",
    },
    Choice {
        name: "data-dir",
        value_name: "DIR",
        heading: DATA,
        repeatable: false,
        help: "Keep sessions and streams in this directory, so that they outlive the process \
               [default: none, all in memory]",
    },
    Choice {
        name: "durability",
        value_name: "LEVEL",
        heading: DATA,
        repeatable: false,
        help: "What an event that a client has seen survives. process: a crash of gapless; power: \
               a loss of power; none: nothing is promised [default: process]",
    },
    Choice {
        name: "log-level",
        value_name: "LEVEL",
        heading: LOGGING,
        repeatable: false,
        help: "error, warn, info, debug, trace or off; or a filter such as info,gapless=debug \
               [default: info]",
    },
    Choice {
        name: "log-format",
        value_name: "text|json",
        heading: LOGGING,
        repeatable: false,
        help: "The form of a log line [default: text]",
    },
    Choice {
        name: "admin-listen",
        value_name: "ADDR:PORT",
        heading: ADMIN,
        repeatable: false,
        help: "Where health, metrics and the status page are served; another address than the \
               endpoint's [default: nowhere]",
    },
    Choice {
        name: "admin-token-file",
        value_name: "FILE",
        heading: ADMIN,
        repeatable: false,
        help: "A file with the token that the admin listener asks for; must be given where other \
               machines can reach it [default: none]",
    },
    Choice {
        name: "api-keys",
        value_name: "FILE",
        heading: AUTHENTICATION,
        repeatable: false,
        help: "Serve only who has a key of this file, as a bearer token; 'gapless key' makes one \
               [default: nobody is asked]",
    },
    Choice {
        name: "jwt-jwks",
        value_name: "FILE|URL",
        heading: AUTHENTICATION,
        repeatable: false,
        help: "Serve only who has a token signed with a key of this JWKS (beside --api-keys: or \
               a key) [default: no tokens]",
    },
    Choice {
        name: "jwt-issuer",
        value_name: "ISSUER",
        heading: AUTHENTICATION,
        repeatable: false,
        help: "What a token has as 'iss' [default: none, and needed with --jwt-jwks]",
    },
    Choice {
        name: "jwt-audience",
        value_name: "AUDIENCE",
        heading: AUTHENTICATION,
        repeatable: true,
        help: "What a token has in 'aud'; may be repeated, one is enough \
               [default: none, and needed with --jwt-jwks]",
    },
    Choice {
        name: "jwt-scopes",
        value_name: "SCOPE",
        heading: AUTHENTICATION,
        repeatable: true,
        help: "A scope that a token needs; may be repeated, all are needed [default: none]",
    },
    Choice {
        name: "jwt-leeway",
        value_name: "TIME",
        heading: AUTHENTICATION,
        repeatable: false,
        help: "How far the issuer's clock may be from ours [default: 30s]",
    },
    Choice {
        name: "oauth-issuer",
        value_name: "URL",
        heading: AUTHENTICATION,
        repeatable: true,
        help: "Who gives tokens, as clients are told (RFC 9728); may be repeated; needs \
               --public-base [default: nothing is told]",
    },
];

const ABOUT: &str = "Puts MCP servers on the network over HTTP, with streams that never silently \
                     lose or repeat an event.";

const NOTES: &str = "\
With a COMMAND each session gets its own child process, which speaks MCP over its stdin and stdout.
Without one the built-in demo server answers.

A SIZE is 64KiB, 8MiB or plain bytes; a TIME is 250ms, 15s, 5m or 1h.
An environment variable can stand in for each option: GAPLESS_IDLE_TIMEOUT for --idle-timeout.
What is typed wins. Where an option may be repeated, the variable has commas between the values.

Examples:
  gapless serve
      The built-in demo server at http://127.0.0.1:8383/mcp
  gapless serve -- npx -y @modelcontextprotocol/server-everything
      Any stdio server, one child for each session
  gapless serve --listen [::1]:9000 --path /tools -- my-server --verbose
      Another address and path; what follows -- goes to the child word for word
  gapless serve --data-dir /var/lib/gapless -- my-server
      Sessions and streams outlive a crash or a restart
  gapless serve --retention 1h --idle-timeout 2h --session-bytes 256MiB -- my-server
      Clients may come back for an hour after a call has ended";

/// What is told of an option beside clap's own help: to the configuration file, to the reference.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) heading: &'static str,
    /// The word that stands for its value in the help.
    pub(super) value_name: &'static str,
    pub(super) repeatable: bool,
    /// What it means, without its default.
    pub(super) help: &'static str,
    /// What holds without it, as the help has it.
    pub(super) default: String,
}

impl Known {
    /// Its value is a path.
    pub(super) fn is_path(&self) -> bool {
        matches!(self.value_name, "DIR" | "FILE")
    }

    /// It may stand in a configuration file.
    pub(super) fn is_of_a_file(&self) -> bool {
        self.heading != FILES
    }

    /// What it is called in a configuration file.
    pub(super) fn key(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// Every option, the bounds last.
pub(super) fn all() -> impl Iterator<Item = Known> {
    let choices = CHOICES.iter().map(|choice| {
        let (help, default) = parts_of(choice.help);
        Known {
            name: choice.name,
            heading: choice.heading,
            value_name: choice.value_name,
            repeatable: choice.repeatable,
            help,
            default: default.to_owned(),
        }
    });
    let mut defaults = Limits::default();
    let bounds = BOUNDS.iter().map(move |bound| Known {
        name: bound.name,
        heading: bound.heading,
        value_name: bound.value_name(),
        repeatable: false,
        help: bound.help,
        default: bound.show(&mut defaults),
    });
    choices.chain(bounds)
}

/// Every option that may stand in a file.
pub(super) fn known() -> impl Iterator<Item = Known> {
    all().filter(Known::is_of_a_file)
}

/// A help text, and what it says of the default at its end.
fn parts_of(help: &'static str) -> (&'static str, &'static str) {
    let (text, default) = help.rsplit_once("[default: ").unwrap_or((help, ""));
    (text.trim_end(), default.trim_end_matches(']'))
}

/// The option of this name, if there is one that may stand in a file.
pub(super) fn option_named(name: &str) -> Option<Known> {
    known().find(|known| known.name == name)
}

/// The names of the options that may stand in a file.
pub(super) fn option_names() -> impl Iterator<Item = &'static str> {
    known().map(|known| known.name)
}

/// `name` is `serve`, or takes what `serve` takes.
fn serve_like(name: &'static str) -> clap::Command {
    let mut defaults = Limits::default();
    let choices = CHOICES.iter().map(|choice| {
        let action = if choice.repeatable { ArgAction::Append } else { ArgAction::Set };
        (choice.heading, option(choice.name, choice.value_name, choice.help).action(action))
    });
    let bounds = BOUNDS.iter().map(|bound| {
        let help = format!("{} [default: {}]", bound.help, bound.show(&mut defaults));
        (bound.heading, option(bound.name, bound.value_name(), help))
    });
    let options: Vec<_> = choices.chain(bounds).collect();
    let mut command = clap::Command::new(name)
        .override_usage(format!("gapless {name} [OPTIONS] [-- COMMAND ARGS...]"));
    for heading in HEADINGS {
        let group = options.iter().filter(|(of, _)| *of == heading).map(|(_, arg)| arg.clone());
        command = command.next_help_heading(heading).args(group);
    }
    command.arg(
        Arg::new("COMMAND")
            .value_parser(OsStringValueParser::new())
            .num_args(1..)
            .last(true)
            .hide(true), // The usage line and the notes tell of it.
    )
}

fn serve_command() -> clap::Command {
    serve_like("serve").about("Serve MCP servers over HTTP").after_help(NOTES)
}

fn check_command() -> clap::Command {
    serve_like("check")
        .about("Read the configuration as 'serve' would, and say what is wrong")
        .after_help(
            "Takes the options of 'serve', starts nothing. Exits with 0 where 'serve' would \
             start, else with 2.",
        )
}

fn config_command() -> clap::Command {
    serve_like("config").about("Print the configuration that 'serve' would have").after_help(
        "Takes the options of 'serve'. What is printed can be used as a --config FILE; each line \
         says where its value comes from.",
    )
}

fn log_command() -> clap::Command {
    let dir = Arg::new("DIR")
        .value_parser(clap::value_parser!(PathBuf))
        .required(true)
        .help("The data directory");
    let flag =
        |name, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let check = clap::Command::new("check")
        .about("Read a data directory as a restart would, and say what is there")
        .after_help(
            "Changes nothing. Exits with 0 where all is sound (a torn end after a crash is), \
             else with 1.\nNo process may be using the directory.",
        );
    let dump = clap::Command::new("dump")
        .about("Print the records of a data directory, one a line")
        .arg(
            Arg::new("session")
                .long("session")
                .value_name("ID")
                .help("Only this session: the eight digits that logs call it, or its whole id"),
        )
        .arg(
            Arg::new("stream")
                .long("stream")
                .value_name("N")
                .value_parser(clap::value_parser!(u32))
                .help("Only streams of this number; 0 is the standalone one"),
        )
        .arg(flag("bodies", "Show bodies too: what clients and servers said to each other"))
        .arg(flag("secrets", "Show ids of sessions and cursors too: they open those streams"))
        .after_help("Changes nothing, and works while gapless is using the directory.");
    let new_epoch = clap::Command::new("new-epoch")
        .about("Make every cursor of before stale, as a restored backup needs it")
        .after_help("No process may be using the directory.");
    let actions = [check, dump, new_epoch].map(|action| action.arg(dir.clone()));
    clap::Command::new("log")
        .about("Look into a data directory")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(actions)
}

fn key_command() -> clap::Command {
    clap::Command::new("key")
        .about("Make an API key, and its line for the file of --api-keys")
        .arg(Arg::new("NAME").required(true).help("Whose key it is; the log names it"))
        .after_help(
            "Prints two lines: the key, which is kept nowhere, and NAME with the key's hash.\n\
             A name may have several keys while they are being replaced.",
        )
}

fn log(mut matches: ArgMatches) -> Option<LogCommand> {
    let (name, mut words) = matches.remove_subcommand()?;
    let dir = words.remove_one("DIR")?;
    let action = match name.as_str() {
        "check" => LogAction::Check,
        "dump" => LogAction::Dump {
            session: words.remove_one("session"),
            stream: words.remove_one("stream"),
            bodies: words.get_flag("bodies"),
            secrets: words.get_flag("secrets"),
        },
        _ => LogAction::NewEpoch,
    };
    Some(LogCommand { dir, action })
}

fn option(name: &'static str, value_name: &'static str, help: impl Into<String>) -> Arg {
    // A value may start with a hyphen: a negative number gets its own error line that way.
    Arg::new(name)
        .long(name)
        .value_name(value_name)
        .help(help.into())
        .value_parser(OsStringValueParser::new())
        .allow_negative_numbers(true)
}

pub(super) fn program() -> clap::Command {
    let styles = Styles::styled()
        .header(AnsiColor::Green.on_default().bold())
        .usage(AnsiColor::Green.on_default().bold())
        .literal(AnsiColor::Cyan.on_default().bold())
        .placeholder(AnsiColor::Cyan.on_default());
    clap::Command::new("gapless")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .styles(styles)
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve_command())
        .subcommand(check_command())
        .subcommand(config_command())
        .subcommand(
            clap::Command::new("stdio")
                .about("Run the built-in demo server over stdin and stdout")
                .after_help("Try it behind the network side: gapless serve -- gapless stdio"),
        )
        .subcommand(log_command())
        .subcommand(key_command())
        .subcommands(manual::commands())
        .after_help("Run 'gapless serve --help' for every option with its default and unit.")
}

/// Sorts the command line and the environment into words.
///
/// # Errors
/// [`Usage::Words`]: help, version, or words that belong to no option.
pub(super) fn parse(
    args: impl Iterator<Item = OsString>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Typed, Usage> {
    let args: Vec<OsString> = args.collect();
    // clap takes a `--` with nothing behind it for no `--`; `serve -- $COMMAND` with an empty
    // variable must not serve the demo.
    let bare = args.last().is_some_and(|last| last == "--");
    let mut matches =
        program().try_get_matches_from(args).map_err(|error| Usage::Words(Box::new(error)))?;
    match matches.remove_subcommand() {
        Some((name, mut serve)) if ["serve", "check", "config"].contains(&name.as_str()) => {
            let command = serve.remove_many::<OsString>("COMMAND").map(Iterator::collect);
            let command = command.or(bare.then(Vec::new));
            let words = Words { given: given(&mut serve, env), command, ..Words::default() };
            Ok(match name.as_str() {
                "serve" => Typed::Serve(words),
                "check" => Typed::Check(words),
                _ => Typed::Show(words),
            })
        }
        Some((name, typed)) if name == "log" => {
            Ok(Typed::Log(log(typed).expect("clap demands a subcommand and a directory")))
        }
        Some((name, mut typed)) if name == "key" => {
            Ok(Typed::Key(typed.remove_one("NAME").expect("clap demands a name")))
        }
        Some((name, typed)) if name != "stdio" => {
            let manual = Manual::read(&name, typed).expect("clap knows no other subcommand");
            Ok(Typed::Manual(manual))
        }
        _ => Ok(Typed::Stdio),
    }
}

fn given(matches: &mut ArgMatches, env: impl Fn(&str) -> Option<OsString>) -> Vec<Given> {
    let choices = CHOICES.iter().map(|choice| (choice.name, choice.repeatable));
    let options = choices.chain(BOUNDS.iter().map(|bound| (bound.name, false)));
    let mut all = Vec::new();
    for (option, repeatable) in options {
        if let Some(values) = matches.remove_many::<OsString>(option) {
            all.extend(values.map(|value| Given { option, value, place: Place::Typed }));
            continue;
        }
        let variable = variable(option);
        // An empty variable is how shells and unit files say "not set".
        let Some(value) = env(&variable).filter(|value| !value.is_empty()) else { continue };
        let values = if repeatable { split_commas(&value) } else { vec![value] };
        all.extend(values.into_iter().map(|value| Given {
            option,
            value,
            place: Place::Variable(variable.clone()),
        }));
    }
    all
}

/// The variable of the environment that can stand in for an option.
pub(super) fn variable(option: &str) -> String {
    format!("GAPLESS_{}", option.to_uppercase().replace('-', "_"))
}

fn split_commas(value: &OsStr) -> Vec<OsString> {
    match value.to_str() {
        Some(text) => text.split(',').map(|part| part.trim().into()).collect(),
        None => vec![value.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_fault_in_the_declaration() {
        program().debug_assert();
    }

    /// Every option stands in the help, with its default.
    #[test]
    fn the_help_shows_every_option_with_its_default() {
        let help = serve_command().term_width(1000).render_help().to_string();
        let options = CHOICES.iter().map(|choice| choice.name);
        for name in options.chain(BOUNDS.iter().map(|bound| bound.name)) {
            let at = help.find(&format!("--{name} ")).unwrap_or_else(|| panic!("--{name}: {help}"));
            let entry = help[at..].lines().next().unwrap_or_default();
            assert!(entry.contains("[default: "), "--{name} shows no default: {entry}");
        }
        assert!(help.contains("GAPLESS_IDLE_TIMEOUT"));
    }
}
