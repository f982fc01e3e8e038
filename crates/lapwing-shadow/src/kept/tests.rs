//! What copies and records keep: a matrix of headers, queries and bodies.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use proptest::prelude::*;

use super::*;
use crate::header_names::{KEPT_HEADERS, NEVER_KEPT};
use crate::{Config, CopyRule};

/// Headers by which clients, gateways and clouds show who asks, and others that nobody asked to copy.
const STAY: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "cookie2",
    "x-api-key",
    "api-key",
    "apikey",
    "x-goog-api-key",
    "x-goog-iam-authorization-token",
    "ocp-apim-subscription-key",
    "x-functions-key",
    "x-amz-security-token",
    "x-amz-date",
    "x-amzn-sagemaker-custom-attributes",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-hub-signature-256",
    "x-vault-token",
    "x-ms-client-principal",
    "x-forwarded-access-token",
    "x-forwarded-client-cert",
    "x-forwarded-for",
    "x-real-ip",
    "x-original-url",
    "cf-access-jwt-assertion",
    "grpc-metadata-authorization",
    "openai-organization",
    "idempotency-key",
    "x-request-id",
    "x-session-id",
    "x-tenant",
    "x-my-company-secret",
    "referer",
    "origin",
    "baggage",
    "traceparent",
    "tracestate",
    "b3",
    "x-b3-traceid",
    "x-amzn-trace-id",
    "x-datadog-trace-id",
    "uber-trace-id",
    "connection",
    "expect",
    "transfer-encoding",
    "upgrade",
];

fn headers(names: &[&str]) -> HeaderMap {
    names.iter().map(|name| (name.parse::<HeaderName>().unwrap(), "trailers".parse().unwrap())).collect()
}

fn config(headers: &[(&str, CopyRule)], fields: &[(&str, CopyRule)]) -> Config {
    let rules = |rules: &[(&str, CopyRule)]| rules.iter().map(|(name, rule)| ((*name).to_owned(), *rule)).collect();
    Config { headers: rules(headers), fields: rules(fields), ..Config::default() }
}

fn kept(config: &Config, names: &[&str]) -> Vec<String> {
    let kept = KeptHeaders::new(config, &lapwing_protocol::Config::default()).of(&headers(names));
    let mut names: Vec<_> = kept.keys().map(ToString::to_string).collect();
    names.sort_unstable();
    names
}

#[test]
fn only_the_listed_headers_are_kept() {
    assert_eq!(kept(&Config::default(), STAY), Vec::<String>::new());
    let mut all: Vec<&str> = KEPT_HEADERS.iter().chain(STAY).copied().collect();
    all.sort_unstable();
    let mut expected = KEPT_HEADERS.to_vec();
    expected.sort_unstable();
    assert_eq!(kept(&Config::default(), &all), expected);
    let te = HeaderMap::from_iter([(TE, "gzip".parse().unwrap())]);
    assert!(KeptHeaders::new(&Config::default(), &lapwing_protocol::Config::default()).of(&te).is_empty());
    let mut given = HeaderMap::new();
    for value in ["a", "b", "c"] {
        given.append("accept", value.parse().unwrap());
    }
    let kept = KeptHeaders::new(&Config::default(), &lapwing_protocol::Config::default()).of(&given);
    assert_eq!(kept.get_all("accept").iter().count(), given.get_all("accept").iter().count(), "a field that comes twice");
}

proptest! {
    #[test]
    fn no_other_name_is_kept(name in "[a-z][a-z0-9-]{0,30}") {
        prop_assume!(!KEPT_HEADERS.contains(&name.as_str()));
        prop_assert!(kept(&Config::default(), &[&name]).is_empty());
    }
}

#[test]
fn the_user_names_what_is_kept_besides_and_what_is_not() {
    use CopyRule::{Keep, Remove};
    let named = config(&[("Authorization", Keep), ("x-tenant", Keep), ("user-agent", Remove)], &[]);
    assert_eq!(
        kept(&named, &["authorization", "x-tenant", "user-agent", "x-api-key", "accept"]),
        ["accept", "authorization", "x-tenant"]
    );
    let patterns = config(&[("x-acme-*", Keep), ("*-secret", Remove), ("x-acme-a-secret", Keep), ("accept-*", Remove)], &[]);
    let given = ["x-acme-a", "x-acme-b-secret", "x-acme-a-secret", "accept-language", "accept"];
    assert_eq!(
        kept(&patterns, &given),
        ["accept", "x-acme-a", "x-acme-a-secret"],
        "a name wins over a pattern, removing over keeping"
    );
    let all = config(&[("*", Keep)], &[]);
    let never: Vec<String> = kept(&all, STAY).into_iter().filter(|name| NEVER_KEPT.contains(&name.as_str())).collect();
    assert_eq!((kept(&all, STAY).len() + 6, never), (STAY.len(), Vec::new()), "all but what only the original can have");
}

#[test]
fn headers_that_rules_read_are_kept() {
    let rules = serde_json::json!({"custom": [{
        "route": "POST /score",
        "model": {"header": "x-model", "from": "request"},
        "rows": {"header": "X-Rows", "from": "request"},
        "output_tokens": {"header": "x-told", "from": "response"},
    }]});
    let protocol: lapwing_protocol::Config = serde_json::from_value(rules).unwrap();
    let kept = KeptHeaders::new(&Config::default(), &protocol).of(&headers(&["x-model", "x-rows", "x-told", "x-other"]));
    let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["x-model", "x-rows"]);
}

#[test]
fn queries_lose_what_has_the_name_of_a_secret() {
    use CopyRule::{Keep, Remove};
    let secrets = Secrets::new(&Config::default());
    let without = |path: &str| secrets.without(&path.parse().unwrap()).to_string();
    for name in [
        "key",
        "api_key",
        "api-key",
        "apikey",
        "API_KEY",
        "x-api-key",
        "token",
        "access_token",
        "auth_token",
        "sig",
        "signature",
        "code",
        "password",
        "pwd",
        "secret",
        "client_secret",
        "subscription-key",
        "sessionid",
        "jwt",
        "auth",
        "X-Amz-Signature",
        "X-Amz-Credential",
        "X-Amz-Security-Token",
        "X-Goog-Signature",
        "%6bey",
        "ke%79",
        "user[password]",
        "csrf_token",
        "sid",
    ] {
        assert_eq!(without(&format!("/p?{name}=s3cret")), "/p", "{name}");
        assert_eq!(without(&format!("/p?a=1&{name}=s3cret&b=%20x&{name}=again")), "/p?a=1&b=%20x", "{name}");
    }
    for path in
        ["/p", "/p?", "/p?model=m&stream=true&api-version=2024-02-01&max_tokens=3&key=", "/p?top=1&&x", "/key=1?keyboard=a"]
    {
        assert_eq!(without(path), path);
    }
    let named = Secrets::new(&config(&[], &[("code", Keep), ("tenant", Remove), ("x_*", Remove)]));
    let without = named.without(&"/p?code=1&tenant=t&x_a=1&key=k".parse().unwrap());
    assert_eq!(without, "/p?code=1");
}

fn of(kind: &str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())])
}

#[test]
fn bodies_with_a_secret_are_found_and_records_have_none() {
    let secrets = Secrets::new(&Config::default());
    let hidden = |kind: &str, body: &str| {
        let body = Bytes::from(body.to_owned());
        let found = secrets.are_in(&of(kind), std::slice::from_ref(&body)).unwrap();
        let hidden = secrets.hidden(&of(kind), body.clone()).map(|hidden| String::from_utf8(hidden.to_vec()).unwrap());
        assert_eq!(found, hidden != Ok(String::from_utf8(body.to_vec()).unwrap()), "{kind}");
        hidden
    };
    for (given, expected) in [
        (r#"{"api_key":"k", "input": 1.50}"#, r#"{"api_key":"***", "input": 1.50}"#),
        (r#"{"a":[{"Password" : 12345}],"token":"t"}"#, r#"{"a":[{"Password" : "***"}],"token":"***"}"#),
        (r#"{"p\u0061ssword":"a\"b\\"}"#, r#"{"p\u0061ssword":"***"}"#),
        (
            r#"{"headers":{"Authorization":"Bearer x"},"x":"authorization"}"#,
            r#"{"headers":{"Authorization":"***"},"x":"authorization"}"#,
        ),
        (
            r#"{"client_secret":"a","clientSecret":"b","csrfmiddlewaretoken":"c"}"#,
            r#"{"client_secret":"***","clientSecret":"***","csrfmiddlewaretoken":"***"}"#,
        ),
        // cut off, and lines
        (r#"{"password":"a"#, r#"{"password":"***""#),
        ("{\"token\":\"a\"}\n{\"token\":\"b\"}\n", "{\"token\":\"***\"}\n{\"token\":\"***\"}\n"),
    ] {
        assert_eq!(hidden("application/json", given), Ok(expected.to_owned()));
        assert_eq!(hidden("application/x-ndjson", given), Ok(expected.to_owned()));
        assert_eq!(hidden("application/x-www-form-urlencoded", given), Ok(expected.to_owned()), "as curl sends it");
    }
    assert_eq!(
        hidden("text/event-stream", "data: {\"access_token\":\"a\"}\n\n"),
        Ok("data: {\"access_token\":\"***\"}\n\n".to_owned())
    );
    for plain in [
        r#"{"messages":[{"role":"user","content":"my password: \"x\""}],"max_tokens":3,"stop_token_ids":[1]}"#,
        r#"{"choices":[{"logprobs":{"content":[{"token":"Hello","logprob":-0.1}]}}]}"#,
        r#"{"token":{"id":3,"text":"a"},"generated_text":null}"#,
        r#"{"tools":[{"function":{"parameters":{"properties":{"password":{"type":"string"},"token":{"type":"string"}}}}}]}"#,
        r#"{"password":"","token":null,"secret":true,"key":"a","code":"print(1)","inputs":["password"]}"#,
        "[\"password\", \"a\"]",
        "not JSON: password = x",
    ] {
        assert_eq!(hidden("application/json", plain), Ok(plain.to_owned()));
    }
    let form = "user=a&password=b&next=%2F&passw%6frd=c";
    assert_eq!(hidden("application/x-www-form-urlencoded", form), Ok("user=a&password=***&next=%2F&passw%6frd=***".to_owned()));
    let part = "--x\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\na\r\n--x--\r\n";
    assert_eq!(hidden("multipart/form-data; boundary=x", part), Err(Unsearchable));
    let part = part.replace("password", "file");
    assert_eq!(hidden("multipart/form-data; boundary=x", &part), Ok(part.clone()));
}

#[test]
fn a_body_that_cannot_be_searched_counts_as_one_with_a_secret() {
    let secrets = Secrets::new(&Config::default());
    let body = Bytes::from_static(br#"{"inputs":"a"}"#);
    let mut headers = of("application/json");
    headers.insert(CONTENT_ENCODING, "unheard-of".parse().unwrap());
    assert_eq!(secrets.are_in(&headers, std::slice::from_ref(&body)), Err(Unsearchable));
    assert_eq!(secrets.hidden(&headers, body.clone()), Err(Unsearchable));
    // what has no names is not searched
    headers.insert(CONTENT_TYPE, "image/png".parse().unwrap());
    assert_eq!(secrets.hidden(&headers, body.clone()), Ok(body));
}

#[test]
fn the_user_says_what_is_a_secret_and_what_is_none() {
    use CopyRule::{Keep, Remove};
    let secrets = Secrets::new(&config(&[], &[("Token", Keep), ("patient_*", Remove)]));
    let body = Bytes::from_static(br#"{"token":"t","patient_name":"n","x":{"patient_id":7},"password":"p"}"#);
    let expected = Bytes::from_static(br#"{"token":"t","patient_name":"***","x":{"patient_id":"***"},"password":"***"}"#);
    assert_eq!(secrets.hidden(&of("application/json"), body), Ok(expected));
}

proptest! {
    #[test]
    fn no_text_is_too_strange(body in proptest::collection::vec(prop_oneof![Just(b'"'), Just(b'{'), Just(b':'), Just(b'\\'), Just(b'}'), any::<u8>()], 0..60)) {
        let secrets = Secrets::new(&Config::default());
        for kind in ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let _ = secrets.hidden(&of(kind), Bytes::from([b"{\"password\":".as_slice(), &body].concat()));
        }
    }

    #[test]
    fn a_hidden_text_is_nowhere_in_a_record(secret in "\\PC{8,40}") {
        let document = serde_json::json!({"inputs": [1, 2], "nested": [{"api_key": secret}], "password": secret});
        let body = Bytes::from(serde_json::to_vec(&document).unwrap());
        let hidden = Secrets::new(&Config::default()).hidden(&of("application/json"), body).unwrap();
        let expected = serde_json::json!({"inputs": [1, 2], "nested": [{"api_key": "***"}], "password": "***"});
        prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&hidden).unwrap(), expected);
    }
}
