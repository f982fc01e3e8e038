//! Image nodes as steps: elementwise nodes become programs that run over the pixels of a convolution while they are in a cache.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lapwing_engine::cpu::conv::{Convolution, PoolingKernel};
use lapwing_engine::cpu::program::{ArgShape, CpuInstruction, CpuProgram};

use super::elementwise::{Elementwise, has_room};
use super::role::{ImageNode, Known, Role};

/// What an argument of a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What the step's convolution makes.
    Convolution,
    /// The pixels of an image.
    Pixels(usize),
    /// The one pixel of an image, for all pixels.
    OnePixel(usize),
}

/// A program over pixels.
#[derive(Debug)]
pub(crate) struct PixelProgram {
    pub(crate) program: CpuProgram,
    pub(crate) sources: Vec<Source>,
}

/// What a step computes. Images are named by their places in a run's table.
#[derive(Debug)]
pub(crate) enum Work {
    Convolution {
        x: usize,
        convolution: Arc<Convolution>,
        then: Option<PixelProgram>,
    },
    Program(PixelProgram),
    Pooling {
        x: usize,
        pooling: PoolingKernel,
    },
    GlobalMean {
        x: usize,
    },
    Concat {
        all: Vec<usize>,
    },
    /// The image as a tensor whose last axis is that of channels.
    ChannelsLast {
        x: usize,
    },
}

/// One step of a run.
#[derive(Debug)]
pub(crate) struct Step {
    /// The node that it begins with, for messages.
    pub(crate) node: String,
    /// 3 or 4: the axes of its images in ONNX.
    pub(crate) rank: usize,
    pub(crate) work: Work,
    pub(crate) makes: Vec<usize>,
    /// Images that no later step reads.
    pub(crate) frees: Vec<usize>,
}

/// A step while nodes are added to it.
#[derive(Debug)]
struct Draft {
    stage: usize,
    node: String,
    makes: Known,
    kind: Kind,
    /// Images that the program reads, by the places of its arguments; `None` is what the convolution makes.
    args: Vec<Option<String>>,
    code: Vec<CpuInstruction>,
    /// Images that it makes, and the instructions that hold them.
    made: Vec<(String, usize)>,
}

#[derive(Debug)]
enum Kind {
    Convolution(Arc<Convolution>, String),
    Program,
    Pooling(PoolingKernel, String),
    GlobalMean(String),
    Concat(Vec<String>),
    ChannelsLast(String),
}

/// All steps, in an order in which they can run.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    drafts: Vec<Draft>,
    /// The draft that makes an image.
    makers: HashMap<String, usize>,
}

impl Drafts {
    /// The stage of the step that makes an image.
    pub(crate) fn stage(&self, image: &str) -> Option<usize> {
        Some(self.drafts.get(*self.makers.get(image)?)?.stage)
    }

    /// Adds a node of a stage, which makes the image `output`.
    pub(crate) fn add(&mut self, stage: usize, name: &str, output: &str, node: ImageNode) {
        let made = vec![(output.to_owned(), 0)];
        let (kind, args, code) = match node.role {
            Role::Elementwise(elementwise) => {
                return self.elementwise(stage, name, output, &node.reads, node.makes, &elementwise);
            }
            Role::Convolution(convolution) => {
                (Kind::Convolution(convolution, node.reads.concat()), vec![None], vec![CpuInstruction::Arg(0)])
            }
            Role::Pooling(pooling) => (Kind::Pooling(pooling, node.reads.concat()), Vec::new(), Vec::new()),
            Role::GlobalMean => (Kind::GlobalMean(node.reads.concat()), Vec::new(), Vec::new()),
            Role::ChannelsLast => (Kind::ChannelsLast(node.reads.concat()), Vec::new(), Vec::new()),
            Role::Concat => (Kind::Concat(node.reads), Vec::new(), Vec::new()),
        };
        self.makers.insert(output.to_owned(), self.drafts.len());
        self.drafts.push(Draft { stage, node: name.to_owned(), makes: node.makes, kind, args, code, made });
    }

    /// Adds a node to the latest of the steps whose images it reads, if that goes over as many pixels; all others come before it.
    fn elementwise(&mut self, stage: usize, name: &str, output: &str, reads: &[String], makes: Known, node: &Elementwise) {
        let latest =
            reads.iter().filter_map(|image| self.makers.get(image).copied()).max_by_key(|at| (self.drafts[*at].stage, *at));
        let is_open = |at: &usize| {
            let draft = &self.drafts[*at];
            draft.makes == makes && !draft.code.is_empty() && has_room(draft.code.len())
        };
        let at = latest.filter(is_open).unwrap_or_else(|| {
            let (args, code, made) = (Vec::new(), Vec::new(), Vec::new());
            self.drafts.push(Draft { stage, node: name.to_owned(), makes, kind: Kind::Program, args, code, made });
            self.drafts.len() - 1
        });
        let Draft { args, code, made, .. } = &mut self.drafts[at];
        let result = node.write(code, |image, code| {
            if let Some((_, place)) = made.iter().find(|(name, _)| name == image) {
                return *place;
            }
            let arg = args.iter().position(|arg| arg.as_deref() == Some(image)).unwrap_or_else(|| {
                args.push(Some(image.to_owned()));
                args.len() - 1
            });
            let known = code.iter().position(|instruction| *instruction == CpuInstruction::Arg(arg));
            known.unwrap_or_else(|| {
                code.push(CpuInstruction::Arg(arg));
                code.len() - 1
            })
        });
        made.push((output.to_owned(), result));
        self.makers.insert(output.to_owned(), at);
    }

    /// The steps of each stage. `used` are the images that others than steps read; `place` gives an image's place in the table of a run.
    pub(crate) fn finish(self, mut used: HashSet<String>, mut place: impl FnMut(&str) -> usize) -> Option<Vec<(usize, Step)>> {
        let known: HashMap<String, Known> =
            self.makers.iter().map(|(image, at)| (image.clone(), self.drafts[*at].makes)).collect();
        let mut steps = Vec::with_capacity(self.drafts.len());
        let mut drafts = self.drafts;
        drafts.sort_by_key(|draft| draft.stage);
        for draft in &drafts {
            used.extend(draft.args.iter().flatten().cloned());
            used.extend(draft.kind.reads().cloned());
        }
        for draft in drafts {
            let made: Vec<(String, usize)> = draft.made.into_iter().filter(|(image, _)| used.contains(image)).collect();
            if made.is_empty() {
                continue;
            }
            let makes = made.iter().map(|(image, _)| place(image)).collect();
            let results: Vec<usize> = made.iter().map(|(_, result)| *result).collect();
            let is_plain = results == [0] && matches!(draft.kind, Kind::Convolution(..));
            let program = if is_plain || draft.code.is_empty() {
                None
            } else {
                let width = draft.makes.channels;
                let mut source = |arg: &Option<String>| match arg {
                    None => Source::Convolution,
                    Some(image) if known.get(image).is_some_and(|known| known.is_pixel) && !draft.makes.is_pixel => {
                        Source::OnePixel(place(image))
                    }
                    Some(image) => Source::Pixels(place(image)),
                };
                let sources: Vec<Source> = draft.args.iter().map(&mut source).collect();
                let shape = |source: &Source| ArgShape { width, per_sequence: matches!(source, Source::OnePixel(_)) };
                let program = CpuProgram::new(width, sources.iter().map(shape).collect(), draft.code, results).ok()?;
                Some(PixelProgram { program, sources })
            };
            let work = match draft.kind {
                Kind::Convolution(convolution, x) => Work::Convolution { x: place(&x), convolution, then: program },
                Kind::Program => Work::Program(program?),
                Kind::Pooling(pooling, x) => Work::Pooling { x: place(&x), pooling },
                Kind::GlobalMean(x) => Work::GlobalMean { x: place(&x) },
                Kind::ChannelsLast(x) => Work::ChannelsLast { x: place(&x) },
                Kind::Concat(all) => Work::Concat { all: all.iter().map(|image| place(image)).collect() },
            };
            steps.push((draft.stage, Step { node: draft.node, rank: draft.makes.rank, work, makes, frees: Vec::new() }));
        }
        Some(steps)
    }
}

impl Kind {
    fn reads(&self) -> impl Iterator<Item = &String> {
        let (one, all): (Option<&String>, &[String]) = match self {
            Self::Convolution(_, x) | Self::Pooling(_, x) | Self::GlobalMean(x) | Self::ChannelsLast(x) => (Some(x), &[]),
            Self::Program => (None, &[]),
            Self::Concat(all) => (None, all),
        };
        one.into_iter().chain(all)
    }
}

impl Step {
    /// The images that it reads.
    pub(crate) fn reads(&self) -> Vec<usize> {
        let of = |program: &PixelProgram| {
            let place = |source: &Source| match source {
                Source::Convolution => None,
                Source::Pixels(at) | Source::OnePixel(at) => Some(*at),
            };
            program.sources.iter().filter_map(place).collect::<Vec<_>>()
        };
        match &self.work {
            Work::Convolution { x, then, .. } => then.iter().flat_map(of).chain([*x]).collect(),
            Work::Program(program) => of(program),
            Work::Pooling { x, .. } | Work::GlobalMean { x } | Work::ChannelsLast { x } => vec![*x],
            Work::Concat { all } => all.clone(),
        }
    }
}
