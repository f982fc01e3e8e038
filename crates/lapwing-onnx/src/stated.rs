//! Shapes of inputs as a user states them, for files that leave axes open, give a wrong length for them, or no shape at all.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;

use crate::EngineError;
use crate::messages::tensor_shape_proto::Dimension;
use crate::messages::tensor_shape_proto::dimension::Value::{DimParam, DimValue};
use crate::messages::type_proto::Value::TensorType;
use crate::messages::{GraphProto, TensorShapeProto, ValueInfoProto};

/// The most axes of an input.
const MOST_AXES: usize = 16;

/// The lengths of an input's axes; `None` stays open. Text: `1,3,224,224`, with `-1` or `?` for an open axis, and `scalar` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisLengths(pub Vec<Option<usize>>);

impl FromStr for AxisLengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_start_matches('[').trim_end_matches(']');
        if text.trim() == "scalar" {
            return Ok(Self(Vec::new()));
        }
        let length = |text: &str| match text.trim() {
            "-1" | "?" => Some(None),
            number if number.bytes().all(|b| b.is_ascii_digit()) => {
                number.parse::<i32>().ok().filter(|length| *length > 0).and_then(|length| usize::try_from(length).ok()).map(Some)
            }
            _ => None,
        };
        let lengths: Option<Vec<_>> = text.split(',').map(length).collect();
        let lengths = lengths.filter(|lengths| lengths.len() <= MOST_AXES);
        lengths.map(Self).ok_or_else(|| {
            format!("must be up to {MOST_AXES} lengths from 1 to {}, as in 1,3,224,224; -1 or ? leaves an axis open", i32::MAX)
        })
    }
}

impl fmt::Display for AxisLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("scalar");
        }
        for (at, length) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match length {
                Some(length) => write!(f, "{comma}{length}")?,
                None => write!(f, "{comma}-1")?,
            }
        }
        Ok(())
    }
}

/// The stated shape of one input. Text: `INPUT=1,3,224,224`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedShape {
    /// The input's name.
    pub input: String,
    /// The lengths of its axes.
    pub lengths: AxisLengths,
}

impl FromStr for StatedShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // names may have an = in them, lengths have none
        let Some((input, lengths)) = text.rsplit_once('=').filter(|(input, _)| !input.trim().is_empty()) else {
            return Err("must be INPUT=LENGTHS, as in image=1,3,224,224".to_owned());
        };
        Ok(Self { input: input.trim().to_owned(), lengths: lengths.parse()? })
    }
}

impl fmt::Display for StatedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.input, self.lengths)
    }
}

/// Writes stated shapes into a graph. The length of an axis with a name is that of every axis of this name.
///
/// # Errors
///
/// [`EngineError::Model`] names the input that the graph does not have, or whose shape in the file is another.
pub(crate) fn state(graph: &mut GraphProto, stated: &[StatedShape]) -> Result<(), EngineError> {
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    let weights: HashSet<String> = graph.initializer.iter().map(|tensor| tensor.name.clone()).collect();
    for StatedShape { input, lengths } in stated {
        let fails = |reason: String| Err(EngineError::part(format!("stated shape of input {input}"), reason));
        let is_input = |port: &&mut ValueInfoProto| port.name == *input && !weights.contains(&port.name);
        let Some(port) = graph.input.iter_mut().find(is_input) else {
            let known = graph.input.iter().map(|port| &port.name).filter(|name| !weights.contains(*name));
            return fails(format!("the model has no such input; its inputs are {:?}", known.collect::<Vec<_>>()));
        };
        let Some(TensorType(tensor)) = port.r#type.as_mut().and_then(|kind| kind.value.as_mut()) else {
            return fails("the file does not say that it is a tensor".to_owned());
        };
        let open = || vec![Dimension::default(); lengths.0.len()];
        let shape = tensor.shape.get_or_insert_with(|| TensorShapeProto { dim: open() });
        if shape.dim.len() != lengths.0.len() {
            return fails(format!("{lengths} has {} axes, in the file it has {}", lengths.0.len(), shape.dim.len()));
        }
        for (axis, (dim, length)) in shape.dim.iter_mut().zip(&lengths.0).enumerate() {
            let Some(length) = *length else { continue };
            match &dim.value {
                Some(DimValue(fixed)) if *fixed > 0 && usize::try_from(*fixed) != Ok(length) => {
                    return fails(format!("axis {axis} is {length}, in the file it is {fixed}"));
                }
                Some(DimParam(name)) if *named.entry(name.clone()).or_insert(length) != length => {
                    return fails(format!("axis {axis} is {length}, but {name} was {} before", named[name]));
                }
                _ => dim.value = Some(DimValue(length as i64)),
            }
        }
    }
    for port in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
        let Some(TensorType(tensor)) = port.r#type.as_mut().and_then(|kind| kind.value.as_mut()) else { continue };
        for dim in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim) {
            if let Some(DimParam(name)) = &dim.value
                && let Some(length) = named.get(name)
            {
                dim.value = Some(DimValue(*length as i64));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::messages::{TypeProto, type_proto};

    fn port(name: &str, dims: Option<Vec<Option<crate::messages::tensor_shape_proto::dimension::Value>>>) -> ValueInfoProto {
        let dim = |value| Dimension { value, ..Default::default() };
        let shape = dims.map(|dims| TensorShapeProto { dim: dims.into_iter().map(dim).collect() });
        let kind = TensorType(type_proto::Tensor { elem_type: 1, shape });
        let kind = TypeProto { value: Some(kind), ..Default::default() };
        ValueInfoProto { name: name.into(), r#type: Some(kind), ..Default::default() }
    }

    fn graph() -> GraphProto {
        let open = |name: &str| Some(DimParam(name.into()));
        GraphProto {
            input: vec![
                port("ids", Some(vec![open("batch"), open("tokens")])),
                port("mask", Some(vec![open("batch"), open("tokens")])),
                port("image", Some(vec![Some(DimValue(1)), None, Some(DimValue(-1))])),
                port("any", None),
            ],
            output: vec![port("y", Some(vec![open("batch"), open("tokens"), Some(DimValue(4))]))],
            ..Default::default()
        }
    }

    fn stated(texts: &[&str]) -> Result<GraphProto, String> {
        let mut graph = graph();
        let shapes: Vec<StatedShape> = texts.iter().map(|text| text.parse().unwrap()).collect();
        state(&mut graph, &shapes).map(|()| graph).map_err(|error| error.to_string())
    }

    fn shape(port: &ValueInfoProto) -> Vec<i64> {
        let Some(TensorType(tensor)) = port.r#type.as_ref().and_then(|kind| kind.value.as_ref()) else { return vec![] };
        let length = |dim: &Dimension| if let Some(DimValue(length)) = dim.value { length } else { -1 };
        tensor.shape.iter().flat_map(|shape| &shape.dim).map(length).collect()
    }

    #[test]
    fn a_stated_length_is_that_of_every_axis_of_its_name() {
        let graph = stated(&["ids=?,16", "image=1,3,224", "any=2,-1"]).unwrap();
        let shapes: Vec<_> = graph.input.iter().chain(&graph.output).map(shape).collect();
        assert_eq!(shapes, [vec![-1, 16], vec![-1, 16], vec![1, 3, 224], vec![2, -1], vec![-1, 16, 4]]);
    }

    #[test]
    fn what_the_file_says_otherwise_is_refused() {
        for (texts, reason) in [
            (&["other=1"][..], "the model has no such input; its inputs are [\"ids\", \"mask\", \"image\", \"any\"]"),
            (&["ids=1"], "1 has 1 axes, in the file it has 2"),
            (&["image=2,3,224"], "axis 0 is 2, in the file it is 1"),
            (&["ids=1,8", "mask=1,9"], "axis 1 is 9, but tokens was 8 before"),
        ] {
            let said = stated(texts).unwrap_err();
            assert!(said.contains("stated shape of input") && said.contains(reason), "{said}");
        }
    }

    #[test]
    fn texts_that_are_no_shapes_are_refused() {
        assert_eq!("a=b=2".parse::<StatedShape>().unwrap().input, "a=b");
        assert_eq!("[1, ?,-1]".parse::<AxisLengths>().unwrap().to_string(), "1,-1,-1");
        for text in ["", "1,", "0", "-2", "1x3", "1,3,+4", "99999999999", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"] {
            assert!(text.parse::<AxisLengths>().unwrap_err().contains("as in 1,3,224,224"), "{text}");
        }
        for text in ["image", "=1", " =1,2"] {
            assert!(text.parse::<StatedShape>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_lengths_or_a_reason(text in r"(\PC{0,12}|\[?(-1|\?|[0-9]{1,11}|,| ){0,9}\]?)") {
            if let Ok(lengths) = text.parse::<AxisLengths>() {
                prop_assert_eq!(lengths.to_string().parse::<AxisLengths>(), Ok(lengths));
            }
        }
    }
}
