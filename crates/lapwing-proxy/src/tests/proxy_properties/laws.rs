//! What must hold of the messages on both sides of the proxy.

use super::case::{Conversation, Conversations};
use super::messages::{Expected, PREFACE, PlainMessage, Unread, read_message, streams};
use super::script::Script;
use crate::ERROR_FIELD;

/// What Lapwing's own answers begin with.
const OWN: &[u8] = b"lapwing: ";

/// A message as both sides know it: its body and, where both speak HTTP/1.1, its method or status.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Content {
    label: Vec<u8>,
    body: Vec<u8>,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.label.escape_ascii(), self.body.escape_ascii().to_string())
    }
}

/// The complete messages of a case, by who got or sent them. Of what a peer sent, `None` if the second reader cannot read it.
#[derive(Debug)]
struct CompleteMessages {
    sent_requests: Option<Vec<Content>>,
    received_requests: Vec<Content>,
    sent_responses: Option<Vec<Content>>,
    received_responses: Vec<Content>,
    /// Whether the same bytes in other pieces must make the same messages. An upstream that sends more than it was asked for may be
    /// asked again in the middle of it, and a connection of HTTP/2 that fails takes what it had read with it.
    is_definite: bool,
}

/// Checks what went over the connections.
///
/// # Errors
///
/// The property that does not hold.
pub(crate) fn check_messages(script: &Script, seen: &Conversations) -> Result<(), String> {
    let messages = CompleteMessages::read(seen)?;
    // an amended exchange has other bodies
    if script.options.is_amending() {
        return Ok(());
    }
    check_included("the upstream got", messages.received_requests, messages.sent_requests)?;
    check_included("the client got", messages.received_responses, messages.sent_responses)
}

/// The complete messages that both sides got; `None` if what they sent leaves room for doubt.
pub(crate) fn complete_messages(seen: &Conversations) -> Option<(Vec<Content>, Vec<Content>)> {
    let messages = CompleteMessages::read(seen).ok()?;
    messages.sent_requests.and(messages.sent_responses).filter(|_| messages.is_definite)?;
    let (mut requests, mut responses) = (messages.received_requests, messages.received_responses);
    requests.sort_unstable();
    responses.sort_unstable();
    Some((requests, responses))
}

/// Each of `received` is one of `sent`.
fn check_included(who: &str, received: Vec<Content>, sent: Option<Vec<Content>>) -> Result<(), String> {
    let Some(mut sent) = sent else { return Ok(()) };
    for content in received {
        let Some(at) = sent.iter().position(|other| *other == content) else {
            return Err(format!("{who} {content:?}, which was not sent, or not as often; sent and left: {sent:?}"));
        };
        sent.swap_remove(at);
    }
    Ok(())
}

impl CompleteMessages {
    fn read(seen: &Conversations) -> Result<Self, String> {
        let Conversations { clients, upstreams } = seen;
        let is_h1 = !clients.iter().any(|client| is_h2(&client.sent)) && !upstreams.iter().any(|up| is_h2(&up.received));
        let mut messages = Self {
            sent_requests: Some(Vec::new()),
            received_requests: Vec::new(),
            sent_responses: Some(Vec::new()),
            received_responses: Vec::new(),
            is_definite: true,
        };
        for client in clients {
            let (sent, received) = if is_h2(&client.sent) {
                let received = well_formed_streams("the client", &client.received)?;
                // Lapwing's own answers have no body where the request was `HEAD`
                let is_own = |content: &Content| content.body.starts_with(OWN) || content.body.is_empty();
                let others = received.into_iter().filter(|content| !is_own(content)).collect();
                messages.is_definite &= !client.is_closed;
                (Some(contents(streams(&client.sent).0)), others)
            } else {
                match requests(&client.sent, is_h1, false) {
                    Ok(sent) => (Some(sent), responses_received(client, is_h1)?),
                    // where its requests begin and end is open, and so is which responses have a body
                    Err(_) => (None, Vec::new()),
                }
            };
            messages.received_responses.extend(received);
            messages.sent_requests = join(messages.sent_requests, sent);
        }
        for upstream in upstreams {
            let (received, sent) = if is_h2(&upstream.received) {
                messages.is_definite &= !upstream.is_closed;
                (well_formed_streams("the upstream", &upstream.received)?, Some(contents(streams(&upstream.sent).0)))
            } else {
                let received = requests(&upstream.received, is_h1, true);
                let received = received.map_err(|odd| malformed("the upstream", odd, &upstream.received))?;
                let sent = responses(&upstream.sent, &methods(&upstream.received), upstream.has_ended, false);
                let sent = sent.ok().map(|(sent, rest)| {
                    messages.is_definite &= rest.is_empty();
                    sent.iter().map(|response| response.content(1, is_h1)).collect()
                });
                (received, sent)
            };
            messages.received_requests.extend(received);
            messages.sent_responses = join(messages.sent_responses, sent);
        }
        Ok(messages)
    }
}

fn is_h2(client: &[u8]) -> bool {
    client.starts_with(PREFACE)
}

fn join(all: Option<Vec<Content>>, more: Option<Vec<Content>>) -> Option<Vec<Content>> {
    Some([all?, more?].concat())
}

fn contents(bodies: Vec<Vec<u8>>) -> Vec<Content> {
    bodies.into_iter().map(|body| Content { label: Vec::new(), body }).collect()
}

fn malformed(who: &str, why: &str, bytes: &[u8]) -> String {
    format!("{who} got what is not HTTP ({why}): {}", bytes.escape_ascii())
}

fn well_formed_streams(who: &str, bytes: &[u8]) -> Result<Vec<Content>, String> {
    match streams(bytes) {
        (_, Some(fault)) => Err(malformed(who, fault, bytes)),
        (bodies, None) => Ok(contents(bodies)),
    }
}

impl PlainMessage {
    fn content(&self, label: usize, is_h1: bool) -> Content {
        let label = if is_h1 { self.start[label].clone() } else { Vec::new() };
        Content { label, body: self.body.clone() }
    }

    fn status(&self) -> &[u8] {
        &self.start[1]
    }
}

/// The complete requests. What follows an upgrade is not read: of the proxy's requests, with `may_upgrade`, it is left out.
fn requests(mut bytes: &[u8], is_h1: bool, may_upgrade: bool) -> Result<Vec<Content>, &'static str> {
    let mut requests = Vec::new();
    while !bytes.is_empty() {
        match read_message(bytes, Expected::Request, false) {
            Ok((request, rest)) => {
                requests.push(request.content(0, is_h1));
                bytes = rest;
                if request.has("upgrade") {
                    return if may_upgrade || bytes.is_empty() { Ok(requests) } else { Err("bytes after an upgrade") };
                }
            }
            Err(Unread::Partial) => break,
            Err(Unread::Odd(why)) => return Err(why),
        }
    }
    Ok(requests)
}

/// The methods of all requests, the last of which may be incomplete.
fn methods(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut methods = Vec::new();
    while let Some(at) = bytes.iter().position(|byte| *byte == b' ') {
        methods.push(bytes[..at].to_vec());
        let Ok((_, rest)) = read_message(bytes, Expected::Request, false) else { break };
        bytes = rest;
    }
    methods
}

/// The complete final responses to requests of these methods, and the bytes that follow all of them, or an upgrade.
/// With `may_refuse`, one of them may be Lapwing's refusal of a head that is not HTTP: nobody can tell then whether it was `HEAD`, so the
/// refusal has its text, and ends the connection.
fn responses<'a>(
    mut bytes: &'a [u8],
    methods: &[Vec<u8>],
    is_all: bool,
    may_refuse: bool,
) -> Result<(Vec<PlainMessage>, &'a [u8]), &'static str> {
    let mut responses = Vec::new();
    while !bytes.is_empty() && responses.len() < methods.len() {
        let is_head = methods[responses.len()] == b"HEAD";
        match read_message(bytes, Expected::Response(is_head), is_all) {
            Ok((response, _)) if response.status() == b"101" => break,
            Ok((response, _)) if is_head && may_refuse && response.values(ERROR_FIELD).any(|why| why == b"malformed_request") => {
                responses.push(response);
                return Ok((responses, &[]));
            }
            Ok((response, rest)) => {
                bytes = rest;
                if !response.status().starts_with(b"1") {
                    responses.push(response);
                }
            }
            Err(Unread::Partial) => return Ok((responses, &[])),
            Err(Unread::Odd(why)) => return Err(why),
        }
    }
    Ok((responses, bytes))
}

/// The complete responses that a client of HTTP/1.1 got, without Lapwing's own.
fn responses_received(client: &Conversation, is_h1: bool) -> Result<Vec<Content>, String> {
    let methods = methods(&client.sent);
    // a client of HTTP/1.0 that has left is not answered further, which is no end of the answer
    let has_left = client.is_finished || client.is_reset;
    let responses = responses(&client.received, &methods, client.is_ended && !has_left, true);
    let (responses, _) = responses.map_err(|odd| malformed("the client", odd, &client.received))?;
    let may_differ = |(response, method): &(&PlainMessage, &Vec<u8>)| {
        // an upstream that speaks HTTP/2 may send a body where HTTP/1.1 has none
        !is_h1 && (*method == b"HEAD" || matches!(response.status(), b"204" | b"304"))
    };
    let others = responses.iter().zip(&methods).filter(|(response, _)| !response.has(ERROR_FIELD));
    Ok(others.filter(|pair| !may_differ(pair)).map(|(response, _)| response.content(1, is_h1)).collect())
}
