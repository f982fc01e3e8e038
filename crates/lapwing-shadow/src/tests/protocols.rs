//! An answer as each protocol writes it.

use bytes::Bytes;

use lapwing_compare::outputs::TestAnswer;
use lapwing_protocol::OutputKind;

/// A protocol and the form of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireProtocol {
    OipJson,
    OipBinary,
    OipGrpc,
    Predictions,
    Embeddings,
    Chat,
    ChatStream,
    OwnJson,
}

/// What a server says.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Output(Vec<f64>),
    Error,
    CutOff(Vec<f64>),
    Empty,
    Html,
    Status(u16),
    /// Bytes that are nothing, with this text in them.
    Broken(u64),
}

impl WireProtocol {
    pub(crate) const ALL: [Self; 8] = [
        Self::OipJson,
        Self::OipBinary,
        Self::OipGrpc,
        Self::Predictions,
        Self::Embeddings,
        Self::Chat,
        Self::ChatStream,
        Self::OwnJson,
    ];

    pub(crate) const fn kind(self) -> OutputKind {
        match self {
            Self::OipJson | Self::OipBinary | Self::OipGrpc => OutputKind::Tensors,
            Self::Embeddings => OutputKind::Embeddings,
            Self::Chat | Self::ChatStream => OutputKind::GeneratedText,
            Self::Predictions | Self::OwnJson => OutputKind::Other,
        }
    }

    /// The answer, the `draw`th of its server.
    pub(crate) fn answer(self, said: &Said, draw: u64) -> TestAnswer {
        let media = match self {
            Self::OipGrpc => "application/grpc",
            Self::ChatStream => "text/event-stream",
            _ => "application/json",
        };
        match said {
            Said::Output(numbers) => self.output(numbers, draw),
            Said::CutOff(numbers) => {
                let mut answer = self.output(numbers, draw);
                let body = answer.body.remove(0);
                answer.body.push(body.slice(..body.len() - 7));
                answer
            }
            Said::Error => match self {
                Self::OipGrpc => TestAnswer { grpc_status: Some(13), ..TestAnswer::new(media, "") },
                Self::ChatStream => TestAnswer::new(media, "data: {\"error\":{\"message\":\"out of memory\"}}\n\n"),
                _ => TestAnswer::new("application/json", r#"{"error":{"message":"out of memory"}}"#),
            },
            Said::Empty => TestAnswer { grpc_status: self.ok(), ..TestAnswer::new(media, "") },
            Said::Html => TestAnswer::new("text/html", "<html><body>Welcome</body></html>"),
            Said::Status(status) => TestAnswer::json("{}").status(*status),
            Said::Broken(mark) => {
                TestAnswer { grpc_status: self.ok(), ..TestAnswer::new(media, format!("data: {{{mark} <broken>")) }
            }
        }
    }

    fn ok(self) -> Option<u32> {
        (self == Self::OipGrpc).then_some(0)
    }

    fn output(self, numbers: &[f64], draw: u64) -> TestAnswer {
        let (list, length) = (list(numbers), numbers.len());
        let tensor = |data: &str| {
            format!(r#"{{"model_name":"m","outputs":[{{"name":"y","datatype":"FP32","shape":[1,{length}],{data}}}]}}"#)
        };
        let raw: Vec<u8> = numbers.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
        match self {
            Self::OipJson => TestAnswer::json(tensor(&format!("\"data\":{list}"))),
            Self::OipBinary => {
                let head = tensor(&format!(r#""parameters":{{"binary_data_size":{}}}"#, raw.len()));
                let body = [head.as_bytes(), &raw].concat();
                TestAnswer::new("application/octet-stream", body).with("inference-header-content-length", head.len())
            }
            Self::OipGrpc => {
                let answer = TestAnswer::new("application/grpc", grpc(&raw, length));
                TestAnswer { grpc_status: Some(0), ..answer }
            }
            Self::Predictions => TestAnswer::json(format!(r#"{{"predictions":[{list}]}}"#)),
            Self::Embeddings => TestAnswer::json(format!(
                r#"{{"object":"list","model":"m","data":[{{"object":"embedding","index":0,"embedding":{list}}}],"usage":{{"prompt_tokens":3}}}}"#
            )),
            Self::Chat => TestAnswer::json(format!(
                r#"{{"id":"c-{draw}","choices":[{{"index":0,"message":{{"role":"assistant","content":"{}"}},"finish_reason":"stop"}}]}}"#,
                words(numbers).join(" ")
            )),
            Self::ChatStream => {
                let piece =
                    |word: &String| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word} \"}}}}]}}\n\n");
                let pieces: String = words(numbers).iter().map(piece).collect();
                let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
                TestAnswer::new("text/event-stream", pieces + end)
            }
            Self::OwnJson => {
                let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
                let id = draw.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                TestAnswer::json(format!(r#"{{"id":"req-{id:016x}","created":{now},"scores":{list},"label":"cat"}}"#))
            }
        }
    }
}

/// Numbers as Python writes them.
fn list(numbers: &[f64]) -> String {
    let word = |number: &f64| match number {
        number if number.is_nan() => "NaN".to_owned(),
        number if number.is_infinite() => if *number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        number => number.to_string(),
    };
    format!("[{}]", numbers.iter().map(word).collect::<Vec<_>>().join(","))
}

/// Numbers as the words of a text: about one percent of their size is a word of its own.
fn words(numbers: &[f64]) -> Vec<String> {
    numbers.iter().map(|number| format!("w{}", format!("{number:.2e}").replace(['.', '-'], "x"))).collect()
}

/// `ModelInferResponse` with one tensor in its raw contents.
fn grpc(raw: &[u8], length: usize) -> Bytes {
    let field = |number: u8, value: &[u8]| {
        let (low, high) = (value.len() as u8 & 0x7f | 0x80, (value.len() >> 7) as u8);
        [&[number << 3 | 2, low, high][..], value].concat()
    };
    let output = [field(1, b"y"), field(2, b"FP32"), field(3, &[1, length as u8])].concat();
    let message = [field(1, b"m"), field(2, b"1"), field(5, &output), field(6, raw)].concat();
    [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat().into()
}
