//! Leads what comes to one port to another, in the network namespace of this process, by a rule of nftables.
//!
//! The rule is in `prerouting`: what comes from outside is led elsewhere, what a process here sends to the port itself (such as Lapwing to
//! the server on 127.0.0.1) is not. One table of the family `inet` holds for IPv4 and IPv6 (Linux 5.2). The messages are those of
//! `linux/netfilter/nf_tables.h`, over netlink (RFC 3549): the image has no `nft`, and its libraries have no redirection.

use std::io::{self, Read, Write};
use std::num::NonZeroU16;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// The table of Lapwing's rules.
pub const REDIRECT_TABLE: &str = "lapwing";

/// `AF_NETLINK`, and `NETLINK_NETFILTER` in it.
const AF_NETLINK: i32 = 16;
const NETLINK_NETFILTER: i32 = 12;
/// How long the kernel may take to answer; it answers at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Message types: of a batch, and of nftables (`NFNL_SUBSYS_NFTABLES << 8`).
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = 0xa00;
const DELETE_TABLE: u16 = 0xa02;
const NEW_CHAIN: u16 = 0xa03;
const NEW_RULE: u16 = 0xa06;
/// An acknowledgement: 0, or the error.
const ERROR: u16 = 2;
/// Flags: `NLM_F_REQUEST`, `_ACK`, `_CREATE`, `_APPEND`.
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// `NFPROTO_INET`; and `NFNL_SUBSYS_NFTABLES`, which a batch names.
const INET: u8 = 1;
const NFTABLES: u16 = 10;
/// `NF_INET_PRE_ROUTING` and `NF_IP_PRI_NAT_DST`.
const PREROUTING: u32 = 0;
const DESTINATION_NAT: i32 = -100;
const REGISTER: u32 = 1;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

/// Leads what comes from outside to the TCP port `from` to the port `to` of this namespace; an earlier redirection ends.
///
/// # Errors
///
/// The system's: `PermissionDenied` without `CAP_NET_ADMIN`, `NotFound` or `Unsupported` without nftables in the kernel.
pub fn redirect(from: NonZeroU16, to: NonZeroU16) -> io::Result<()> {
    transact(&[new_table(), delete_table(), new_table(), new_chain(), new_rule(from, to)])
}

/// Ends a redirection, if there is one.
///
/// # Errors
///
/// As [`redirect`].
pub fn end_redirect() -> io::Result<()> {
    transact(&[new_table(), delete_table()])
}

/// A message of nftables, without its header.
struct Message {
    kind: u16,
    flags: u16,
    attributes: Vec<u8>,
}

fn new_table() -> Message {
    Message { kind: NEW_TABLE, flags: CREATE, attributes: text(1, REDIRECT_TABLE) }
}

fn delete_table() -> Message {
    Message { kind: DELETE_TABLE, flags: 0, attributes: text(1, REDIRECT_TABLE) }
}

fn new_chain() -> Message {
    let hook = nested(4, &[number(1, PREROUTING), attribute(2, &DESTINATION_NAT.to_be_bytes())]);
    let attributes = [text(1, REDIRECT_TABLE), text(3, "prerouting"), hook, text(7, "nat")].concat();
    Message { kind: NEW_CHAIN, flags: CREATE, attributes }
}

/// `meta l4proto tcp tcp dport FROM redirect to :TO`.
fn new_rule(from: NonZeroU16, to: NonZeroU16) -> Message {
    let expression = |name: &str, data: &[Vec<u8>]| nested(1, &[text(1, name), nested(2, data)]);
    let value = |kind: u16, bytes: &[u8]| nested(kind, &[attribute(1, bytes)]);
    let equals = |bytes: &[u8]| expression("cmp", &[number(1, REGISTER), number(2, 0), value(3, bytes)]);
    let expressions = [
        // NFT_META_L4PROTO
        expression("meta", &[number(2, 16), number(1, REGISTER)]),
        equals(&[6]),
        // NFT_PAYLOAD_TRANSPORT_HEADER: two bytes from the second
        expression("payload", &[number(1, REGISTER), number(2, 2), number(3, 2), number(4, 2)]),
        equals(&from.get().to_be_bytes()),
        expression("immediate", &[number(1, REGISTER), value(2, &to.get().to_be_bytes())]),
        expression("redir", &[number(1, REGISTER)]),
    ];
    let attributes = [text(1, REDIRECT_TABLE), text(2, "prerouting"), nested(4, &expressions)].concat();
    Message { kind: NEW_RULE, flags: CREATE | APPEND, attributes }
}

/// An attribute (`nlattr`): its length, its kind, its bytes, up to a multiple of four.
fn attribute(kind: u16, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len() + 4).unwrap_or(u16::MAX);
    let mut made = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    made.extend_from_slice(bytes);
    made.resize(made.len().next_multiple_of(4), 0);
    made
}

fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}

fn nested(kind: u16, inner: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &inner.concat())
}

/// A message with its header (`nlmsghdr`) and that of netfilter (`nfgenmsg`).
fn framed(kind: u16, flags: u16, sequence: u32, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(20 + attributes.len()).unwrap_or(u32::MAX);
    let mut made = length.to_ne_bytes().to_vec();
    made.extend_from_slice(&kind.to_ne_bytes());
    made.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
    made.extend_from_slice(&sequence.to_ne_bytes());
    made.extend_from_slice(&[0; 4]);
    made.extend_from_slice(&[family, 0]);
    made.extend_from_slice(&resource.to_be_bytes());
    made.extend_from_slice(attributes);
    made
}

/// Sends messages as one batch, of which all is done or nothing.
fn transact(messages: &[Message]) -> io::Result<()> {
    let mut batch = framed(BATCH_BEGIN, 0, 0, 0, NFTABLES, &[]);
    for (sequence, message) in (1..).zip(messages) {
        batch.extend(framed(message.kind, message.flags | ACK, sequence, INET, 0, &message.attributes));
    }
    batch.extend(framed(BATCH_END, 0, u32::MAX, 0, NFTABLES, &[]));
    let mut socket = Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(Protocol::from(NETLINK_NETFILTER)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(&batch)?;
    let mut acknowledged = 0;
    let mut answer = [0; 8192];
    while acknowledged < messages.len() {
        let length = socket.read(&mut answer)?;
        for code in acknowledgements(&answer[..length]) {
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            acknowledged += 1;
        }
    }
    Ok(())
}

/// The codes of the acknowledgements in an answer.
fn acknowledgements(mut answer: &[u8]) -> Vec<i32> {
    let mut codes = Vec::new();
    while let Some((header, rest)) = answer.split_first_chunk::<16>() {
        let [a, b, c, d, kind, more, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if let Some(code) = rest.first_chunk::<4>().filter(|_| u16::from_ne_bytes([kind, more]) == ERROR) {
            codes.push(i32::from_ne_bytes(*code));
        }
        answer = answer.get(length.next_multiple_of(4).max(16)..).unwrap_or_default();
    }
    codes
}
