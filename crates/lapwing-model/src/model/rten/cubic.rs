//! `Resize` in the mode `cubic`, which rten computes as linear: along each of the last two axes, an element is the sum of the four that are
//! nearest, weighed by Keys' cubic convolution, as ONNX defines it and ONNX Runtime computes it.

use super::known::{Known, attribute, floats, integer, text};
use super::nodes::{Nodes, Parts, real_of, whole, whole_of, wholes_of};
use lapwing_onnx::messages::NodeProto;
use lapwing_onnx::messages::tensor_proto::DataType;

/// Where an element of the result lies in the input.
#[derive(Clone, Copy)]
enum Coordinates {
    HalfPixel,
    /// Like half pixels, but a single element is the first of the input.
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
}

/// The nodes that stand for the node.
///
/// # Errors
///
/// What it asks for that is not written here.
pub(crate) fn nodes(node: &NodeProto, known: &Known) -> Result<Nodes, &'static str> {
    let coordinates = match text(node, "coordinate_transformation_mode").unwrap_or("half_pixel") {
        "half_pixel" => Coordinates::HalfPixel,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        _ => return Err("rten has the mode cubic for half pixels, aligned corners and asymmetric coordinates alone"),
    };
    if integer(node, "antialias").unwrap_or(0) != 0 {
        return Err("rten has no antialias");
    }
    if !matches!(text(node, "keep_aspect_ratio_policy"), None | Some("stretch")) {
        return Err("rten keeps no aspect ratio (keep_aspect_ratio_policy)");
    }
    let is_sized = node.input.get(3).is_some_and(|sizes| !sizes.is_empty());
    if !resizes_last_axes(node, known, is_sized) {
        return Err("rten has the mode cubic for the last two axes alone");
    }
    let mut cubic = Cubic {
        parts: Parts::of(node),
        coordinates,
        is_sized,
        coefficient: attribute(node, "cubic_coeff_a").map_or(-0.75, |attribute| attribute.f),
        excludes_outside: integer(node, "exclude_outside").unwrap_or(0) != 0,
    };
    let x = cubic.parts.input(0);
    let rows = cubic.along(x, -2);
    let columns = cubic.along(&rows, -1);
    cubic.parts.last("Identity", &[&columns], &[]);
    Ok(cubic.parts.nodes)
}

/// Whether nothing but the last two axes is resized, as far as the file shows it.
fn resizes_last_axes(node: &NodeProto, known: &Known, is_sized: bool) -> bool {
    if let Some(axes) = attribute(node, "axes") {
        let rank = node.input.first().and_then(|x| known.rank(x)).and_then(|rank| i64::try_from(rank).ok());
        return axes.ints == [-2, -1] || rank.is_some_and(|rank| axes.ints == [rank - 2, rank - 1]);
    }
    let scales = node.input.get(2).filter(|_| !is_sized).and_then(|name| known.constant_of(name));
    let scales: Vec<f32> = scales.into_iter().flat_map(floats).collect();
    scales.len() < 2 || scales[..scales.len() - 2].iter().all(|scale| *scale == 1.0)
}

struct Cubic<'a> {
    parts: Parts<'a>,
    coordinates: Coordinates,
    /// The lengths of the result are given, and not its scales.
    is_sized: bool,
    /// `a` of the convolution's kernel.
    coefficient: f32,
    /// Elements outside of the input weigh nothing, and are not those at its ends.
    excludes_outside: bool,
}

impl Cubic<'_> {
    /// The input resized along one axis, which counts from the end.
    fn along(&mut self, x: &str, axis: i64) -> String {
        let (length, position) = self.positions(x, axis);
        let first = self.parts.made("Floor", &[&position], &[]);
        let behind = self.two("Sub", &position, &first);
        let last = self.with("Sub", &length, 1.0);
        let mut taps = Vec::new();
        for tap in 0..4_u8 {
            let offset = f32::from(tap) - 1.0;
            let place = self.with("Add", &first, offset);
            let least = self.with("Max", &place, 0.0);
            let inside = self.two("Min", &least, &last);
            let mut weight = self.weight(&behind, offset);
            if self.excludes_outside {
                let is_inside = self.two("Equal", &place, &inside);
                let is_inside = self.cast(&is_inside, DataType::Float);
                weight = self.two("Mul", &weight, &is_inside);
            }
            taps.push((inside, weight));
        }
        if self.excludes_outside {
            let sum = taps[1..].to_vec().iter().fold(taps[0].1.clone(), |sum, (_, weight)| self.two("Add", &sum, weight));
            for (_, weight) in &mut taps {
                *weight = self.two("Div", weight, &sum);
            }
        }
        // a weight for each row, or for each column
        let shape = self.parts.stored(wholes_of(if axis == -2 { &[-1, 1] } else { &[-1] }));
        let mut sum: Option<String> = None;
        for (place, weight) in &taps {
            let place = self.cast(place, DataType::Int64);
            let elements = self.parts.made("Gather", &[x, &place], &[whole("axis", axis)]);
            let weight = self.two("Reshape", weight, &shape);
            let weighed = self.two("Mul", &elements, &weight);
            sum = Some(match &sum {
                Some(sum) => self.two("Add", sum, &weighed),
                None => weighed,
            });
        }
        sum.unwrap_or_default()
    }

    /// The input's length along an axis, and the place in the input of each element of the result; both are real numbers.
    fn positions(&mut self, x: &str, axis: i64) -> (String, String) {
        let at = self.parts.stored(whole_of(axis));
        let shape = self.parts.made("Shape", &[x], &[]);
        let length = self.two("Gather", &shape, &at);
        let length = self.cast(&length, DataType::Float);
        let (scale, resized, count);
        if self.is_sized {
            count = self.two("Gather", self.parts.input(3), &at);
            resized = self.cast(&count, DataType::Float);
            scale = self.two("Div", &resized, &length);
        } else {
            scale = self.two("Gather", self.parts.input(2), &at);
            let real = self.two("Mul", &length, &scale);
            resized = self.parts.made("Floor", &[&real], &[]);
            count = self.cast(&resized, DataType::Int64);
        }
        let [zero, one] = [0, 1].map(|number| self.parts.stored(whole_of(number)));
        let places = self.parts.made("Range", &[&zero, &count, &one], &[]);
        let places = self.cast(&places, DataType::Float);
        let position = match self.coordinates {
            Coordinates::Asymmetric => self.two("Div", &places, &scale),
            Coordinates::AlignCorners => {
                let (last, last_resized) = (self.with("Sub", &length, 1.0), self.with("Sub", &resized, 1.0));
                let last_resized = self.with("Max", &last_resized, 1.0);
                let product = self.two("Mul", &places, &last);
                self.two("Div", &product, &last_resized)
            }
            Coordinates::HalfPixel => self.by_half_pixels(&places, &scale),
            Coordinates::PytorchHalfPixel => {
                let position = self.by_half_pixels(&places, &scale);
                let one = self.parts.stored(real_of(1.0));
                let has_more = self.two("Greater", &resized, &one);
                let has_more = self.cast(&has_more, DataType::Float);
                self.two("Mul", &position, &has_more)
            }
        };
        (length, position)
    }

    fn by_half_pixels(&mut self, places: &str, scale: &str) -> String {
        let middle = self.with("Add", places, 0.5);
        let middle = self.two("Div", &middle, scale);
        self.with("Sub", &middle, 0.5)
    }

    /// The weights of the elements that lie so far behind the first one, of which the result lies `behind` behind.
    fn weight(&mut self, behind: &str, offset: f32) -> String {
        let a = self.coefficient;
        let distance = if offset < 1.0 {
            self.with("Sub", behind, offset)
        } else {
            let offset = self.parts.stored(real_of(offset));
            self.two("Sub", &offset, behind)
        };
        let is_near = offset == 0.0 || offset == 1.0;
        let [cube, square, linear, constant] =
            if is_near { [a + 2.0, -(a + 3.0), 0.0, 1.0] } else { [a, -5.0 * a, 8.0 * a, -4.0 * a] };
        let mut sum = self.with("Mul", &distance, cube);
        for coefficient in [square, linear] {
            sum = self.with("Add", &sum, coefficient);
            sum = self.two("Mul", &sum, &distance);
        }
        self.with("Add", &sum, constant)
    }

    fn two(&mut self, kind: &str, one: &str, other: &str) -> String {
        self.parts.made(kind, &[one, other], &[])
    }

    /// A tensor with a number.
    fn with(&mut self, kind: &str, name: &str, number: f32) -> String {
        let number = self.parts.stored(real_of(number));
        self.two(kind, name, &number)
    }

    fn cast(&mut self, name: &str, kind: DataType) -> String {
        self.parts.made("Cast", &[name], &[whole("to", kind as i64)])
    }
}
