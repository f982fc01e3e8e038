//! Images with their channels side by side.

use lapwing_engine::cpu::conv::transpose;
use lapwing_engine::cpu::level::Level;
use rten_tensor::{AsView, Layout, Tensor, TensorView};

use crate::model::image_memory::Buffers;

/// An image for each element of a batch, channels last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Image {
    /// Images, rows, columns, channels.
    pub(crate) shape: [usize; 4],
    /// 3 or 4: its axes in ONNX. Of 3, there is one row.
    pub(crate) rank: usize,
    pub(crate) data: Vec<f32>,
}

impl Image {
    /// An image of a tensor in ONNX's order of axes.
    ///
    /// # Errors
    ///
    /// The tensor's shape, if it is none of an image.
    pub(crate) fn of(tensor: &TensorView<'_, f32>, rank: usize, buffers: &mut Buffers) -> Result<Self, String> {
        let shape = match *tensor.shape() {
            [images, channels, columns] if rank == 3 => [images, 1, columns, channels],
            [images, channels, rows, columns] if rank == 4 => [images, rows, columns, channels],
            _ => return Err(format!("its input has the shape {:?}, and needs {rank} axes", tensor.shape())),
        };
        let mut image = Self::made(shape, rank, buffers)?;
        if !image.data.is_empty() {
            let sides = [shape[3], image.pixels()];
            transpose(Level::best(), sides, &tensor.to_contiguous().to_slice(), &mut image.data)
                .map_err(|error| error.to_string())?;
        }
        Ok(image)
    }

    /// The tensor in ONNX's order of axes.
    ///
    /// # Errors
    ///
    /// The shape, if it does not fit the memory.
    pub(crate) fn tensor(&self) -> Result<Tensor<f32>, String> {
        let [images, rows, columns, channels] = self.shape;
        let mut data = Buffers::default().take(self.data.len())?;
        if !data.is_empty() {
            let sides = [self.pixels(), channels];
            transpose(Level::best(), sides, &self.data, &mut data).map_err(|error| error.to_string())?;
        }
        let shape = [images, channels, rows, columns];
        Ok(if self.rank == 3 {
            Tensor::from_data(&[images, channels, columns][..], data)
        } else {
            Tensor::from_data(&shape[..], data)
        })
    }

    /// The tensor whose last axis is that of channels.
    pub(crate) fn channels_last(self) -> Tensor<f32> {
        let [images, rows, columns, channels] = self.shape;
        let shape = [images, rows, columns, channels];
        if self.rank == 3 {
            Tensor::from_data(&[images, columns, channels][..], self.data)
        } else {
            Tensor::from_data(&shape[..], self.data)
        }
    }

    pub(crate) fn made(shape: [usize; 4], rank: usize, buffers: &mut Buffers) -> Result<Self, String> {
        let len = shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
        let len = len.ok_or_else(|| format!("an image of {shape:?} does not fit the memory"))?;
        Ok(Self { shape, rank, data: buffers.take(len)? })
    }

    pub(crate) fn pixels(&self) -> usize {
        self.shape[1] * self.shape[2]
    }

    /// The pixels of one image.
    pub(crate) fn one(&self, image: usize) -> &[f32] {
        let len = self.pixels() * self.shape[3];
        &self.data[image * len..][..len]
    }

    /// The image, repeated along the axes in which it is 1 long and `shape` is not.
    pub(crate) fn repeated(&self, [images, rows, columns]: [usize; 3], buffers: &mut Buffers) -> Result<Self, String> {
        let channels = self.shape[3];
        let mut to = Self::made([images, rows, columns, channels], self.rank, buffers)?;
        let along = |index: usize, axis: usize| if self.shape[axis] == 1 { 0 } else { index };
        for (pixel, values) in to.data.chunks_exact_mut(channels).enumerate() {
            let (image, row, column) = (pixel / (rows * columns), pixel / columns % rows, pixel % columns);
            let at = (along(image, 0) * self.shape[1] + along(row, 1)) * self.shape[2] + along(column, 2);
            values.copy_from_slice(&self.data[at * channels..][..channels]);
        }
        Ok(to)
    }
}

/// The mean of each channel.
pub(crate) fn mean(image: &Image, buffers: &mut Buffers) -> Result<Image, String> {
    let [images, _, columns, channels] = image.shape;
    if image.pixels() * channels == 0 {
        return Err(format!("its input of {:?} has no elements", image.shape));
    }
    let mut to = Image::made([images, 1, 1, channels], image.rank, buffers)?;
    let mut row = buffers.take(channels)?;
    for (at, sums) in to.data.chunks_exact_mut(channels).enumerate() {
        sums.fill(0.0);
        // rows are summed by themselves, so that sums of many pixels stay precise
        for pixels in image.one(at).chunks_exact(columns * channels) {
            row.fill(0.0);
            for pixel in pixels.chunks_exact(channels) {
                row.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += x);
            }
            sums.iter_mut().zip(&row).for_each(|(sum, x)| *sum += x);
        }
        let count = image.pixels() as f32;
        sums.iter_mut().for_each(|sum| *sum /= count);
    }
    buffers.give(row);
    Ok(to)
}

/// Images with their channels side by side.
pub(crate) fn side_by_side(all: &[&Image], buffers: &mut Buffers) -> Result<Image, String> {
    let Some(first) = all.first() else { return Err("it has no inputs".to_owned()) };
    let [images, rows, columns, _] = first.shape;
    if let Some(other) = all.iter().find(|image| image.shape[..3] != first.shape[..3]) {
        return Err(format!("its inputs of [images, rows, columns, channels] {:?} and {:?} differ", first.shape, other.shape));
    }
    let channels = all.iter().map(|image| image.shape[3]).sum();
    let mut to = Image::made([images, rows, columns, channels], first.rank, buffers)?;
    let mut from = 0;
    for image in all {
        let part = image.shape[3];
        for (to, pixel) in to.data.chunks_exact_mut(channels).zip(image.data.chunks_exact(part)) {
            to[from..from + part].copy_from_slice(pixel);
        }
        from += part;
    }
    Ok(to)
}
