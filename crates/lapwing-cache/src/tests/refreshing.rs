//! Answers that are asked for anew before they are out of date: which, and how many at once.

use std::sync::Arc;

use super::*;
use crate::plane::CachePlane;
use crate::refresh::RefreshTicket;
use lapwing_settings::Share;

fn plane() -> Arc<CachePlane> {
    Arc::new(CachePlane::new([7; 32], || 0))
}

fn stored() -> Arc<StoredAnswer> {
    Arc::new(answer(&request(KeyForm::Bytes, None), &[], b"{}", at(0)).unwrap())
}

#[test]
fn an_answer_is_asked_for_anew_in_the_last_part_of_its_time_if_it_was_given_before() {
    let (plane, fifth) = (plane(), Share::of_percent(20));
    let ticket = |answer: &Arc<StoredAnswer>, second| RefreshTicket::of(&plane, answer, fifth, at(second * SECOND));
    let rare = stored();
    assert!(ticket(&rare, 59).is_none(), "nobody asked for it before");
    assert!(ticket(&rare, 59).is_some());
    let often = stored();
    assert!(ticket(&often, 1).is_none() && ticket(&often, 48).is_none(), "a fifth of the minute is left, not less");
    let held = ticket(&often, 49).unwrap();
    assert!(ticket(&often, 50).is_none(), "it is asked for");
    drop(held);
    assert!(ticket(&often, 51).is_some(), "that failed: the next one asks");
}

#[test]
fn few_are_asked_for_anew_at_once() {
    let (plane, half) = (plane(), Share::of_percent(50));
    let answers = [stored(), stored(), stored()];
    let tickets = || answers.each_ref().map(|answer| RefreshTicket::of(&plane, answer, half, at(50 * SECOND)));
    assert!(tickets().iter().all(Option::is_none));
    for _ in 0..3 {
        assert_eq!(tickets().iter().flatten().count(), 2);
    }
}
