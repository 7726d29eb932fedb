//! The command line: one file a command. Here: the commands in the order that a newcomer needs them, what
//! all of them share, and how what they say reaches the terminal or the program that called.
//!
//! The environment is read in this layer and in none below.

mod build;
mod cancel;
mod r#continue;
mod copy;
mod delete;
mod demo;
mod deploy;
mod fork;
mod history;
mod inspect;
mod install;
mod key;
mod new;
mod pending;
mod prune;
mod resume;
mod retry;
mod rewind;
mod run;
mod serve;
mod show;
mod state;
mod steer;
mod threads;
mod r#try;
mod upgrade;
mod verify;

mod answer;
mod bundle;
mod choices;
mod database;
mod document;
#[cfg(feature = "failpoints")]
mod failpoints;
mod failure;
mod input;
mod inspect_graph;
mod kit;
mod prose;
mod screen;
mod service;
mod spans;
mod secrets;
mod stop;
mod way_out;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use serde_json::json;

use crate::engine::{Host, HostBuilder, Settings};
use crate::model::TenantId;
use crate::sandbox::{COMPILE_ARGUMENT, Compiler, compile_process};
use crate::store::Store;
use document::{Exit, Said};
use failure::Failure;
use screen::Screen;
use spans::Spans;

const SHORT_ABOUT: &str =
    "Runs graphs of sandboxed nodes that can stop to ask a person, and go on from there";
const ABOUT: &str = "\
Runs graphs of sandboxed nodes that can stop to ask a person, and go on from where they stopped.

A graph is a TOML file; its nodes are WebAssembly components. A run belongs to a thread, a name that you
choose. When a node asks a question the run is kept in the database and the command ends; the answer may
come minutes or months later.";

#[derive(Debug, clap::Parser)]
#[command(name = "holdpoint", version, about = SHORT_ABOUT, long_about = ABOUT, after_long_help = EXIT_STATUS)]
struct Cli {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    command: Option<Command>,
}

const EXIT_STATUS: &str = "\
Exit status of `run`, `resume` and `continue`: 0 the run completed, 1 it failed, 3 it waits for an answer.
Of every command: 0 done, 1 the host could not do it, 2 the command or a file that it names is wrong,
4 refused, because the thread is not as the command takes it to be; 5 nothing was verified, or no success was; 130 stopped by
Ctrl-C.";

/// What `holdpoint` alone says.
const GUIDE: &str = "\
Holdpoint runs graphs of sandboxed nodes that can stop to ask a person.

See it work:              holdpoint demo
Start a run:              holdpoint run graph.toml --thread support-123 --input '{\"ticket\": 7}'
What waits for an answer: holdpoint pending
Answer it:                holdpoint resume --thread support-123 '{\"approved\": true}'
How a thread stands:      holdpoint show --thread support-123
Write your own node:      holdpoint new my-node --lang python
Run it as a service:      holdpoint serve, and holdpoint deploy graph.toml

Everything is kept in ./holdpoint.db, or where --db says. Every command takes --json.
`holdpoint --help` lists all commands, `holdpoint COMMAND --help` explains one.
";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Start a run of a graph on a thread
    #[command(long_about = run::ABOUT)]
    Run(run::Args),
    /// List the questions that wait for an answer
    #[command(long_about = pending::ABOUT)]
    Pending(pending::Args),
    /// Answer a question, and go on with the run
    #[command(long_about = resume::ABOUT)]
    Resume(resume::Args),
    /// Show how a thread's run stands, step by step
    #[command(long_about = show::ABOUT)]
    Show(show::Args),
    /// Go on with a run whose process died or was stopped
    #[command(long_about = r#continue::ABOUT)]
    Continue(r#continue::Args),
    /// Try again what failed
    #[command(long_about = retry::ABOUT)]
    Retry(retry::Args),
    /// Call off a run
    #[command(long_about = cancel::ABOUT)]
    Cancel(cancel::Args),
    /// Tell a run something while it waits or goes on
    #[command(long_about = steer::ABOUT)]
    Steer(steer::Args),
    /// List the threads of the database
    #[command(long_about = threads::ABOUT)]
    Threads(threads::Args),
    /// List the checkpoints of a thread
    #[command(long_about = history::ABOUT)]
    History(history::Args),
    /// Take a thread back to an earlier checkpoint
    #[command(long_about = rewind::ABOUT)]
    Rewind(rewind::Args),
    /// Make a new thread from a checkpoint of another
    #[command(long_about = fork::ABOUT)]
    Fork(fork::Args),
    /// Make a new thread that stands as another does
    #[command(long_about = copy::ABOUT)]
    Copy(copy::Args),
    /// Drop what a thread no longer needs
    #[command(long_about = prune::ABOUT)]
    Prune(prune::Args),
    /// Delete a thread
    #[command(long_about = delete::ABOUT)]
    Delete(delete::Args),
    /// Look at a thread's channels, or write into them
    #[command(subcommand)]
    State(state::Command),
    /// Change the graph of a run that waits
    #[command(long_about = upgrade::ABOUT)]
    Upgrade(upgrade::Args),
    /// Make a node to start from, in Rust, Python or JavaScript
    #[command(long_about = new::ABOUT)]
    New(new::Args),
    /// Build nodes into components
    #[command(long_about = build::ABOUT)]
    Build(build::Args),
    /// Run one node without a graph, and answer its questions here
    #[command(long_about = r#try::ABOUT)]
    Try(r#try::Args),
    /// Tell what a component or a graph's nodes import, declare, weigh and are granted, and what is refused
    #[command(long_about = inspect::ABOUT)]
    Inspect(inspect::Args),
    /// Prove that a node does again what it did, which its resumes rely on
    #[command(long_about = verify::ABOUT)]
    Verify(verify::Args),
    /// Check components and keep them in the database
    #[command(long_about = install::ABOUT)]
    Install(install::Args),
    /// Serve graphs, threads and questions over HTTP
    #[command(long_about = serve::ABOUT)]
    Serve(serve::Args),
    /// Bring a graph and all that it names to a running service
    #[command(long_about = deploy::ABOUT)]
    Deploy(deploy::Args),
    /// Say who may call the service
    #[command(subcommand)]
    Key(key::Command),
    /// Show the whole thing at work: a run that is killed, answered, and finished
    #[command(long_about = demo::ABOUT)]
    Demo(demo::Args),
}

/// What every command takes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
struct Options {
    /// The database
    #[arg(long, global = true, env = "HOLDPOINT_DB", value_name = "FILE", default_value = "holdpoint.db")]
    db: PathBuf,

    /// Where compiled components are kept [default: the user's cache folder]
    #[arg(long, global = true, env = "HOLDPOINT_CACHE", value_name = "DIR")]
    cache: Option<PathBuf>,

    /// Print one JSON document, and nothing else, to standard output
    #[arg(long, global = true)]
    json: bool,

    /// Let effects reach an address that is not public, as it stands in the URL; may be repeated, or a
    /// list with commas
    #[arg(
        long,
        global = true,
        env = "HOLDPOINT_EGRESS",
        value_delimiter = ',',
        value_name = "HOST[:PORT]",
        value_parser = egress,
        hide_env_values = true
    )]
    egress: Vec<String>,

    /// The secrets that effects may name: a TOML file of [[secrets]] with name, host and value, of mode 600. A
    /// single one can also be a variable HOLDPOINT_SECRET_NAME='HOST VALUE'
    #[arg(long, global = true, env = "HOLDPOINT_SECRETS", value_name = "FILE")]
    secrets: Option<PathBuf>,

    /// What to log to standard error, such as `holdpoint=debug` or `node=trace`; `node` is what nodes log
    #[arg(
        long,
        global = true,
        env = "HOLDPOINT_LOG",
        value_name = "FILTER",
        default_value = "warn,node=info"
    )]
    log: String,

    /// How the log is written
    #[arg(long, global = true, env = "HOLDPOINT_LOG_FORM", value_name = "FORM", default_value = "text")]
    log_form: screen::LogForm,

    /// Send spans of what the host does to this collector, over OTLP/HTTP, such as http://localhost:4318
    #[arg(
        long,
        global = true,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        value_name = "URL",
        hide_env_values = true
    )]
    otlp_endpoint: Option<String>,

    /// How long a claim on a thread lasts without renewal
    #[arg(long, global = true, hide = true, value_name = "MS", default_value_t = Settings::default().lease_ms)]
    lease_ms: u64,

    /// How long an invocation may go on before it is made durable and shown as running
    #[arg(long, global = true, hide = true, value_name = "MS", default_value_t = Settings::default().budget_ms)]
    budget_ms: u64,

    /// After printing, stay until standard input ends or a signal comes
    #[arg(long, global = true, hide = true)]
    linger: bool,
}

/// Reads the command line, carries it out, says what came of it.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // Of this program's own, and of nobody else's: it is not on the list of commands.
    if args.len() == 2 && args[1] == COMPILE_ARGUMENT {
        return compile_process();
    }
    #[cfg(feature = "failpoints")]
    let _scenario = failpoints::listen();

    let asked = Cli::command().try_get_matches_from(&args);
    let (cli, shell) = match asked
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, Shell::new(&args, &matches)?)))
    {
        Ok(asked) => asked,
        Err(error) => return misused(&error, args.iter().any(|arg| arg == "--json")),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::Host(format!("this process cannot start its threads: {error}"));
            return shell.say(&Said::failed(&failure));
        }
    };
    let code = runtime.block_on(async {
        let done = match cli.command {
            Some(command) => command.carry_out(&shell).await,
            None => Ok(Said::new(Exit::Completed, &json!({ "guide": GUIDE }), GUIDE)),
        };
        let said = done.unwrap_or_else(|failure| Said::failed(&failure));
        let code = shell.say(&said);
        if shell.options.linger {
            stop::linger().await;
        }
        code
    });
    if let Some(spans) = &shell.spans {
        spans.shut_down();
    }
    // A compilation that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    code
}

impl Command {
    async fn carry_out(self, shell: &Shell) -> Result<Said, Failure> {
        match self {
            Self::Run(args) => run::run(args, shell).await,
            Self::Pending(args) => pending::run(args, shell).await,
            Self::Resume(args) => resume::run(args, shell).await,
            Self::Show(args) => show::run(args, shell).await,
            Self::Continue(args) => r#continue::run(args, shell).await,
            Self::Retry(args) => retry::run(args, shell).await,
            Self::Cancel(args) => cancel::run(args, shell).await,
            Self::Upgrade(args) => upgrade::run(args, shell).await,
            Self::Steer(args) => steer::run(args, shell).await,
            Self::Threads(args) => threads::run(args, shell).await,
            Self::History(args) => history::run(args, shell).await,
            Self::Rewind(args) => rewind::run(args, shell).await,
            Self::Fork(args) => fork::run(args, shell).await,
            Self::Copy(args) => copy::run(args, shell).await,
            Self::Prune(args) => prune::run(args, shell).await,
            Self::Delete(args) => delete::run(args, shell).await,
            Self::State(command) => state::run(command, shell).await,
            Self::New(args) => new::run(args, shell).await,
            Self::Build(args) => build::run(args, shell).await,
            Self::Try(args) => r#try::run(args, shell).await,
            Self::Inspect(args) => inspect::run(args, shell).await,
            Self::Verify(args) => verify::run(args, shell).await,
            Self::Install(args) => install::run(args, shell).await,
            Self::Serve(args) => serve::run(args, shell).await,
            Self::Deploy(args) => deploy::run(args, shell).await,
            Self::Key(command) => key::run(command, shell).await,
            Self::Demo(args) => demo::run(args, shell).await,
        }
    }
}

/// What clap has to say: help and version, or what is wrong with the command.
fn misused(error: &clap::Error, as_document: bool) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelp || error.kind() == ErrorKind::DisplayVersion {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if as_document {
        let message = error.to_string();
        let message = message.trim().trim_start_matches("error: ").to_owned();
        let _ = writeln!(io::stdout(), "{}", Said::failed(&Failure::argument(message)).document);
    } else {
        let _ = error.print();
    }
    ExitCode::from(Exit::Usage.code())
}

/// What commands share while they run.
struct Shell {
    options: Options,
    screen: Screen,
    spans: Option<Spans>,
    /// How this program was called, up to the command: what a command that is suggested starts with.
    program: Vec<String>,
}

impl Shell {
    fn new(args: &[OsString], matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = Options::from_arg_matches(matches)?;
        let screen = Screen::new();
        let wrong = |what: String| Cli::command().error(ErrorKind::ValueValidation, what);
        let endpoint = options.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
        let spans = endpoint.map(Spans::to).transpose();
        let spans = spans.map_err(|error| wrong(format!("--otlp-endpoint: {error}")))?;
        let logged = screen.log(&options.log, options.log_form, spans.as_ref());
        logged.map_err(|error| wrong(format!("--log {}: {error}", options.log)))?;
        let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let program = program(args.first(), &options, typed);
        Ok(Self { options, screen, spans, program })
    }

    /// A host over the database, which is made if it is not there.
    async fn host(&self) -> Result<Host, Failure> {
        database::check(&self.options.db)?;
        self.screen.busy("opening");
        Ok(self.builder()?.database(&self.options.db).open().await?)
    }

    /// A host over a database that must be there: to look for a thread in a new one is a mistake.
    async fn known_host(&self) -> Result<Host, Failure> {
        let db = &self.options.db;
        database::check(db)?;
        if !db.exists() {
            return Err(Failure::NotThere(format!(
                "there is no database {}; `holdpoint run` makes one, --db or HOLDPOINT_DB names another",
                db.display()
            )));
        }
        self.host().await
    }

    fn builder(&self) -> Result<HostBuilder, Failure> {
        let Options { lease_ms, budget_ms, .. } = self.options;
        let builder =
            Host::builder().settings(Settings { lease_ms, budget_ms }).watcher(self.screen.watcher());
        let builder = builder.compiler(compiler());
        let builder = match self.cache() {
            Some(dir) => builder.cache(dir),
            None => builder,
        };
        // An empty variable names no address.
        let egress = self.options.egress.iter().filter(|address| !address.is_empty());
        let builder = egress.fold(builder, |builder, address| builder.egress(address));
        // So is an empty one here no file.
        let file = self.options.secrets.as_deref().filter(|file| !file.as_os_str().is_empty());
        secrets::given(builder, file)
    }

    /// `None` where the user has no home; the cache is then beside the database.
    fn cache(&self) -> Option<PathBuf> {
        let of = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let users = || of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
        self.options.cache.clone().or_else(|| Some(users()?.join("holdpoint")))
    }

    /// A command of this program as it can be typed, on the same database.
    fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> String {
        let program = self.program.iter().map(|word| quoted(word));
        let words: Vec<String> = program.chain(words.into_iter().map(quoted)).collect();
        words.join(" ")
    }

    fn say(&self, said: &Said) -> ExitCode {
        self.screen.rest();
        // Whoever reads may have gone; what was done is done all the same.
        let mut out = io::stdout().lock();
        if self.options.json {
            let _ = writeln!(out, "{}", said.document);
        } else {
            let _ = write!(out, "{}", said.text);
            if !said.notice.is_empty() {
                let _ = out.flush();
                let error = dialoguer::console::style("error:").red().bold().for_stderr();
                let _ = writeln!(io::stderr(), "{error} {}", said.notice.trim_end());
            }
        }
        let _ = out.flush();
        ExitCode::from(said.exit.code())
    }
}

/// An address as it stands in a URL, and nothing around it: anything else would match no URL, in silence.
fn egress(text: &str) -> Result<String, String> {
    let is_address = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if text.chars().all(is_address) {
        return Ok(text.to_owned());
    }
    Err("it is HOST or HOST:PORT, without http:// and path; several are separated by commas".into())
}

/// This very program, also where its file was replaced since it was started.
fn compiler() -> Compiler {
    let own = Path::new("/proc/self/exe");
    match if own.exists() { Ok(own.to_owned()) } else { std::env::current_exe() } {
        Ok(program) => Compiler::Process { program },
        Err(_) => Compiler::InProcess,
    }
}

/// The one tenant of this version.
fn tenant() -> TenantId {
    TenantId::default()
}

fn store(host: &Host) -> Result<&Store, Failure> {
    host.store().ok_or_else(|| Failure::Host("this command needs a database".into()))
}

/// The program as it was called, with those options that a further command needs as well. What comes from
/// the environment will be there again.
fn program(called: Option<&OsString>, options: &Options, typed: impl Fn(&str) -> bool) -> Vec<String> {
    let called = called.map_or(Path::new("holdpoint"), Path::new);
    let mut words = vec![called.display().to_string()];
    if typed("db") {
        words.extend(["--db".to_owned(), options.db.display().to_string()]);
    }
    if typed("cache") {
        let cache = options.cache.iter().map(|dir| dir.display().to_string());
        words.extend(cache.flat_map(|dir| ["--cache".to_owned(), dir]));
    }
    if typed("secrets") {
        let file = options.secrets.iter().map(|file| file.display().to_string());
        words.extend(file.flat_map(|file| ["--secrets".to_owned(), file]));
    }
    if typed("egress") {
        words.extend(options.egress.iter().flat_map(|address| ["--egress".to_owned(), address.clone()]));
    }
    words
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parsed(line: &[&str]) -> Result<(Cli, Vec<String>), clap::Error> {
        let args: Vec<OsString> = line.iter().map(OsString::from).collect();
        let matches = Cli::command().try_get_matches_from(&args)?;
        let options = Options::from_arg_matches(&matches)?;
        let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        Ok((Cli::from_arg_matches(&matches)?, program(args.first(), &options, typed)))
    }

    /// For tests of what is said to people.
    pub fn shell(program: &[&str]) -> Shell {
        let cli = Cli::try_parse_from(["holdpoint"]).unwrap();
        let program = program.iter().map(|&word| word.to_owned()).collect();
        Shell { options: cli.options, screen: Screen::new(), spans: None, program }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_explains_itself() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(long.contains("holdpoint ") || ["state", "key"].contains(&name), "{name} has no example");
        }
    }

    #[test]
    fn options_go_before_and_after_the_command() {
        for line in [
            &["holdpoint", "--db", "a b.db", "--egress", "x:1", "pending"][..],
            &["holdpoint", "pending", "--egress", "x:1", "--db", "a b.db"],
        ] {
            let (cli, program) = parsed(line).unwrap();
            assert_eq!(cli.options.db, Path::new("a b.db"));
            assert_eq!(program, ["holdpoint", "--db", "a b.db", "--egress", "x:1"]);
        }
        let (_, program) = parsed(&["target/debug/holdpoint", "pending"]).unwrap();
        assert_eq!(program, ["target/debug/holdpoint"]);
    }

    #[test]
    fn a_suggested_command_can_be_typed() {
        let shell = shell(&["holdpoint", "--db", "my file.db"]);
        assert_eq!(
            shell.command(["resume", "--thread", "it's", r#"{"approved":true}"#]),
            r#"holdpoint --db 'my file.db' resume --thread 'it'\''s' '{"approved":true}'"#
        );
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn resume_takes_one_kind_of_answer() {
        let resume =
            |rest: &[&str]| parsed(&[&["holdpoint", "resume", "--thread", "t"], rest].concat()).is_ok();
        assert!(resume(&["true"]));
        assert!(resume(&["-7"]));
        assert!(resume(&["-"]));
        assert!(resume(&["--answers", "@map.json"]));
        assert!(resume(&["--proceed"]));
        assert!(!resume(&[]));
        assert!(!resume(&["true", "--proceed"]));
        assert!(!resume(&["true", "--answers", "{}"]));
        assert!(!resume(&["true", "--interrupt", "no-id"]));
    }
}
