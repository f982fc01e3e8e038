//! Prompts through an `ExchangeReader` and a tokenizer. Every count is written out by hand: see `tests/fixtures/tokenizers/`.

use std::path::PathBuf;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

use super::super::Protocols;
use super::*;
use lapwing_ledger::{Ledger, PromptBody, Stamp};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers").join(name)
}

fn config(tokenizers: &[(&str, &str)]) -> Config {
    let tokenizers = tokenizers.iter().map(|(model, name)| ((*model).to_owned(), file(name))).collect();
    Config { tokenizers, ..Config::default() }
}

/// The ledger of an exchange whose request and response come in pieces of seven bytes.
fn ledger(config: &Config, path: &str, request: &str, status: u16, response: &str) -> Ledger {
    let head = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let protocols = Protocols::new(config);
    let mut reader = protocols.open(&protocols.detect(&Method::POST, path), &head).unwrap();
    request.as_bytes().chunks(7).for_each(|piece| reader.request(piece));
    reader.response_head(status, &head);
    response.as_bytes().chunks(7).for_each(|piece| reader.response(piece, 1));
    let mut ledger = Ledger::open(Stamp::now(), 0);
    reader.close(&mut ledger);
    ledger
}

fn is_kept(config: &Config, path: &str, request: &str, response: &str) -> bool {
    ledger(config, path, request, 200, response).prompt.is_some()
}

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"The lapwing calls."}]}"#;

#[test]
fn nothing_is_kept_but_for_a_tokenizer_that_will_read_it() {
    let of_m = config(&[("m", "words.json")]);
    let chat = "/v1/chat/completions";
    assert!(is_kept(&of_m, chat, CHAT, "{}"));
    assert!(is_kept(&config(&[("*", "words.json")]), chat, CHAT, "{}"));
    assert!(!is_kept(&Config::default(), chat, CHAT, "{}"), "no tokenizer is configured");
    assert!(!is_kept(&config(&[("other", "words.json")]), chat, CHAT, "{}"), "none for this model");
    assert!(!is_kept(&of_m, chat, CHAT, r#"{"usage":{"prompt_tokens":11}}"#), "the server reports");
    assert!(ledger(&of_m, chat, CHAT, 422, "{}").prompt.is_none(), "refused");
    assert!(!is_kept(&of_m, "/v1/embeddings", r#"{"model":"m","input":[1,2,3]}"#, "{}"), "ids are counted already");
    assert!(!is_kept(&of_m, "/v2/models/m/infer", r#"{"inputs":[{"shape":[3]}]}"#, "{}"), "tensors");
}

#[test]
fn what_the_server_reports_stands() {
    let ledger = ledger(&config(&[("m", "words.json")]), "/v1/chat/completions", CHAT, 200, r#"{"usage":{"prompt_tokens":11}}"#);
    assert_eq!(ledger.work.get(Unit::InputToken), Some((11, Basis::Reported)));
}

#[test]
fn a_body_that_is_too_large_stays_estimated() {
    let config = config(&[("m", "words.json")]);
    let body = |bytes: usize| {
        let frame = r#"{"model":"m","messages":[{"content":""}]}"#.len();
        format!(r#"{{"model":"m","messages":[{{"content":"{}"}}]}}"#, "a".repeat(bytes - frame))
    };
    let fits = body(PromptBody::MAX);
    assert_eq!(fits.len(), PromptBody::MAX);
    assert!(is_kept(&config, "/v1/chat/completions", &fits, "{}"));
    let large = ledger(&config, "/v1/chat/completions", &body(PromptBody::MAX + 1), 200, "{}");
    assert!(large.prompt.is_none());
    assert!(matches!(large.work.get(Unit::InputToken), Some((65_526.., Basis::Estimated))));
}

#[cfg(feature = "tokenizers")]
mod counted {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use lapwing_ledger::PromptBudget;

    fn tokens(config: &Config, path: &str, request: &str) -> Option<u64> {
        let ledger = ledger(config, path, request, 200, "{}");
        Tokenizers::load(config).unwrap().count(&ledger.prompt.expect("a prompt is kept"))
    }

    #[test]
    fn prompts_have_the_tokens_that_a_hand_counts() {
        let words = config(&[("m", "words.json"), ("*", "pieces.json")]);
        for (path, request, n) in [
            // the lapwing calls .
            ("/v1/chat/completions", CHAT, 4),
            // two parts: the , | lapwing . calls — no special tokens
            ("/v1/chat/completions", r#"{"model":"m","messages":[{"content":"the,"},{"content":"lapwing. calls"}]}"#, 5),
            // [CLS] the lapwing [SEP] | [CLS] calls [SEP]
            ("/v1/embeddings", r#"{"model":"m","input":["the lapwing","calls"]}"#, 7),
            // more than the file's truncation and less than its padding: [CLS] the * 6 [SEP]
            ("/v1/embeddings", r#"{"model":"m","input":"the the the the the the"}"#, 8),
            // escaped, with a word that is unknown: [CLS] the [UNK] [SEP]
            ("/v1/completions", r#"{"model":"m","prompt":"\u0074he\n\u00fcber"}"#, 4),
            // text and two ids: [CLS] calls [SEP] 7 8
            ("/v1/completions", r#"{"model":"m","prompt":["calls",7,8]}"#, 5),
            // [CLS] the [SEP] lapwing calls [SEP] | [CLS] the [SEP] . [SEP]
            ("/v1/rerank", r#"{"model":"m","query":"the","documents":["lapwing calls","."]}"#, 11),
            // another model: low er | low + " low" + " ", l, er
            ("/v1/chat/completions", r#"{"model":"x","messages":[{"content":"lower"},{"content":"low low ler"}]}"#, 7),
            ("/embed", r#"{"inputs":["lower","w?"]}"#, 4),
        ] {
            assert_eq!(tokens(&words, path, request), Some(n), "{path} {request}");
        }
    }

    #[test]
    fn flops_are_made_anew_from_what_was_counted() {
        let mut config = config(&[("m", "words.json")]);
        let cost = Flops { per_input_token: 1000.0, per_output_token: 10.0, ..Flops::default() };
        config.flops.insert("m".to_owned(), cost);
        let answer = r#"{"usage":{"completion_tokens":3}}"#;
        let mut ledger = ledger(&config, "/v1/chat/completions", CHAT, 200, answer);
        // 18 bytes are 5 tokens
        assert_eq!(ledger.work.get(Unit::InputToken), Some((5, Basis::Estimated)));
        assert_eq!(ledger.work.get(Unit::Flop), Some((5_030, Basis::Estimated)));
        let prompt = ledger.prompt.take().unwrap();
        assert!(Tokenizers::load(&config).unwrap().complete(&prompt, &mut ledger.work));
        assert_eq!(ledger.work.get(Unit::InputToken), Some((4, Basis::Counted)));
        assert_eq!(ledger.work.get(Unit::Flop), Some((4_030, Basis::Counted)));
    }

    #[test]
    fn a_body_that_cannot_be_read_changes_nothing() {
        let config = config(&[("m", "words.json")]);
        let broken = r#"{"model":"m","messages":[{"content":"the lapwing"}], !"#;
        let mut ledger = ledger(&config, "/v1/chat/completions", broken, 200, "{}");
        let (prompt, before) = (ledger.prompt.take().unwrap(), ledger.work);
        assert!(!Tokenizers::load(&config).unwrap().complete(&prompt, &mut ledger.work));
        assert_eq!((ledger.work, before.get(Unit::InputToken)), (before, Some((3, Basis::Estimated))));
    }

    #[test]
    fn files_that_are_no_tokenizers_say_why() {
        let error = |name: &str| Tokenizers::load(&config(&[("m", name)])).unwrap_err().to_string();
        assert!(error("none.json").contains("none.json: cannot be read: No such file"), "{}", error("none.json"));
        assert!(error("../README.md").contains("README.md: is not a tokenizer.json: "), "{}", error("../README.md"));
        assert!(error("../custom/off.exchange.json").contains("is not a tokenizer.json: "));
    }

    proptest! {
        #[test]
        fn no_body_is_too_strange(texts in prop::collection::vec("\\PC{0,40}", 0..4), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let tokenizers = Tokenizers::load(&config(&[("m", "words.json"), ("x", "pieces.json")])).unwrap();
            let room = PromptBudget::new(1 << 20);
            let sound = json!({"inputs": texts, "prompt": texts, "messages": texts, "query": texts.first()});
            for body in [serde_json::to_vec(&sound).unwrap(), bytes] {
                for (tokenizer, texts) in (0..2).flat_map(|t| (0..27).map(move |f| (t, f))) {
                    let mut kept = PromptBody::new(&room);
                    prop_assert!(kept.push(&body));
                    let _ = tokenizers.count(&Prompt { body: kept, texts, tokenizer, cost: Some(9) });
                }
            }
            prop_assert_eq!(room.free(), 1 << 20);
        }

        #[test]
        fn words_are_counted_one_by_one(words in prop::collection::vec(prop::sample::select(vec!["the", "lapwing", "Calls", "x", "."]), 1..50)) {
            let config = config(&[("m", "words.json")]);
            let body = json!({"model": "m", "input": words.join(" ")}).to_string();
            prop_assert_eq!(tokens(&config, "/v1/embeddings", &body), Some(words.len() as u64 + 2));
        }
    }
}
