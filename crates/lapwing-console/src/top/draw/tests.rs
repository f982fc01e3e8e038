//! The screen as a terminal would show it, drawn on ratatui's backend for tests, and what keys do to it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::feed::Reading;
use crate::top::rows::Sort;
use crate::top::slowest::{PlacedSpan, SlowRequest, StagePart};
use crate::top::state::{Effect, Requests};

fn screen(state: &mut TopState, columns: u16, lines: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| view(frame, state, "127.0.0.1:9464")).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>().trim_end().to_owned();
    (0..lines).map(line).collect()
}

fn figures(p99_ns: f64) -> Reading {
    let series = serde_json::json!([
        {"route": "GET /b", "upstream": "u", "count": 40, "total": {"count": 40, "mean_ns": 1e5, "p50_ns": 1e5, "p99_ns": 2e5}},
        {"route": "POST /v2/infer", "model": "tickets", "upstream": "u", "count": 200, "errors": 3,
         "total": {"count": 197, "mean_ns": 5e6, "p50_ns": 4e6, "p99_ns": p99_ns},
         "stages": {"forward": {"count": 197, "share": 0.75}, "ingress": {"count": 197, "share": 0.25}}},
        {"route": "GET /a", "model": "\u{1b}[2J\u{202e}鸟\n", "upstream": "u", "count": 10, "total": {"count": 0}},
        {"route": "GET /long", "model": "m".repeat(100_000), "upstream": "u", "count": 1, "total": {"count": 1, "mean_ns": 1}}
    ]);
    let profiler = serde_json::json!({"uptime_ns": 61e9, "in_flight": 2, "dropped": 5});
    let stats = serde_json::json!({"window": "10s", "covered_ns": 10e9, "series": series, "profiler": profiler});
    Reading::Figures(Box::new(serde_json::from_value(stats).unwrap()))
}

fn live() -> TopState {
    let mut state = TopState::default();
    state.take(figures(9e6));
    state
}

fn press(state: &mut TopState, code: KeyCode) -> Effect {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_text(state: &mut TopState, text: &str) {
    for char in text.chars() {
        assert_eq!(press(state, KeyCode::Char(char)), Effect::None);
    }
}

#[test]
fn rows_have_their_figures_bars_and_history() {
    let mut state = live();
    state.take(figures(18e6));
    let lines = screen(&mut state, 140, 12);
    assert_eq!(lines[0], "lapwing top  127.0.0.1:9464  window 10s, up 61.0 s, 2 in flight, 4 series, 5 profiles dropped");
    assert_eq!(lines[1], "sorted by time");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&lines[2]), ["route,", "model", "req/s", "errors", "p50", "p99", "stages", "p99,", "the", "last", "minute"]);
    let first = [
        "POST",
        "/v2/infer,",
        "model",
        "tickets",
        "20.0",
        "1.5",
        "%",
        "4.00",
        "ms",
        "18.0",
        "ms",
        "IIIIIIFFFFFFFFFFFFFFFFFF",
        "█",
    ];
    assert_eq!(words(&lines[3]), first);
    assert_eq!(words(&lines[4]), ["GET", "/b", "4.0", "0", "100", "µs", "200", "µs", "█"]);
    // a request without an answer has no time
    assert!(lines[6].starts_with("GET /a, model \\u{1b}[2J\\u{202e}鸟"), "{}", lines[6]);
    assert!(words(&lines[6]).ends_with(&["1.0", "0", "-", "-"].map(str::to_owned)), "{}", lines[6]);
    assert!(lines[5].contains("mmm…  ") && !lines.concat().contains('\x1b'), "{}", lines[5]);
    assert!(lines[10].starts_with("I ingress  V validation  C cache  H hydration"), "{}", lines[10]);
    assert_eq!(lines[11], KEYS);
}

#[test]
fn what_waits_in_front_of_the_upstreams_has_a_line_of_its_own() {
    let mut state = live();
    let without = screen(&mut state, 140, 12);
    for (queue, line) in [
        (serde_json::json!({"is_on": true, "waiting": 12, "running": 2}), "dispatch: 12 waiting, 2 running"),
        (
            serde_json::json!({"is_on": true, "waiting": 0, "running": 3, "left_out": 1}),
            "dispatch: 0 waiting, 3 running, 1 upstream left alone: it fails or stands still",
        ),
        (serde_json::json!({"is_on": false, "waiting": 0, "running": 0}), "dispatch observes: none waits"),
    ] {
        state.stats.dispatch = serde_json::from_value(queue).unwrap();
        let with = screen(&mut state, 140, 13);
        assert_eq!((&*with[0], &*with[1]), (&*without[0], line));
        assert_eq!(with[2..], without[1..]);
    }
}

#[test]
fn every_size_of_a_terminal_is_drawn() {
    for columns in [0, 1, 5, 20, 39, 60, 80, 101, 130, 250] {
        for lines in [0, 1, 2, 3, 4, 5, 6, 9, 24] {
            let mut state = live();
            screen(&mut state, columns, lines);
            for key in ['?', 'x'] {
                press(&mut state, KeyCode::Char(key));
                screen(&mut state, columns, lines);
            }
            press(&mut state, KeyCode::Enter);
            state.take_requests(Ok(vec![slow()]));
            screen(&mut state, columns, lines);
        }
    }
}

#[test]
fn a_lapwing_that_is_gone_is_told_and_its_figures_stay() {
    let mut state = TopState::default();
    assert_eq!(screen(&mut state, 100, 8)[1..3], ["connecting …", "connecting …"]);
    state.take(Reading::Lost("127.0.0.1:9464: cannot connect".to_owned()));
    assert_eq!(screen(&mut state, 100, 8)[1], "NO FIGURES; trying again: 127.0.0.1:9464: cannot connect");
    state.take(figures(9e6));
    assert_eq!(screen(&mut state, 100, 8)[1], "sorted by time");
    state.take(Reading::Lost("127.0.0.1:9464: the stream ended".to_owned()));
    let lines = screen(&mut state, 100, 8);
    assert_eq!(lines[1], "NO FIGURES; figures are old; trying again: 127.0.0.1:9464: the stream ended");
    assert!(lines[3].starts_with("POST /v2/infer"), "{lines:?}");
}

#[test]
fn keys_sort_choose_and_filter() {
    let mut state = live();
    let shown = |state: &mut TopState| {
        let lines = screen(state, 100, 9);
        let routes = lines[3..7].iter().filter_map(|line| line.split([' ', ',']).nth(1).filter(|route| route.starts_with('/')));
        routes.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(shown(&mut state), ["/v2/infer", "/b", "/long", "/a"]);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.table.selected(), Some(1));
    // the chosen row stays chosen where the order changes
    for _ in 0..5 {
        press(&mut state, KeyCode::Char('s'));
    }
    assert_eq!((state.order.by, shown(&mut state)), (Sort::Name, ["/a", "/b", "/long", "/v2/infer"].map(str::to_owned).to_vec()));
    press(&mut state, KeyCode::Char('r'));
    assert_eq!(
        (shown(&mut state), state.table.selected()),
        (["/v2/infer", "/long", "/b", "/a"].map(str::to_owned).to_vec(), Some(2))
    );
    press(&mut state, KeyCode::End);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.table.selected(), Some(3));
    press(&mut state, KeyCode::Home);
    assert_eq!(state.table.selected(), Some(0));
    press(&mut state, KeyCode::Char('/'));
    type_text(&mut state, "TICKq");
    assert!(screen(&mut state, 100, 9)[1].contains("filter: TICKq▏"));
    assert_eq!(screen(&mut state, 100, 9)[2], "no route or model with this in its name");
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Enter);
    assert_eq!(shown(&mut state), ["/v2/infer"]);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Effect::Quit);
    press(&mut state, KeyCode::Esc);
    assert_eq!((shown(&mut state).len(), state.filter.len()), (4, 0));
    press(&mut state, KeyCode::Char('/'));
    type_text(&mut state, &"\u{202e}".repeat(500));
    assert_eq!(state.filter.chars().count(), 128);
    assert_eq!(state.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Effect::Quit);
}

fn slow() -> SlowRequest {
    let span = |name: &str, stage: &str, start_ns, end_ns| PlacedSpan {
        name: name.to_owned(),
        stage: stage.to_owned(),
        start_ns,
        end_ns,
        source: "span".to_owned(),
    };
    let part = |stage: &str, ns| StagePart { stage: stage.to_owned(), ns, source: "reported".to_owned() };
    SlowRequest {
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        started_at: "2026-11-23T19:00:00.000000000Z".to_owned(),
        status: Some(200),
        outcome: "ok".to_owned(),
        served_by: "upstream".to_owned(),
        total_ns: 10_000_000,
        stages: vec![part("ingress", 2_500_000), part("forward", 7_500_000)],
        spans: vec![span("predict\x1b[2J", "forward", 2_500_000, 10_000_000), span("late", "egress", 20_000_000, u64::MAX)],
    }
}

#[test]
fn the_slowest_requests_are_waterfalls() {
    let mut state = live();
    let Effect::Fetch(names) = press(&mut state, KeyCode::Enter) else { panic!("nothing is fetched") };
    assert_eq!(names.query("/exchanges", &[]), "/exchanges?route=POST+%2Fv2%2Finfer&model=tickets");
    assert!(screen(&mut state, 100, 20).concat().contains("asking …"));
    state.take_requests(Ok(vec![slow(), SlowRequest { total_ns: 9_000_000, served_by: "l1".to_owned(), ..slow() }]));
    let lines = screen(&mut state, 100, 20);
    assert!(lines[2].contains("slowest: POST /v2/infer, model tickets"), "{}", lines[2]);
    assert!(lines[3].contains("1 of 2  10.0 ms  ok, status 200  2026-11-23T19:00:00"), "{}", lines[3]);
    assert!(lines[4].contains("trace 4bf92f3577b34da6a3ce929d0e0e4736"));
    let bar = lines[6].trim_matches(['│', ' ']);
    assert_eq!((bar.matches('I').count(), bar.matches('F').count()), (25, 73), "{bar}");
    assert!(lines[8].contains("predict\\u{1b}[2J") && lines[8].contains("7.50 ms  span"), "{}", lines[8]);
    assert!(lines.concat().contains("I ingress"), "{lines:#?}");
    press(&mut state, KeyCode::Right);
    press(&mut state, KeyCode::Right);
    assert!(screen(&mut state, 100, 20)[3].contains("2 of 2  9.00 ms  ok, status 200, by l1  "));
    (0..50).for_each(|_| drop(press(&mut state, KeyCode::Down)));
    assert!(screen(&mut state, 100, 9).concat().contains("reported"), "the last line is reached");
    press(&mut state, KeyCode::Esc);
    assert!(matches!(state.panel, Panel::None));
    press(&mut state, KeyCode::Enter);
    state.take_requests(Err("127.0.0.1:9464: cannot connect".to_owned()));
    assert!(screen(&mut state, 100, 20)[3].contains("127.0.0.1:9464: cannot connect"));
    press(&mut state, KeyCode::Esc);
    // an answer that comes after the panel was closed opens nothing
    state.take_requests(Ok(vec![slow()]));
    assert!(matches!(state.panel, Panel::None));
    press(&mut state, KeyCode::Enter);
    state.take_requests(Ok(Vec::new()));
    assert!(matches!(&state.panel, Panel::Slowest { requests: Requests::Known(none), .. } if none.is_empty()));
    assert!(screen(&mut state, 100, 20)[3].contains("none is kept"));
}

#[test]
fn the_help_names_every_key_of_the_foot() {
    let mut state = live();
    press(&mut state, KeyCode::Char('?'));
    let shown = screen(&mut state, 110, 22).join("\n");
    for text in ["choose a row", "slowest requests of the row", "reverse the order", "quit", "docs/STAGES.md"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    press(&mut state, KeyCode::Char('x'));
    assert!(matches!(state.panel, Panel::None));
}

#[test]
fn history_is_bounded_and_ends_with_its_series() {
    let mut state = live();
    for _ in 0..500 {
        state.take(figures(9e6));
    }
    let key = state.rows()[0].key();
    assert_eq!(state.history(&key).count(), crate::top::state::HISTORY);
    state.take(Reading::Figures(Box::default()));
    assert_eq!((state.history(&key).count(), state.table.selected()), (0, None));
    assert_eq!(press(&mut state, KeyCode::Enter), Effect::None);
}
