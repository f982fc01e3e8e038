//! One connection to a Redis: which of its commands are answered from memory, which pass on, and what their replies and writes mean for
//! what is kept. It moves no bytes itself.

use std::collections::VecDeque;

use super::captured::{CapturedReply, PendingRead};
use super::command_class::{CommandClass, ReadShape};
use super::command_framer::{CommandFramer, Framed};
use super::context::{ContextChange, RespContext};
use super::figures::NotKept;
use super::kept::KeptReplies;
use super::turn::{Outgoing, Turn};
use super::versions::Written;
use crate::cache_config::DownstreamCacheMode;
use crate::name::CallName;
use crate::resp::{ReplyReader, ReplySink, ReplyValue};
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// Commands without a reply, and writes of one transaction, that are remembered.
const MAX_OPEN: usize = 4096;

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct RedisConversation {
    framer: CommandFramer,
    replies: ReplyReader,
    state: ConversationState,
    /// What came is not in the protocol, so it may mean anything.
    is_broken: bool,
}

#[derive(Debug, Default)]
struct ConversationState {
    context: RespContext,
    open: VecDeque<OpenCommand>,
    /// Of those, replies that are really waited for: in `observe`, some would not be.
    waited_for: u64,
    /// Of those, changes of the context.
    changing: u64,
    in_transaction: bool,
    /// What the transaction writes.
    transaction: Vec<Written>,
    is_watching: bool,
    captured: CapturedReply,
    /// It is passed on untouched; only what it writes is looked at.
    is_untouched: bool,
}

/// A command without a reply.
#[derive(Debug)]
enum OpenCommand {
    /// Several of which nothing is to be done.
    Plain(u64),
    Read(Box<PendingRead>),
    Write(Vec<Written>),
    Change(ContextChange),
}

impl RedisConversation {
    /// What came from the client: what of it goes to the store, and what is answered.
    pub(crate) fn client(&mut self, bytes: &[u8], turn: Turn, kept: &mut KeptReplies, out: &mut Outgoing) {
        if self.is_broken {
            kept.versions.block(Written::All, turn.now);
            out.to_store.extend_from_slice(bytes);
            return;
        }
        self.framer.push(bytes);
        loop {
            let framed = self.framer.next();
            let answer = match framed {
                Framed::Nothing => return,
                Framed::Broken => {
                    self.is_broken = true;
                    self.state.leave(turn.now, kept);
                    kept.versions.block(Written::All, turn.now);
                    out.to_store.append(&mut self.framer.take());
                    return;
                }
                Framed::Whole | Framed::Beginning => {
                    let (words, is_inline) = (self.framer.words(), self.framer.is_inline());
                    let class = seen_class(&words, framed, is_inline, kept);
                    let turn = Turn { room: turn.room.saturating_sub(out.answers.len()), ..turn };
                    self.state.command(class, &words, turn, kept)
                }
                Framed::More | Framed::Blank => None,
            };
            match answer {
                Some(answer) => out.answers.extend_from_slice(&answer),
                None => out.to_store.extend_from_slice(self.framer.bytes()),
            }
            self.framer.pass();
        }
    }

    /// What came from the store, before it is handed on.
    pub(crate) fn server(&mut self, bytes: &[u8], now: Stamp, kept: &mut KeptReplies) {
        if self.state.is_untouched {
            return;
        }
        let mut settling = Settling { state: &mut self.state, kept, bytes, from: 0, now };
        let read = self.replies.read(bytes, &mut settling);
        let rest = &bytes[settling.from..];
        match read {
            Ok(()) => self.state.capture(rest, kept),
            Err(_) => self.state.leave(now, kept),
        }
    }

    /// The client sends nothing more: what is held goes on.
    pub(crate) fn client_ended(&mut self, out: &mut Outgoing) {
        out.to_store.append(&mut self.framer.take());
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self, now: Stamp, kept: &mut KeptReplies) {
        self.state.cut(now, kept);
    }
}

/// The class of a command, as far as it was seen.
fn seen_class(words: &[&[u8]], framed: Framed, is_inline: bool, kept: &mut KeptReplies) -> CommandClass {
    if framed == Framed::Whole && !is_inline {
        return CommandClass::of(words);
    }
    match CommandClass::of_beginning(words) {
        CommandClass::Read(_) => {
            kept.figures.refuse(if is_inline { NotKept::Form } else { NotKept::TooLong });
            CommandClass::Harmless
        }
        // in a line, a word may stand in quotes
        CommandClass::Writes(keys) if is_inline || !keys.are_among(words.len().saturating_sub(1)) => CommandClass::Unknown,
        CommandClass::Select | CommandClass::Auth | CommandClass::Hello => CommandClass::Leaves,
        class => class,
    }
}

impl ConversationState {
    /// A command has come; what answers it, if it is answered from memory.
    fn command(&mut self, class: CommandClass, words: &[&[u8]], turn: Turn, kept: &mut KeptReplies) -> Option<Vec<u8>> {
        let arguments = words.get(1..).unwrap_or_default();
        let written = kept.written(class, arguments);
        kept.count_forgotten(&written);
        if self.is_untouched {
            written.iter().for_each(|one| kept.versions.block(*one, turn.now));
            if matches!(class, CommandClass::Read(_)) {
                kept.figures.refuse(NotKept::Untouched);
            }
            return None;
        }
        if self.in_transaction {
            self.in_transaction(class, written, turn, kept);
            return None;
        }
        match class {
            CommandClass::Read(shape) => return self.read(shape, words, turn, kept),
            CommandClass::Writes(_) | CommandClass::Unknown => self.write(written, turn.now, kept),
            CommandClass::Select => self.change(ContextChange::of_select(arguments), turn.now, kept),
            CommandClass::Auth => self.change(Some(ContextChange::of_auth(arguments)), turn.now, kept),
            CommandClass::Hello => self.change(ContextChange::of_hello(arguments), turn.now, kept),
            CommandClass::Leaves => self.leave(turn.now, kept),
            CommandClass::Multi | CommandClass::Watch | CommandClass::Harmless => {
                self.in_transaction = class == CommandClass::Multi;
                self.is_watching |= class == CommandClass::Watch;
                self.plain();
            }
            CommandClass::Unwatch | CommandClass::EndOfTransaction => {
                self.is_watching = false;
                self.plain();
            }
        }
        None
    }

    /// A command in a transaction: what it writes is written when the transaction ends.
    fn in_transaction(&mut self, class: CommandClass, written: Vec<Written>, turn: Turn, kept: &mut KeptReplies) {
        match class {
            CommandClass::EndOfTransaction => {
                (self.in_transaction, self.is_watching) = (false, false);
                let written = std::mem::take(&mut self.transaction);
                self.open(OpenCommand::Write(written), turn.now, kept);
            }
            CommandClass::Select | CommandClass::Auth | CommandClass::Hello | CommandClass::Leaves => self.leave(turn.now, kept),
            _ => {
                if matches!(class, CommandClass::Read(_)) {
                    kept.figures.refuse(NotKept::State);
                }
                if self.transaction.len() + written.len() <= MAX_OPEN {
                    written.iter().for_each(|one| kept.versions.begin(*one));
                    self.transaction.extend(written);
                } else {
                    written.iter().for_each(|one| kept.versions.block(*one, turn.now));
                }
                self.plain();
            }
        }
    }

    fn read(&mut self, shape: ReadShape, words: &[&[u8]], turn: Turn, kept: &mut KeptReplies) -> Option<Vec<u8>> {
        let arguments = words.get(1..).unwrap_or_default();
        let listed = kept.rule_of_read(shape, arguments);
        let refused = match listed {
            None => Some(NotKept::Unlisted),
            Some(_) if self.is_watching || self.changing > 0 => Some(NotKept::State),
            Some(_) if self.open.len() >= MAX_OPEN => Some(NotKept::TooMany),
            Some(_) => None,
        };
        let (Some(rule), None) = (listed, refused) else {
            kept.figures.refuse(refused.unwrap_or(NotKept::Unlisted));
            self.plain();
            return None;
        };
        let name = CallName::of_command(words.first().copied().unwrap_or_default());
        let was_first = self.waited_for == 0;
        let found = if was_first && turn.room > 0 {
            let found = kept.answer(self.context, shape, words, turn.now);
            kept.figures.looked(name, rule, found.is_some());
            found
        } else {
            kept.figures.refuse(if was_first { NotKept::Backlog } else { NotKept::Behind });
            None
        };
        if found.is_some() && kept.mode == DownstreamCacheMode::On {
            return found;
        }
        let places = kept.places(self.context, shape, words, turn.now);
        self.waited_for += u64::from(found.is_none());
        let read = PendingRead { name, shape, places, asked: turn.now, was_first, would_be: found };
        self.open.push_back(OpenCommand::Read(Box::new(read)));
        None
    }

    /// A command of which nothing is to be done but to wait for its reply.
    fn plain(&mut self) {
        self.waited_for += 1;
        match self.open.back_mut() {
            Some(OpenCommand::Plain(count)) => *count += 1,
            _ => self.open.push_back(OpenCommand::Plain(1)),
        }
    }

    fn write(&mut self, written: Vec<Written>, now: Stamp, kept: &mut KeptReplies) {
        if written.is_empty() {
            return self.plain();
        }
        written.iter().for_each(|one| kept.versions.begin(*one));
        self.open(OpenCommand::Write(written), now, kept);
    }

    fn change(&mut self, change: Option<ContextChange>, now: Stamp, kept: &mut KeptReplies) {
        match change {
            Some(change) => {
                self.changing += 1;
                self.open(OpenCommand::Change(change), now, kept);
            }
            None => self.leave(now, kept),
        }
    }

    /// Remembers a command; beyond the bound, nothing of this connection is remembered any more.
    fn open(&mut self, command: OpenCommand, now: Stamp, kept: &mut KeptReplies) {
        self.waited_for += 1;
        self.open.push_back(command);
        if self.open.len() > MAX_OPEN {
            kept.figures.refuse(NotKept::TooMany);
            self.leave(now, kept);
        }
    }

    /// From here on, the connection passes untouched.
    fn leave(&mut self, now: Stamp, kept: &mut KeptReplies) {
        if !std::mem::replace(&mut self.is_untouched, true) {
            kept.figures.untouched += 1;
            self.cut(now, kept);
        }
    }

    /// Replies will not come, or not be known.
    fn cut(&mut self, now: Stamp, kept: &mut KeptReplies) {
        let mut cut = |written: Vec<Written>| written.into_iter().for_each(|one| kept.versions.cut(one, now));
        cut(std::mem::take(&mut self.transaction));
        for command in std::mem::take(&mut self.open) {
            if let OpenCommand::Write(written) = command {
                cut(written);
            }
        }
    }

    /// Takes a piece of the reply to the first command, if that is to be kept.
    fn capture(&mut self, bytes: &[u8], kept: &KeptReplies) {
        if let Some(OpenCommand::Read(read)) = self.open.front() {
            self.captured.extend(bytes, read.most(kept));
        }
    }

    /// The first command has its reply.
    fn answered(&mut self, value: &ReplyValue<'_>, now: Stamp, kept: &mut KeptReplies) -> Result<(), Unread> {
        if let Some(OpenCommand::Plain(count)) = self.open.front_mut()
            && *count > 1
        {
            *count -= 1;
            self.waited_for -= 1;
            return Ok(());
        }
        let command = self.open.pop_front().ok_or(Unread::Unasked)?;
        let would_not_be_asked = matches!(&command, OpenCommand::Read(read) if read.would_be.is_some());
        self.waited_for -= u64::from(!would_not_be_asked);
        match command {
            OpenCommand::Plain(_) => {}
            OpenCommand::Read(read) => read.answered(&self.captured, value, now, kept),
            OpenCommand::Write(written) => written.into_iter().for_each(|one| kept.versions.end(one)),
            OpenCommand::Change(change) => {
                self.changing -= 1;
                if !value.is_error() {
                    self.context.apply(change);
                }
            }
        }
        Ok(())
    }
}

/// Gives the replies of one reading to the commands.
struct Settling<'s> {
    state: &'s mut ConversationState,
    kept: &'s mut KeptReplies,
    bytes: &'s [u8],
    /// Where the reply begins that is being read.
    from: usize,
    now: Stamp,
}

impl ReplySink for Settling<'_> {
    fn wants_texts(&self, _: u8) -> bool {
        false
    }

    fn element(&mut self, kind: u8, _: u64, value: &ReplyValue<'_>) {
        if kind == b'*'
            && let Some(OpenCommand::Read(read)) = self.state.open.front()
            && matches!(read.shape, ReadShape::Values | ReadShape::Fields)
        {
            self.state.captured.element(self.bytes.len() - value.after - self.from, value);
        }
    }

    fn reply(&mut self, value: &ReplyValue<'_>) -> Result<(), Unread> {
        let end = self.bytes.len() - value.after;
        let piece = &self.bytes[self.from..end];
        self.from = end;
        // a push answers nothing
        if value.kind != b'>' {
            self.state.capture(piece, self.kept);
            self.state.answered(value, self.now, self.kept)?;
        }
        self.state.captured.restart();
        Ok(())
    }
}
