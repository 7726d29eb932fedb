//! Write [Holdpoint](https://docs.rs/holdpoint) nodes in Rust.
//!
//! A node is a function in a crate of its own, built to a WebAssembly component. It reads some of a
//! graph's state, may ask a person, may have the host do something outside, and says what to write and
//! where to go next.
//!
//! # Your first node
//!
//! `holdpoint new approve --lang rust` makes a crate like this one, with this SDK in its `vendor/`.
//!
//! ```toml
//! # Cargo.toml
//! [package]
//! name = "approve"
//! version = "0.1.0"
//! edition = "2024"
//!
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! holdpoint-guest = "0.1"
//! serde = { version = "1", features = ["derive"] }
//! ```
//!
//! ```
//! // src/lib.rs
//! use std::time::Duration;
//! use holdpoint_guest::prelude::*;
//!
//! #[derive(Deserialize)]
//! struct Input {
//!     order: u64,
//!     cents: u64,
//! }
//!
//! #[derive(Serialize)]
//! struct Output {
//!     refunded: bool,
//! }
//!
//! #[node(reads = ["order", "cents"], writes = ["refunded"], routes = ["done"], effects = ["refund"])]
//! fn approve(input: Input) -> Result<Outcome<Output>, NodeError> {
//!     let question = Question::new(json!({ "refund": input.cents, "order": input.order }))
//!         .schema(json!({ "type": "boolean" }))
//!         .expires_after(Duration::from_secs(7 * 24 * 3600))
//!         .default_answer(false);
//!     let refunded: bool = interrupt(question)?;
//!     if refunded {
//!         let key = format!("refund-order-{}", input.order);
//!         let _receipt: Value = effect("refund", &key, &json!({ "cents": input.cents }))?;
//!     }
//!     Ok(Outcome::of(Output { refunded }).go("done"))
//! }
//! ```
//!
//! `holdpoint build` makes the component, and a graph file names it:
//!
//! ```toml
//! [nodes.approve]
//! component = "target/components/approve.wasm"
//! reads   = ["order", "cents"]
//! writes  = ["refunded"]
//! routes  = { done = "end" }
//! effects = ["refund"]
//! ```
//!
//! # The function
//!
//! It takes `(input)` or `(input, context: &Context)`. The input is whatever can be read from an object
//! with the names in `reads`. A channel that was never written has no key there: make it an `Option`,
//! or give it a `#[serde(default)]`. A number keeps the digits that it was written with only in a
//! [`Value`](serde_json::Value).
//!
//! It returns what it writes (a struct or map whose keys are names in `writes`), or an [`Outcome`] if
//! it also chooses where to go, or a `Result` of either whose error converts into a [`NodeError`].
//!
//! # Declared capabilities
//!
//! What a node can do is what it **declares** and its graph **grants**, both. The attribute declares:
//!
//! | key | what is listed |
//! |---|---|
//! | `reads` | the keys of the input |
//! | `writes` | the keys of what it returns |
//! | `routes` | the labels that it passes to [`go`](Outcome::go) and [`send`](Outcome::send) |
//! | `effects` | the names that it passes to [`effect`] |
//! | `name`, `version` | one string each; the package's, if left out |
//!
//! All are the node's own names; the graph maps them to its channels, nodes and effects. Anything else
//! ends the attempt with an error that names it. There is nothing beside: no files, no network, no
//! environment, and a clock and random numbers that the host makes up.
//!
//! # What is run again, and why
//!
//! [`interrupt`] stops the node: on the pass that asks, it does not return. The host writes the question
//! down and drops the instance where it stands. **No destructor runs, and no `catch_unwind` sees it.**
//! Nothing waits in memory, so the answer may come after a restart, or a year.
//!
//! Then the host runs the node again **from its beginning**, in a fresh instance, with the same context
//! and the same input. Each call that was made before gets the answer that it got before: `interrupt` the
//! person's, `effect` its outcome, [`steering::instructions`] what was known then. What was logged or
//! emitted is not logged or emitted again. After the last remembered call the node goes on for the first
//! time.
//!
//! This is checked. A node that on its second pass makes another call than on its first, or the same with
//! other arguments, has *diverged*: the attempt ends, nothing is lost, and the thread says which call it
//! was.
//!
//! # Determinism
//!
//! So the way to each host call must be a function of the input, the context and the answers before it.
//! Mostly it is by itself: `SystemTime::now`, `Instant::now`, `thread::sleep`, `HashMap`'s order and the
//! `getrandom` crate are all answered by the host, in the same way in every attempt, and JSON is sent with
//! its keys sorted. What is left to you:
//!
//! | mistake | what comes of it | what `verify` says | instead |
//! |---|---|---|---|
//! | an idempotency key from the time or a random number | the same in each attempt, and another when the node is activated again: done twice | `replays`, and `the key of call 0 comes from the clock or a random number` | what the effect is *for*, see below |
//! | an idempotency key from a counter | a `static` begins anew in each instance: when the node is activated again it is the same key, and what was done the first time counts as this time's, too | `replays` | as above |
//! | a random number as a secret | it is seeded from the task: whoever knows the seed knows it | `replays` | an effect that makes it |
//! | a `static` carries something from before a question to after it | it is gone: a fresh instance runs from the beginning | `replays`, and the outcome is as if it had never been set | compute it again, or write it to a channel |
//! | `Drop` or `catch_unwind` cleans up around a question | on the pass that asks neither runs; on the last one `Drop` does, as if nothing had been in between | `replays`; what it shows as printed is of the last pass | have nothing to clean up |
//! | slow work before a question | it is done again after each answer, and counts against the fuel of each attempt | `replays`, with `fuel` of one attempt | a node of its own before this one |
//! | a question without a schema | an answer of the wrong type reaches the node, and has been given | `answered, for want of anything better: true`, and then mostly `replays, and fails`, with exit status 5 | [`Question::schema`]: such an answer is refused, and can be given again |
//! | a new version, and threads that wait | they stay with the component that asked | each version replays by itself | `holdpoint upgrade`, which replays what is on record under the new one |
//!
//! `holdpoint verify target/components/refund.wasm --input '{"amount": 250}'` proves it of a node and an
//! input, without a database: the node is replayed at every prefix of its calls, and what differs is shown.
//! Where a schema names a few answers, each is given, so that each way is gone. It proves nothing of a way that this
//! input does not lead; a node that fails on every way, or before its first call, is said not to be verified, with exit
//! status 5.
//!
//! # Idempotency keys
//!
//! Something outside is done through [`effect`], under a key: once for each key of this node on this thread.
//! Another thread that uses the same key does it again. The host remembers the
//! outcome, so a second pass sends nothing. But a crash can come between sending and remembering; what is
//! then sent again carries the same `Idempotency-Key`: a hash of tenant, thread, node, effect and the key. What
//! must happen once whatever the thread, the service has to tell from the input. Derive the key from what the effect is *for*:
//! `order-17-refund`, or [`Context::task_id`] for what is due once each time that the node is activated.
//! Never from a counter, the time, or a random number.
//!
//! # Errors
//!
//! Two words: [`Retry`], another attempt may help; [`Fail`], it will not. Both wrap whatever can be
//! shown, and `?` does the rest:
//!
//! ```
//! # use holdpoint_guest::prelude::*;
//! # #[derive(Deserialize)] struct Input { cents: String }
//! # #[derive(Serialize)] struct Output { cents: u64 }
//! #[node(reads = ["cents"], writes = ["cents"])]
//! fn parse(input: Input) -> Result<Output, NodeError> {
//!     let cents = input.cents.parse().map_err(Fail)?;
//!     if cents == 0 {
//!         return Err(Retry("nobody has set a price yet").into());
//!     }
//!     Ok(Output { cents })
//! }
//! ```
//!
//! An [`EffectError`] fails the node in every case, if you pass it on; match it where you know better.
//! An input or an answer that is not of your type fails the node too, naming the field. A panic is a
//! trap: the attempt ends, and its message and frames are in the run's error.
//!
//! # Tests
//!
//! The function stays an ordinary function, and `cargo test` runs it on your own machine, without a
//! component. Where it gets to a host call, a [`testing::Script`] plays the host: it answers (what the question's schema
//! takes, as far as its common words say), does effects, runs the node again from its beginning after each answer, and
//! fails the test where the second pass differs from the first. [`time::now`] and [`random::number`] are the script's, too;
//! `SystemTime::now` and other sources of random numbers are your machine's there, and the host's in a component.
//!
//! ```
//! use holdpoint_guest::{prelude::*, testing::Script};
//! # #[derive(Deserialize)] struct Input { cents: u32 }
//! # #[node(reads = ["cents"], writes = ["refunded"])]
//! # fn refund(input: Input) -> Result<Value, NodeError> {
//! #     let refunded: bool = interrupt(json!({ "refund": input.cents }))?;
//! #     Ok(json!({ "refunded": refunded }))
//! # }
//!
//! let ran = Script::new().answer(true).run(|| refund(Input { cents: 1200 }));
//! assert_eq!(ran.questions[0].payload, json!({ "refund": 1200 }));
//! assert_eq!(ran.returned.unwrap().unwrap(), json!({ "refunded": true }));
//! ```
//!
//! # Publish a component
//!
//! A component is one file, named by the digest of its bytes. Publish the file, and tell the digest that
//! `holdpoint build` and `holdpoint inspect` show: who uses it can check that it is that very file, what it
//! imports and what it declares, before it runs. `holdpoint install FILE` puts it into a database, where a
//! graph names it `component = "sha256:…"`. Another compiler may give another digest: so publish what you
//! tested, and do not build again for it.

#[doc(hidden)]
pub mod bindings;
mod host;

#[cfg(not(target_family = "wasm"))]
mod answer_schema;
mod approval;
mod context;
mod effects;
mod errors;
pub mod events;
mod interrupts;
mod json;
pub mod log;
mod node;
mod outcome;
pub mod random;
pub mod steering;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod time;

pub use approval::{Action, Approval, Decision, approve};
pub use context::Context;
pub use effects::{EffectError, effect};
pub use errors::{Fail, Failure, NodeError, Retry};
/// Makes a function the node of this component. [The crate's page](crate) says what it may take, return
/// and declare.
///
/// ```
/// # use holdpoint_guest::prelude::*;
/// #[node(name = "greeter", reads = ["name"], writes = ["greeting"])]
/// fn greet(input: Value, context: &Context) -> Value {
///     json!({ "greeting": format!("{} in step {}", input["name"], context.step) })
/// }
/// ```
pub use holdpoint_guest_macros::node;
pub use interrupts::{Question, interrupt, interrupt_all};
pub use outcome::{IntoOutcome, Outcome};

/// What a node's file needs: `use holdpoint_guest::prelude::*;`.
pub mod prelude {
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    pub use crate::{
        Action, Approval, Context, Decision, EffectError, Fail, NodeError, Outcome, Question, Retry, approve,
        effect, events, interrupt, interrupt_all, log, node, steering,
    };
}

/// For what `#[node]` writes; nobody else may count on it.
#[doc(hidden)]
pub mod __private {
    pub use crate::{
        bindings::holdpoint::node::types::Outcome as Done,
        node::{Exports, Info, Input, Node, Returned, Split, compiles, finish},
    };
}
