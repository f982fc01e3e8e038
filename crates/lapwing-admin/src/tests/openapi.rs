//! `/openapi.json` against the router and against real answers; and what every answer forbids: caches and other origins.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::fixture::{busy, hosted};
use crate::endpoints::ENDPOINTS;
use crate::*;

async fn ask(surfaces: &Surfaces, method: &str, path: &str) -> (StatusCode, HeaderMap, Body) {
    let request = Request::builder().method(method).uri(path).header(header::ORIGIN, "http://elsewhere").body(Body::empty());
    let (head, body) = router(surfaces.clone()).oneshot(request.unwrap()).await.unwrap().into_parts();
    (head.status, head.headers, body)
}

async fn json(surfaces: &Surfaces, path: &str) -> Value {
    let (status, _, body) = ask(surfaces, "GET", path).await;
    assert_eq!(status, StatusCode::OK, "{path}");
    serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn the_document_has_each_route_and_no_other() {
    let surfaces = busy();
    let document = json(&surfaces, "/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.1");
    let paths = document["paths"].as_object().unwrap();
    let documented: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
    let routed = ENDPOINTS.iter().map(|of| of.path).chain(page::FILES.iter().map(|(path, ..)| *path));
    assert_eq!(documented, routed.collect());
    let mut ids = BTreeSet::new();
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{path}: its id is another's");
            // the stream never ends, so only its head is read
            let (status, head, _) = ask(&surfaces, &method.to_uppercase(), path).await;
            let answer = &operation["responses"][status.as_str()];
            assert!(!answer.is_null(), "{method} {path}: {status} is not in the document");
            let kind = head[header::CONTENT_TYPE].to_str().unwrap();
            assert!(answer["content"].get(kind).is_some(), "{method} {path}: {kind} is not in the document");
            let other = if method == "get" { "POST" } else { "GET" };
            assert_eq!(ask(&surfaces, other, path).await.0, StatusCode::METHOD_NOT_ALLOWED, "{other} {path}");
        }
    }
    assert_eq!(ask(&surfaces, "GET", "/stats/none").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn nothing_is_kept_by_caches_or_read_by_other_origins() {
    let surfaces = busy();
    for path in ENDPOINTS.iter().map(|of| of.path).chain(["/none", "/stats?window=2m", "/page/page.js"]) {
        for method in ["GET", "HEAD", "POST", "OPTIONS"] {
            let (status, head, _) = ask(&surfaces, method, path).await;
            assert_eq!(head[header::CACHE_CONTROL], "no-store", "{method} {path}");
            let shared = head.keys().find(|name| name.as_str().starts_with("access-control-"));
            assert_eq!(shared, None, "{method} {path}");
            assert!(!head.contains_key(header::ETAG) && !head.contains_key(header::LAST_MODIFIED), "{method} {path}");
            assert!(method != "OPTIONS" || !status.is_success(), "{path}");
        }
    }
}

/// Collects every `$ref`, and every schema's properties that `value` has no room in.
fn unknown(value: &Value, schema: &Value, root: &Value, at: &str, found: &mut Vec<String>) {
    let resolved = |schema: &Value| match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference}")).clone(),
        None => schema.clone(),
    };
    let schema = resolved(schema);
    match value {
        Value::Array(list) => {
            let items = [&schema["items"]].into_iter().chain(schema["anyOf"].as_array().into_iter().flatten());
            let items = items.map(resolved).find(|items| !items.is_null()).unwrap_or(Value::Null);
            list.iter().enumerate().for_each(|(i, one)| unknown(one, &items, root, &format!("{at}/{i}"), found));
        }
        Value::Object(members) => {
            let variants = schema["anyOf"].as_array().into_iter().flatten().map(resolved);
            let schema = variants.into_iter().find(|variant| variant["type"] == "object").unwrap_or(schema);
            for (name, member) in members {
                let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                match known.filter(|schema| !schema.is_boolean()) {
                    Some(schema) => unknown(member, schema, root, &format!("{at}/{name}"), found),
                    None => found.push(format!("{at}/{name}")),
                }
            }
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            found.extend(required.filter(|name| !members.contains_key(*name)).map(|name| format!("{at}/{name} is missing")));
        }
        _ => {}
    }
}

#[tokio::test]
async fn answers_have_the_members_of_their_schema() {
    let surfaces = Surfaces { engine: hosted(), ..busy() };
    let document = json(&surfaces, "/openapi.json").await;
    for (path, query) in [("/stats", "?window=all"), ("/exchanges", "?limit=200")] {
        let schema = &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        let mut found = Vec::new();
        unknown(&json(&surfaces, &format!("{path}{query}")).await, schema, &document, path, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
    // the test sees a member that the schema lacks
    let mut found = Vec::new();
    let schema = &document["paths"]["/stats"]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
    unknown(&serde_json::json!({"windows": 1}), schema, &document, "", &mut found);
    assert!(found.contains(&"/windows".to_owned()) && found.contains(&"/window is missing".to_owned()), "{found:?}");
}
