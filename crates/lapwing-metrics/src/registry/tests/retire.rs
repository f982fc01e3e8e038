//! That idle series give way, that ids of names that gave way name nothing else, and that no count is lost.

use super::*;
use lapwing_settings::Period;

fn registry(max_series: usize, max_models: usize) -> Registry {
    let config = Config { max_series, max_models, idle_after: Period::from_secs(10), ..Config::default() };
    let labels = Arc::new(Labels::bounded_by(&config, 1));
    Registry::new(config, labels, Arc::default())
}

fn answer(registry: &mut Registry, key: SeriesKey) {
    registry.record(&exchange(key, 7));
}

fn shown(registry: &Registry) -> Vec<(String, u64)> {
    let all = registry.series(Window::All, 0..registry.places());
    all.iter().map(|series| (series.model.to_string(), series.figures.count())).collect()
}

#[test]
fn the_series_idle_for_longest_gives_way_and_stays_counted() {
    let mut registry = registry(2, 9);
    let (labels, mut now) = (registry.labels().clone(), Stamp::now());
    let mut at = |registry: &mut Registry, seconds: u64, name: &str| {
        now = now.plus(seconds * SECOND);
        registry.rotate(now);
        let model = labels.models.learn(name, now).unwrap();
        answer(registry, SeriesKey { model, ..SeriesKey::default() });
    };
    at(&mut registry, 1, "a");
    at(&mut registry, 1, "b");
    at(&mut registry, 8, "a");
    at(&mut registry, 1, "c");
    assert_eq!(shown(&registry), [("other".into(), 1), ("a".into(), 2), ("b".into(), 1)], "b was idle for 9 s");
    assert_eq!(registry.fill(), (2, 1));
    at(&mut registry, 1, "c");
    assert_eq!(shown(&registry), [("other".into(), 1), ("a".into(), 2), ("c".into(), 1)]);
    at(&mut registry, 9, "b");
    assert_eq!(shown(&registry), [("other".into(), 1), ("b".into(), 1), ("c".into(), 1)]);
    let retired = registry.retired();
    assert_eq!((retired.series, retired.totals.count()), (2, 3));
}

#[test]
fn series_leave_with_their_names_and_late_exchanges_are_other() {
    let mut registry = registry(9, 2);
    let (labels, now) = (registry.labels().clone(), Stamp::now());
    let key = |name: &str, now| SeriesKey { model: labels.models.learn(name, now).unwrap(), ..SeriesKey::default() };
    let old = key("old", now);
    answer(&mut registry, old);
    registry.rotate(now.plus(SECOND));
    let new = key("new", now.plus(11 * SECOND));
    assert_eq!(labels.evicted(), 1);
    registry.retire_unnamed();
    answer(&mut registry, new);
    answer(&mut registry, old);
    assert_eq!(shown(&registry), [("other".into(), 1), ("new".into(), 1)]);
    assert_eq!((registry.retired().totals.count(), registry.fill()), (1, (1, 0)));
}

#[test]
fn distinct_names_without_end_are_all_counted_in_the_room_of_a_few() {
    let mut registry = registry(4, 4);
    let (labels, mut now) = (registry.labels().clone(), Stamp::now());
    for n in 0..2_000 {
        now = now.plus(4 * SECOND);
        registry.rotate(now);
        let model = labels.models.learn(&format!("m{n}"), now).unwrap();
        registry.retire_unnamed();
        answer(&mut registry, SeriesKey { model, ..SeriesKey::default() });
    }
    let counted: u64 = shown(&registry).iter().map(|(_, count)| count).sum();
    assert_eq!(counted + registry.retired().totals.count(), 2_000);
    assert!(registry.places() <= 5 && counted <= 5);
}
