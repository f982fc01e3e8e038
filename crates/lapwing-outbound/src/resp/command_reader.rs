//! What a client sends: arrays of bulk strings, and inline commands.

use arrayvec::ArrayVec;
use memchr::memchr;

use crate::name::{CallName, Keys, Waits};
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// How much of an argument is looked at.
const PREFIX: usize = 24;
/// How much of an inline command is looked at.
const INLINE: usize = 128;
/// The longest line with a number.
const NUMBER: usize = 24;

/// A command that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) name: CallName,
    /// When its first byte was read.
    pub(crate) began: Stamp,
    /// How many arguments follow the name.
    pub(crate) arguments: u64,
    /// How many keys it reads.
    pub(crate) keys: u64,
    /// Whether it waits for what others do.
    pub(crate) waits: bool,
    /// Of `CLIENT REPLY`: what it asks for.
    pub(crate) reply: Option<ReplyMode>,
}

/// What `CLIENT REPLY` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    Skip,
}

/// Reads what a client sends.
#[derive(Debug, Default)]
pub(crate) struct CommandReader {
    state: State,
    /// A line, or the beginning of an argument.
    held: ArrayVec<u8, INLINE>,
    open: Option<OpenCommand>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Start,
    /// The line that says how many arguments there are.
    Count,
    /// The line that says how long an argument is.
    Length,
    /// An argument, with its line end.
    Argument { length: u64, left: u64 },
    /// An inline command.
    Inline,
}

/// A command that has begun.
#[derive(Clone, Copy, Debug)]
struct OpenCommand {
    began: Stamp,
    name: CallName,
    /// Arguments that have not come, the name included.
    left: u64,
    /// Arguments that have come.
    come: u64,
    /// What an argument says of the number of keys.
    number: Option<u64>,
    /// Where the first `STREAMS` stands.
    streams_at: Option<u64>,
    has_block: bool,
    is_about_reply: bool,
    reply: Option<ReplyMode>,
}

impl CommandReader {
    /// Reads the next bytes, which came at `now`, and calls `each` with every command that they complete.
    pub(crate) fn read(&mut self, mut bytes: &[u8], now: Stamp, mut each: impl FnMut(Command)) -> Result<(), Unread> {
        while let Some((first, rest)) = bytes.split_first() {
            match self.state {
                State::Start => {
                    self.held.clear();
                    self.open = Some(OpenCommand::at(now));
                    if *first == b'*' {
                        (self.state, bytes) = (State::Count, rest);
                    } else {
                        self.state = State::Inline;
                    }
                }
                State::Inline => bytes = self.inline(bytes, &mut each),
                State::Count | State::Length => {
                    let Some(after) = self.line(bytes, NUMBER)? else { return Ok(()) };
                    bytes = after;
                    self.number()?;
                }
                State::Argument { length, left } => {
                    let taken = left.min(bytes.len() as u64);
                    let (piece, after) = bytes.split_at(taken as usize);
                    let text = (length - (length + 2 - left).min(length)).min(taken) as usize; // without the line end
                    let room = PREFIX.saturating_sub(self.held.len()).min(text);
                    self.held.extend(piece[..room].iter().copied());
                    bytes = after;
                    self.state = State::Argument { length, left: left - taken };
                    if left == taken {
                        self.argument(length, &mut each);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes bytes up to the end of a line of at most `most` bytes; what follows it.
    fn line<'b>(&mut self, bytes: &'b [u8], most: usize) -> Result<Option<&'b [u8]>, Unread> {
        let end = memchr(b'\n', bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        if self.held.len() + piece.len() > most {
            return Err(Unread::Malformed);
        }
        self.held.extend(piece.iter().copied());
        Ok(end.map(|end| &bytes[end + 1..]))
    }

    /// A line with a number has come.
    fn number(&mut self) -> Result<(), Unread> {
        let is_count = matches!(self.state, State::Count);
        let text = if is_count { Some(&self.held[..]) } else { self.held.strip_prefix(b"$") };
        let number = text.and_then(number).ok_or(Unread::Malformed)?;
        self.held.clear();
        let Some(open) = &mut self.open else { return Err(Unread::Malformed) };
        if is_count {
            // nothing answers an empty one
            open.left = u64::try_from(number).unwrap_or(0);
            self.state = if open.left == 0 { State::Start } else { State::Length };
            if open.left == 0 {
                self.open = None;
            }
            return Ok(());
        }
        let length = u64::try_from(number).map_err(|_| Unread::Malformed)?;
        self.state = State::Argument { length, left: length.checked_add(2).ok_or(Unread::Malformed)? };
        Ok(())
    }

    /// An argument has come.
    fn argument(&mut self, length: u64, each: &mut impl FnMut(Command)) {
        let text = if length <= PREFIX as u64 { &self.held[..] } else { &[] };
        self.state = State::Length;
        if let Some(open) = &mut self.open {
            open.take(text);
            if open.left == 0 {
                each(open.finish());
                (self.state, self.open) = (State::Start, None);
            }
        }
        self.held.clear();
    }

    /// Takes bytes of an inline command; what follows it.
    fn inline<'b>(&mut self, bytes: &'b [u8], each: &mut impl FnMut(Command)) -> &'b [u8] {
        let end = memchr(b'\n', bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        let room = (INLINE - self.held.len()).min(piece.len());
        self.held.extend(piece[..room].iter().copied());
        // of the first byte: without a line end it is taken too, so that this makes progress
        let Some(end) = end else { return &[] };
        if let Some(mut open) = self.open.take() {
            let words = || self.held.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            open.left = words().count() as u64;
            words().for_each(|word| open.take(if word.len() <= PREFIX { word } else { &[] }));
            if open.come > 0 {
                each(open.finish());
            }
        }
        self.held.clear();
        self.state = State::Start;
        &bytes[end + 1..]
    }
}

/// The number on a line, with the rest of its line end; an empty line has none.
pub(crate) fn number(line: &[u8]) -> Option<i64> {
    let text = line.strip_suffix(b"\r").unwrap_or(line);
    let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number: i64, digit| number * 10 + i64::from(digit - b'0'));
    Some(if is_negative { -number } else { number })
}

impl OpenCommand {
    fn at(began: Stamp) -> Self {
        Self {
            began,
            name: CallName::other(),
            left: 0,
            come: 0,
            number: None,
            streams_at: None,
            has_block: false,
            is_about_reply: false,
            reply: None,
        }
    }

    /// Takes the next argument; an empty text stands for one that is long.
    fn take(&mut self, text: &[u8]) {
        let at = self.come;
        if at == 0 {
            self.name = CallName::of_command(text);
        }
        let row = self.name.row();
        if let Keys::Numbered(place) = row.keys
            && at == place as u64
        {
            self.number = number(text).and_then(|number| u64::try_from(number).ok());
        }
        if row.waits == Waits::IfAsked && at > 0 && self.streams_at.is_none() {
            self.has_block |= text.eq_ignore_ascii_case(b"BLOCK");
            if text.eq_ignore_ascii_case(b"STREAMS") {
                self.streams_at = Some(at);
            }
        }
        if row.name == "CLIENT" {
            match at {
                1 => self.is_about_reply = text.eq_ignore_ascii_case(b"REPLY"),
                2 if self.is_about_reply => self.reply = ReplyMode::named(text),
                _ => {}
            }
        }
        self.come += 1;
        self.left = self.left.saturating_sub(1);
    }

    fn finish(&self) -> Command {
        let (row, arguments) = (self.name.row(), self.come - 1);
        let keys = match row.keys {
            Keys::None => 0,
            Keys::One => 1,
            Keys::Two => 2,
            Keys::All => arguments,
            Keys::AllButLast => arguments.saturating_sub(1),
            Keys::Numbered(_) => self.number.unwrap_or(0),
            Keys::Streams => self.streams_at.map_or(0, |at| (arguments - at) / 2),
        };
        let waits = row.waits == Waits::Always || self.has_block;
        Command { name: self.name, began: self.began, arguments, keys: keys.min(arguments), waits, reply: self.reply }
    }
}

impl ReplyMode {
    fn named(text: &[u8]) -> Option<Self> {
        let named = [(&b"ON"[..], Self::On), (b"OFF", Self::Off), (b"SKIP", Self::Skip)];
        named.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, mode)| mode)
    }
}
