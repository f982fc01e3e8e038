//! What is wrong with rules of `hydrate`, by field, value and reason.

use super::{HydrateEntity, HydrateFeature, HydrateInto, HydrateRule, HydrateStore, OnMiss, StoreKind};
use crate::place::JsonPlace;
use crate::template::KeyTemplate;
use lapwing_protocol::request_match::check_match;
use lapwing_settings::{Checks, FeatureStoreAddress, Period, RedisAddress, Section};

/// How many rules there may be: each request is compared with them, one after the other.
const MAX_RULES: usize = 64;
/// How many parts an entity's key may have.
const MAX_PARTS: usize = 8;
/// How many features a rule may have, and how many numbers a row.
const MAX_FEATURES: usize = 256;
const MAX_ROW: usize = 4_096;
/// The longest name of an entity or a feature.
const MAX_NAME_BYTES: usize = 256;

/// Reports the faults of `hydrate`.
pub fn check_hydrate(rules: &[HydrateRule], checks: &mut Checks) {
    if rules.len() > MAX_RULES {
        checks.fault("hydrate", rules.len(), format!("must be at most {MAX_RULES}"));
    }
    for (at, rule) in rules.iter().enumerate() {
        let key = format!("hydrate[{at}]");
        check_match(&format!("{key}.match"), &rule.matches, checks);
        checks.section(&key, |checks| {
            check_entity(&rule.entity, checks);
            check_store(&rule.store, &rule.entity, checks);
            check_features(rule, checks);
            check_into(&rule.into, checks);
            checks.range("deadline", &rule.deadline, Period::from_millis(1)..=Period::from_secs(10));
        });
    }
}

fn check_name(key: &str, name: &str, checks: &mut Checks) {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        checks.fault(key, name, format!("must be a name of 1 to {MAX_NAME_BYTES} bytes"));
    }
}

/// Of two fields, exactly one is to be there.
fn check_either(key: &str, [tensor, pointer]: [Option<&String>; 2], checks: &mut Checks) {
    if tensor.is_some() == pointer.is_some() {
        checks.fault(key, "", "needs either tensor or pointer");
    }
    if let Some(tensor) = tensor {
        check_name(&format!("{key}.tensor"), tensor, checks);
    }
}

fn check_entity(parts: &[HydrateEntity], checks: &mut Checks) {
    if parts.is_empty() || parts.len() > MAX_PARTS {
        checks.fault(
            "entity",
            parts.len(),
            format!("needs 1 to {MAX_PARTS} parts, as in [{{name: driver_id, tensor: driver_id}}]"),
        );
    }
    for (at, part) in parts.iter().enumerate() {
        let key = format!("entity[{at}]");
        check_name(&format!("{key}.name"), &part.name, checks);
        if parts[..at].iter().any(|other| other.name == part.name) {
            checks.fault(&format!("{key}.name"), &part.name, "is there twice");
        }
        check_either(&key, [part.tensor.as_ref(), part.pointer.as_ref()], checks);
        if let Some(Err(reason)) = part.pointer.as_deref().map(JsonPlace::parse) {
            checks.fault(&format!("{key}.pointer"), part.pointer.as_deref().unwrap_or_default(), reason);
        }
    }
}

fn check_store(store: &HydrateStore, entity: &[HydrateEntity], checks: &mut Checks) {
    let only_for = |key: &str, is_given: bool, is_used: bool, of: &str, checks: &mut Checks| {
        if is_given && !is_used {
            checks.fault(&format!("store.{key}"), "", format!("is only for {of}: leave it out"));
        }
    };
    let is_feast = store.kind == StoreKind::Feast;
    let of_redis = if let FeatureStoreAddress::Redis(url) = &store.url { Some(url) } else { None };
    if !is_feast && of_redis.is_none() {
        checks.fault("store.url", &store.url, "must be redis://, rediss:// or unix: with kind redis");
    }
    only_for("password_file", store.password_file.is_some(), of_redis.is_some(), "Redis", checks);
    if store.password_file.is_none() && matches!(of_redis, Some(RedisAddress::Tcp { user: Some(_), .. })) {
        checks.fault("store.password_file", "", "is missing: the user in url needs a password");
    }
    if let Some(tls) = &store.tls {
        if !of_redis.is_some_and(RedisAddress::is_tls) {
            checks.fault("store.tls", &store.url, "speaks no TLS: give it the scheme rediss, or leave this out");
        }
        checks.section("store.tls", |checks| {
            tls.check(checks);
            if tls.server_name.is_on() {
                checks.fault("server_name", &tls.server_name, "is not for Redis: certificates must have the host of url");
            }
        });
    }
    only_for("key", store.key.is_some(), !is_feast, "kind redis", checks);
    only_for("project", store.project.is_some(), is_feast && of_redis.is_some(), "Feast's Redis", checks);
    only_for("max_age", store.max_age.is_some(), is_feast && of_redis.is_some(), "Feast's Redis", checks);
    checks.optional_range("store.max_age", store.max_age.as_ref(), Period::from_secs(1)..=Period::from_secs(3_650 * 86_400));
    if is_feast && of_redis.is_some() {
        check_name("store.project", store.project.as_deref().unwrap_or_default(), checks);
    }
    if !is_feast {
        let key = store.key.as_deref().unwrap_or_default();
        let names: Vec<&str> = entity.iter().map(|part| part.name.as_str()).collect();
        if let Err(reason) = KeyTemplate::parse(key, &names) {
            checks.fault("store.key", key, reason);
        }
    }
}

fn check_features(rule: &HydrateRule, checks: &mut Checks) {
    let features = &rule.features;
    if features.is_empty() || features.len() > MAX_FEATURES {
        checks.fault("features", features.len(), format!("must be 1 to {MAX_FEATURES}, as in [{{name: \"stats:trips\"}}]"));
    }
    let row = features.iter().map(|feature| feature.width).fold(0, usize::saturating_add);
    if row > MAX_ROW {
        checks.fault("features", row, format!("a row has at most {MAX_ROW} numbers"));
    }
    for (at, HydrateFeature { name, default, width }) in features.iter().enumerate() {
        let key = format!("features[{at}]");
        check_name(&format!("{key}.name"), name, checks);
        checks.range(&format!("{key}.width"), width, 1..=MAX_ROW);
        let is_qualified = name.split_once(':').is_some_and(|(view, feature)| !view.is_empty() && !feature.is_empty());
        if rule.store.kind == StoreKind::Feast && !is_qualified {
            checks.fault(&format!("{key}.name"), name, "must be view:feature with kind feast");
        }
        if features[..at].iter().any(|other| other.name == *name) {
            checks.fault(&format!("{key}.name"), name, "is there twice");
        }
        match default {
            None if rule.on_miss == OnMiss::Default => {
                checks.fault(&format!("{key}.default"), "", "is needed with on_miss: default");
            }
            Some(default) if !crate::number::fits(*default, rule.into.datatype) => {
                checks.fault(&format!("{key}.default"), default, format!("is no {}", rule.into.datatype.name()));
            }
            _ => {}
        }
    }
}

fn check_into(into: &HydrateInto, checks: &mut Checks) {
    check_either("into", [into.tensor.as_ref(), into.pointer.as_ref()], checks);
    let Some(pointer) = into.pointer.as_deref() else { return };
    match JsonPlace::parse(pointer) {
        Err(reason) => checks.fault("into.pointer", pointer, reason),
        Ok(place) if place.member().is_none() => {
            checks.fault("into.pointer", pointer, "must end in the name of a member, which is no number and not *");
        }
        Ok(_) => {}
    }
}
