//! Held requests: whatever a client does, the upstream gets the messages that it would get without holding, and so does the client.

use proptest::prelude::*;

use super::*;
use crate::tests::proxy_properties::case::Conversation;
use crate::tests::proxy_properties::script::frame;

/// Longer than a request is held, and than a body waits for "100 Continue".
const LONGER: [u8; 2] = [12, 7];
/// Of several upstreams one refuses connections, and the requests of some models are held.
const HOLDING: u8 = 3 << 1;

/// A request that may be held.
#[derive(Clone, Debug)]
struct MaybeHeld {
    is_h2: bool,
    is_chunked: bool,
    has_trailers: bool,
    expects: bool,
    upgrades: bool,
    model: &'static str,
    /// Whether the listener and the upstream speak TLS, as bits.
    ends: u8,
    /// Bytes of its prompt.
    length: usize,
    /// Where it is cut, of a thousand; and which of the script's times passes there.
    cuts: Vec<(usize, u8)>,
    /// At which of its pieces the client leaves, and whether it resets the connection.
    leaves: Option<(usize, bool)>,
}

fn maybe_held() -> impl Strategy<Value = MaybeHeld> {
    let form = (any::<[bool; 3]>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let ends = prop::sample::select(vec![0, 0, TLS_LISTENER, TLS_UPSTREAM, BOTH]);
    let content = (prop::sample::select(vec!["held-1", "other"]), ends, 0_usize..500);
    let pace = (prop::collection::vec((0_usize..1000, 0_u8..7), 0..6), prop::option::weighted(0.2, (0_usize..6, any::<bool>())));
    (form, content, pace).prop_map(
        |(([is_h2, is_chunked, has_trailers], expects, upgrades), (model, ends, length), (cuts, leaves))| {
            let upgrades = upgrades && !is_h2;
            MaybeHeld { is_h2, is_chunked, has_trailers, expects, upgrades, model, ends, length, cuts, leaves }
        },
    )
}

/// A field of HPACK: a literal that is not indexed, with a name of the static table below 16 (`Ok`), or a new one.
fn field(name: Result<u8, &str>, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let name = name.map_or_else(|name| [&[0][..], &text(name)].concat(), |index| vec![index]);
    [name, text(value)].concat()
}

impl MaybeHeld {
    fn body(&self) -> Vec<u8> {
        format!(r#"{{"prompt": "{}", "model": "{}"}}"#, "x".repeat(self.length), self.model).into_bytes()
    }

    /// All bytes of the request.
    fn bytes(&self) -> Vec<u8> {
        let body = self.body();
        if self.is_h2 {
            // POST http, `:path` and `content-type`
            let mut head =
                [b"\x83\x86".to_vec(), field(Ok(4), "/v1/completions"), field(Err("content-type"), "application/json")];
            if self.expects {
                head[2].extend(field(Err("expect"), "100-continue"));
            }
            let mut frames = vec![frame(1, 4, 1, &head.concat())];
            let halves = body.split_at(body.len() / 2);
            let end = u8::from(!self.has_trailers);
            frames.extend([frame(0, 0, 1, halves.0), frame(0, end, 1, halves.1)]);
            if self.has_trailers {
                frames.push(frame(1, 5, 1, &field(Err("x-sum"), "7")));
            }
            return frames.concat();
        }
        let mut head = "POST /v1/completions HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\n".to_owned();
        if self.expects {
            head.push_str("expect: 100-continue\r\n");
        }
        if self.upgrades {
            head.push_str("connection: upgrade\r\nupgrade: x\r\n");
        }
        if !self.is_chunked {
            return [format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat();
        }
        let trailers = if self.has_trailers { "x-sum: 7\r\n" } else { "" };
        let chunks: Vec<u8> =
            body.chunks(100).flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()).collect();
        [format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes(), &chunks, format!("0\r\n{trailers}\r\n").as_bytes()]
            .concat()
    }

    fn script(&self) -> Script {
        let bytes = self.bytes();
        let mut cuts: Vec<_> = self.cuts.iter().map(|(at, wait)| (bytes.len() * at / 1000, *wait)).collect();
        cuts.sort_unstable();
        let (mut steps, mut from) = (Vec::new(), 0);
        for (piece, (to, wait)) in cuts.into_iter().chain([(bytes.len(), 0)]).enumerate() {
            steps.extend(bytes[from..to].chunks(200).map(|bytes| send(CLIENT, bytes, 1)));
            if let Some((_, is_reset)) = self.leaves.filter(|(at, _)| *at == piece) {
                steps.push(vec![if is_reset { 8 } else { 6 }]);
                break;
            }
            steps.push(vec![12, wait]);
            from = to;
        }
        steps.extend([LONGER.to_vec(), ANSWER.to_vec(), LONGER.to_vec()]);
        with_ends(&case(HOLDING | u8::from(self.is_h2), &steps), self.ends)
    }
}

fn both(script: &Script) -> [Conversations; 2] {
    let unheld = Script { options: script.options.unheld(), ..script.clone() };
    [script, &unheld].map(|script| {
        let seen = run(script, false, None).unwrap();
        check_messages(script, &seen).unwrap();
        seen
    })
}

fn has_trailer(upstreams: &[Conversation]) -> bool {
    upstreams.iter().any(|upstream| upstream.received.windows(5).any(|bytes| bytes == b"x-sum"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn messages_are_as_without_holding(request in maybe_held()) {
        let [held, unheld] = both(&request.script());
        let messages = [&held, &unheld].map(complete_messages);
        prop_assert_eq!(&messages[0], &messages[1], "held {:?}\nunheld {:?}", held, unheld);
        prop_assert_eq!(has_trailer(&held.upstreams), has_trailer(&unheld.upstreams));
        if request.leaves.is_none() {
            let (requests, responses) = messages[0].clone().unwrap();
            prop_assert_eq!((requests.len(), responses.len()), (1, 1), "{:?}", held);
        }
    }
}

#[test]
fn a_held_request_reaches_the_upstream_when_it_is_whole_or_a_bound_is_passed_and_not_before() {
    let request = MaybeHeld {
        is_h2: false,
        is_chunked: false,
        has_trailers: false,
        expects: false,
        upgrades: false,
        model: "held-1",
        ends: 0,
        length: 20,
        cuts: vec![(900, 3)],
        leaves: Some((1, true)),
    };
    let sent = |request: &MaybeHeld| {
        both(&request.script()).map(|seen| seen.upstreams.iter().map(|up| up.received.len()).sum::<usize>())
    };
    // the client leaves half a second after it sent nine tenths
    let early = MaybeHeld { leaves: Some((0, true)), ..request.clone() };
    let [held, unheld] = sent(&early);
    assert!(held == 0 && unheld > 100, "{held} {unheld}");
    for passed in [
        early.clone(),
        MaybeHeld { length: 300, ..early.clone() },
        MaybeHeld { is_chunked: true, length: 400, ..early.clone() },
        MaybeHeld { expects: true, ..early.clone() },
        MaybeHeld { upgrades: true, ..early },
    ] {
        let passed = MaybeHeld { cuts: vec![(900, 6), (950, 3)], leaves: Some((1, true)), ..passed };
        let [held, unheld] = sent(&passed);
        assert!(held > 0 && unheld > 0, "{passed:?}: {held} {unheld}");
    }
}
