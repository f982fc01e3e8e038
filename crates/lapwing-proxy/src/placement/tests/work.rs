//! Requests that are placed by how much is asked of each upstream.

use super::*;

/// The routes `/v2/*`, by work, and `/v1/*` for one model, by requests; all else by `policy`.
fn by_work(policy: PlacementPolicy) -> Upstreams {
    let route = |path: &str, model: Option<&str>, policy| UpstreamRoute {
        matches: RouteMatch { route: Some(path.into()), model: model.map(Into::into), ..RouteMatch::default() },
        to: vec!["a".into(), "b".into()],
        policy: Some(policy),
        affinity: None,
    };
    let routes =
        vec![route("/v2/*", None, PlacementPolicy::LeastWork), route("/v1/*", Some("m"), PlacementPolicy::LeastRequests)];
    let settings = PlacementSettings { routes, policy, ..PlacementSettings::default() };
    following_upstreams(&["a", "b"], &ConfigHandle::fixed(settings), None).0
}

fn asks(work: u64) -> KnownRequest<'static> {
    KnownRequest { work: Some(work), ..HEAD }
}

#[test]
fn a_body_is_awaited_where_its_work_decides() {
    let none = AwaitedOfBody::default();
    let (model, work) = (AwaitedOfBody { model: true, ..none }, AwaitedOfBody { work: true, ..none });
    let both = AwaitedOfBody { model: true, work: true, ..none };
    let round_robin = by_work(PlacementPolicy::RoundRobin).placement().unwrap().load();
    let least_work = by_work(PlacementPolicy::LeastWork).placement().unwrap().load();
    for (path, of_round_robin, of_least_work) in [
        ("/v2/models/m/infer", Some(work), Some(work)),
        // another model goes by the policy of all
        ("/v1/chat/completions", Some(model), Some(both)),
        ("/v1/models/m:predict", None, None),
        ("/other", None, Some(work)),
    ] {
        assert_eq!(round_robin.awaits(&post(path)), of_round_robin, "{path}");
        assert_eq!(least_work.awaits(&post(path)), of_least_work, "{path}");
    }
}

#[test]
fn what_is_asked_counts_where_the_request_went_until_it_ends() {
    let upstreams = by_work(PlacementPolicy::LeastWork);
    let placement = upstreams.placement().unwrap().load();
    let accounts: Vec<_> = (0..6).map(|_| fixtures::account()).collect();
    let asked = || placement.candidates.all.iter().map(|one| one.asked().0).collect::<Vec<_>>();
    let works = [50, 20, 20, 20, 5];
    let placed: Vec<_> =
        works.iter().zip(&accounts).map(|(work, account)| placement.place(&post("/x"), asks(*work), account)).collect();
    assert_eq!((placed.iter().map(|placed| placed.at).collect::<Vec<_>>(), asked()), (vec![0, 1, 1, 1, 0], vec![55.0, 60.0]));
    // one whose upstream took no connection takes its work along
    let moved = placement.place_again(placed[0], &accounts[0], |_| true).unwrap();
    assert_eq!((moved.at, asked()), (1, vec![5.0, 110.0]));
    // what the queue of dispatch chose counts too, and is not asked about
    let chosen = placement.place_at(placed[0].pool, 1, Some(7), &accounts[5]);
    assert_eq!((chosen.at, asked()), (1, vec![5.0, 117.0]));
    accounts.iter().for_each(|account| account.hand_over(Stamp::now(), |_| ()));
    assert_eq!((asked(), active(&upstreams)), (vec![0.0, 0.0], vec![0, 0]));
}
