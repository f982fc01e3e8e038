//! Runs the steps of a stage: images of a table, and blocks of pixels that threads share.

use std::ops::Range;

use lapwing_engine::cpu::conv::Convolution;
use lapwing_engine::cpu::level::Level;
use lapwing_engine::cpu::map::ArgData;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use smallvec::SmallVec;

use super::image::{Image, mean, side_by_side};
use super::steps::{PixelProgram, Source, Step, Work};
use crate::model::image_memory::{Buffers, ImageMemory, Scratch};

/// The pixels of a block that a program makes while they are in a cache: so many elements.
const BLOCK: usize = 1 << 14;
/// The rows of a block that a product packs together.
const BLOCK_PIXELS: usize = 112;

/// The images of a run, by place.
#[derive(Debug, Default)]
pub(crate) struct Images {
    pub(crate) of: Vec<Option<Image>>,
}

impl Images {
    fn get(&self, place: usize) -> Result<&Image, String> {
        self.of.get(place).and_then(Option::as_ref).ok_or_else(|| "an image that it reads was not made".to_owned())
    }

    /// Runs a step whose images are here.
    ///
    /// # Errors
    ///
    /// Why the images do not fit.
    pub(crate) fn run(&mut self, step: &Step, memory: &mut ImageMemory) -> Result<(), String> {
        let made = match &step.work {
            Work::Convolution { x, convolution, then } => self.convolve(self.get(*x)?, convolution, then.as_ref(), memory)?,
            Work::Program(program) => self.compute(program, None, memory)?,
            Work::Pooling { x, pooling } => {
                let image = self.get(*x)?;
                let [rows, columns] = windows(pooling.windows().count([image.shape[1], image.shape[2]]), image)?;
                let channels = image.shape[3];
                let mut to = Image::made([image.shape[0], rows, columns, channels], image.rank, &mut memory.buffers)?;
                let size = [image.shape[1], image.shape[2]];
                blocks(std::slice::from_mut(&mut to), false, &mut memory.scratch, |pixels, out, _| {
                    let mut out = out.iter_mut();
                    out.try_for_each(|out| {
                        pooling.run(&image.data, size, channels, pixels.clone(), out).map_err(|error| error.to_string())
                    })
                })?;
                vec![to]
            }
            Work::GlobalMean { x } => vec![mean(self.get(*x)?, &mut memory.buffers)?],
            // `Table` hands it over
            Work::ChannelsLast { .. } => Vec::new(),
            Work::Concat { all } => {
                let all = all.iter().map(|place| self.get(*place)).collect::<Result<Vec<_>, _>>()?;
                vec![side_by_side(&all, &mut memory.buffers)?]
            }
        };
        for (place, image) in step.makes.iter().zip(made) {
            if let Some(to) = self.of.get_mut(*place) {
                *to = Some(image);
            }
        }
        Ok(())
    }

    /// Gives an image's memory to others.
    pub(crate) fn free(&mut self, place: usize, buffers: &mut Buffers) {
        if let Some(image) = self.of.get_mut(place).and_then(Option::take) {
            buffers.give(image.data);
        }
    }

    fn convolve(
        &self,
        x: &Image,
        convolution: &Convolution,
        then: Option<&PixelProgram>,
        memory: &mut ImageMemory,
    ) -> Result<Vec<Image>, String> {
        let [inputs, outputs] = convolution.channels();
        if x.shape[3] != inputs {
            return Err(format!("its input has {} channels, and its weights are for {inputs}", x.shape[3]));
        }
        let size = [x.shape[1], x.shape[2]];
        let [rows, columns] = windows(convolution.windows().count(size), x)?;
        let shape = [x.shape[0], rows, columns, outputs];
        let convolved = |pixels: &Range<usize>, out: &mut [f32], scratch: &mut Vec<f32>| {
            scratch.resize(convolution.scratch_len(pixels.len()).max(scratch.len()), 0.0);
            convolution.run(&x.data, size, pixels.clone(), out, scratch).map_err(|error| error.to_string())
        };
        let Some(then) = then.filter(|then| self.fit(then, shape)) else {
            let mut to = Image::made(shape, x.rank, &mut memory.buffers)?;
            blocks(std::slice::from_mut(&mut to), false, &mut memory.scratch, |pixels, out, scratch| {
                out.iter_mut().try_for_each(|out| convolved(&pixels, out, &mut scratch.product))
            })?;
            let Some(then) = then else { return Ok(vec![to]) };
            let made = self.compute(then, Some(&to), memory);
            memory.buffers.give(to.data);
            return made;
        };
        let count = then.program.output_widths().count();
        let mut made = (0..count).map(|_| Image::made(shape, x.rank, &mut memory.buffers)).collect::<Result<Vec<_>, _>>()?;
        let arg = |source: &Source| match source {
            Source::Convolution => Ok(None),
            Source::Pixels(place) | Source::OnePixel(place) => self.get(*place).map(Some),
        };
        let images = then.sources.iter().map(arg).collect::<Result<Vec<_>, _>>()?;
        blocks(&mut made, true, &mut memory.scratch, |pixels, out, scratch| {
            let Scratch { product, block, program } = scratch;
            block.resize((pixels.len() * outputs).max(block.len()), 0.0);
            let block = &mut block[..pixels.len() * outputs];
            convolved(&pixels, block, product)?;
            execute(then, &images, Some(block), rows * columns, &pixels, program, out)
        })?;
        Ok(made)
    }

    /// Whether the images that a program reads have the pixels of `shape`, or one.
    fn fit(&self, program: &PixelProgram, shape: [usize; 4]) -> bool {
        program.sources.iter().all(|source| match source {
            Source::Convolution => true,
            Source::Pixels(place) => self.get(*place).is_ok_and(|image| image.shape == shape),
            Source::OnePixel(place) => self.get(*place).is_ok_and(|image| image.shape == [shape[0], 1, 1, shape[3]]),
        })
    }

    /// Runs a program over images; `convolved` is what the step's convolution made, if it has one.
    fn compute(&self, program: &PixelProgram, convolved: Option<&Image>, memory: &mut ImageMemory) -> Result<Vec<Image>, String> {
        let image = |source: &Source| match (source, convolved) {
            (Source::Convolution, Some(image)) => Ok(image),
            (Source::Convolution, None) => Err("it has no convolution".to_owned()),
            (Source::Pixels(place) | Source::OnePixel(place), _) => self.get(*place),
        };
        let images = program.sources.iter().map(image).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = images.first() else { return Err("it reads no image".to_owned()) };
        let width = program.program.width();
        let mut shape = [1; 3];
        for image in &images {
            for (all, length) in shape.iter_mut().zip(&image.shape) {
                if *length != *all && *length != 1 && *all != 1 || image.shape[3] != width {
                    let shapes: Vec<_> = images.iter().map(|image| image.shape).collect();
                    return Err(format!("its inputs of [images, rows, columns, channels] {shapes:?} do not fit one another"));
                }
                *all = if *all == 1 { *length } else { *all };
            }
        }
        let [count, rows, columns] = shape;
        let fits = |source: &Source, image: &Image| {
            let is_one = matches!(source, Source::OnePixel(_)) && image.shape[..3] == [count, 1, 1];
            is_one || (!matches!(source, Source::OnePixel(_)) && image.shape[..3] == shape)
        };
        // an image whose pixels are to be repeated becomes one of all pixels, or of one pixel for each image
        let mut repeated = Vec::with_capacity(images.len());
        for (source, image) in program.sources.iter().zip(&images) {
            let to = if matches!(source, Source::OnePixel(_)) { [count, 1, 1] } else { shape };
            repeated.push(if fits(source, image) { None } else { Some(image.repeated(to, &mut memory.buffers)?) });
        }
        let all: Vec<_> =
            images.iter().zip(&repeated).map(|(image, repeated)| Some(repeated.as_ref().unwrap_or(image))).collect();
        let outputs = program.program.output_widths().count();
        let to = [count, rows, columns, width];
        let mut made = (0..outputs).map(|_| Image::made(to, first.rank, &mut memory.buffers)).collect::<Result<Vec<_>, _>>()?;
        blocks(&mut made, true, &mut memory.scratch, |pixels, out, scratch| {
            execute(program, &all, None, rows * columns, &pixels, &mut scratch.program, out)
        })?;
        for image in repeated.into_iter().flatten() {
            memory.buffers.give(image.data);
        }
        Ok(made)
    }
}

/// Runs a program over a block of pixels, of which each image has `each`. Its arguments are images, or `convolved`, the block itself.
fn execute(
    program: &PixelProgram,
    images: &[Option<&Image>],
    convolved: Option<&[f32]>,
    each: usize,
    pixels: &Range<usize>,
    scratch: &mut Vec<f32>,
    out: &mut [&mut [f32]],
) -> Result<(), String> {
    let (first, last) = (pixels.start / each, pixels.end.div_ceil(each));
    // where the pixels of each image begin in the block
    let offsets: SmallVec<[usize; 18]> =
        (first..=last).map(|image| (image * each).clamp(pixels.start, pixels.end) - pixels.start).collect();
    let mut args: SmallVec<[ArgData<'_>; 6]> = SmallVec::new();
    for (source, image) in program.sources.iter().zip(images) {
        let of = |range: Range<usize>| {
            image.and_then(|image| image.data.get(range.start * image.shape[3]..range.end * image.shape[3]))
        };
        let values = match source {
            Source::OnePixel(_) => of(first..last),
            Source::Pixels(_) => of(pixels.clone()),
            Source::Convolution => convolved.or_else(|| of(pixels.clone())),
        };
        args.push(ArgData::F32(values.ok_or_else(|| "its images have fewer pixels than it makes".to_owned())?));
    }
    let program = &program.program;
    scratch.resize(program.scratch_len().max(scratch.len()), 0.0);
    program.run(Level::best(), &args, &offsets, 0..pixels.len(), scratch, out).map_err(|error| error.to_string())
}

/// Rows and columns of windows.
fn windows(count: Option<[usize; 2]>, image: &Image) -> Result<[usize; 2], String> {
    let [_, rows, columns, channels] = image.shape;
    if rows * columns * channels == 0 {
        return Err(format!("its input of {rows} rows, {columns} columns and {channels} channels has no elements"));
    }
    count.ok_or_else(|| format!("its kernel is larger than its padded input of {rows} rows and {columns} columns"))
}

/// Computes images of the same shape in blocks of pixels, counted through all images of a batch, by all threads. With one thread blocks are
/// small only if they `pass` a cache.
fn blocks(
    to: &mut [Image],
    pass: bool,
    scratch: &mut Scratch,
    compute: impl Fn(Range<usize>, &mut [&mut [f32]], &mut Scratch) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let Some(first) = to.first() else { return Ok(()) };
    let channels = first.shape[3].max(1);
    let pixels = first.data.len() / channels;
    if pixels == 0 {
        return Ok(());
    }
    let threads = rayon::current_num_threads();
    let small = (BLOCK / channels / BLOCK_PIXELS).max(1) * BLOCK_PIXELS;
    let share = pixels.div_ceil(threads).next_multiple_of(BLOCK_PIXELS);
    let block = if pass { small.min(share) } else { share };
    // each block has a part of each image that is made
    let mut parts: Vec<_> = to.iter_mut().map(|image| image.data.chunks_mut(block * channels)).collect();
    let all = (0..pixels.div_ceil(block)).map(|at| {
        let out: SmallVec<[&mut [f32]; 2]> = parts.iter_mut().filter_map(Iterator::next).collect();
        (at * block..((at + 1) * block).min(pixels), out)
    });
    if threads == 1 {
        let mut all = all;
        return all.try_for_each(|(pixels, mut out)| compute(pixels, &mut out, scratch));
    }
    let all: Vec<_> = all.collect();
    all.into_par_iter().map_init(Scratch::default, |scratch, (pixels, mut out)| compute(pixels, &mut out, scratch)).collect()
}
