//! The sampler of the user's service: from OpenTelemetry's own variables, or from Lapwing's settings.

use super::case;
use crate::config::Loaded;
use lapwing_settings::TraceSampler;

#[test]
fn the_variables_of_opentelemetry_name_the_sampler_unless_lapwings_own_settings_do() {
    let load = |yaml: &str, env: &[(&str, &str)]| -> Loaded { case(&format!("upstream: http://m:1\n{yaml}"), env, &[]).loaded() };
    let sampler = |yaml: &str, env: &[(&str, &str)]| load(yaml, env).config.otlp_forward_sampler.to_string();
    let standard = [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.1")];
    assert_eq!(sampler("", &[]), "parentbased_always_on");
    assert_eq!(sampler("", &standard), "parentbased_traceidratio:0.1");
    assert!(load("", &standard).render().contains("env OTEL_TRACES_SAMPLER"));
    assert_eq!(sampler("otlp_forward_sampler: always_off", &standard), "always_off");
    let own = [&standard[..], &[("LAPWING_OTLP_FORWARD_SAMPLER", "traceidratio:0.5")]].concat();
    assert_eq!(sampler("", &own), "traceidratio:0.5");
    // what Lapwing does not know may be for another program of the same pod
    let unknown = load("", &[("OTEL_TRACES_SAMPLER", "xray")]);
    assert_eq!(unknown.config.otlp_forward_sampler, TraceSampler::default());
    assert!(unknown.warnings[0].starts_with("OTEL_TRACES_SAMPLER: xray is not a sampler; "), "{:?}", unknown.warnings);
}
