//! Wall-clock times as text: RFC 3339 in UTC, with nanoseconds.

const SECOND: u64 = 1_000_000_000;
const DAY_S: u64 = 86_400;

/// Such as `2026-11-21T07:39:55.000000001Z`.
pub(super) fn rfc3339(unix_ns: u64) -> String {
    let (seconds, ns) = (unix_ns / SECOND, unix_ns % SECOND);
    let (year, month, day) = date(seconds / DAY_S);
    let of_day = seconds % DAY_S;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z")
}

/// Year, month and day by the days since 1970-01-01. Years begin in March here, so that the leap day is the last one;
/// eras are of 400 years. See <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
const fn date(days: u64) -> (u64, u64, u64) {
    let from_march_0000 = days + 719_468;
    let (era, day_of_era) = (from_march_0000 / 146_097, from_march_0000 % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + if month <= 2 { 1 } else { 0 }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_868_799, "2000-02-29T23:59:59"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_709_164_800, "2024-02-29T00:00:00"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (1_795_246_795, "2026-11-21T07:39:55"),
        ] {
            assert_eq!(rfc3339(seconds * SECOND + 1), format!("{text}.000000001Z"));
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..213_503 {
            let (year, month, day) = date(days);
            let follows = match day {
                1 => before.2 >= 28 && (before.1 % 12 + 1, before.0 + u64::from(month == 1)) == (month, year),
                _ => (before.0, before.1, before.2 + 1) == (year, month, day),
            };
            assert!(follows, "{before:?} is followed by {:?}", date(days));
            before = date(days);
        }
    }
}
