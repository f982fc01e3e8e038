//! The cost of reading an exchange, from head to ledger: an OIP body of 1 KiB as JSON, binary and over gRPC, and a chat that
//! streams 64 chunks. `cargo bench --profile dist --bench exchange_reader`.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lapwing_ledger::{Ledger, Stamp};
use lapwing_protocol::Protocols;

fn head(fields: &[(&'static str, &str)]) -> HeaderMap {
    let field = |&(name, value): &(&'static str, &str)| {
        HeaderValue::from_str(value).ok().map(|value| (HeaderName::from_static(name), value))
    };
    fields.iter().filter_map(field).collect()
}

struct Exchange {
    path: &'static str,
    asked: HeaderMap,
    request: Vec<u8>,
    answered: HeaderMap,
    response: Vec<Vec<u8>>,
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json"), ("host", "m:8000"), ("user-agent", "bench")];

fn oip_json() -> Exchange {
    let mut data = String::new();
    for n in 0..96_u32 {
        let _ =
            write!(data, "{}{:.7}", if n > 0 { "," } else { "" }, f64::from(n.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX));
    }
    let request = format!(r#"{{"id":"1","inputs":[{{"name":"x","shape":[3,32],"datatype":"FP32","data":[{data}]}}]}}"#);
    let response = br#"{"model_name":"m","outputs":[{"name":"y","shape":[3],"datatype":"FP32","data":[1,2,3]}]}"#.to_vec();
    Exchange {
        path: "/v2/models/digits/infer",
        asked: head(JSON),
        request: request.into_bytes(),
        answered: head(JSON),
        response: vec![response],
    }
}

fn oip_binary() -> Exchange {
    let json = r#"{"inputs":[{"name":"x","shape":[3,72],"datatype":"FP32","parameters":{"binary_data_size":864}}]}"#;
    let mut request = json.as_bytes().to_vec();
    request.resize(request.len() + 864, 0x22);
    let length = json.len().to_string();
    let asked = [("content-type", "application/octet-stream"), ("inference-header-content-length", length.as_str())];
    Exchange { path: "/v2/models/digits/infer", asked: head(&asked), request, ..oip_json() }
}

fn oip_grpc() -> Exchange {
    // model_name; inputs { name, datatype, shape [3, 72] }; raw_input_contents
    let mut message = b"\x0a\x06digits\x2a\x0d\x0a\x01x\x12\x04FP32\x1a\x02\x03\x48\x3a\xe0\x06".to_vec();
    message.resize(message.len() + 864, 0x22);
    let mut request = vec![0, 0, 0];
    request.extend((message.len() as u16).to_be_bytes());
    request.extend(message);
    let kind = head(&[("content-type", "application/grpc")]);
    Exchange {
        path: "/inference.GRPCInferenceService/ModelInfer",
        asked: kind.clone(),
        request,
        answered: kind,
        response: vec![vec![0, 0, 0, 0, 3, 0x0a, 1, b'm']],
    }
}

fn chat() -> Exchange {
    let chunk = |content: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
             \"delta\":{{{content}}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
        )
        .into_bytes()
    };
    let mut response = vec![chunk(r#""role":"assistant","content":"""#)];
    response.extend((0..64).map(|_| chunk(r#""content":" token""#)));
    response
        .push(b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":64}}\n\ndata: [DONE]\n\n".to_vec());
    let request = br#"{"model":"m","stream":true,"messages":[{"role":"user","content":"Tell me a story of a lapwing."}]}"#;
    Exchange {
        path: "/v1/chat/completions",
        asked: head(JSON),
        request: request.to_vec(),
        answered: head(&[("content-type", "text/event-stream; charset=utf-8")]),
        response,
    }
}

fn exchanges(c: &mut Criterion) {
    let mut group = c.benchmark_group("exchange_reader");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    let protocols = Protocols::default();
    for (name, exchange) in
        [("oip_json_1k", oip_json()), ("oip_binary_1k", oip_binary()), ("oip_grpc_1k", oip_grpc()), ("chat_stream_64", chat())]
    {
        let spoken = protocols.detect(&Method::POST, exchange.path);
        group.bench_function(name, |b| {
            let mut ledger = Ledger::open(Stamp::now(), 0);
            b.iter(|| {
                if let Some(mut reader) = protocols.open(&spoken, &exchange.asked) {
                    reader.request(black_box(&exchange.request));
                    reader.response_head(200, &exchange.answered);
                    for (at, piece) in exchange.response.iter().enumerate() {
                        reader.response(black_box(piece), at as u64 * 1_000);
                    }
                    black_box(reader.close(&mut ledger));
                }
                ledger.generation = None;
                ledger.reports.clear();
            });
        });
    }
    group.bench_function("a_path_seen_first", |b| {
        b.iter(|| black_box(protocols.detect(&Method::POST, black_box("/v2/models/digits/infer"))));
    });
    group.finish();
}

criterion_group!(benches, exchanges);
criterion_main!(benches);
