//! Lists of texts, in a section of a test's own.

use serde::{Deserialize, Serialize};

use crate::config::*;
use lapwing_compare::outputs;
use lapwing_settings::{Checks, Form, Section};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    compare: outputs::Config,
}

impl Section for Settings {
    const FORMS: &'static [(&'static str, Form)] = &[("compare", Form::Section(outputs::Config::FORMS))];

    fn check(&self, checks: &mut Checks) {
        checks.section("compare", |checks| self.compare.check(checks));
    }
}

impl Root for Settings {
    fn complete(&mut self, _: &dyn Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

fn loaded(key: &str, value: &str) -> Result<outputs::Config, Vec<String>> {
    let sources = Sources { env: [(format!("LAPWING_COMPARE__{key}"), value.to_owned())].into(), ..Sources::default() };
    match load_as::<Settings>(&sources) {
        Ok(loaded) => Ok(loaded.config.compare),
        Err(faults) => Err(faults.iter().map(|fault| format!("{}: {}: {}", fault.path, fault.value, fault.reason)).collect()),
    }
}

#[test]
fn a_list_of_texts_is_read_and_each_fault_is_named() {
    assert_eq!(loaded("IGNORE", "['$.a', '$..b']").unwrap().ignore, ["$.a", "$..b"]);
    let begin = "must be a path that begins with $, as in $.created or $.choices[].id";
    let faults = loaded("IGNORE", "['$.a', 5, [x], {a: b}, b]").unwrap_err();
    let expected = [
        format!("compare.ignore[1]: 5: {begin}"),
        "compare.ignore[2]: a list: must be text".to_owned(),
        "compare.ignore[3]: a section: must be text".to_owned(),
        format!("compare.ignore[4]: b: {begin}"),
    ];
    assert_eq!(faults, expected);
    assert_eq!(loaded("IGNORE", "$.a").unwrap_err(), ["compare.ignore: $.a: must be a list"]);
}

#[test]
fn a_route_may_have_lists_and_tolerances_of_its_own() {
    let value = "[{route: /a, tolerance: {absolute: 1e-4}, ignore: ['$.x'], names: {y: z}, tensors: top_k}]";
    let routes = loaded("ROUTES", value).unwrap().routes;
    assert_eq!(routes[0].tolerance, Some(outputs::Tolerance::of(1e-4, 1e-3)));
    assert_eq!((routes[0].ignore.len(), routes[0].tensors), (1, Some(outputs::TensorRule::TopK)));
    let faults = loaded("ROUTES", "[{route: /a, unordered: [[x]], top_k: 99}]").unwrap_err();
    let expected =
        ["compare.routes[0].top_k: 99: must be between 1 and 32", "compare.routes[0].unordered[0]: a list: must be text"];
    assert_eq!(faults, expected);
}
