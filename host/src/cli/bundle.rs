//! What a graph file names, found and read before anything is sent: the graphs below it, each before those that
//! contain it, and the components, each once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::failure::Failure;
use crate::engine::{EngineError, read_component};
use crate::model::ids::InvalidName;
use crate::model::{Digest, GraphSpec, Limits, NodeId};

/// All that has to be there before the graph can run.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The last one is the graph that was asked for.
    pub graphs: Vec<GraphOfFile>,
    pub components: Vec<ComponentFile>,
}

#[derive(Debug)]
pub struct GraphOfFile {
    pub file: String,
    /// Under which it is deployed.
    pub name: String,
    /// Its components are named by their digests.
    pub spec: GraphSpec,
    /// Nodes that are graphs of files, and which of the bundle each is.
    pub below: BTreeMap<String, usize>,
}

#[derive(Debug)]
pub struct ComponentFile {
    pub file: PathBuf,
    pub digest: Digest,
    pub bytes: usize,
}

impl ComponentFile {
    /// Its bytes, as they were when it was found.
    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        let bytes = component(&self.file)?;
        match Digest::of(&bytes) == self.digest {
            true => Ok(bytes),
            false => Err(Failure::Host(format!(
                "{} was changed while it was being deployed; deploy it again",
                self.file.display()
            ))),
        }
    }
}

impl Bundle {
    /// `name`: what the graph is deployed as, if not under its own name.
    pub fn read(graph: &Path, name: Option<&str>) -> Result<Self, Failure> {
        let mut reader = Reader::default();
        let last = reader.graph(graph, None)?;
        let mut bundle = reader.bundle;
        if let Some(name) = name {
            bundle.graphs[last].name = name.to_owned();
        }
        let mut names: HashMap<&str, &str> = HashMap::new();
        for graph in &bundle.graphs {
            can_be_deployed(graph)?;
            if let Some(other) = names.insert(&graph.name, &graph.file) {
                return Err(Failure::argument(format!(
                    "{other} and {} would both be deployed as {}: give one of them another name{}",
                    graph.file,
                    graph.name,
                    if name.is_some() { ", or choose another --name" } else { "" }
                )));
            }
        }
        Ok(bundle)
    }
}

/// A name goes into the path of a URL, where a dot alone is a step.
fn can_be_deployed(graph: &GraphOfFile) -> Result<(), Failure> {
    match NodeId::parse(graph.name.clone()) {
        Ok(_) if graph.name.chars().any(|c| c != '.') && graph.name.parse::<uuid::Uuid>().is_err() => Ok(()),
        _ => Err(Failure::argument(format!(
            "{}: it cannot be deployed as {:?}: a name has 1 to 64 letters, digits, '_', '-' or '.', not dots alone, \
             and is neither \"end\" nor a UUID; --name gives the graph another one",
            graph.file, graph.name
        ))),
    }
}

#[derive(Default)]
struct Reader {
    bundle: Bundle,
    /// Graphs that are read, by the file that they are.
    graphs: HashMap<PathBuf, usize>,
    components: HashMap<PathBuf, Digest>,
    digests: HashSet<Digest>,
    /// Those that are being read, each within the one before.
    within: Vec<(PathBuf, String)>,
}

impl Reader {
    /// `at`: the graph and the node that name it, if any do.
    fn graph(&mut self, path: &Path, at: Option<(&str, &str)>) -> Result<usize, Failure> {
        let file = path.display().to_string();
        let own = own_path(path);
        if let Some(known) = self.graphs.get(&own) {
            return Ok(*known);
        }
        if let Some(at) = self.within.iter().position(|(open, _)| *open == own) {
            let circle = self.within[at..].iter().map(|(_, file)| file.as_str()).chain([file.as_str()]);
            let circle: Vec<&str> = circle.collect();
            return Err(Failure::argument(format!(
                "{file} contains itself ({}); a graph below another cannot lead back to it",
                circle.join(" -> ")
            )));
        }
        let mut spec = GraphSpec::from_file(path).map_err(|error| match at {
            Some((graph, node)) => EngineError::from(error).at(graph, node),
            None => error.into(),
        })?;
        self.within.push((own.clone(), file.clone()));
        let most = Limits::default().subgraph_depth as usize;
        if self.within.len() > most + 1 {
            let what = format!("{file} would be a subgraph more than {most} levels deep (subgraph_depth)");
            return Err(Failure::argument(what));
        }
        let mut below = BTreeMap::new();
        for (node, of) in &mut spec.nodes {
            if let Some(component) = &of.component {
                let digest = match component.starts_with("sha256:") {
                    true => named(component, (&file, node))?,
                    false => self.component(component).map_err(|failure| match failure {
                        Failure::Engine(error) => Failure::Engine(error.at(&spec.name, node)),
                        other => other,
                    })?,
                };
                of.component = Some(digest.to_string());
            }
            match &of.graph {
                Some(graph) if graph.starts_with("sha256:") => {
                    named(graph, (&file, node))?;
                }
                Some(graph) => {
                    below.insert(node.clone(), self.graph(Path::new(graph), Some((&spec.name, node)))?);
                }
                None => {}
            }
        }
        self.within.pop();
        self.bundle.graphs.push(GraphOfFile { file, name: spec.name.clone(), spec, below });
        self.graphs.insert(own, self.bundle.graphs.len() - 1);
        Ok(self.bundle.graphs.len() - 1)
    }

    fn component(&mut self, named: &str) -> Result<Digest, Failure> {
        let file = Path::new(named);
        let own = own_path(file);
        if let Some(known) = self.components.get(&own) {
            return Ok(*known);
        }
        let bytes = component(file)?;
        let digest = Digest::of(&bytes);
        self.components.insert(own, digest);
        if self.digests.insert(digest) {
            self.bundle.components.push(ComponentFile { file: file.into(), digest, bytes: bytes.len() });
        }
        Ok(digest)
    }
}

/// The same for two ways to one file. A file that is not there is told of by whoever reads it.
fn own_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn named(digest: &str, (file, node): (&str, &str)) -> Result<Digest, Failure> {
    digest.parse().map_err(|error: InvalidName| Failure::argument(format!("{file}: node {node}: {error}")))
}

fn component(file: &Path) -> Result<Vec<u8>, Failure> {
    Ok(read_component(file, Limits::default().component_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A folder of files; `*.wasm` may hold anything, which is the service's to judge.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn graph(name: &str, nodes: &[(&str, &str)]) -> String {
        let nodes: String = nodes.iter().map(|(node, keys)| format!("[nodes.{node}]\n{keys}\n")).collect();
        format!("name = \"{name}\"\nentry = \"a\"\n{nodes}")
    }

    #[test]
    fn each_component_comes_once_and_each_graph_before_those_that_contain_it() {
        let dir = folder(&[
            ("a.wasm", "one"),
            ("below/same.wasm", "one"),
            ("below/b.wasm", "two"),
            (
                "below/child.toml",
                &graph("child", &[("a", "component = \"b.wasm\""), ("c", "component = \"same.wasm\"")]),
            ),
            ("mid.toml", &graph("mid", &[("a", "graph = \"below/child.toml\"")])),
            (
                "g.toml",
                &graph(
                    "g",
                    &[
                        ("a", "component = \"a.wasm\""),
                        ("b", "graph = \"mid.toml\""),
                        ("c", "graph = \"./below/../below/child.toml\""),
                        ("d", &format!("component = \"{}\"", Digest::of(b"elsewhere"))),
                    ],
                ),
            ),
        ]);
        let bundle = Bundle::read(&dir.path().join("g.toml"), Some("desk")).unwrap();
        let names: Vec<&str> = bundle.graphs.iter().map(|graph| graph.name.as_str()).collect();
        assert_eq!(names, ["child", "mid", "desk"]);
        assert_eq!(bundle.graphs[2].below, BTreeMap::from([("b".into(), 1), ("c".into(), 0)]));
        let digests: Vec<Digest> = bundle.components.iter().map(|component| component.digest).collect();
        assert_eq!(digests, [Digest::of(b"one"), Digest::of(b"two")]);
        let named = |node: &str| bundle.graphs[2].spec.nodes[node].component.clone();
        assert_eq!(named("a"), Some(Digest::of(b"one").to_string()));
        assert_eq!(named("d"), Some(Digest::of(b"elsewhere").to_string()));
    }

    #[test]
    fn what_cannot_be_deployed_is_refused_by_file_and_node() {
        let one = |text: &str| folder(&[("g.toml", text), ("a.wasm", "one"), ("folder/x", "")]);
        let node = |keys: &str| graph("g", &[("a", keys)]);
        for (text, name, words) in [
            ("name = ", None, &["g.toml is no graph file"][..]),
            (
                &node("component = \"gone.wasm\""),
                None,
                &["gone.wasm (node a of the graph g)", "No such file"],
            ),
            (&node("component = \"folder\""), None, &["folder (node a of the graph g)", "no regular file"]),
            (&node("component = \"sha256:12\""), None, &["g.toml: node a", "sha256:12", "64 hex digits"]),
            (&node("graph = \"gone.toml\""), None, &["gone.toml (node a of the graph g)", "No such file"]),
            (&node("graph = \"g.toml\""), None, &["contains itself", " -> "]),
            (&node("component = \"a.wasm\""), Some("a/b"), &["\"a/b\"", "--name"]),
            (&node("component = \"a.wasm\""), Some(".."), &["\"..\"", "dots alone"]),
        ] {
            let dir = one(text);
            let said = Bundle::read(&dir.path().join("g.toml"), name).unwrap_err().to_string();
            for word in words {
                assert!(said.contains(word), "{word:?} is not in: {said}");
            }
        }
    }

    #[test]
    fn two_graphs_cannot_have_one_name() {
        let child = graph("child", &[("a", "component = \"a.wasm\"")]);
        let files = [
            ("one/c.toml", child.as_str()),
            ("two/c.toml", &child),
            ("one/a.wasm", "1"),
            ("two/a.wasm", "1"),
        ];
        let dir = folder(&files);
        let above = graph("g", &[("a", "graph = \"one/c.toml\""), ("b", "graph = \"two/c.toml\"")]);
        fs::write(dir.path().join("g.toml"), above).unwrap();
        let said = Bundle::read(&dir.path().join("g.toml"), None).unwrap_err().to_string();
        assert!(said.contains("both be deployed as child") && said.contains("one/c.toml"), "{said}");
    }

    #[test]
    fn a_component_that_changes_meanwhile_is_not_sent() {
        let dir = folder(&[("a.wasm", "one"), ("g.toml", &graph("g", &[("a", "component = \"a.wasm\"")]))]);
        let bundle = Bundle::read(&dir.path().join("g.toml"), None).unwrap();
        assert_eq!(bundle.components[0].read().unwrap(), b"one");
        fs::write(dir.path().join("a.wasm"), "two").unwrap();
        assert!(bundle.components[0].read().unwrap_err().to_string().contains("was changed"));
    }
}
