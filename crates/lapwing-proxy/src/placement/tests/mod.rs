//! Placement, failover and their bounds; routes; and the live split.

mod affinity;
mod work;

use proptest::prelude::*;

use super::*;
use crate::in_flight::fixtures;
use lapwing_ledger::{LabelId, LabelTable, Stamp};
use lapwing_net::ConnectError;
use lapwing_protocol::request_match::RouteMatch;
use lapwing_settings::ConfigCell;

/// Nothing is known but the head.
const HEAD: KnownRequest<'_> = KnownRequest { model: None, work: None, key: None };

fn upstreams(names: &[&str], routes: &[UpstreamRoute]) -> (Upstreams, Vec<LabelId>) {
    split_upstreams(names, routes, None)
}

fn split_upstreams(names: &[&str], routes: &[UpstreamRoute], split: Option<Arc<TrafficSplit>>) -> (Upstreams, Vec<LabelId>) {
    let settings = PlacementSettings { routes: routes.to_vec(), ..PlacementSettings::default() };
    following_upstreams(names, &ConfigHandle::fixed(settings), split)
}

fn following_upstreams(
    names: &[&str],
    settings: &ConfigHandle<PlacementSettings>,
    split: Option<Arc<TrafficSplit>>,
) -> (Upstreams, Vec<LabelId>) {
    let labels = LabelTable::new(16);
    let member = |name: &&str| PoolMember {
        upstream: PlacedUpstream { target: Target::Tcp(format!("{name}:1")), protocol: None, health: Arc::default() },
        name: (*name).to_owned(),
        label: labels.intern(name),
    };
    let members: Vec<_> = names.iter().map(member).collect();
    let labels = members.iter().map(|member| member.label).collect();
    (Upstreams::several(members, settings, split, &LeverSwitch::default()).unwrap(), labels)
}

fn active(upstreams: &Upstreams) -> Vec<u32> {
    upstreams.active().collect()
}

fn post(path: &str) -> Request<()> {
    Request::post(path).body(()).unwrap()
}

#[test]
fn a_request_counts_where_it_went_until_it_ends() {
    let (upstreams, labels) = upstreams(&["a", "b"], &[]);
    let placement = upstreams.placement().unwrap().load();
    let accounts = [(); 3].map(|()| fixtures::account());
    let places: Vec<_> = accounts.iter().map(|account| placement.place(&post("/"), HEAD, account).at).collect();
    assert_eq!((places, active(&upstreams)), (vec![0, 1, 0], vec![2, 1]));
    let upstream = |at: usize| accounts[at].read_ledger(|ledger| ledger.series.upstream);
    assert_eq!([upstream(0), upstream(1)], [Some(labels[0]), Some(labels[1])]);
    let again = placement.place_again(Placed { at: 0, pool: 0, work: None }, &accounts[0], |_| true).unwrap();
    assert_eq!((again.at, upstream(0), active(&upstreams)), (1, Some(labels[1]), vec![1, 2]));
    accounts.iter().for_each(|account| account.hand_over(Stamp::now(), |_| ()));
    assert_eq!((active(&upstreams), placement.candidates.moved.load(Relaxed)), (vec![0, 0], 0));
    let late = &accounts[0];
    placement.place(&post("/"), HEAD, late);
    assert!(placement.place_again(Placed { at: 0, pool: 0, work: None }, late, |_| true).is_none());
    assert_eq!(active(&upstreams), [0, 0], "its ledger is handed over");
}

#[test]
fn the_budget_bounds_how_many_go_to_another_upstream() {
    let (upstreams, _) = upstreams(&["a", "b"], &[]);
    let placement = upstreams.placement().unwrap().load();
    let moved = |requests: usize| {
        let accounts: Vec<_> = (0..requests).map(|_| fixtures::account()).collect();
        let placed: Vec<_> = accounts.iter().map(|account| placement.place(&post("/"), HEAD, account)).collect();
        let again = placed.iter().zip(&accounts).map(|(placed, account)| placement.place_again(*placed, account, |_| true));
        let moved = again.flatten().count();
        let withheld: u64 = accounts.iter().map(|account| account.context.counters.get(Counter::FailoversWithheld)).sum();
        assert_eq!(withheld, (requests - moved) as u64);
        accounts.iter().for_each(|account| account.hand_over(Stamp::now(), |_| ()));
        moved
    };
    assert_eq!([moved(2), moved(10), moved(100)], [2, 3, 20]);
}

#[test]
fn nobody_else_means_no_second_try() {
    let (upstreams, _) = upstreams(&["a", "b"], &[]);
    let placement = upstreams.placement().unwrap().load();
    let (account, failed) = (fixtures::account(), Placed { at: 0, pool: 0, work: None });
    placement.place(&post("/"), HEAD, &account);
    assert!(placement.place_again(failed, &account, |_| false).is_none(), "none speaks it");
    let refused = ConnectError::Io(std::io::ErrorKind::ConnectionRefused.into());
    upstreams.others()[0].health.on_failed(&upstreams.others()[0].target, &refused);
    assert!(placement.place_again(failed, &account, |_| true).is_none(), "the other is away");
    assert!(!upstreams.health().is_away(), "clients stay");
}

#[test]
fn a_route_leads_to_its_own_upstreams() {
    let route = |matches: RouteMatch, to: &[&str]| UpstreamRoute {
        matches,
        to: to.iter().map(|name| (*name).to_owned()).collect(),
        policy: None,
        affinity: None,
    };
    let by_model = route(RouteMatch { model: Some("bert*".into()), ..RouteMatch::default() }, &["b"]);
    let by_path = route(RouteMatch { route: Some("/v1/*".into()), ..RouteMatch::default() }, &["c"]);
    let (upstreams, _) = upstreams(&["a", "b", "c"], &[by_model, by_path]);
    let placement = upstreams.placement().unwrap().load();
    let at = |path: &str| placement.place(&post(path), HEAD, &fixtures::account()).at;
    assert!((0..4).all(|_| at("/v2/models/bert-base/infer") == 1 && at("/v1/chat/completions") == 2));
    assert_eq!([(); 3].map(|()| at("/other")), [0, 1, 2], "no route takes it");
}

#[test]
fn a_body_decides_only_if_the_first_route_that_fits_asks_for_what_it_tells() {
    let route = |path: &str, model: Option<&str>, class: Option<&str>, to: &str| UpstreamRoute {
        matches: RouteMatch {
            route: Some(path.into()),
            model: model.map(Into::into),
            class: class.map(|range| range.parse().unwrap()),
            ..RouteMatch::default()
        },
        to: vec![to.to_owned()],
        policy: None,
        affinity: None,
    };
    let routes = [
        route("/v1/embeddings", None, None, "a"),
        route("/v*", Some("bert*"), None, "b"),
        route("/v2/*", None, Some("..8"), "b"),
        route("/v1/chat/*", None, None, "c"),
    ];
    let (upstreams, _) = upstreams(&["a", "b", "c"], &routes);
    let placement = upstreams.placement().unwrap().load();
    let at = |path: &str, known| placement.place(&post(path), known, &fixtures::account()).at;
    let none = AwaitedOfBody::default();
    let (model, work) = (AwaitedOfBody { model: true, ..none }, AwaitedOfBody { work: true, ..none });
    for (path, awaited) in [
        ("/v1/chat/completions", Some(model)),
        ("/v1/embeddings", None),
        ("/other", None),
        ("/v2/models/bert/infer", None),
        ("/v2/models/gpt/infer", Some(work)),
    ] {
        assert_eq!(placement.awaits(&post(path)), awaited, "{path}");
    }
    let named = |model| KnownRequest { model: Some(model), ..HEAD };
    let chat = [named("bert-base"), named("gpt"), HEAD].map(|known| at("/v1/chat/completions", known));
    assert_eq!(chat, [1, 2, 2]);
    assert_eq!([at("/v1/embeddings", named("bert")), at("/v2/models/bert/infer", named("gpt"))], [0, 1], "the head comes first");
    let of = |work| at("/v2/models/gpt/infer", KnownRequest { work: Some(work), ..HEAD });
    assert!((0..4).all(|_| of(8) == 1));
    let others: Vec<_> = (0..6).map(|_| of(9)).collect();
    assert!([0, 1, 2].iter().all(|one| others.contains(one)), "no route takes it: {others:?}");
}

fn of_user(user: usize) -> Request<()> {
    Request::post("/").header("x-user", format!("user-{user}")).body(()).unwrap()
}

/// Of `a`, `b` and the candidate `c`, half of the users try `c`.
fn halves(routes: &[UpstreamRoute]) -> (Arc<TrafficSplit>, Upstreams) {
    let split = Arc::new(TrafficSplit::new("c", "header:x-user".parse().unwrap()));
    split.set_share(0.5);
    let (upstreams, _) = split_upstreams(&["a", "b", "c"], routes, Some(split.clone()));
    (split, upstreams)
}

fn assigned(split: &TrafficSplit) -> [u64; 4] {
    SplitAssignment::ALL.map(|to| split.assigned(to))
}

fn leaves(upstreams: &Upstreams, at: usize) {
    let upstream = if at == 0 { upstreams.first() } else { &upstreams.others()[at - 1] };
    upstream.health.on_failed(&upstream.target, &ConnectError::Io(std::io::ErrorKind::ConnectionRefused.into()));
}

#[test]
fn a_split_is_sticky_and_marks_what_it_chose() {
    let (split, upstreams) = halves(&[]);
    let placement = upstreams.placement().unwrap().load();
    let place = |request: &Request<()>| {
        let account = fixtures::account();
        let at = placement.place(request, HEAD, &account).at;
        (at, account.read_ledger(|ledger| ledger.split_key).flatten())
    };
    let first: Vec<_> = (0..100).map(|user| place(&of_user(user))).collect();
    let again: Vec<_> = (0..100).map(|user| place(&of_user(user))).collect();
    assert!(first.iter().zip(&again).all(|(one, other)| (one.0 == 2) == (other.0 == 2) && one.1 == other.1));
    assert!(first.iter().all(|(_, key)| key.is_some()));
    let turns = [0, 1, 2].map(|at| first.iter().chain(&again).filter(|(place, _)| *place == at).count());
    assert!(turns[0].abs_diff(turns[1]) <= 1 && (60..140).contains(&turns[2]), "{turns:?}");
    let keyless = place(&post("/"));
    assert!(keyless.0 != 2 && keyless.1.is_none());
    assert_eq!(assigned(&split), [turns[2] as u64, (turns[0] + turns[1]) as u64, 1, 0]);
    split.set_share(0.0);
    assert!((0..100).map(|user| place(&of_user(user))).all(|(at, key)| at != 2 && key.is_none()), "stopped");
}

#[test]
fn a_key_in_the_body_is_awaited_while_the_split_is_open_and_decides() {
    let split = Arc::new(TrafficSplit::new("c", "json:/user".parse().unwrap()));
    let to_a = UpstreamRoute {
        matches: RouteMatch { route: Some("/a".into()), ..RouteMatch::default() },
        to: vec!["a".to_owned()],
        policy: None,
        affinity: None,
    };
    let (upstreams, _) = split_upstreams(&["a", "b", "c"], &[to_a], Some(split.clone()));
    let placement = upstreams.placement().unwrap().load();
    assert_eq!(placement.awaits(&post("/")), None, "before a share is set");
    split.set_share(0.5);
    let awaited = AwaitedOfBody { key: true, ..AwaitedOfBody::default() };
    assert_eq!([placement.awaits(&post("/")), placement.awaits(&post("/a"))], [Some(awaited), None]);
    let at = |user: usize| {
        let body = format!(r#"{{"user": "{user}"}}"#);
        let key = placement.key_in(&post("/"), HEAD, [body.as_bytes()]).unwrap();
        placement.place(&post("/"), KnownRequest { key: Some(&key), ..HEAD }, &fixtures::account()).at
    };
    let sides: Vec<_> = (0..100).map(|user| at(user) == 2).collect();
    assert!((30..70).contains(&sides.iter().filter(|is_candidate| **is_candidate).count()));
    assert!((0..100).all(|user| (at(user) == 2) == sides[user]), "it is sticky");
    assert_eq!(placement.key_in(&post("/"), HEAD, [&b"{}"[..]]), None);
    placement.place(&post("/"), HEAD, &fixtures::account());
    assert_eq!(split.assigned(SplitAssignment::WithoutKey), 1);
}

#[test]
fn a_side_that_is_away_is_replaced_and_that_is_not_judged() {
    let (split, upstreams) = halves(&[]);
    let placement = upstreams.placement().unwrap().load();
    let place = |user| {
        let account = fixtures::account();
        let placed = placement.place(&of_user(user), HEAD, &account);
        (placed, account.read_ledger(|ledger| ledger.split_key).flatten(), account)
    };
    let is_candidate = |user: &usize| place(*user).0.at == 2;
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..40).partition(is_candidate);
    // no connection could be made, of which nobody knew before
    let (placed, key, account) = place(ours[0]);
    let again = placement.place_again(placed, &account, |_| true).unwrap();
    assert!(key.is_some() && again.at != 2 && account.read_ledger(|ledger| ledger.split_key).flatten().is_none());
    let (placed, _, account) = place(theirs[0]);
    let again = placement.place_again(placed, &account, |_| true).unwrap();
    assert!(again.at != 2 && again.at != placed.at, "another of the baseline");
    leaves(&upstreams, 2);
    let away = split.assigned(SplitAssignment::Away);
    assert!(ours.iter().map(|user| place(*user)).all(|(placed, key, _)| placed.at != 2 && key.is_none()));
    assert_eq!(split.assigned(SplitAssignment::Away) - away, ours.len() as u64);
    upstreams.others()[1].health.on_connected(&upstreams.others()[1].target);
    leaves(&upstreams, 0);
    assert!(theirs.iter().map(|user| place(*user)).all(|(placed, key, _)| placed.at == 1 && key.is_some()));
    let (placed, _, account) = place(theirs[0]);
    let again = placement.place_again(placed, &account, |_| true).unwrap();
    assert_eq!(again.at, 2, "nobody else is left");
    leaves(&upstreams, 1);
    assert!(theirs.iter().map(|user| place(*user)).all(|(placed, key, _)| placed.at == 2 && key.is_none()));
}

#[test]
fn what_a_route_takes_is_not_split() {
    let all = UpstreamRoute {
        matches: RouteMatch { route: Some("/*".into()), ..RouteMatch::default() },
        to: vec!["a".to_owned(), "c".to_owned()],
        policy: None,
        affinity: None,
    };
    let (split, upstreams) = halves(&[all]);
    let placement = upstreams.placement().unwrap().load();
    let at: Vec<_> = (0..4).map(|user| placement.place(&of_user(user), HEAD, &fixtures::account()).at).collect();
    assert_eq!((at, assigned(&split)), (vec![0, 2, 0, 2], [0; 4]));
}

/// Settings with these weights of `a`, `b` and `c`, where all requests lead to those with the tag that the ones in `tagged` have; none: to any.
fn weighted(weights: [u32; 3], tagged: &[&str], policy: PlacementPolicy) -> PlacementSettings {
    let upstream = |(name, weight): (&str, u32)| {
        let tags = tagged.contains(&name).then(|| ("zone".to_owned(), "eu".to_owned())).into_iter().collect();
        let url = format!("http://{name}:1").parse().unwrap();
        (name.to_owned(), NamedUpstream { url, weight, tags, tls: None })
    };
    let matches = RouteMatch { route: Some("/*".into()), ..RouteMatch::default() };
    let route =
        (!tagged.is_empty()).then(|| UpstreamRoute { matches, to: vec!["tag:zone=eu".to_owned()], policy: None, affinity: None });
    PlacementSettings {
        upstreams: ["a", "b", "c"].into_iter().zip(weights).map(upstream).collect(),
        routes: route.into_iter().collect(),
        policy,
        ..PlacementSettings::default()
    }
}

#[test]
fn weights_and_tags_are_those_in_force_when_a_request_begins() {
    let cell = ConfigCell::new(weighted([3, 1, 0], &["a", "b"], PlacementPolicy::RoundRobin));
    let (upstreams, _) = following_upstreams(&["a", "b", "c"], &cell.handle(), None);
    let before = upstreams.placement().unwrap().load();
    let taken = |placement: &Placement| {
        let mut taken = [0; 3];
        (0..8).for_each(|_| taken[placement.place(&post("/"), HEAD, &fixtures::account()).at] += 1);
        taken
    };
    assert_eq!(taken(&before), [6, 2, 0]);
    cell.replace(weighted([1, 1, 3], &["a", "c"], PlacementPolicy::RoundRobin));
    assert_eq!(taken(&upstreams.placement().unwrap().load()), [2, 0, 6]);
    assert_eq!(taken(&before), [6, 2, 0], "what began before ends so");
}

#[test]
fn settings_are_replaced_while_threads_place() {
    const REQUESTS: usize = 2_000;
    let cell = ConfigCell::new(PlacementSettings::default());
    let (upstreams, _) = following_upstreams(&["a", "b", "c"], &cell.handle(), None);
    std::thread::scope(|scope| {
        let places = || {
            for _ in 0..REQUESTS {
                let (placement, account) = (upstreams.placement().unwrap().load(), fixtures::account());
                let placed = placement.place(&post("/"), HEAD, &account);
                placement.place_again(placed, &account, |_| true);
                account.hand_over(Stamp::now(), |_| ());
            }
        };
        let threads = [(); 3].map(|()| scope.spawn(places));
        let policies = [PlacementPolicy::RoundRobin, PlacementPolicy::LeastRequests];
        for policy in policies.into_iter().cycle() {
            cell.replace(weighted([1, 2, 3], &["b", "c"], policy));
            if threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
    });
    let moved = upstreams.placement().unwrap().load().candidates.moved.load(Relaxed);
    assert_eq!((active(&upstreams), moved), (vec![0; 3], 0));
}

#[derive(Clone, Debug)]
enum Step {
    Begin,
    Move(usize),
    End(usize),
    Replace([u32; 3], Vec<&'static str>, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let tagged = prop::sample::subsequence(vec!["a", "b", "c"], 0..=3);
    prop_oneof![
        3 => Just(Step::Begin),
        1 => any::<usize>().prop_map(Step::Move),
        2 => any::<usize>().prop_map(Step::End),
        1 => ([1_u32..9, 1..9, 1..9], tagged, any::<bool>()).prop_map(|(weights, tagged, least)| Step::Replace(weights, tagged, least)),
    ]
}

proptest! {
    /// Requests begin, move and end while settings are replaced: each goes where those lead with which it began, and counts until it ends.
    #[test]
    fn requests_end_by_what_they_began_with(steps in prop::collection::vec(step(), 1..300)) {
        let cell = ConfigCell::new(PlacementSettings::default());
        let (upstreams, _) = following_upstreams(&["a", "b", "c"], &cell.handle(), None);
        let (mut open, mut allowed) = (Vec::new(), vec![0, 1, 2]);
        for step in steps {
            match step {
                Step::Begin => {
                    let (placement, account) = (upstreams.placement().unwrap().load(), fixtures::account());
                    let placed = placement.place(&post("/"), HEAD, &account);
                    prop_assert!(allowed.contains(&placed.at), "{} of {allowed:?}", placed.at);
                    open.push((placement, account, placed, allowed.clone(), false));
                }
                Step::Move(one) if !open.is_empty() => {
                    let one = one % open.len();
                    let (placement, account, placed, allowed, is_moved) = &mut open[one];
                    if !*is_moved && let Some(again) = placement.place_again(*placed, account, |_| true) {
                        prop_assert!(again.at != placed.at && allowed.contains(&again.at));
                        *is_moved = true;
                    }
                }
                Step::End(one) if !open.is_empty() => {
                    let (_, account, ..) = open.swap_remove(one % open.len());
                    account.hand_over(Stamp::now(), |_| ());
                }
                Step::Replace(weights, tagged, is_least) => {
                    let policy = if is_least { PlacementPolicy::LeastRequests } else { PlacementPolicy::RoundRobin };
                    cell.replace(weighted(weights, &tagged, policy));
                    let is_allowed = |at: &usize| tagged.is_empty() || tagged.contains(&["a", "b", "c"][*at]);
                    allowed = (0..3).filter(is_allowed).collect();
                }
                Step::Move(_) | Step::End(_) => {}
            }
            prop_assert_eq!(active(&upstreams).iter().sum::<u32>() as usize, open.len());
        }
        open.iter().for_each(|(_, account, ..)| { account.hand_over(Stamp::now(), |_| ()); });
        let moved = upstreams.placement().unwrap().load().candidates.moved.load(Relaxed);
        prop_assert_eq!((active(&upstreams), moved), (vec![0; 3], 0));
    }
}
