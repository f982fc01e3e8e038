//! What names and values say about a field: times of answering, ids and durations are no outputs of a model.
//!
//! Nothing here makes two outputs agree: a time of answering is recognised by its value, to the hour; an id or a duration is at most
//! left unjudged where the primary's own
//! noise does not clear it.

use super::super::comparison::FieldHint;

/// What ends the name of an id, without its separators and in lower case.
const IDS: [&str; 14] = [
    "id",
    "uuid",
    "guid",
    "requestid",
    "reqid",
    "traceid",
    "correlationid",
    "responseid",
    "predictionid",
    "inferenceid",
    "eventid",
    "runid",
    "callid",
    "messageid",
];
/// Words of the name of a duration.
const DURATIONS: [&str; 13] = [
    "ms",
    "us",
    "ns",
    "millis",
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "duration",
    "latency",
    "elapsed",
    "took",
    "timing",
    "timings",
];
/// What must precede `time`, so that it is that of an answer.
const TIMES_OF: [&str; 12] = [
    "inference",
    "processing",
    "process",
    "response",
    "compute",
    "total",
    "execution",
    "exec",
    "queue",
    "server",
    "run",
    "predict",
];
/// How far the time of an answer may be from now, in seconds.
const NEAR_S: f64 = 3_600.0;
/// The same where the zone is unknown.
const NEAR_DAYS_S: f64 = 86_400.0;
/// 2017-07-14: no recording is older, in seconds since 1970.
const OLDEST_S: f64 = 1.5e9;

/// What the keys on the way to a field say about it, the last first; `None` means the elements of a list.
pub(crate) fn hint_of<'k>(mut keys: impl Iterator<Item = Option<&'k str>>) -> FieldHint {
    let Some(Some(last)) = keys.next() else { return FieldHint::Nothing };
    let words = words(last);
    let joined: String = words.concat();
    // ids of the elements of a list are what was found
    if IDS.contains(&joined.as_str()) && keys.all(|key| key.is_some()) {
        return FieldHint::Id;
    }
    let is_time = |pair: &[String]| pair[1] == "time" && TIMES_OF.contains(&pair[0].as_str());
    let is_duration = words.iter().any(|word| DURATIONS.contains(&word.as_str())) || words.windows(2).any(is_time);
    if is_duration { FieldHint::Duration } else { FieldHint::Nothing }
}

/// The words of a name, in lower case: `inferenceTime_ms` has three.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut was_lower) = (vec![String::new()], false);
    for c in name.chars().take(64) {
        let is_new = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        if is_new {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether both texts have the form of an id.
pub(crate) fn are_ids(p: &str, c: &str) -> bool {
    let is_id = |text: &str| {
        (8..=128).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':'))
            && text.bytes().any(|byte| byte.is_ascii_digit())
    };
    is_id(p) && is_id(c)
}

/// Whether both numbers are times since 1970, in seconds, milliseconds, microseconds or nanoseconds: the candidate's within an hour of
/// now, the primary's not later, for it may have been recorded.
pub(crate) fn are_times(p: f64, c: f64, now_s: f64) -> bool {
    [1.0, 1e3, 1e6, 1e9].into_iter().any(|in_second| is_time_of_answer(p / in_second, c / in_second, now_s, NEAR_S))
}

/// The same for texts as `2026-11-27T08:30:00Z`.
pub(crate) fn are_times_of_day(p: &str, c: &str, now_s: f64) -> bool {
    match (unix_seconds(p), unix_seconds(c)) {
        (Some(p), Some(c)) => is_time_of_answer(p, c, now_s, NEAR_DAYS_S),
        _ => false,
    }
}

fn is_time_of_answer(p: f64, c: f64, now_s: f64, near_s: f64) -> bool {
    (c - now_s).abs() <= near_s && (OLDEST_S..=now_s + near_s).contains(&p)
}

/// The seconds of a time as in RFC 3339, without its zone.
fn unix_seconds(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let is_form =
        (19..=40).contains(&bytes.len()) && bytes[4] == b'-' && bytes[7] == b'-' && matches!(bytes[10], b'T' | b't' | b' ');
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u16>().ok().map(f64::from);
    if !is_form || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // days of the civil calendar, whose years begin in March
    let (year, month) = if month > 2.0 { (year, month - 3.0) } else { (year - 1.0, month + 9.0) };
    let days = 365.0 * year + (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor();
    let days = days + ((153.0 * month + 2.0) / 5.0).floor() + day - 719_469.0;
    Some(days * 86_400.0 + hour * 3_600.0 + minute * 60.0 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ids_and_durations() {
        for (keys, hint) in [
            (&[Some("id")][..], FieldHint::Id),
            (&[Some("requestId"), Some("meta")], FieldHint::Id),
            (&[Some("id"), None, Some("documents")], FieldHint::Nothing),
            (&[Some("class_id")], FieldHint::Nothing),
            (&[Some("took_ms")], FieldHint::Duration),
            (&[Some("inferenceTime")], FieldHint::Duration),
            (&[Some("total_duration")], FieldHint::Duration),
            (&[Some("arrival_time")], FieldHint::Nothing),
            (&[Some("terms")], FieldHint::Nothing),
            (&[None, Some("ids")], FieldHint::Nothing),
            (&[], FieldHint::Nothing),
        ] {
            assert_eq!(hint_of(keys.iter().copied()), hint, "{keys:?}");
        }
        assert!(are_ids("req-8f14e45f", "req-c9f0f895") && !are_ids("a cat", "8f14e45fceea167a") && !are_ids("yes", "no"));
    }

    #[test]
    fn times_of_answering_are_near_now() {
        let now = 1_764_230_000.0;
        assert!(are_times(now - 1.5, now, now) && are_times((now - 1.0) * 1e3, now * 1e3, now));
        assert!(are_times(now - 8e6, now, now), "recorded");
        assert!(!are_times(now, now - 8e6, now) && !are_times(0.5, 50.0, now) && !are_times(now * 2.0, now, now));
        assert_eq!(unix_seconds("1970-01-02T00:00:01Z"), Some(86_401.0));
        assert_eq!(unix_seconds("2025-11-27T07:53:20.123456+00:00"), Some(now));
        assert!(are_times_of_day("2025-11-27 07:00:00", "2025-11-27T09:53:20+02:00", now));
        assert!(!are_times_of_day("2025-11-27T07:00:00Z", "2024-11-27T07:00:00Z", now) && !are_times_of_day("a", "b", now));
    }
}
