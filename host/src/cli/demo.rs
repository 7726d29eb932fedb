//! `holdpoint demo`: the main job, in processes of this same program, and what a node gets that means ill.
//! What it says at the end was checked, not assumed.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use dialoguer::console::{Term, style};
use dialoguer::{Input, Select};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::stop::Signals;
use super::{input, prose};
use crate::engine::EngineError;
use crate::model::{GraphSpec, Json, Limits};
use crate::server::comments::Comments;

pub const ABOUT: &str = "\
Show the whole thing at work, in separate processes.

An issue comes in and is labelled, a reply is drafted, and the run stops to ask you about it. The process
that ran it is killed. Another finds the question, and a third one answers it: the reply goes to a small
comment service on this machine, once. At last a node that means ill takes the drafting node's place. Each
claim is checked; the exit status is 0 only if all are true.

    holdpoint demo            # asks you
    holdpoint demo --yes      # answers itself

It runs in the repository, and needs the example nodes built: `make demo` does all of it.";

/// No step takes a fraction of this.
const STEP_MAX: Duration = Duration::from_secs(300);
/// Where the graph and the intruder look for the service.
const PORT: u16 = 8700;
const THREAD: &str = "support-123";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Approve the reply without asking; so it goes without a terminal, too
    #[arg(long)]
    yes: bool,

    /// Work in this folder and leave it there [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// The graph of the issue desk
    #[arg(long, value_name = "GRAPH", default_value = "guests/issue-desk.toml")]
    graph: PathBuf,

    /// The run's input: JSON, @FILE, or - [default: an issue of GitHub's, from the graph's folder]
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
}

pub async fn run(args: Args, shell: &Shell) -> Result<Said, Failure> {
    let mut signals = Signals::listen()?;
    let mut demo = Demo::prepare(&args, shell).await?;
    let played = tokio::select! {
        played = demo.play() => played,
        () = signals.next() => Err(Failure::Stopped(STOPPED)),
    };
    if demo.attended {
        // The prompt hides it while it waits.
        let _ = Term::stderr().show_cursor();
    }
    let all_true = demo.claims.iter().all(|(_, holds)| *holds);
    let stopped = matches!(played, Err(Failure::Stopped(_)));
    // What went wrong is there to be looked at.
    if args.dir.is_none() && (stopped || played.is_ok() && all_true) {
        let _ = std::fs::remove_dir_all(&demo.dir);
    }
    match played {
        Ok(()) => Ok(demo.summary(args.dir.is_some())),
        Err(stopped @ Failure::Stopped(_)) => Err(stopped),
        Err(failure) => Err(Failure::Host(format!(
            "{failure}\nthe demo broke off; its files are in {}",
            demo.dir.display()
        ))),
    }
}

const STOPPED: &str = "the demo was stopped";

struct Demo {
    /// Whether a person is here to answer.
    attended: bool,
    /// Standard output is the document's, if one is wanted.
    as_document: bool,
    program: PathBuf,
    dir: PathBuf,
    cache: Option<PathBuf>,
    address: String,
    comments: Comments,
    claims: Vec<(String, bool)>,
}

/// A process of this program, after its end.
struct Ended {
    pid: u32,
    status: ExitStatus,
    document: Value,
    /// What it said on standard error.
    log: String,
}

impl Demo {
    async fn prepare(args: &Args, shell: &Shell) -> Result<Self, Failure> {
        let spec = GraphSpec::from_file(&args.graph).map_err(|error| {
            Failure::argument(format!(
                "{error}\nthe demo runs in the repository; --graph names another place"
            ))
        })?;
        let input = issue(args)?;
        let at_home = |error: io::Error| Failure::Host(format!("no port on this machine is free: {error}"));
        // On the port that the intruder tries to reach, so that something is there to be reached.
        let listener = match TcpListener::bind(("127.0.0.1", PORT)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("127.0.0.1", 0)).await.map_err(at_home)?,
        };
        let address = listener.local_addr().map_err(at_home)?.to_string();
        let comments = Comments::default();
        tokio::spawn(comments.clone().serve(listener, std::future::pending()));

        let dir = folder(args.dir.as_deref())?;
        let desk = desk(spec, &address)?;
        let intruded = intruded(&desk)?;
        for (name, content) in [
            ("issue-desk.toml", desk.to_toml()),
            ("intruder.toml", intruded.to_toml()),
            ("input.json", input.to_string()),
        ] {
            write(&dir.join(name), &content)?;
        }
        let program = std::env::current_exe()
            .map_err(|error| Failure::Host(format!("this program cannot find itself: {error}")))?;
        let at_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        let as_document = shell.options.json;
        Ok(Self {
            attended: at_terminal && !args.yes && !as_document,
            as_document,
            program,
            dir,
            cache: shell.cache().and_then(|dir| std::path::absolute(dir).ok()),
            address,
            comments,
            claims: Vec::new(),
        })
    }

    async fn play(&mut self) -> Result<(), Failure> {
        self.tell(&format!(
            "{}\nWorking in {}. A comment service on {} counts what reaches it.",
            style("Holdpoint demo").bold(),
            self.dir.display(),
            self.address
        ));
        let question = self.ask().await?;
        self.look(&question).await?;
        let answer = self.decide(&question).await?;
        self.answer(&question, &answer).await?;
        self.count(&question, &answer).await?;
        self.intrude().await
    }

    /// A run to its question, in a process that dies of it.
    async fn ask(&mut self) -> Result<Value, Failure> {
        self.title("1. An issue comes in, and the run stops to ask");
        let words = ["run", "issue-desk.toml", "--thread", THREAD, "--input", "@input.json"];
        let mut command = self.command(&words);
        command.arg("--linger").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.no_process(&error))?;
        let pid = child.id().unwrap_or_default();
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let _ = in_time(stdout.read_line(&mut said)).await?;
        }
        // It has reported its pause and lingers; nothing but the signal ends it.
        let was_alive = child.try_wait().is_ok_and(|ended| ended.is_none());
        let _ = child.start_kill();
        let status = in_time(child.wait()).await?;
        let document = document(&said)?;

        let question = document["interrupts"][0].clone();
        self.tell(&format!("   process {pid} said: {}; it ended by {status}", word(&document, "status")));
        self.claim(
            "the run stopped at a question of `approve`",
            document["status"] == "interrupted" && question["node"] == "approve",
        );
        self.claim(
            "its process was killed (SIGKILL) right after it had reported that",
            was_alive && status.signal() == Some(SIGKILL),
        );
        match question.is_object() {
            true => Ok(question),
            false => Err(Failure::Host(format!("nothing was asked: {said}"))),
        }
    }

    /// What is pending, in another process.
    async fn look(&mut self, question: &Value) -> Result<(), Failure> {
        self.title("2. Another process finds the question");
        let ended = self.run(&["pending"]).await?;
        let found = &ended.document["threads"][0];
        self.tell(&format!("   process {}, {}:", ended.pid, ended.status));
        self.tell(prose::indented(&prose::pretty(&question["payload"])).trim_end());
        self.claim(
            "another process found that question, and no other",
            found["thread"] == THREAD && found["interrupts"] == json!([question]),
        );
        Ok(())
    }

    /// What a person says, or the demo for want of one.
    async fn decide(&self, question: &Value) -> Result<Value, Failure> {
        self.title("3. The answer, in a third process");
        let draft = question["payload"]["draft"].as_str().unwrap_or_default().to_owned();
        if !self.attended {
            self.tell("   (nobody is here to ask, so the demo approves)");
            return Ok(json!({ "approved": true }));
        }
        let asked = tokio::task::spawn_blocking(move || ask_person(&draft)).await;
        match asked {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(dialoguer::Error::IO(error))) if error.kind() == io::ErrorKind::Interrupted => {
                Err(Failure::Stopped(STOPPED))
            }
            Ok(Err(error)) => Err(Failure::Host(format!("no answer: {error}"))),
            Err(error) => Err(Failure::Host(format!("no answer: {error}"))),
        }
    }

    async fn answer(&mut self, question: &Value, answer: &Value) -> Result<(), Failure> {
        let who = match self.attended {
            true => std::env::var("USER").unwrap_or_else(|_| "you".into()),
            false => "demo".to_owned(),
        };
        let (id, answer) = (word(question, "id"), answer.to_string());
        let words = ["resume", "--thread", THREAD, "--interrupt", &id, "--as", &who, &answer];
        let ended = self.run(&words).await?;
        self.tell(&format!(
            "   process {}: {}, {}",
            ended.pid,
            word(&ended.document, "status"),
            ended.status
        ));
        self.claim(
            "the answer was given in a third process, and the run completed",
            ended.document["status"] == "completed" && ended.status.code() == Some(0),
        );
        Ok(())
    }

    /// What happened how often, and that it stays so.
    async fn count(&mut self, question: &Value, answer: &Value) -> Result<(), Failure> {
        self.title("4. What happened how often");
        let history = self.run(&["history", "--thread", THREAD]).await?;
        let attempts = attempts(&history.document);
        for (node, count) in &attempts {
            self.tell(&format!("   {node}: {}", prose::counted(*count as usize, "instance")));
        }
        let approved = answer["approved"] == true;
        let mut right = BTreeMap::from([("classify", 1), ("draft", 1), ("approve", 2)]);
        if approved {
            right.insert("publish", 1);
        }
        self.claim(
            "`approve` was instantiated twice, every other node once",
            attempts.iter().map(|(node, count)| (node.as_str(), *count)).eq(right),
        );

        let (requests, comments) = (self.comments.requests(), self.comments.all());
        for comment in &comments {
            self.tell(&format!(
                "   the service got comment {}, Idempotency-Key {}:",
                comment.id, comment.idempotency_key
            ));
            self.tell(prose::indented(&prose::pretty(&comment.body)).trim_end());
        }
        match approved {
            true => self.claim(
                "`comment` reached the service once, with the reply that was approved",
                requests == 1 && comments.len() == 1 && comments[0].body["body"] == *reply(question, answer),
            ),
            false => self.claim("nothing reached the service", requests == 0),
        }

        let (id, answer) = (word(question, "id"), answer.to_string());
        let again = self.run(&["resume", "--thread", THREAD, "--interrupt", &id, &answer]).await?;
        let error = &again.document["error"];
        self.tell(&format!("   {}: {}", again.status, word(error, "message")));
        self.claim(
            "the same answer, sent again, was refused (exit status 4) and did nothing",
            again.status.code() == Some(Exit::Refused.code().into())
                && error["kind"] == "stale"
                && self.comments.requests() == requests,
        );
        Ok(())
    }

    /// A node that means ill in the drafting node's place.
    async fn intrude(&mut self) -> Result<(), Failure> {
        self.title("5. A node that means ill takes the place of `draft`");
        let trace = Path::new("/tmp/intruder");
        let was_there = trace.exists();
        let requests = self.comments.requests();
        let words = ["run", "intruder.toml", "--thread", "intruder-1", "--input", "@input.json"];
        let ended = self.run(&words).await?;
        let tries: Vec<(&str, &str)> =
            ended.log.lines().filter_map(|line| line.strip_prefix("draft | ")?.split_once(": ")).collect();
        let error = &ended.document["error"];
        self.tell(&format!("   {}: {}", word(error, "kind"), word(error, "message")));
        self.claim(
            "it found no environment, no arguments, no file and no socket",
            tries.len() >= 5 && tries.iter().all(|(_, got)| *got == "got []" || !got.starts_with("got ")),
        );
        self.claim(
            "it left no trace on this machine, and did not reach the service",
            trace.exists() == was_there && self.comments.requests() == requests,
        );
        self.claim(
            "the route that it was not granted ended its run with the typed error `undeclared`",
            ended.status.code() == Some(Exit::Failed.code().into()) && error["kind"] == "undeclared",
        );
        self.claim("nothing that it wrote was kept", ended.document["state"].get("draft").is_none());
        Ok(())
    }

    fn summary(&self, dir_stays: bool) -> Said {
        let mark = |holds| match holds {
            true => style("✓").green(),
            false => style("✗").red(),
        };
        let claims: Vec<String> =
            self.claims.iter().map(|(claim, holds)| format!("   {} {claim}\n", mark(*holds))).collect();
        let mut text = format!("\n{}\n{}", style("Checked").bold(), claims.concat());
        if dir_stays {
            text.push_str(&format!(
                "\nTo look around: cd {} && {} show --thread {THREAD}\n",
                super::quoted(&self.dir.display().to_string()),
                super::quoted(&self.program.display().to_string()),
            ));
        }
        let wrong: Vec<&str> =
            self.claims.iter().filter(|(_, holds)| !holds).map(|(claim, _)| claim.as_str()).collect();
        let exit = if wrong.is_empty() { Exit::Completed } else { Exit::Failed };
        let claims: Vec<Value> =
            self.claims.iter().map(|(claim, holds)| json!({ "claim": claim, "holds": holds })).collect();
        let mut said = Said::new(exit, &json!({ "claims": claims, "all": wrong.is_empty() }), text);
        if !wrong.is_empty() {
            said.notice =
                format!("not true: {}\nthe demo's files are in {}", wrong.join("; "), self.dir.display());
        }
        said
    }

    /// A process of this program, shown as it could be typed.
    fn command(&self, words: &[&str]) -> Command {
        let shown: Vec<_> = words.iter().map(|word| super::quoted(word)).collect();
        self.tell(&style(format!("   $ holdpoint {}", shown.join(" "))).dim().to_string());
        let mut command = Command::new(&self.program);
        command.arg("--json").args(words).current_dir(&self.dir).kill_on_drop(true);
        // What is set for this process is not for those.
        command.env_remove("HOLDPOINT_DB").env_remove("HOLDPOINT_LOG").env_remove("HOLDPOINT_CACHE");
        command.env("HOLDPOINT_EGRESS", &self.address);
        if let Some(cache) = &self.cache {
            command.env("HOLDPOINT_CACHE", cache);
        }
        command
    }

    async fn run(&self, words: &[&str]) -> Result<Ended, Failure> {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.no_process(&error))?;
        let pid = child.id().unwrap_or_default();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (said, log, status) = in_time(async {
            let said = async {
                let mut said = String::new();
                match stdout {
                    Some(mut stdout) => stdout.read_to_string(&mut said).await.map(|_| said),
                    None => Ok(said),
                }
            };
            let log = async {
                let mut log = String::new();
                let Some(stderr) = stderr else { return Ok(log) };
                let mut lines = BufReader::new(stderr).lines();
                while let Some(line) = lines.next_line().await? {
                    self.tell(&format!("   {line}"));
                    log.push_str(&line);
                    log.push('\n');
                }
                Ok(log)
            };
            tokio::try_join!(said, log, child.wait())
        })
        .await?;
        Ok(Ended { pid, status, document: document(&said)?, log })
    }

    fn no_process(&self, error: &io::Error) -> Failure {
        Failure::Host(format!("{} cannot be started: {error}", self.program.display()))
    }

    fn title(&self, title: &str) {
        self.tell(&format!("\n{}", style(title).bold()));
    }

    fn tell(&self, text: &str) {
        let _ = match self.as_document {
            true => writeln!(io::stderr(), "{text}"),
            false => writeln!(io::stdout(), "{text}"),
        };
    }

    fn claim(&mut self, claim: &str, holds: bool) {
        self.claims.push((claim.to_owned(), holds));
    }
}

const SIGKILL: i32 = 9;

/// The desk's graph, at work wherever it lies, with its comments going to this process.
fn desk(mut spec: GraphSpec, address: &str) -> Result<GraphSpec, Failure> {
    for node in spec.nodes.values_mut() {
        if let Some(component) = &mut node.component {
            let found = Path::new(component.as_str()).canonicalize().map_err(|source| {
                EngineError::ComponentFile {
                    path: format!("{component} (build it with `make guests`)"),
                    source,
                }
            })?;
            *component = found.display().to_string();
        }
    }
    let comment = spec.effects.get_mut("comment").and_then(|effect| effect.http.as_mut());
    let Some(comment) = comment else {
        return Err(Failure::argument("the demo's graph needs an effect `comment` with http"));
    };
    comment.url = format!("http://{address}/comments");
    Ok(spec)
}

/// The same, with the intruder in the place of `draft`.
fn intruded(desk: &GraphSpec) -> Result<GraphSpec, Failure> {
    let mut spec = desk.clone();
    let draft = spec.nodes.get_mut("draft").and_then(|node| node.component.as_mut());
    let Some(draft) = draft else {
        return Err(Failure::argument("the demo's graph needs a node `draft` with a component"));
    };
    let intruder = Path::new(draft.as_str()).with_file_name("intruder.wasm");
    if !intruder.exists() {
        return Err(Failure::argument(format!(
            "{} is not there; build it with `make guests`",
            intruder.display()
        )));
    }
    *draft = intruder.display().to_string();
    Ok(spec)
}

fn issue(args: &Args) -> Result<Json, Failure> {
    let limits = Limits::default();
    let bound = ("state_bytes", limits.state_bytes);
    if let Some(input) = &args.input {
        return input::json("--input", input, &limits, bound);
    }
    let file = args.graph.with_file_name("fixtures").join("issues.opened.json");
    let webhook = input::json("the issue", &format!("@{}", file.display()), &limits, bound)?;
    Ok(Json::object([("issue", &webhook)]))
}

/// A folder that no other demo uses.
fn folder(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let dir = match named {
        Some(dir) => dir.to_owned(),
        None => std::env::temp_dir().join(format!("holdpoint-demo-{}", uuid::Uuid::now_v7())),
    };
    if dir.join("holdpoint.db").exists() {
        return Err(Failure::argument(format!(
            "{} already holds a demo; name another folder",
            dir.display()
        )));
    }
    let failed = |error| Failure::argument(format!("{} cannot be used: {error}", dir.display()));
    std::fs::create_dir_all(&dir).map_err(failed)?;
    dir.canonicalize().map_err(failed)
}

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    std::fs::write(path, content)
        .map_err(|error| Failure::argument(format!("{} cannot be written: {error}", path.display())))
}

fn ask_person(draft: &str) -> dialoguer::Result<Value> {
    let ways = ["Approve the reply", "Edit it", "Reject it"];
    let way = Select::new().with_prompt("The reply is ready").items(ways).default(0).interact()?;
    Ok(match way {
        0 => json!({ "approved": true }),
        1 => {
            let edited: String =
                Input::new().with_prompt("The reply").with_initial_text(draft).interact_text()?;
            json!({ "approved": true, "reply": edited })
        }
        _ => {
            let reason: String = Input::new().with_prompt("Why not").interact_text()?;
            json!({ "approved": false, "reason": reason })
        }
    })
}

/// What goes out if `answer` approves.
fn reply<'a>(question: &'a Value, answer: &'a Value) -> &'a Value {
    answer.get("reply").unwrap_or(&question["payload"]["draft"])
}

/// How often each node was instantiated.
fn attempts(history: &Value) -> BTreeMap<String, u64> {
    let checkpoints = history["checkpoints"].as_array().into_iter().flatten();
    let tasks = checkpoints.filter_map(|checkpoint| checkpoint["tasks"].as_array()).flatten();
    let mut attempts = BTreeMap::new();
    for task in tasks {
        *attempts.entry(word(task, "node")).or_default() += task["attempts"].as_u64().unwrap_or(0);
    }
    attempts
}

fn word(document: &Value, key: &str) -> String {
    super::screen::harmless(document[key].as_str().unwrap_or("?")).into_owned()
}

fn document(said: &str) -> Result<Value, Failure> {
    serde_json::from_str(said)
        .map_err(|error| Failure::Host(format!("a process of the demo said no document ({error}): {said:?}")))
}

async fn in_time<T>(what: impl Future<Output = io::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(STEP_MAX, what).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Failure::Host(format!("a process of the demo cannot be followed: {error}"))),
        Err(_) => {
            Err(Failure::Host(format!("a process of the demo took longer than {} s", STEP_MAX.as_secs())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EffectSpec, HttpSpec, NodeSpec};

    #[test]
    fn the_comments_go_to_the_demos_own_service() {
        let http = HttpSpec {
            method: "POST".into(),
            url: "http://127.0.0.1:1/comments".into(),
            headers: BTreeMap::new(),
            timeout_ms: None,
            auth: None,
        };
        let effect = EffectSpec { http: Some(http), ..EffectSpec::default() };
        let here = std::env::current_exe().unwrap();
        let spec = GraphSpec::new("desk", "draft")
            .node("draft", NodeSpec::component(here.display()))
            .effect("comment", effect);
        let desk = desk(spec.clone(), "127.0.0.1:9").unwrap();
        assert_eq!(desk.effects["comment"].http.as_ref().unwrap().url, "http://127.0.0.1:9/comments");
        assert_eq!(GraphSpec::from_toml(&desk.to_toml()).unwrap(), desk);
        assert!(matches!(intruded(&desk), Err(Failure::Argument(_))), "no intruder is built there");

        let without = GraphSpec { effects: BTreeMap::new(), ..spec };
        assert!(matches!(super::desk(without, "x"), Err(Failure::Argument(_))));
    }

    #[test]
    fn attempts_are_counted_over_all_steps() {
        let history = json!({ "checkpoints": [
            { "tasks": [{ "node": "a", "attempts": 2 }, { "node": "b", "attempts": 1 }] },
            { "kind": "pause" },
            { "tasks": [{ "node": "a", "attempts": 1 }] },
        ] });
        assert_eq!(attempts(&history), BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 1)]));
    }
}
