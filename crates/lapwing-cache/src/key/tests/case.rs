//! A request by what it means, and the many ways to write it.

use http::Request;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

/// The data of a tensor.
#[derive(Clone, Debug, PartialEq)]
enum Data {
    Whole(Vec<i64>),
    /// Eighths, which every type of floating-point numbers has.
    Fractions(Vec<i32>),
    Bools(Vec<bool>),
    Texts(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    name: String,
    datatype: &'static str,
    shape: Vec<usize>,
    data: Data,
    /// A parameter of its own.
    scale: Option<u32>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) pool: String,
    pub(crate) model: String,
    pub(crate) version: Option<String>,
    pub(crate) identity: Option<Vec<u8>>,
    pub(crate) generation: u32,
    pub(crate) model_generation: u32,
    pub(crate) id: Option<String>,
    path: String,
    headers: Vec<(&'static str, String)>,
    tensors: Vec<Tensor>,
    /// Whole or not, which servers tell apart.
    parameter: Option<(i32, bool)>,
    /// Whether tensors are binary.
    is_binary: bool,
    is_swapped: bool,
}

const WHOLE: [(&str, i64, i64); 8] = [
    ("INT8", -128, 127),
    ("INT16", -32_768, 32_767),
    ("INT32", -2_147_483_648, 2_147_483_647),
    ("INT64", i64::MIN, i64::MAX),
    ("UINT8", 0, 255),
    ("UINT16", 0, 65_535),
    ("UINT32", 0, 4_294_967_295),
    ("UINT64", 0, i64::MAX),
];

impl Tensor {
    fn generate(rng: &mut StdRng, at: usize) -> Self {
        let shape: Vec<usize> = (0..rng.random_range(1..=3)).map(|_| rng.random_range(1..=3)).collect();
        let count = shape.iter().product();
        let (datatype, data) = match rng.random_range(0..5) {
            0 => {
                let (name, low, high) = *WHOLE.choose(rng).unwrap();
                (name, Data::Whole((0..count).map(|_| rng.random_range(low..=high)).collect()))
            }
            1 => ("BOOL", Data::Bools((0..count).map(|_| rng.random()).collect())),
            2 => ("BYTES", Data::Texts((0..count).map(|_| text(rng)).collect())),
            _ => {
                let name = *["FP32", "FP64"].choose(rng).unwrap();
                (name, Data::Fractions((0..count).map(|_| rng.random_range(-80..80)).collect()))
            }
        };
        let scale = rng.random_bool(0.3).then(|| rng.random_range(0..3));
        Self { name: format!("{}{at}", ["x", "input", "\u{e9}"].choose(rng).unwrap()), datatype, shape, data, scale }
    }

    /// Changes what it is in one way.
    fn change(&mut self, rng: &mut StdRng) -> &'static str {
        match rng.random_range(0..5) {
            0 => {
                self.name.push('_');
                "name"
            }
            1 if self.shape.iter().any(|dim| *dim > 1) && self.shape.first() != self.shape.last() => {
                self.shape.reverse();
                "shape"
            }
            1 | 2 => {
                self.shape.push(1);
                "rank"
            }
            3 => {
                self.scale = Some(self.scale.map_or(0, |scale| scale + 1));
                "parameter of a tensor"
            }
            _ => self.change_data(rng),
        }
    }

    fn change_data(&mut self, rng: &mut StdRng) -> &'static str {
        if rng.random_bool(0.3) {
            let datatype = match (self.datatype, &self.data) {
                ("FP32", _) => Some("FP64"),
                ("FP64", _) => Some("FP32"),
                ("INT8", Data::Whole(all)) if all.iter().all(|value| *value >= 0) => Some("UINT8"),
                (_, Data::Whole(all)) if self.datatype != "INT64" && all.iter().all(|value| *value >= 0) => Some("INT64"),
                _ => None,
            };
            if let Some(datatype) = datatype {
                self.datatype = datatype;
                return "datatype";
            }
        }
        match &mut self.data {
            Data::Whole(all) => {
                let value = all.choose_mut_one(rng);
                *value = if *value == 0 { 1 } else { *value - value.signum() };
            }
            Data::Fractions(all) => *all.choose_mut_one(rng) += 1,
            Data::Bools(all) => {
                let value = all.choose_mut_one(rng);
                *value = !*value;
            }
            Data::Texts(all) => all.choose_mut_one(rng).push('a'),
        }
        "element"
    }

    /// Its elements as JSON, each in one of the ways to write it.
    fn tokens(&self, rng: &mut StdRng) -> Vec<String> {
        match &self.data {
            Data::Whole(all) => all.iter().map(ToString::to_string).collect(),
            Data::Bools(all) => all.iter().map(ToString::to_string).collect(),
            Data::Texts(all) => all.iter().map(|text| quoted(text, rng)).collect(),
            Data::Fractions(all) => all.iter().map(|eighths| fraction(*eighths, rng)).collect(),
        }
    }

    fn json(&self, rng: &mut StdRng) -> String {
        let tokens = self.tokens(rng);
        if rng.random_bool(0.5) {
            return list(&tokens, rng);
        }
        // lists of lists: those of the last dimension first
        let nest = |tokens: Vec<String>, dim: &usize, rng: &mut StdRng| tokens.chunks(*dim).map(|some| list(some, rng)).collect();
        let mut nested: Vec<String> = self.shape.iter().rev().fold(tokens, |tokens, dim| nest(tokens, dim, rng));
        nested.pop().unwrap()
    }

    fn bytes(&self, is_swapped: bool) -> Vec<u8> {
        let width = |datatype: &str| {
            if datatype.ends_with("64") {
                8
            } else if datatype.ends_with("32") {
                4
            } else if datatype.ends_with("16") {
                2
            } else {
                1
            }
        };
        let elements: Vec<Vec<u8>> = match &self.data {
            Data::Whole(all) => all.iter().map(|value| value.to_le_bytes()[..width(self.datatype)].to_vec()).collect(),
            Data::Fractions(all) if self.datatype == "FP32" => {
                all.iter().map(|e| (*e as f32 / 8.0).to_le_bytes().to_vec()).collect()
            }
            Data::Fractions(all) => all.iter().map(|e| (f64::from(*e) / 8.0).to_le_bytes().to_vec()).collect(),
            Data::Bools(all) => all.iter().map(|value| vec![u8::from(*value)]).collect(),
            Data::Texts(all) => {
                all.iter().map(|text| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()).collect()
            }
        };
        let swapped = |mut element: Vec<u8>| {
            if is_swapped {
                element.reverse();
            }
            element
        };
        elements.into_iter().flat_map(swapped).collect()
    }
}

trait ChooseOne<T> {
    fn choose_mut_one(&mut self, rng: &mut StdRng) -> &mut T;
}

impl<T> ChooseOne<T> for Vec<T> {
    fn choose_mut_one(&mut self, rng: &mut StdRng) -> &mut T {
        let at = rng.random_range(0..self.len());
        &mut self[at]
    }
}

fn text(rng: &mut StdRng) -> String {
    let letters = ['a', 'b', '"', '\\', '/', '\u{e9}', ' ', '\n', ','];
    (0..rng.random_range(0..6)).map(|_| *letters.choose(rng).unwrap()).collect()
}

/// A text as JSON, with some of its characters escaped.
fn quoted(text: &str, rng: &mut StdRng) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        if matches!(letter, '"' | '\\' | '\n') || rng.random_bool(0.2) {
            quoted += &format!("\\u{:04x}", letter as u32);
        } else {
            quoted.push(letter);
        }
    }
    quoted + "\""
}

fn fraction(eighths: i32, rng: &mut StdRng) -> String {
    let value = f64::from(eighths) / 8.0;
    match rng.random_range(0..4) {
        0 => format!("{value}"),
        1 => format!("{value:e}"),
        2 => format!("{value:.5}"),
        _ => format!("{}E-3", eighths * 125),
    }
}

fn space(rng: &mut StdRng) -> &'static str {
    ["", "", " ", "\n\t"].choose(rng).unwrap()
}

fn list(elements: &[String], rng: &mut StdRng) -> String {
    format!("[{}{}{}]", space(rng), elements.join(&format!(",{}", space(rng))), space(rng))
}

fn object(mut members: Vec<(&str, String)>, rng: &mut StdRng) -> String {
    members.shuffle(rng);
    let members: Vec<String> =
        members.into_iter().map(|(key, value)| format!("{}:{}{value}", quoted(key, rng), space(rng))).collect();
    format!("{{{}{}}}", space(rng), members.join(","))
}

impl Case {
    pub(crate) fn other_id(rng: &mut StdRng) -> Option<String> {
        rng.random_bool(0.8).then(|| text(rng))
    }

    pub(crate) fn generate(rng: &mut StdRng) -> Self {
        let some = |rng: &mut StdRng, of: &[&str]| (*of.choose(rng).unwrap()).to_owned();
        let mut headers = vec![("content-type", some(rng, &["application/json", "application/octet-stream"]))];
        for (name, values) in [
            ("authorization", ["Bearer a", "Bearer b"]),
            ("x-api-key", ["1", "2"]),
            ("x-locale", ["en", "de"]),
            ("accept-encoding", ["gzip", "identity"]),
        ] {
            if rng.random_bool(0.5) {
                headers.push((name, some(rng, &values)));
            }
        }
        let is_binary = rng.random_bool(0.3);
        if !is_binary {
            headers[0].1 = "application/json".into();
        }
        Self {
            pool: some(rng, &["", "blue"]),
            model: some(rng, &["m", "n"]),
            version: rng.random_bool(0.5).then(|| some(rng, &["1", "2"])),
            identity: rng.random_bool(0.3).then(|| vec![rng.random()]),
            generation: rng.random_range(0..2),
            model_generation: rng.random_range(0..2),
            id: Self::other_id(rng),
            path: some(rng, &["/v2/models/m/infer", "/v2/models/m/infer?a=1"]),
            headers,
            tensors: (0..rng.random_range(1..3)).map(|at| Tensor::generate(rng, at)).collect(),
            parameter: rng.random_bool(0.5).then(|| (rng.random_range(0..3), rng.random())),
            is_binary,
            is_swapped: false,
        }
    }

    /// Changes what is asked, or who asks, in one way, and says which.
    pub(crate) fn change(&mut self, rng: &mut StdRng, is_shared: bool) -> &'static str {
        match rng.random_range(0..12) {
            0 => {
                self.pool.push('x');
                "pool"
            }
            1 => {
                self.version = Some(self.version.take().map_or(String::new(), |version| version + "0"));
                "version"
            }
            2 if !is_shared => {
                self.identity = Some(self.identity.take().map_or(Vec::new(), |identity| [identity, vec![0]].concat()));
                "identity"
            }
            3 => {
                self.generation += 1;
                "generation"
            }
            4 => {
                self.model_generation += 1;
                "generation of the model"
            }
            5 => {
                self.path.push('0');
                "path"
            }
            6 => {
                self.parameter = match self.parameter {
                    Some((value, is_whole)) if rng.random() => Some((value, !is_whole)),
                    Some((value, is_whole)) => Some((value + 1, is_whole)),
                    None => Some((0, true)),
                };
                "parameter"
            }
            7 => self.change_header(rng, is_shared),
            8 if self.tensors.len() > 1 => {
                self.tensors.reverse();
                "order of tensors"
            }
            9 if self.is_binary
                && self
                    .tensors
                    .iter()
                    .any(|tensor| !matches!(tensor.data, Data::Texts(_)) && tensor.bytes(true) != tensor.bytes(false)) =>
            {
                self.is_swapped = true;
                "order of bytes"
            }
            _ => self.tensors.choose_mut_one(rng).change(rng),
        }
    }

    fn change_header(&mut self, rng: &mut StdRng, is_shared: bool) -> &'static str {
        let names: &[&str] = if is_shared {
            &["x-locale", "accept-encoding"]
        } else {
            &["authorization", "x-api-key", "x-locale", "accept-encoding", "cookie"]
        };
        let name = *names.choose(rng).unwrap();
        match self.headers.iter().position(|(other, _)| *other == name) {
            Some(at) if rng.random_bool(0.3) => {
                self.headers.remove(at);
            }
            Some(at) if rng.random_bool(0.3) => self.headers.push((name, self.headers[at].1.clone())),
            Some(at) => self.headers[at].1.push('0'),
            None => self.headers.push((name, ["", "a"].choose(rng).unwrap().to_string())),
        }
        name
    }

    /// One of the ways to write it.
    pub(crate) fn render(&self, rng: &mut StdRng) -> (Request<()>, Vec<u8>) {
        let (mut inputs, mut binary) = (Vec::new(), Vec::new());
        for tensor in &self.tensors {
            let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
            let mut members = vec![
                ("name", quoted(&tensor.name, rng)),
                ("datatype", quoted(tensor.datatype, rng)),
                ("shape", list(&shape, rng)),
            ];
            let mut parameters: Vec<_> = tensor.scale.iter().map(|scale| ("scale", scale.to_string())).collect();
            if self.is_binary {
                let bytes = tensor.bytes(self.is_swapped && !matches!(tensor.data, Data::Texts(_)));
                parameters.push(("binary_data_size", bytes.len().to_string()));
                binary.extend(bytes);
            } else {
                members.push(("data", tensor.json(rng)));
            }
            if !parameters.is_empty() {
                members.push(("parameters", object(parameters, rng)));
            }
            inputs.push(object(members, rng));
        }
        let mut members = vec![("inputs", list(&inputs, rng)), ("outputs", object(vec![("name", "\"y\"".into())], rng))];
        members.extend(self.id.iter().map(|id| ("id", quoted(id, rng))).collect::<Vec<_>>());
        if let Some((value, is_whole)) = self.parameter {
            let value = if is_whole { value.to_string() } else { format!("{value}.0") };
            members.push(("parameters", object(vec![("p", value), ("q", "null".into())], rng)));
        }
        let mut body = object(members, rng).into_bytes();
        // values of the same name keep their order
        let mut headers = self.headers.clone();
        headers.push(("x-request-id", rng.random::<u32>().to_string()));
        headers.rotate_left(1);
        headers.sort_by_key(|(name, _)| std::cmp::Reverse(*name));
        let mut head = Request::post(&self.path);
        if self.is_binary {
            head = head.header("inference-header-content-length", body.len());
        }
        body.extend(binary);
        (headers.into_iter().fold(head, |head, (name, value)| head.header(name, value)).body(()).unwrap(), body)
    }
}
