//! Triton's statistics, real and synthetic.

use super::super::means::between;
use super::*;
use lapwing_ledger::Server;
use lapwing_protocol::servers::table;

const REAL: &[u8] = include_bytes!("../../../../../tests/fixtures/triton/triton_2.51_stats.json");

fn rows() -> Vec<&'static ReportedField> {
    table::statistics(Server::Triton).map(|(_, row)| row).collect()
}

fn means(before: &[u8], after: &[u8]) -> BTreeMap<ModelLabel, Means> {
    let rows = rows();
    between(&read(before, &rows).unwrap(), &read(after, &rows).unwrap(), &rows)
}

/// What the real server added since its start.
fn real() -> BTreeMap<ModelLabel, Means> {
    means(br#"{"model_stats":[]}"#, REAL)
}

fn of(means: &BTreeMap<ModelLabel, Means>, model: &str) -> Vec<(Stage, u64)> {
    means[&Some(model.into())].stages.iter().map(|time| (time.stage, time.sum.mean_ns())).collect()
}

fn steps_of_pipe() -> EnsembleSteps {
    EnsembleSteps::from([("pipe".into(), vec!["pre".into(), "fwd".into(), "post".into()]), ("fwd".into(), Vec::new())])
}

#[test]
fn the_real_servers_means() {
    let means = real();
    // 4714718/2, 77235/2, 141864902/2, 1085388/2, each rounded
    let fwd = [
        (Stage::Queue, 2_357_359),
        (Stage::Preprocessing, 38_618),
        (Stage::Forward, 70_932_451),
        (Stage::Postprocessing, 542_694),
    ];
    assert_eq!(of(&means, "fwd"), fwd);
    assert_eq!(means[&Some("fwd".into())].batch.unwrap().size, Some(2.0));
    assert_eq!(of(&means, "post")[0], (Stage::Queue, 44_602));
    // 157987371/2: one of the two was a cache hit, which is a request too
    assert_eq!(of(&means, "post")[2], (Stage::Forward, 78_993_686));
    assert!(!means.contains_key(&Some("rowsum".into())));
}

#[test]
fn an_ensemble_gets_its_steps_queue_and_their_roles() {
    let mut means = real();
    ensembles(&mut means, &steps_of_pipe(), &Rules::default());
    let pipe = of(&means, "pipe");
    // queue: 9703/2 + 117773/2 + 4714718/2 + 89204/2 = 4851.5 + 58886.5 + 2357359 + 44602, each rounded to its own ns
    assert_eq!(pipe[0], (Stage::Queue, 4_852 + 58_887 + 2_357_359 + 44_602));
    // its own copies of inputs, 304358/2, and the step called pre: 140862948/2
    assert_eq!(pipe[1], (Stage::Preprocessing, 152_179 + 70_431_474));
    // of the ensemble's 440715221/2 = 220357610.5: 140862948/2 is pre's, 157987371/2 = 78993685.5 is post's, and what is left is
    // what the step called fwd has itself: 141864902/2
    assert_eq!(pipe[2], (Stage::Forward, 70_932_451));
    // its own copies of outputs, 1949546/2, and post's
    assert_eq!(pipe[3], (Stage::Postprocessing, 974_773 + 78_993_686));
    // 4 rows in 2 executions of fwd; pipe itself calls every request an execution
    assert_eq!(means[&Some("pipe".into())].batch, means[&Some("fwd".into())].batch);
}

#[test]
fn an_ensembles_batches_are_those_of_its_forward_and_of_no_step_with_another_role() {
    let stats = |name: &str, rows: u32, runs: u32, ns: u32| {
        format!(
            r#"{{"name":"{name}","inference_count":{rows},"execution_count":{runs},
               "inference_stats":{{"success":{{"count":8,"ns":1}},"compute_infer":{{"count":8,"ns":{ns}}}}}}}"#
        )
    };
    let steps = |names: &[&str]| EnsembleSteps::from([("pipe".into(), names.iter().map(|name| Box::from(*name)).collect())]);
    let size = |names: &[&str]| {
        let all = [stats("pipe", 8, 8, 800), stats("pre", 8, 4, 700), stats("small", 8, 8, 80), stats("large", 8, 1, 160)];
        let after = format!(r#"{{"model_stats":[{}]}}"#, all.join(","));
        let mut means = means(br#"{"model_stats":[]}"#, after.as_bytes());
        ensembles(&mut means, &steps(names), &Rules::default());
        means[&Some("pipe".into())].batch.and_then(|batch| batch.size)
    };
    assert_eq!(size(&["pre", "small", "large"]), Some(8.0), "of several the longest");
    assert_eq!(size(&["pre", "small"]), Some(1.0));
    assert_eq!(size(&["pre"]), None, "no step is forward");
}

#[test]
fn a_users_rule_by_model_decides_a_steps_role() {
    let rule = crate::SpanRule {
        name: None,
        attribute: Some("triton.model_name".to_owned()),
        value: Some("fwd".to_owned()),
        deployment: None,
        stage: Stage::Hydration,
    };
    let mut means = real();
    let steps = EnsembleSteps::from([("pipe".into(), vec!["fwd".into()])]);
    ensembles(&mut means, &steps, &Rules::new([("", Stage::Queue); 0], [rule]));
    assert!(of(&means, "pipe").contains(&(Stage::Hydration, 70_932_451)));
    assert_eq!(of(&means, "pipe").iter().find(|(s, _)| *s == Stage::Forward), Some(&(Stage::Forward, 220_357_611 - 70_932_451)));
}

#[test]
fn counts_may_be_text_and_versions_add_up() {
    let before = br#"{"model_stats":[{"name":"m","version":"1"}]}"#;
    let after = br#"{"model_stats":[
        {"name":"m","version":"1","inference_count":"6","execution_count":"2",
         "inference_stats":{"queue":{"count":"2","ns":"3000"},"compute_infer":{"count":"0","ns":"0"}}},
        {"name":"m","version":"2","inference_count":2,"execution_count":2,
         "inference_stats":{"queue":{"count":2,"ns":1000}}}]}"#;
    let means = means(before, after);
    assert_eq!(of(&means, "m"), [(Stage::Queue, 1000)], "what never ran has no mean");
    assert_eq!(means[&Some("m".into())].batch.unwrap().size, Some(2.0));
}

#[test]
fn garbage_is_refused() {
    let rows = rows();
    for body in
        [&b""[..], b"{}", b"[]", b"null", b"{\"model_stats\":1}", b"{\"model_stats\":[{\"name\":\"m\",\"inference_count\":-1}]}"]
    {
        assert!(read(body, &rows).is_err(), "{}", String::from_utf8_lossy(body));
    }
    let text = br#"{"model_stats":[{"name":"m","inference_count":"many"}]}"#;
    assert!(read(text, &rows).is_err());
}

#[test]
fn steps_come_out_of_the_configuration() {
    let pipe = br#"{"name":"pipe","platform":"ensemble","max_batch_size":32,
        "ensemble_scheduling":{"step":[{"model_name":"pre","model_version":"-1"},{"model_name":"fwd"}]}}"#;
    assert_eq!(steps(pipe).unwrap(), ["pre".into(), "fwd".into()] as [Box<str>; 2]);
    assert_eq!(steps(br#"{"name":"fwd","backend":"python"}"#).unwrap(), [""; 0].map(Box::from));
    assert!(steps(b"<html>").is_err());
}

#[test]
fn a_models_name_is_put_into_a_path_only_as_it_is() {
    assert_eq!(config_path("a-b_1.2").as_deref(), Some("/v2/models/a-b_1.2/config"));
    assert_eq!(["", "a b", "a/b", "a?b", "é"].map(config_path), [const { None }; 5]);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
        let _ = (read(&body, &rows()), steps(&body));
    }
}
