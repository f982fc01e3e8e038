//! `/openapi.json`: the admin address as an OpenAPI 3.1 document, made of the table of paths and of the types that are serialized.
//!
//! Its schemas are JSON Schema 2020-12, the dialect of OpenAPI 3.1 (<https://spec.openapis.org/oas/v3.1.1.html>).

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::endpoints::{
    Answer, BAD_QUERY, ENDPOINTS, Endpoint, NO_TOKEN, ON_DEMAND_REFUSALS, Parameter, SHOWN_CONFIG, SchemaOf, any_text,
};
use super::page;

const ABOUT: &str = "What a running Lapwing measured, and how it is doing. Every path that is asked by GET answers HEAD too. Names that end in \
                     `_ns` are nanoseconds, in `_ps` picoseconds; docs/STATS.md explains every figure. Answers must not be cached, and \
                     no other origin may read them.";

/// The document. `config_schema` is the schema of what `/config` shows.
pub(crate) fn document(config_schema: &Value) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths: Map<String, Value> = ENDPOINTS
        .iter()
        .map(|endpoint| {
            let method = if endpoint.is_post { "post" } else { "get" };
            (endpoint.path.to_owned(), json!({method: operation(endpoint, &mut schemas)}))
        })
        .collect();
    for (path, kind, _) in page::FILES {
        let content = content(&[(kind, any_text)], &mut schemas);
        let answers = json!({"200": {"description": "a file of the live page", "content": content}});
        paths.insert(path.to_owned(), json!({"get": {"operationId": operation_id("get", path), "summary": "a file of the live page", "security": [], "responses": answers}}));
    }
    let mut schemas = schemas.take_definitions(true);
    schemas.insert(SHOWN_CONFIG.to_owned(), config_schema.clone());
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Lapwing's admin address",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"admin_token": {
                "type": "http",
                "scheme": "bearer",
                "description": "the token of `admin_token` or `admin_token_file`, where one is set",
            }},
        },
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let Endpoint { path, is_post, is_guarded, shows, parameters, answers, .. } = endpoint;
    let method = if *is_post { "post" } else { "get" };
    let mut all: Vec<&Answer> = answers.iter().collect();
    if !parameters.is_empty() {
        all.push(&BAD_QUERY);
    }
    if *is_guarded {
        all.extend([&NO_TOKEN].into_iter().chain(ON_DEMAND_REFUSALS));
    }
    let mut responses = Map::new();
    for Answer { status, about, content: kinds } in all {
        let answer = json!({"description": about, "content": content(kinds, schemas)});
        responses.entry(status.to_string()).or_insert(answer);
    }
    let parameter = |Parameter { name, about, schema }: &Parameter, schemas: &mut SchemaGenerator| json!({"name": name, "in": "query", "required": false, "description": about, "schema": schema(schemas)});
    // where there is no token, nothing is asked for
    let security = if *is_guarded { json!([{"admin_token": []}, {}]) } else { json!([]) };
    json!({
        "operationId": operation_id(method, path),
        "summary": shows,
        "parameters": parameters.iter().map(|one| parameter(one, schemas)).collect::<Vec<_>>(),
        "responses": responses,
        "security": security,
    })
}

/// `get_stats_stream` for `GET /stats/stream`.
fn operation_id(method: &str, path: &str) -> String {
    let name = path.trim_start_matches('/').replace(['/', '.'], "_");
    format!("{method}_{}", if name.is_empty() { "root" } else { &name })
}

fn content(kinds: &[(&str, SchemaOf)], schemas: &mut SchemaGenerator) -> Value {
    let described = |(kind, schema): &(&str, SchemaOf)| {
        let schema = schema(schemas);
        let has_none = schema.as_object().is_some_and(Map::is_empty);
        ((*kind).to_owned(), if has_none { json!({}) } else { json!({"schema": schema}) })
    };
    kinds.iter().map(described).collect::<Map<_, _>>().into()
}
