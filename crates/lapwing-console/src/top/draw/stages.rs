//! Stages as colours and letters: each cell of a bar has the letter of its stage, so that bars can be read without colours.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use lapwing_ledger::Stage;

/// The letter and the colour of a stage; a stage that this version does not know has separate ones.
fn mark(stage: Option<Stage>) -> (char, Color) {
    match stage {
        Some(Stage::Ingress) => ('I', Color::LightBlue),
        Some(Stage::Validation) => ('V', Color::Cyan),
        Some(Stage::Cache) => ('C', Color::Blue),
        Some(Stage::Hydration) => ('H', Color::LightYellow),
        Some(Stage::Preprocessing) => ('P', Color::LightMagenta),
        Some(Stage::Queue) => ('Q', Color::LightRed),
        Some(Stage::Forward) => ('F', Color::Green),
        Some(Stage::Postprocessing) => ('O', Color::LightCyan),
        Some(Stage::Downstream) => ('D', Color::Magenta),
        Some(Stage::Egress) => ('E', Color::Yellow),
        Some(Stage::Upstream) => ('U', Color::LightGreen),
        Some(Stage::Unattributed) => ('?', Color::Gray),
        None => ('*', Color::White),
    }
}

fn style(color: Color) -> Style {
    Style::new().fg(Color::Black).bg(color)
}

/// `cells` cells in the colour of a stage, the first with its letter.
pub(crate) fn block(stage: &str, cells: usize) -> Span<'static> {
    let (letter, color) = mark(Stage::from_name(stage));
    let text: String = std::iter::once(letter).chain(std::iter::repeat(' ')).take(cells).collect();
    Span::styled(text, style(color))
}

/// Shares, each of `0..=1`, as a bar of at most `cells` cells in the order of stages: a border is where the shares before it end, so the
/// bar as a whole is right to a cell.
pub(crate) fn bar<'a>(shares: impl Iterator<Item = (&'a str, f64)>, cells: usize) -> Line<'static> {
    let mut shares: Vec<(Option<Stage>, f64)> = shares.map(|(name, share)| (Stage::from_name(name), share)).collect();
    shares.sort_by_key(|(stage, _)| stage.map_or(usize::MAX, Stage::index));
    let (mut sum, mut from) = (0.0, 0);
    let spans = shares.into_iter().map(|(stage, share)| {
        sum += share.max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the cells")]
        let to = ((sum * cells as f64).round().min(cells as f64) as usize).max(from);
        let (letter, color) = mark(stage);
        let span = Span::styled(letter.to_string().repeat(to - from), style(color));
        from = to;
        span
    });
    Line::from_iter(spans.collect::<Vec<_>>())
}

/// What the letters mean: all stages.
pub(crate) fn legend() -> Line<'static> {
    let of = |stage: Stage| [block(stage.name(), 1), Span::raw(format!(" {}  ", stage.name()))];
    Line::from_iter(Stage::ALL.into_iter().flat_map(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shares: &[(&str, f64)], cells: usize) -> String {
        bar(shares.iter().copied(), cells).spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn a_bar_has_its_cells_in_the_order_of_stages() {
        assert_eq!(text(&[("forward", 0.5), ("ingress", 0.25), ("egress", 0.25)], 8), "IIFFFFEE");
        assert_eq!(text(&[("forward", 0.3), ("queue", 0.3), ("unattributed", 0.4)], 10), "QQQFFF????");
        // small ones add up to what they are
        assert_eq!(text(&[("ingress", 0.04), ("validation", 0.04), ("hydration", 0.04), ("forward", 0.88)], 10).len(), 10);
        assert_eq!(text(&[("warp", 0.5)], 4), "**");
        assert_eq!(text(&[("forward", 7.0), ("egress", f64::NAN), ("queue", -1.0)], 4), "FFFF");
        assert_eq!(text(&[], 4), "");
    }

    #[test]
    fn stages_are_told_apart() {
        let marks: Vec<_> = Stage::ALL.map(Some).into_iter().chain([None]).map(mark).collect();
        for (at, one) in marks.iter().enumerate() {
            assert!(marks[at + 1..].iter().all(|other| other.0 != one.0 && other.1 != one.1), "{one:?}");
        }
    }
}
