//! Where commands of a client end. A command is held until it has come whole; one that is too long for that passes on in pieces.

use std::ops::Range;

use memchr::memchr;
use smallvec::SmallVec;

use crate::resp::number;

/// The longest command that is held.
pub(crate) const MAX_COMMAND: usize = 64 << 10;
/// The longest line with a number.
const MAX_LINE: usize = 24;

/// What stands next in what a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framed {
    /// A command, and where its arguments are.
    Whole,
    /// The beginning of one that is too long to be held, with the arguments that have come whole.
    Beginning,
    /// More of that one.
    More,
    /// Nothing that a server answers.
    Blank,
    /// Nothing more, or not enough.
    Nothing,
    /// What is not in the protocol.
    Broken,
}

/// Holds what a client sent, until it can be passed on.
#[derive(Debug, Default)]
pub(crate) struct CommandFramer {
    held: Vec<u8>,
    /// Where the next command begins, and how far it has been looked at.
    start: usize,
    at: usize,
    /// Arguments that have not come, of a command that has begun.
    left: Option<u64>,
    /// The length of the argument that has begun, with its line end.
    argument: Option<usize>,
    words: SmallVec<[Range<usize>; 8]>,
    /// Whether the command that has begun is passed on in pieces.
    is_long: bool,
}

impl CommandFramer {
    /// Takes what was read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let start = std::mem::take(&mut self.start);
        if start > 0 {
            self.held.drain(..start);
            self.at -= start;
            // those of a command that has begun
            self.words.iter_mut().for_each(|word| *word = word.start - start..word.end - start);
        }
        self.held.extend_from_slice(bytes);
    }

    /// Looks at what is next. Then [`Self::bytes`] and [`Self::words`] are of that, and [`Self::pass`] goes on.
    pub(crate) fn next(&mut self) -> Framed {
        if self.left.is_none() && !self.is_long {
            match self.held.get(self.start) {
                None => return Framed::Nothing,
                Some(b'*') => {}
                Some(_) => return self.inline(),
            }
        }
        loop {
            if self.left == Some(0) {
                return if self.is_long { Framed::More } else { Framed::Whole };
            }
            let step = match (self.left, self.argument) {
                (_, Some(length)) => self.argument(length),
                (None, None) => self.count(),
                (Some(_), None) => self.length(),
            };
            match step {
                Some(Framed::Nothing) => return self.rest(),
                Some(framed) => return framed,
                None => {}
            }
        }
    }

    /// There is not enough: of a long command, what there is passes.
    fn rest(&mut self) -> Framed {
        let held = self.held.len() - self.start;
        match self.is_long {
            true if self.at > self.start => Framed::More,
            false if held > MAX_COMMAND => self.beginning(),
            _ => Framed::Nothing,
        }
    }

    fn beginning(&mut self) -> Framed {
        self.is_long = true;
        // what was not looked at may be a part of an argument
        if self.argument.is_some() {
            self.skip();
        }
        Framed::Beginning
    }

    /// Passes over what is there of the argument that has begun.
    fn skip(&mut self) {
        if let Some(length) = self.argument {
            let taken = length.min(self.held.len() - self.at);
            self.at += taken;
            self.argument = Some(length - taken).filter(|left| *left > 0);
            if self.argument.is_none() {
                self.left = self.left.map(|left| left.saturating_sub(1));
            }
        }
    }

    fn line(&mut self) -> Result<Range<usize>, Framed> {
        let rest = &self.held[self.at..];
        match memchr(b'\n', &rest[..rest.len().min(MAX_LINE)]) {
            Some(end) => {
                let line = self.at..self.at + end;
                self.at += end + 1;
                Ok(line)
            }
            None if rest.len() >= MAX_LINE => Err(Framed::Broken),
            None => Err(Framed::Nothing),
        }
    }

    fn count(&mut self) -> Option<Framed> {
        let line = match self.line() {
            Ok(line) => line,
            Err(framed) => return Some(framed),
        };
        let Some(count) = self.held[line].strip_prefix(b"*").and_then(number) else { return Some(Framed::Broken) };
        match u64::try_from(count) {
            Ok(count) if count > 0 => self.left = Some(count),
            _ => return Some(Framed::Blank),
        }
        None
    }

    fn length(&mut self) -> Option<Framed> {
        let line = match self.line() {
            Ok(line) => line,
            Err(framed) => return Some(framed),
        };
        let length = self.held[line].strip_prefix(b"$").and_then(number).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.and_then(|length| length.checked_add(2)) else { return Some(Framed::Broken) };
        self.argument = Some(length);
        if !self.is_long && self.at - self.start + length > MAX_COMMAND {
            return Some(self.beginning());
        }
        None
    }

    fn argument(&mut self, length: usize) -> Option<Framed> {
        if self.is_long {
            self.skip();
            return (self.at == self.held.len() && self.left != Some(0)).then_some(Framed::Nothing);
        }
        if self.held.len() - self.at < length {
            return Some(Framed::Nothing);
        }
        self.words.push(self.at..self.at + length - 2);
        self.at += length;
        self.argument = None;
        self.left = self.left.map(|left| left.saturating_sub(1));
        None
    }

    /// A command in a line, its words parted by white space.
    fn inline(&mut self) -> Framed {
        let Some(end) = memchr(b'\n', &self.held[self.at..]) else {
            return if self.held.len() - self.start > MAX_COMMAND { Framed::Broken } else { Framed::Nothing };
        };
        let line = self.at..self.at + end;
        self.at += end + 1;
        let mut word = line.start;
        for at in line.start..=line.end {
            if at == line.end || self.held[at].is_ascii_whitespace() {
                if word < at {
                    self.words.push(word..at);
                }
                word = at + 1;
            }
        }
        if self.words.is_empty() { Framed::Blank } else { Framed::Whole }
    }

    /// The bytes of what is next.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.held[self.start..self.at]
    }

    /// Whether what is next is a command in a line.
    pub(crate) fn is_inline(&self) -> bool {
        self.held.get(self.start).is_some_and(|first| *first != b'*')
    }

    /// The words of what is next, as far as they have come whole.
    pub(crate) fn words(&self) -> SmallVec<[&[u8]; 8]> {
        self.words.iter().map(|word| &self.held[word.clone()]).collect()
    }

    /// Goes on after what was next.
    pub(crate) fn pass(&mut self) {
        self.start = self.at;
        self.words.clear();
        if self.left.is_none_or(|left| left == 0) {
            (self.left, self.argument, self.is_long) = (None, None, false);
        }
    }

    /// Everything that is held, which leaves.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let held = self.held.split_off(self.start);
        *self = Self::default();
        held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is framed of `bytes` in pieces, and all that passed.
    fn framed(bytes: &[u8], step: usize) -> (Vec<Vec<Vec<u8>>>, Vec<u8>, bool) {
        let (mut framer, mut commands, mut passed) = (CommandFramer::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            framer.push(piece);
            loop {
                match framer.next() {
                    Framed::Nothing => break,
                    Framed::Broken => {
                        passed.extend(framer.take());
                        return (commands, passed, true);
                    }
                    Framed::Whole | Framed::Beginning => {
                        commands.push(framer.words().iter().map(|word| word.to_vec()).collect());
                    }
                    Framed::Blank | Framed::More => {}
                }
                passed.extend_from_slice(framer.bytes());
                framer.pass();
            }
        }
        passed.extend(framer.take());
        (commands, passed, false)
    }

    fn command(words: &[&[u8]]) -> Vec<u8> {
        let word = |word: &&[u8]| [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat();
        [format!("*{}\r\n", words.len()).into_bytes(), words.iter().flat_map(word).collect()].concat()
    }

    #[test]
    fn commands_are_framed_however_they_are_cut() {
        let long = vec![b'x'; MAX_COMMAND];
        let bytes = [
            command(&[b"GET", b"a"]),
            b"\r\nPING  x\r\n*0\r\n".to_vec(),
            command(&[b"SET", b"k", &long, b"EX", b"9"]),
            command(&[b"MGET", b"", b"b\r\n"]),
        ]
        .concat();
        for step in [1, 2, 3, 7, 1000, usize::MAX] {
            let (commands, passed, is_broken) = framed(&bytes, step);
            let texts: Vec<_> = commands.iter().map(|words| words.join(&b' ')).collect();
            assert_eq!(texts, [&b"GET a"[..], b"PING x", b"SET k", b"MGET  b\r\n"], "in steps of {step}");
            assert!(passed == bytes && !is_broken);
        }
    }

    #[test]
    fn what_is_no_command_breaks_and_still_passes() {
        for bytes in [&b"*x\r\n"[..], b"*1\r\nGET\r\n", b"*1\r\n$-1\r\n", b"*9999999999999999999999999999\r\n"] {
            let (_, passed, is_broken) = framed(bytes, 1);
            assert!(is_broken && bytes.starts_with(&passed), "{bytes:?}");
        }
        // many short arguments
        let words = vec![&b"x"[..]; MAX_COMMAND];
        let bytes = [command(&words), command(&[b"PING"])].concat();
        for step in [7, usize::MAX] {
            let (commands, passed, _) = framed(&bytes, step);
            assert!(commands.len() == 2 && commands[0].len() < words.len() && passed == bytes);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_pass_alike_however_they_are_cut(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$\r\n12GET ".to_vec())], 0..300),
            step in 1..40_usize,
        ) {
            let (whole, cut) = (framed(&bytes, usize::MAX), framed(&bytes, step));
            prop_assert_eq!(&whole.0, &cut.0);
            prop_assert_eq!(whole.2, cut.2);
            if !whole.2 {
                prop_assert!(whole.1 == bytes && cut.1 == bytes);
            }
        }
    }
}
