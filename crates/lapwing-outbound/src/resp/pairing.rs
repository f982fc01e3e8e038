//! Which reply answers which command: in order, but for what subscriptions, transactions and `CLIENT REPLY` change.

use std::collections::VecDeque;

use super::command_reader::{Command, CommandReader, ReplyMode};
use super::reply_reader::{ReplyReader, ReplySink, ReplyValue};
use crate::call::{Asked, CallEnd, CallLookups, CallReader, CallSink, EndedCall, Wait};
use crate::name::{CallName, Found};
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// Commands of one connection that are remembered until their replies come. Further ones are counted, and their replies passed over.
pub(crate) const MAX_OPEN: usize = 4096;
/// A wait is cut that is longer.
const PIECE_NS: u64 = 1_000_000_000;
/// Commands of one transaction of which it is remembered what they look up.
const MAX_QUEUED: usize = 4096;

/// Pairs the replies of a connection with its commands.
#[derive(Debug, Default)]
pub(crate) struct RespReader {
    commands: CommandReader,
    replies: ReplyReader,
    pairing: Pairing,
}

#[derive(Debug, Default)]
struct Pairing {
    open: VecDeque<OpenCall>,
    /// Ordinary commands behind those, of which nothing is remembered.
    beyond: u64,
    /// Since when an answer is waited for, and for whom.
    waiting: Option<(Stamp, Asked)>,
    /// Whether one of the commands since then waits for what others do.
    has_waiting_command: bool,
    /// Inside `MULTI`, as the commands go.
    in_transaction: bool,
    /// What the queued commands of the transaction look up, as the replies come.
    queued: Vec<Found>,
    /// What the reply to the first command has shown so far.
    lookups: CallLookups,
    is_silent: bool,
    skips_next: bool,
    subscribed: Subscriptions,
    /// What stands first in the reply that is being read, if it may be of a subscription, and its third element.
    push: Option<PushKind>,
    push_number: u64,
}

/// A command whose reply has not come.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    name: CallName,
    began: Stamp,
    keys: u64,
    waits: bool,
    answer: AnswerForm,
}

/// What answers a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerForm {
    /// A reply.
    Reply,
    /// A reply that says that it is queued; its own is in that of `EXEC`.
    Queued,
    /// The replies of the transaction.
    Transaction,
    /// It ends the transaction without its replies.
    Discard,
    /// A confirmation for each of so many channels.
    Confirmations(u64),
    /// A confirmation for each channel that is subscribed to.
    AllConfirmations(usize),
    /// A reply, after which the connection is not read any more.
    Last(Unread),
}

/// How many channels, patterns and shard channels are subscribed to, as confirmations say.
#[derive(Clone, Copy, Debug, Default)]
struct Subscriptions {
    by_type: [u64; 3],
    /// The total that the latest confirmation of channels and patterns, and of shard channels, had.
    totals: [u64; 2],
}

/// What the first word of a push says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushKind {
    Message,
    /// A confirmation, of channels, patterns or shard channels.
    Confirms(usize),
    Other,
}

const SUBSCRIBE: [&str; 3] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"];
const UNSUBSCRIBE: [&str; 3] = ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"];

impl PushKind {
    fn named(text: &[u8]) -> Self {
        let is = |name: &&str| text.eq_ignore_ascii_case(name.as_bytes());
        let place = SUBSCRIBE.iter().position(is).or_else(|| UNSUBSCRIBE.iter().position(is));
        match (place, text) {
            (Some(of), _) => Self::Confirms(of),
            (None, b"message" | b"pmessage" | b"smessage") => Self::Message,
            (None, _) => Self::Other,
        }
    }
}

impl Subscriptions {
    fn any(&self) -> bool {
        self.by_type.iter().any(|n| *n > 0)
    }

    /// A confirmation says how many there are now.
    fn confirm(&mut self, of: usize, now: u64) {
        let total = &mut self.totals[usize::from(of == 2)];
        let before = std::mem::replace(total, now);
        let own = &mut self.by_type[of];
        *own = if now > before { *own + 1 } else { own.saturating_sub(u64::from(now < before)) };
    }
}

impl CallReader for RespReader {
    fn client(&mut self, bytes: &[u8], now: Stamp, in_flight: u64, sink: &mut impl CallSink) -> Result<(), Unread> {
        let (pairing, asked) = (&mut self.pairing, Asked::of(in_flight));
        let mut paired = Ok(());
        self.commands.read(bytes, now, |command| {
            if paired.is_ok() {
                paired = pairing.command(&command, asked, sink);
            }
        })?;
        paired
    }

    fn server(&mut self, bytes: &[u8], now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread> {
        self.replies.read(bytes, &mut Answering { pairing: &mut self.pairing, now, sink })
    }

    fn end(&mut self, now: Stamp, sink: &mut impl CallSink) {
        for call in std::mem::take(&mut self.pairing.open) {
            let took_ns = (!call.waits).then(|| now.since(call.began));
            let OpenCall { name, keys, .. } = call;
            sink.ended(EndedCall { name, took_ns, end: CallEnd::Cut, keys, lookups: CallLookups::default() });
        }
        self.pairing.beyond = 0;
        self.pairing.rest(now, sink);
    }

    fn is_waiting(&self) -> bool {
        !self.pairing.open.is_empty() || self.pairing.beyond > 0
    }
}

impl Pairing {
    /// A command has come.
    fn command(&mut self, command: &Command, asked: Asked, sink: &mut impl CallSink) -> Result<(), Unread> {
        let text = command.name.text();
        let is_skipped = std::mem::take(&mut self.skips_next);
        match command.reply {
            Some(ReplyMode::Off) => self.is_silent = true,
            Some(ReplyMode::Skip) => self.skips_next = !self.is_silent,
            Some(ReplyMode::On) => self.is_silent = false,
            None if text == "RESET" => self.is_silent = false,
            None => {}
        }
        if is_skipped || self.is_silent || command.reply == Some(ReplyMode::Skip) {
            let Command { name, keys, .. } = *command;
            sink.ended(EndedCall { name, took_ns: None, end: CallEnd::Answered, keys, lookups: CallLookups::default() });
            return Ok(());
        }
        let answer = self.answer_of(text, command.arguments);
        // inside a transaction nothing waits for others
        let waits = command.waits && answer != AnswerForm::Queued;
        self.waiting = Some(self.waiting.map_or((command.began, asked), |(since, before)| (since, before.and(asked))));
        self.has_waiting_command |= waits;
        if self.beyond == 0 && self.open.len() < MAX_OPEN {
            let Command { name, began, keys, .. } = *command;
            self.open.push_back(OpenCall { name, began, keys, waits, answer });
            return Ok(());
        }
        if !matches!(answer, AnswerForm::Reply) {
            return Err(Unread::TooMany);
        }
        self.beyond += 1;
        let Command { name, keys, .. } = *command;
        sink.ended(EndedCall { name, took_ns: None, end: CallEnd::Answered, keys, lookups: CallLookups::default() });
        Ok(())
    }

    fn answer_of(&mut self, text: &str, arguments: u64) -> AnswerForm {
        let was_in_transaction = self.in_transaction;
        self.in_transaction = match text {
            "MULTI" => true,
            "EXEC" | "DISCARD" | "RESET" => false,
            _ => was_in_transaction,
        };
        if was_in_transaction {
            match text {
                "EXEC" => return AnswerForm::Transaction,
                "DISCARD" | "RESET" => return AnswerForm::Discard,
                "MULTI" | "WATCH" | "QUIT" => {}
                _ => return AnswerForm::Queued,
            }
        }
        if SUBSCRIBE.contains(&text) {
            return AnswerForm::Confirmations(arguments);
        }
        if let Some(of) = UNSUBSCRIBE.iter().position(|name| *name == text) {
            return if arguments > 0 { AnswerForm::Confirmations(arguments) } else { AnswerForm::AllConfirmations(of) };
        }
        match text {
            "RESET" => AnswerForm::Discard,
            "MONITOR" => AnswerForm::Last(Unread::Monitor),
            "SYNC" | "PSYNC" => AnswerForm::Last(Unread::Replication),
            _ => AnswerForm::Reply,
        }
    }

    /// Whether replies may be pushes of a subscription in RESP2, where they look like other replies.
    fn is_subscribing(&self) -> bool {
        let is_of_subscription =
            |call: &OpenCall| matches!(call.answer, AnswerForm::Confirmations(_) | AnswerForm::AllConfirmations(_));
        self.subscribed.any() || self.open.front().is_some_and(is_of_subscription)
    }

    /// A channel was subscribed to or left; whether that answers a command completely.
    fn confirm(&mut self, of: usize, total: u64) -> bool {
        let subscribed = self.subscribed.by_type[of];
        self.subscribed.confirm(of, total);
        let Some(first) = self.open.front_mut() else { return false };
        let left = match first.answer {
            AnswerForm::Confirmations(left) => left,
            AnswerForm::AllConfirmations(own) if own == of => subscribed.max(1),
            _ => return false,
        };
        first.answer = AnswerForm::Confirmations(left.saturating_sub(1));
        left <= 1
    }

    /// The first open command has its answer.
    fn answered(&mut self, value: &ReplyValue<'_>, now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread> {
        let Some(call) = self.open.pop_front() else {
            if self.beyond == 0 {
                return Err(Unread::Unasked);
            }
            self.beyond -= 1;
            self.rest_if_idle(now, sink);
            return Ok(());
        };
        let OpenCall { name, began, keys, waits, answer } = call;
        let mut lookups = std::mem::take(&mut self.lookups);
        let mut took_ns = (!waits).then(|| now.since(began));
        match answer {
            AnswerForm::Queued if !value.is_error() => {
                // it takes its time in EXEC
                took_ns = None;
                if self.queued.len() < MAX_QUEUED {
                    self.queued.push(name.row().found);
                }
            }
            AnswerForm::Queued => {}
            AnswerForm::Transaction | AnswerForm::Discard => {
                self.queued.clear();
                if name.text() == "RESET" && !value.is_error() {
                    self.subscribed = Subscriptions::default();
                }
            }
            _ if !value.is_error() => {
                lookups = CallLookups::of(name.row().found, value.is_null, value.elements, value.nulls);
            }
            _ => {}
        }
        let end = if value.is_error() { CallEnd::Failed } else { CallEnd::Answered };
        sink.ended(EndedCall { name, took_ns, end, keys, lookups });
        self.rest_if_idle(now, sink);
        match answer {
            AnswerForm::Last(why) if !value.is_error() => Err(why),
            _ => Ok(()),
        }
    }

    /// Ends the wait if nothing is open. Clients that share a connection may always have something open, so a long one is cut.
    fn rest_if_idle(&mut self, now: Stamp, sink: &mut impl CallSink) {
        if self.open.is_empty() && self.beyond == 0 {
            self.rest(now, sink);
        } else if let Some((_, asked)) = self.waiting.filter(|(began, _)| now.since(*began) > PIECE_NS) {
            let waits = self.has_waiting_command;
            self.rest(now, sink);
            (self.waiting, self.has_waiting_command) = (Some((now, asked)), waits);
        }
    }

    /// Nothing is waited for any more.
    fn rest(&mut self, now: Stamp, sink: &mut impl CallSink) {
        let has_waiting_command = std::mem::take(&mut self.has_waiting_command);
        if let Some((began, asked)) = self.waiting.take()
            && !has_waiting_command
        {
            sink.waited(Wait { began, ended: now, asked });
        }
    }
}

/// Gives the replies of one reading to the pairing.
struct Answering<'p, S> {
    pairing: &'p mut Pairing,
    now: Stamp,
    sink: &'p mut S,
}

impl<S: CallSink> ReplySink for Answering<'_, S> {
    fn wants_texts(&self, kind: u8) -> bool {
        kind == b'>' || kind == b'*' && self.pairing.is_subscribing()
    }

    fn element(&mut self, kind: u8, at: u64, value: &ReplyValue<'_>) {
        let pairing = &mut *self.pairing;
        match at {
            _ if kind == b'|' => return,
            0 => {
                let is_word = matches!(value.kind, b'$' | b'+') && !value.is_null;
                pairing.push = is_word.then(|| PushKind::named(value.text));
            }
            2 if value.kind == b':' => {
                let number = super::command_reader::number(value.text).and_then(|number| u64::try_from(number).ok());
                pairing.push_number = number.unwrap_or(0);
            }
            _ => {}
        }
        if kind == b'*'
            && pairing.open.front().is_some_and(|call| call.answer == AnswerForm::Transaction)
            && let Some(found) = usize::try_from(at).ok().and_then(|at| pairing.queued.get(at))
            && !value.is_error()
        {
            let CallLookups { hits, misses } = CallLookups::of(*found, value.is_null, value.elements, value.nulls);
            pairing.lookups.hits += hits;
            pairing.lookups.misses += misses;
        }
    }

    fn reply(&mut self, value: &ReplyValue<'_>) -> Result<(), Unread> {
        let push = self.pairing.push.take().filter(|_| value.elements > 0);
        let is_push = value.kind == b'>';
        if is_push || value.kind == b'*' && self.pairing.is_subscribing() {
            match push {
                Some(PushKind::Confirms(of)) => {
                    if self.pairing.confirm(of, self.pairing.push_number) {
                        return self.pairing.answered(value, self.now, self.sink);
                    }
                    return Ok(());
                }
                Some(PushKind::Message) => return Ok(()),
                _ if is_push => return Ok(()),
                _ => {}
            }
        }
        self.pairing.answered(value, self.now, self.sink)
    }
}
