//! Routes by the model that a path names, of which nobody has read a body.

use http::Request;

use super::*;
use crate::caching::{Caching, QuestionContext};
use crate::trust::CacheSeries;
use lapwing_ledger::LabelId;
use lapwing_protocol::request_match::KnownRequest;
use lapwing_settings::{ConfigHandle, LeverSwitch};

#[test]
fn a_route_by_model_takes_requests_whose_path_names_it() {
    let config = serde_json::json!({"routes": [{"match": {"model": "again"}, "mode": "on"}]});
    let caching = Caching::new([1; 32], || 0, ConfigHandle::fixed(serde_json::from_value(config).unwrap()));
    let cache = caching.in_force(&LeverSwitch::default()).load();
    let series = CacheSeries { route: LabelId::OTHER, model: LabelId::OTHER };
    let body = [Bytes::from_static(br#"{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}"#)];
    for (model, is_taken) in [("again", true), ("other", false)] {
        let request =
            Request::post(format!("/v2/models/{model}/infer")).header("content-type", "application/json").body(()).unwrap();
        assert_eq!(cache.may_answer(&request), is_taken, "{model}");
        let context = QuestionContext { known: KnownRequest::default(), pool: "", series, identity: None, asked: at(0) };
        assert_eq!(cache.question(&request, &body, context).is_some(), is_taken, "{model}");
    }
}
