//! Compares the table of routes in docs/UPSTREAMS.md with the code, and asks for an exchange of each of its rows.

use std::path::Path;

use super::super::detect::{Family, ROUTES, detect, detect_grpc};
use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::servers::{Quantity, table};
use super::super::tag::Tag;
use super::spec;
use lapwing_ledger::Unit;

/// The methods of gRPC, by family.
const METHODS: &[(Family, &str)] = &[
    (Family::OipGrpc, "/inference.GRPCInferenceService/ModelInfer"),
    (Family::OipGrpcStream, "/inference.GRPCInferenceService/ModelStreamInfer"),
    (Family::TeiGrpcEmbed, "/tei.v1.Embed/…"),
    (Family::TeiGrpcPair, "/tei.v1.Predict/PredictPair"),
    (Family::TeiGrpcRerank, "/tei.v1.Rerank/Rerank"),
    (Family::TeiGrpcRerankStream, "/tei.v1.Rerank/RerankStream"),
    (Family::TfGrpc, "/tensorflow.serving.PredictionService/Predict"),
];

fn places(watched: WatchSpec) -> Vec<(String, Tag)> {
    let field = |path: &[u32]| path.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    match watched {
        WatchSpec::Nothing => Vec::new(),
        WatchSpec::Json(places) => places.iter().map(|(path, tag)| ((*path).to_owned(), *tag)).collect(),
        WatchSpec::Proto(fields) => fields.iter().map(|(path, tag, _)| (format!("field {}", field(path)), *tag)).collect(),
    }
}

fn routes(family: Family) -> String {
    let method = METHODS.iter().filter(|(own, _)| *own == family).map(|(_, path)| format!("`{path}`"));
    let routes = ROUTES.iter().filter(|route| route.family == family);
    let paths = routes.map(|route| format!("`{}{}`", if route.is_whole { "" } else { "…" }, route.path));
    paths.chain(method).collect::<Vec<_>>().join(", ")
}

fn unit(spec: &ProtocolSpec) -> String {
    let first = spec.primary.name();
    spec.primary_otherwise.map_or(first.to_owned(), |unit| format!("{first}, or {} without any", unit.name()))
}

fn model(family: Family, spec: &ProtocolSpec) -> String {
    let names = |watched| places(watched).iter().any(|(_, tag)| *tag == Tag::Model);
    let in_path = ROUTES.iter().any(|route| route.family == family && route.path.contains("{model}"));
    let all = [("path", in_path), ("request", names(spec.request)), ("answer", names(spec.response))];
    let named: Vec<_> = all.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
    if named.is_empty() { "—".to_owned() } else { named.join(", ") }
}

/// The fields of answers with these tags.
fn fields(spec: &ProtocolSpec, is: impl Fn(Tag) -> bool) -> String {
    let own = places(spec.response).into_iter().filter(|(_, tag)| is(*tag)).map(|(path, _)| path);
    let of_servers = spec.servers.iter().flat_map(|server| table::body(*server));
    let of_servers = of_servers.filter(|(_, row)| is(Tag::Report(row))).map(|(path, _)| path.to_owned());
    let mut all: Vec<_> = own.chain(of_servers).map(|path| format!("`{path}`")).collect();
    let mut seen = std::collections::HashSet::new();
    all.retain(|path| seen.insert(path.clone()));
    if all.is_empty() { "—".to_owned() } else { all.join(", ") }
}

fn tells_tokens(tag: Tag) -> bool {
    match tag {
        Tag::Amount(Unit::InputToken | Unit::OutputToken, _)
        | Tag::InputPart(_)
        | Tag::TotalTokens
        | Tag::ContentIds
        | Tag::AudioSeconds => true,
        Tag::Report(row) => matches!(row.quantity, Quantity::Work(Unit::InputToken | Unit::OutputToken)),
        _ => false,
    }
}

fn is_content(tag: Tag) -> bool {
    matches!(tag, Tag::Content | Tag::ContentIds | Tag::Output)
}

#[test]
fn the_table_of_routes_is_that_of_the_code() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/UPSTREAMS.md")).unwrap();
    let section = text.split("### Every route").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let mut expected = Vec::new();
    for (at, family) in Family::ALL.iter().enumerate() {
        let spec = spec(*family);
        // what the code does not know: the servers, and the form of streams
        let cells: Vec<&str> = rows.get(at).map_or(Vec::new(), |row| row.split(" | ").map(str::trim).collect());
        let cell = |at: usize| cells.get(at).copied().unwrap_or("?").trim_end_matches(" |");
        expected.push(format!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            routes(*family),
            cell(1),
            unit(spec),
            model(*family, spec),
            fields(spec, tells_tokens),
            fields(spec, is_content),
            cell(6),
        ));
    }
    assert!(rows == expected, "docs/UPSTREAMS.md needs these rows:\n{}", expected.join("\n"));
    assert!(!section.contains("| ? |"), "a cell is open");
}

#[test]
fn every_row_has_an_exchange() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut found = Vec::new();
    for folder in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if !file.to_str().unwrap().ends_with(".exchange.json") {
                continue;
            }
            let fixture: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let path = fixture["request"]["path"].as_str().unwrap();
            found.extend(detect(path).map(|(family, _)| family).or_else(|| detect_grpc(path)));
        }
    }
    let without: Vec<_> = Family::ALL.iter().filter(|family| !found.contains(family)).collect();
    assert!(without.is_empty(), "{without:?}");
}
