//! A file in stages: what rten computes, then what the engine's kernels compute of that, and so on.

use std::collections::{BTreeSet, HashMap, HashSet};

use lapwing_onnx::EngineError;
use lapwing_onnx::messages::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use super::super::prepare::each_tensor;
use super::constants::Constants;
use super::role::{ImageNode, Recognition, Role, has_parameters};
use super::steps::{Drafts, Step};

/// A part of a file.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// What rten computes first, if anything.
    pub(crate) part: Option<ModelProto>,
    /// What that reads and makes, by the places in the table of a run.
    pub(crate) reads: Vec<(String, usize)>,
    pub(crate) makes: Vec<(String, usize)>,
    /// What is computed then.
    pub(crate) steps: Vec<Step>,
    /// What no later stage reads.
    pub(crate) frees: Vec<usize>,
}

impl Stage {
    /// The files in which constants of its part lie, by the names by which rten asks for them.
    ///
    /// # Errors
    ///
    /// None: reading names does not fail.
    pub(crate) fn weight_files(&mut self) -> Result<HashSet<String>, EngineError> {
        let mut files = HashSet::new();
        let mut graphs = self.part.iter_mut().filter_map(|part| part.graph.as_mut());
        graphs.try_for_each(|graph| {
            each_tensor(graph, &mut |tensor| {
                let locations = tensor.external_data.iter().filter(|entry| entry.key == "location");
                files.extend(locations.map(|entry| entry.value.clone()));
                Ok(())
            })
        })?;
        Ok(files)
    }

    /// The places of what it reads.
    pub(crate) fn read_places(&self) -> Vec<usize> {
        self.reads.iter().map(|(_, place)| *place).chain(self.steps.iter().flat_map(Step::reads)).collect()
    }
}

/// A file in parts.
#[derive(Debug)]
pub(crate) struct Divided {
    pub(crate) stages: Vec<Stage>,
    /// Places of the inputs and outputs.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// Places in the table of a run.
    pub(crate) places: usize,
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Constant,
    Given,
    Rten(usize),
    Image(usize),
}

/// Places by name.
#[derive(Debug, Default)]
struct Places(HashMap<String, usize>);

impl Places {
    fn of(&mut self, name: &str) -> usize {
        let next = self.0.len();
        *self.0.entry(name.to_owned()).or_insert(next)
    }
}

/// Divides a file with these inputs and outputs. One without convolutions stays whole, and so does one that is not understood.
pub(crate) fn divide(model: ModelProto, external: &[(String, Vec<u8>)], inputs: &[String], outputs: &[String]) -> Divided {
    model.graph.as_ref().and_then(|graph| in_stages(&model, graph, external, inputs, outputs)).unwrap_or_else(|| {
        let mut places = Places::default();
        let mut named = |names: &[String]| names.iter().map(|name| (name.clone(), places.of(name))).collect::<Vec<_>>();
        let (reads, makes) = (named(inputs), named(outputs));
        let of = |named: &[(String, usize)]| named.iter().map(|(_, place)| *place).collect();
        let (inputs, outputs) = (of(&reads), of(&makes));
        let stage = Stage { part: Some(model), reads, makes, ..Stage::default() };
        Divided { stages: vec![stage], inputs, outputs, places: places.0.len() }
    })
}

fn in_stages(
    model: &ModelProto,
    graph: &GraphProto,
    external: &[(String, Vec<u8>)],
    inputs: &[String],
    outputs: &[String],
) -> Option<Divided> {
    if !graph.node.iter().any(|node| node.op_type == "Conv") {
        return None;
    }
    let given: HashSet<&str> = inputs.iter().map(String::as_str).collect();
    let mut recognition = Recognition::of(Constants::of(model, graph, external, &given, has_parameters));
    let mut nodes: Vec<(&NodeProto, Option<ImageNode>)> = graph.node.iter().map(|node| (node, recognition.node(node))).collect();
    leave_lone_depthwise(&mut nodes);
    if !nodes.iter().any(|(_, node)| matches!(node, Some(ImageNode { role: Role::Convolution(_), .. }))) {
        return None;
    }
    // what is not needed any more: the nodes whose work became that of others
    let mut needed: HashSet<String> = outputs.iter().cloned().collect();
    nodes.reverse();
    nodes.retain(|(node, image)| {
        let is_needed = node.output.iter().any(|name| needed.contains(name));
        match image {
            _ if !is_needed => {}
            Some(image) => needed.extend(image.reads.iter().cloned()),
            None => needed.extend(reads(node).map(str::to_owned)),
        }
        is_needed
    });
    nodes.reverse();
    let mut division = Division {
        model,
        graph,
        constants: recognition.constants,
        origins: given.iter().map(|name| ((*name).to_owned(), Origin::Given)).collect(),
        drafts: Drafts::default(),
        parts: Vec::new(),
        used: HashSet::new(),
    };
    nodes.into_iter().try_for_each(|(node, image)| division.node(node, image))?;
    division.finish(inputs, outputs)
}

/// Leaves depthwise convolutions from a tensor of rten's to another to rten: they cost less than two changes of the layout, as between the
/// tokens of a transformer.
fn leave_lone_depthwise(nodes: &mut [(&NodeProto, Option<ImageNode>)]) {
    let images = || nodes.iter().filter_map(|(node, image)| Some((node, image.as_ref()?)));
    let made: HashSet<String> = images().flat_map(|(node, _)| node.output.iter().cloned()).collect();
    let read: HashSet<String> = images().flat_map(|(_, image)| image.reads.iter().cloned()).collect();
    for (node, image) in nodes {
        let is_lone = image.as_ref().is_some_and(|ImageNode { role, reads, .. }| {
            let is_depthwise = matches!(role, Role::Convolution(convolution) if convolution.is_depthwise());
            is_depthwise && !reads.iter().any(|name| made.contains(name)) && !node.output.iter().any(|name| read.contains(name))
        });
        if is_lone {
            *image = None;
        }
    }
}

/// What a node reads, in its graphs too.
fn reads(node: &NodeProto) -> impl Iterator<Item = &str> {
    fn inner<'a>(node: &'a NodeProto, into: &mut Vec<&'a str>) {
        into.extend(node.input.iter().map(String::as_str).filter(|name| !name.is_empty()));
        let graphs = node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
        for graph in graphs {
            let mut all = Vec::new();
            graph.node.iter().for_each(|node| inner(node, &mut all));
            all.extend(graph.output.iter().map(|port| port.name.as_str()));
            let nodes = graph.node.iter().flat_map(|node| &node.output);
            let made = nodes.chain(graph.input.iter().map(|port| &port.name)).chain(graph.initializer.iter().map(|t| &t.name));
            let made: HashSet<&str> = made.map(String::as_str).collect();
            into.extend(all.into_iter().filter(|name| !made.contains(name)));
        }
    }
    let mut all = Vec::new();
    inner(node, &mut all);
    all.into_iter()
}

/// What rten computes in a stage.
#[derive(Debug, Default)]
struct Part<'a> {
    nodes: Vec<&'a NodeProto>,
    reads: BTreeSet<String>,
    makes: BTreeSet<String>,
}

/// A division under way.
#[derive(Debug)]
struct Division<'a> {
    model: &'a ModelProto,
    graph: &'a GraphProto,
    constants: Constants,
    origins: HashMap<String, Origin>,
    drafts: Drafts,
    parts: Vec<Part<'a>>,
    /// Images that rten reads, or the caller.
    used: HashSet<String>,
}

impl<'a> Division<'a> {
    /// `None` for a tensor that no node before makes.
    fn origin(&self, name: &str) -> Option<Origin> {
        let known = self.origins.get(name).copied();
        known.or_else(|| self.constants.has(name).then_some(Origin::Constant))
    }

    fn node(&mut self, node: &'a NodeProto, image: Option<ImageNode>) -> Option<()> {
        if node.output.iter().any(|name| self.constants.has(name)) {
            return Some(());
        }
        let Some(image) = image else { return self.by_rten(node) };
        let mut stage = 0;
        for name in &image.reads {
            stage = stage.max(match self.origin(name)? {
                Origin::Constant => return None,
                Origin::Given => 0,
                Origin::Rten(made) => {
                    self.part(made).makes.insert(name.clone());
                    made
                }
                Origin::Image(made) => made,
            });
        }
        let output = node.output.first()?;
        let name = if node.name.is_empty() { output } else { &node.name };
        self.drafts.add(stage, name, output, image);
        let stage = self.drafts.stage(output)?;
        self.part(stage);
        self.origins.insert(output.clone(), Origin::Image(stage));
        Some(())
    }

    fn part(&mut self, stage: usize) -> &mut Part<'a> {
        while self.parts.len() <= stage {
            self.parts.push(Part::default());
        }
        &mut self.parts[stage]
    }

    fn by_rten(&mut self, node: &'a NodeProto) -> Option<()> {
        let mut stage = 0;
        for name in reads(node) {
            stage = stage.max(match self.origin(name)? {
                Origin::Constant | Origin::Given => 0,
                Origin::Rten(made) => made,
                Origin::Image(made) => made + 1,
            });
        }
        for name in reads(node) {
            self.read(stage, name)?;
        }
        self.part(stage).nodes.push(node);
        let made = node.output.iter().filter(|name| !name.is_empty());
        self.origins.extend(made.map(|name| (name.clone(), Origin::Rten(stage))));
        Some(())
    }

    /// Notes that rten reads a tensor in a stage.
    fn read(&mut self, stage: usize, name: &str) -> Option<()> {
        match self.origin(name)? {
            Origin::Constant => return Some(()),
            Origin::Rten(made) if made == stage => return Some(()),
            Origin::Rten(made) => {
                self.part(made).makes.insert(name.to_owned());
            }
            Origin::Image(_) => {
                self.used.insert(name.to_owned());
            }
            Origin::Given => {}
        }
        self.part(stage).reads.insert(name.to_owned());
        Some(())
    }

    fn finish(mut self, inputs: &[String], outputs: &[String]) -> Option<Divided> {
        for name in outputs {
            match self.origin(name)? {
                Origin::Rten(stage) => {
                    self.part(stage).makes.insert(name.clone());
                }
                Origin::Image(_) => {
                    self.used.insert(name.clone());
                }
                Origin::Given => return None,
                // rten gives it, as a result of its own
                Origin::Constant => {
                    self.part(0).makes.insert(name.clone());
                }
            }
        }
        let mut places = Places::default();
        let Self { model, graph, constants, drafts, parts, used, .. } = self;
        let steps = drafts.finish(used, |name| places.of(name))?;
        let mut stages: Vec<Stage> = Vec::with_capacity(parts.len());
        for part in parts {
            let mut named =
                |names: &BTreeSet<String>| names.iter().map(|name| (name.clone(), places.of(name))).collect::<Vec<_>>();
            let (reads, makes) = (named(&part.reads), named(&part.makes));
            let part = (!makes.is_empty()).then(|| extract(model, graph, &part, &constants));
            stages.push(Stage { part, reads, makes, ..Stage::default() });
        }
        for (stage, step) in steps {
            stages.get_mut(stage)?.steps.push(step);
        }
        let mut of = |names: &[String]| names.iter().map(|name| places.of(name)).collect::<Vec<_>>();
        let (inputs, outputs) = (of(inputs), of(outputs));
        let mut divided = Divided { stages, inputs, outputs, places: places.0.len() };
        divided.free();
        Some(divided)
    }
}

/// The part of a file that rten computes in a stage, with the constants that it needs.
fn extract(model: &ModelProto, graph: &GraphProto, part: &Part<'_>, constants: &Constants) -> ModelProto {
    let mut needed: HashSet<&str> =
        part.nodes.iter().flat_map(|node| reads(node)).chain(part.makes.iter().map(String::as_str)).collect();
    let mut before = Vec::new();
    for node in graph.node.iter().rev().filter(|node| node.output.iter().any(|name| constants.has(name))) {
        if node.output.iter().any(|name| needed.contains(name.as_str())) {
            needed.extend(reads(node));
            before.push(node.clone());
        }
    }
    before.reverse();
    let port = |name: &String| {
        let given = graph.input.iter().find(|port| port.name == *name);
        given.cloned().unwrap_or_else(|| ValueInfoProto { name: name.clone(), ..ValueInfoProto::default() })
    };
    let initializer =
        graph.initializer.iter().filter(|tensor| needed.contains(tensor.name.as_str()) && !part.reads.contains(&tensor.name));
    let part = GraphProto {
        node: before.into_iter().chain(part.nodes.iter().map(|node| (*node).clone())).collect(),
        initializer: initializer.cloned().collect(),
        input: part.reads.iter().map(port).collect(),
        output: part.makes.iter().map(|name| ValueInfoProto { name: name.clone(), ..ValueInfoProto::default() }).collect(),
        name: graph.name.clone(),
        ..GraphProto::default()
    };
    ModelProto { graph: Some(part), ..model_without_graph(model) }
}

fn model_without_graph(model: &ModelProto) -> ModelProto {
    ModelProto { ir_version: model.ir_version, opset_import: model.opset_import.clone(), ..ModelProto::default() }
}

impl Divided {
    /// Notes after which step or stage a tensor is read no more.
    fn free(&mut self) {
        let mut read: HashSet<usize> = self.outputs.iter().copied().collect();
        for stage in self.stages.iter_mut().rev() {
            let mut last = |places: Vec<usize>| places.into_iter().filter(|place| read.insert(*place)).collect::<Vec<_>>();
            for step in stage.steps.iter_mut().rev() {
                step.frees = last(step.reads());
            }
            stage.frees = last(stage.reads.iter().map(|(_, place)| *place).collect());
        }
    }
}
