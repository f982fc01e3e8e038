//! The table of `lapwing stats` and `lapwing merge`: a title for each series, and under it a row for each measure.

use std::fmt;

use super::printable::printable;
use super::units::percent;

/// The columns of a name of a route, model or upstream. Lapwing's own names have at most 128 bytes.
const NAME: usize = 128;

/// One measure, its values as text with their units.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableRow {
    pub(crate) name: String,
    pub(crate) count: u64,
    /// Of the total time; `None` for what is no part of it.
    pub(crate) share: Option<f64>,
    /// Mean, p50, p90, p99 and maximum.
    pub(crate) values: [String; 5],
}

/// The names of the columns.
pub(crate) fn heading() -> String {
    let mut heading = format!("  {:<42} {:>10} {:>7}", "", "count", "share");
    for name in ["mean", "p50", "p90", "p99", "max"] {
        heading += &format!(" {name:>9}");
    }
    heading
}

impl fmt::Display for TableRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, count, share, values } = self;
        let share = share.map(percent).unwrap_or_default();
        write!(f, "  {name:<42} {count:>10} {share:>7}")?;
        values.iter().try_for_each(|value| write!(f, " {value:>9}"))
    }
}

/// The name of a series for people; what a client chose of it is escaped and cut.
pub(crate) fn series_title(route: &str, model: &str, upstream: &str) -> String {
    let [route, model, upstream] = [route, model, upstream].map(|name| printable(name, NAME));
    if model.is_empty() { format!("{route} ({upstream})") } else { format!("{route}, model {model} ({upstream})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_names() {
        let values = ["1.00 ms", "2.00 ms", "3.00 ms", "4.00 ms", "5.00 ms"].map(str::to_owned);
        let row = TableRow { name: "forward".to_owned(), count: 12, share: Some(0.5), values };
        assert_eq!(
            [heading(), row.to_string()],
            [
                "                                                  count   share      mean       p50       p90       p99       max",
                "  forward                                            12  50.0 %   1.00 ms   2.00 ms   3.00 ms   4.00 ms   5.00 ms",
            ]
        );
    }

    #[test]
    fn titles_have_no_control_characters() {
        assert_eq!(series_title("POST /v2", "", "http://u"), "POST /v2 (http://u)");
        assert_eq!(series_title("POST /v2", "a\x1b[2J", "u"), "POST /v2, model a\\u{1b}[2J (u)");
        assert!(series_title("r", &"m".repeat(1 << 20), "u").len() < 200);
    }
}
