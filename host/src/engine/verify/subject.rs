//! A node with all that it is given; from a component, or from a graph.

use std::collections::BTreeMap;

use super::super::error::EngineError;
use super::super::host::Host;
use super::super::plan;
use super::attempt::{THIS, World};
use crate::model::channel;
use crate::model::compile::{CompiledGraph, Work};
use crate::model::error::{Kind, Refused};
use crate::model::graph::GraphSpec;
use crate::model::ids::{ChannelName, Digest, NodeId, TenantId};
use crate::model::journal::EffectOutcome;
use crate::model::json::Json;
use crate::model::limits::Limits;
use crate::sandbox::Component;

/// A node, and all that it is given.
#[derive(Clone)]
pub struct Subject {
    pub tenant: TenantId,
    pub node: NodeId,
    pub component: Component,
    /// In the node's own names, as everything here.
    pub state: Json,
    /// What it is granted to read.
    pub reads: Vec<String>,
    pub arg: Option<Json>,
    /// What it is granted, and how each ends.
    pub effects: BTreeMap<String, EffectOutcome>,
    pub limits: Limits,
    pub world: World,
}

/// How effects end, by name; the others give null.
pub type Outcomes = BTreeMap<String, EffectOutcome>;

impl Host {
    /// A component by itself, which is granted all that it declares and reads `state`, an object in its own
    /// names.
    pub async fn subject(
        &self,
        name: &str,
        bytes: Vec<u8>,
        state: &Json,
        outcomes: &Outcomes,
    ) -> Result<Subject, EngineError> {
        let installed = self.install(name, bytes).await?;
        let info = installed.info;
        let members = state.members().ok_or_else(|| {
            let kind = state.kind();
            Refused::plain(Kind::Invalid, format!("the input is {kind}; a node reads an object"))
        })?;
        if let Some((unknown, _)) = members.iter().find(|(name, _)| !info.reads.contains(name)) {
            let what = format!("the input has {unknown:?}; {} {} reads", info.name, info.version);
            return Err(Refused::plain(Kind::Invalid, format!("{what} {}", listed(info.reads.iter()))).into());
        }
        known(outcomes, info.effects.iter())?;
        let granted = info.effects.iter().map(|name| (name.clone(), outcome(outcomes, name))).collect();
        let node = NodeId::parse(info.name).or_else(|_| NodeId::parse("node"));
        self.made(node.map_err(|error| Refused::plain(Kind::Invalid, error.to_string()))?, installed.digest)
            .await
            .map(|subject| Subject {
                state: state.clone(),
                reads: info.reads.into_iter().collect(),
                effects: granted,
                ..subject
            })
    }

    /// The nodes of a graph that are components, in the order of their names, each with what it would read
    /// in a run's first step that begins with `input`. Where effects go does not matter here.
    pub async fn subjects(
        &self,
        spec: &GraphSpec,
        input: &Json,
        outcomes: &Outcomes,
    ) -> Result<Vec<Subject>, EngineError> {
        let parts = self.parts(spec, 0).await?;
        let graph = CompiledGraph::compile(spec, &parts.components, &parts.subgraphs)?;
        let channels = channels(&graph, input)?;
        known(outcomes, spec.effects.keys())?;
        let mut subjects = Vec::new();
        for (id, node) in &graph.nodes {
            // The nodes of a subgraph are verified with its own file.
            let Work::Component(component) = node.work else { continue };
            let read =
                node.reads.iter().filter_map(|(own, channel)| Some((own.as_str(), channels.get(channel)?)));
            let effects = node
                .effects
                .iter()
                .map(|(own, effect)| (own.clone(), outcome(outcomes, effect.as_str())))
                .collect();
            let subject = self.made(id.clone(), component).await?;
            let limits = node.limits.within(&subject.limits);
            let reads = node.reads.keys().cloned().collect();
            subjects.push(Subject { state: Json::object(read), reads, effects, limits, ..subject });
        }
        Ok(subjects)
    }

    async fn made(&self, node: NodeId, component: Digest) -> Result<Subject, EngineError> {
        let whose = (&self.tenant, &*self.limits);
        let component = self.shared.component(whose, component, node.as_str()).await?;
        Ok(Subject {
            tenant: self.tenant.clone(),
            node,
            component,
            state: Json::null(),
            reads: Vec::new(),
            arg: None,
            effects: BTreeMap::new(),
            limits: (*self.limits).clone(),
            world: THIS,
        })
    }
}

/// What the channels hold after the input alone.
fn channels(graph: &CompiledGraph, input: &Json) -> Result<BTreeMap<ChannelName, Json>, EngineError> {
    let update = plan::accept_input(graph, input).map_err(Refused::of)?;
    let folded = plan::fold(graph, &BTreeMap::new(), [(channel::INPUT, update.as_slice())])
        .map_err(|error| Refused::plain(Kind::Invalid, error.to_string()))?;
    Ok(folded.into_iter().map(|(name, change)| (name, channel::apply(None, &change))).collect())
}

fn outcome(outcomes: &Outcomes, name: &str) -> EffectOutcome {
    outcomes.get(name).cloned().unwrap_or_else(|| EffectOutcome::Done(Json::null()))
}

fn known<'a>(
    outcomes: &Outcomes,
    effects: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), EngineError> {
    match outcomes.keys().find(|name| !effects.clone().any(|effect| effect == *name)) {
        None => Ok(()),
        Some(unknown) => {
            let message = format!("no effect is named {unknown:?}; there are {}", listed(effects));
            Err(Refused::plain(Kind::Invalid, message).into())
        }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}
