//! The glue between the contract's exports and the function under `#[node]`. Only the macro uses it.

use std::convert::Infallible;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    Context, IntoOutcome, NodeError,
    bindings::{exports::holdpoint::node::handler, holdpoint::node::types as wit},
    json,
};

/// What the attribute declares.
pub struct Info {
    pub name: &'static str,
    pub version: &'static str,
    pub reads: &'static [&'static str],
    pub writes: &'static [&'static str],
    pub routes: &'static [&'static str],
    pub effects: &'static [&'static str],
}

/// What a node may take: anything that owns its data and can be read from JSON.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from the state",
    label = "the input of a node",
    note = "write `#[derive(Deserialize)]` above the type; it must own its data"
)]
pub trait Input: Sized {
    fn read(state: &Value) -> Result<Self, json::Mismatch>;
}

#[diagnostic::do_not_recommend]
impl<T: for<'de> Deserialize<'de>> Input for T {
    fn read(state: &Value) -> Result<Self, json::Mismatch> {
        json::from_value(state)
    }
}

/// One node: the macro implements it, the contract's exports call it.
pub trait Node {
    type Input: Input;
    const INFO: Info;
    fn run(input: Self::Input, context: &Context) -> Result<wit::Outcome, NodeError>;
}

pub struct Exports<N>(std::marker::PhantomData<N>);

impl<N: Node + 'static> handler::Guest for Exports<N> {
    fn describe() -> handler::NodeInfo {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        handler::NodeInfo {
            name: N::INFO.name.to_owned(),
            version: N::INFO.version.to_owned(),
            reads: owned(N::INFO.reads),
            writes: owned(N::INFO.writes),
            routes: owned(N::INFO.routes),
            effects: owned(N::INFO.effects),
        }
    }

    fn run(context: handler::Context, state: String) -> Result<handler::Outcome, handler::NodeError> {
        run::<N>(context, &state).map_err(NodeError::into_wit)
    }
}

/// Stands in for the exports where there are none, so that nothing of the node counts as unused.
pub const fn compiles<N: Node>() {
    let _ = N::run;
}

fn run<N: Node>(context: wit::Context, state: &str) -> Result<wit::Outcome, NodeError> {
    let context = Context::from_wit(context)?;
    let input = N::Input::read(&json::parse(state)?).map_err(|why| {
        NodeError::fail(format!("the input of node `{}` is not what it expects: {why}", context.node))
    })?;
    N::run(input, &context)
}

/// What the function returned. [`Split::split`] makes a `Result` of anything that is none: the inherent
/// method below comes first where it fits.
pub struct Returned<R>(pub R);

impl<T, E> Returned<Result<T, E>> {
    pub fn split(self) -> Result<T, E> {
        self.0
    }
}

pub trait Split {
    type Value;
    fn split(self) -> Result<Self::Value, Infallible>;
}

impl<T> Split for Returned<T> {
    type Value = T;
    fn split(self) -> Result<T, Infallible> {
        Ok(self.0)
    }
}

pub fn finish<T: IntoOutcome, E: Into<NodeError>>(result: Result<T, E>) -> Result<wit::Outcome, NodeError> {
    result.map_err(Into::into)?.into_wit()
}
