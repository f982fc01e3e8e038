//! Requests with the same key go to the same upstream.

use super::*;
use lapwing_dispatch::Affinity;

#[test]
fn requests_with_the_same_key_go_to_the_same_upstream() {
    let affinity = |key: &str| Some(Affinity { key: key.parse().unwrap(), chars: 8, overload: "1.25".parse().unwrap() });
    let route = |path: &str, key: &str| UpstreamRoute {
        matches: RouteMatch { route: Some(path.into()), ..RouteMatch::default() },
        to: vec!["a".into(), "b".into(), "c".into()],
        policy: None,
        affinity: affinity(key),
    };
    let (upstreams, _) = upstreams(&["a", "b", "c"], &[route("/chat", "json:/prompt"), route("/user", "header:x-user")]);
    let placement = upstreams.placement().unwrap().load();
    let chat = Request::post("/chat").body(()).unwrap();
    let awaited = AwaitedOfBody { key: true, ..AwaitedOfBody::default() };
    assert_eq!(placement.awaits(&chat), Some(awaited));
    // each request ends before the next one comes
    let by_prompt = |prompt: &str| {
        let body = format!(r#"{{"prompt": "{prompt}"}}"#);
        let key = placement.key_in(&chat, HEAD, [body.as_bytes()]).unwrap();
        let account = fixtures::account();
        assert_eq!(placement.pool_of(&chat, HEAD), None, "the key chooses");
        let at = placement.place(&chat, KnownRequest { key: Some(&key), ..HEAD }, &account).at;
        account.hand_over(Stamp::now(), |_| ());
        at
    };
    let shared: Vec<_> = (0..20).map(|n| by_prompt(&format!("be kind {n}"))).collect();
    assert!(shared.iter().all(|at| *at == shared[0]), "{shared:?}");
    assert!((0..20).any(|n| by_prompt(&format!("{n} be kind")) != shared[0]));
    let by_user = |user: usize| {
        let request = Request::post("/user").header("x-user", user).body(()).unwrap();
        assert_eq!(placement.awaits(&request), None);
        let account = fixtures::account();
        let at = placement.place(&request, HEAD, &account).at;
        account.hand_over(Stamp::now(), |_| ());
        at
    };
    let homes: Vec<_> = (0..30).map(by_user).collect();
    assert_eq!(homes, (0..30).map(by_user).collect::<Vec<_>>());
    assert!((0..3).all(|at| homes.contains(&at)));
    let at_home = |at: usize| (0..30).find(|user| homes[*user] == at).unwrap();
    leaves(&upstreams, homes[0]);
    assert!((0..30).all(|user| by_user(user) != homes[0] && (homes[user] == homes[0] || by_user(user) == homes[user])));
    // who is busier than others is left
    let busy = at_home((homes[0] + 1) % 3);
    let request = Request::post("/user").header("x-user", busy).body(()).unwrap();
    let accounts: Vec<_> = (0..6).map(|_| fixtures::account()).collect();
    let taken: Vec<_> = accounts.iter().map(|account| placement.place(&request, HEAD, account).at).collect();
    assert!(taken.iter().filter(|at| **at == homes[busy]).count() <= 4 && taken.contains(&homes[busy]), "{taken:?}");
}
