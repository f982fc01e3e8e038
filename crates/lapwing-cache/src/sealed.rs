//! Answers as bytes that a store outside the process keeps, and back.
//!
//! Whoever can write to that store must not be able to put words into a model's mouth, nor to move an answer under another key. So each
//! is sealed: it says under which key and in which epoch it was stored, and ends with 256 bits of keyed BLAKE3 over all before. What does
//! not fit is refused with a reason. Bodies are not encrypted: who may read the store may read answers.
//!
//! Whole numbers are little-endian. In their order: version (1 byte), length of all (8), key (32), epoch (32), wall time of asking in
//! nanoseconds since 1970 (8), nanoseconds for which it is good from then (8), its age then in seconds (8), what it took in nanoseconds (8),
//! where its `id` stands (kind and four numbers of 4 bytes), fields, 1 and trailers or 0, length of the body (8), body, tag (32). Fields:
//! their number (2); of each, the length of its name (2), name, whether it is secret (1), length of its value (4), value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes};
use http::{HeaderName, HeaderValue};

use crate::answer::StoredAnswer;
use crate::answer_id::IdPlace;
use crate::key::CacheKey;
use crate::storable::StoringTerms;
use lapwing_ledger::Stamp;

/// The version of the format.
const VERSION: u8 = 1;
/// What the secret of seals is derived for.
const CONTEXT: &str = "lapwing sealed answer 1";
const TAG_BYTES: usize = 32;
/// What precedes the fields.
const HEAD_BYTES: usize = 1 + 8 + 32 + 32 + 4 * 8 + 17;
/// The most that an answer has beside its body.
const MAX_BESIDE: u64 = 256 << 10;
/// How far the clocks of two machines may be apart.
const SKEW_NS: u64 = 10_000_000_000;

/// The epoch in which an answer was stored: that of all answers, and that of its model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEpoch {
    pub(crate) all: [u8; 16],
    pub(crate) model: [u8; 16],
}

/// Why bytes are not taken for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealRefusal {
    /// They are fewer or more than they say.
    Length,
    /// They are of another version.
    Version,
    /// They are more than an answer may have.
    TooLarge,
    /// They were stored under another key.
    Key,
    /// They were not written by who knows the secret, or were changed since.
    Tag,
    /// They were stored before what was stored was forgotten.
    Epoch,
    /// The answer is out of date.
    Expired,
    /// The answer was asked for in the future: the clocks of two machines are more than 10 s apart.
    Clock,
    /// They are sealed, and are no answer.
    Form,
}

impl SealRefusal {
    /// All of them.
    pub const ALL: [Self; 9] =
        [Self::Length, Self::Version, Self::TooLarge, Self::Key, Self::Tag, Self::Epoch, Self::Expired, Self::Clock, Self::Form];

    /// Its name as the value of a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Version => "version",
            Self::TooLarge => "too_large",
            Self::Key => "key",
            Self::Tag => "tag",
            Self::Epoch => "epoch",
            Self::Expired => "expired",
            Self::Clock => "clock",
            Self::Form => "form",
        }
    }
}

/// Seals answers.
#[derive(Clone)]
pub struct AnswerSealer {
    secret: [u8; 32],
}

impl std::fmt::Debug for AnswerSealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerSealer").finish_non_exhaustive()
    }
}

impl AnswerSealer {
    /// With the secret that keys are made with; what is sealed is sealed with another one that follows from it.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        Self { secret: blake3::derive_key(CONTEXT, secret) }
    }

    /// The bytes of an answer that is stored under `key` and was asked for at `asked`.
    #[must_use]
    pub fn seal(&self, key: &CacheKey, epoch: SharedEpoch, answer: &StoredAnswer, asked: SystemTime) -> Vec<u8> {
        let asked_ns = asked.duration_since(UNIX_EPOCH).map_or(0, nanos);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + answer.body.len() + 1_024);
        bytes.push(VERSION);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(&epoch.all);
        bytes.extend_from_slice(&epoch.model);
        for number in [asked_ns, answer.terms.fresh_ns, answer.terms.age_s, answer.service_ns] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_id(&mut bytes, answer.id.as_ref());
        put_fields(&mut bytes, &answer.headers);
        bytes.push(u8::from(answer.trailers.is_some()));
        if let Some(trailers) = &answer.trailers {
            put_fields(&mut bytes, trailers);
        }
        bytes.extend_from_slice(&(answer.body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&answer.body);
        let length = (bytes.len() + TAG_BYTES) as u64;
        bytes[1..9].copy_from_slice(&length.to_le_bytes());
        let tag = blake3::keyed_hash(&self.secret, &bytes);
        bytes.extend_from_slice(tag.as_bytes());
        bytes
    }

    /// The answer in `sealed`, which was found under `key` in the epoch `epoch`, now, with a body of at most `max_entry`. Its parts share
    /// `sealed`, which is hashed once.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn open(
        &self,
        key: &CacheKey,
        epoch: SharedEpoch,
        sealed: &Bytes,
        max_entry: u64,
        (now, wall): (Stamp, SystemTime),
    ) -> Result<StoredAnswer, SealRefusal> {
        if sealed.len() as u64 > max_entry.saturating_add(MAX_BESIDE) {
            return Err(SealRefusal::TooLarge);
        }
        if sealed.first().is_some_and(|version| *version != VERSION) {
            return Err(SealRefusal::Version);
        }
        let signed = sealed.len().checked_sub(TAG_BYTES).filter(|signed| *signed >= HEAD_BYTES).ok_or(SealRefusal::Length)?;
        let mut rest = Reader(sealed.slice(1..signed));
        if rest.number()? != sealed.len() as u64 {
            return Err(SealRefusal::Length);
        }
        if rest.take(32)? != key.as_bytes()[..] {
            return Err(SealRefusal::Key);
        }
        // takes as long wherever they differ
        let tag = <[u8; TAG_BYTES]>::try_from(&sealed[signed..]).map_err(|_| SealRefusal::Length)?;
        if blake3::keyed_hash(&self.secret, &sealed[..signed]) != blake3::Hash::from_bytes(tag) {
            return Err(SealRefusal::Tag);
        }
        if rest.take(16)? != epoch.all[..] || rest.take(16)? != epoch.model[..] {
            return Err(SealRefusal::Epoch);
        }
        let [asked_ns, fresh_ns, age_s, service_ns] = [rest.number()?, rest.number()?, rest.number()?, rest.number()?];
        let kept_ns = kept_ns(asked_ns, wall)?;
        if kept_ns >= fresh_ns {
            return Err(SealRefusal::Expired);
        }
        let id = rest.id()?;
        let headers = rest.fields()?;
        let trailers = if rest.byte()? == 1 { Some(rest.fields()?) } else { None };
        let body_bytes = rest.number()?;
        if body_bytes > max_entry {
            return Err(SealRefusal::TooLarge);
        }
        let body = rest.take(usize::try_from(body_bytes).map_err(|_| SealRefusal::Form)?)?;
        if !rest.0.is_empty() || !id.as_ref().is_none_or(|place| fits(place, body.len())) {
            return Err(SealRefusal::Form);
        }
        // stamps of this process may not reach back to when it was asked for: its age then is part of its terms
        let terms = StoringTerms { fresh_ns: fresh_ns - kept_ns, age_s: age_s.saturating_add(kept_ns.div_ceil(1_000_000_000)) };
        let (was_given, is_refreshed) = Default::default();
        let mut answer =
            StoredAnswer { headers, trailers, body, id, asked: now, terms, service_ns, cost: 0, was_given, is_refreshed };
        answer.cost = answer.bytes_beside(sealed.len());
        Ok(answer)
    }
}

/// How long ago it was asked for.
fn kept_ns(asked_ns: u64, wall: SystemTime) -> Result<u64, SealRefusal> {
    let wall_ns = wall.duration_since(UNIX_EPOCH).map_or(0, nanos);
    if asked_ns > wall_ns.saturating_add(SKEW_NS) { Err(SealRefusal::Clock) } else { Ok(wall_ns.saturating_sub(asked_ns)) }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether an `id` stands within the body.
fn fits(place: &IdPlace, body_bytes: usize) -> bool {
    match place {
        IdPlace::Present { value, member } => {
            [value, member].iter().all(|range| range.start <= range.end && range.end <= body_bytes)
        }
        IdPlace::Absent { at, .. } => *at <= body_bytes,
    }
}

fn put_id(bytes: &mut Vec<u8>, id: Option<&IdPlace>) {
    let (kind, numbers) = match id {
        None => (0, [0; 4]),
        Some(IdPlace::Present { value, member }) => (1, [value.start, value.end, member.start, member.end]),
        Some(IdPlace::Absent { at, is_followed }) => (2 + u8::from(*is_followed), [*at, 0, 0, 0]),
    };
    bytes.push(kind);
    // bodies are smaller than 4 GiB by far: the largest `max_entry` is 256 MiB
    numbers.iter().for_each(|number| bytes.extend_from_slice(&u32::try_from(*number).unwrap_or(u32::MAX).to_le_bytes()));
}

fn put_fields(bytes: &mut Vec<u8>, fields: &[(HeaderName, HeaderValue)]) {
    let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes();
    bytes.extend_from_slice(&short(fields.len()));
    for (name, value) in fields {
        bytes.extend_from_slice(&short(name.as_str().len()));
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.push(u8::from(value.is_sensitive()));
        bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(value.as_bytes());
    }
}

/// Reads bytes that may be fewer than they say.
struct Reader(Bytes);

impl Reader {
    fn take(&mut self, length: usize) -> Result<Bytes, SealRefusal> {
        if length > self.0.len() { Err(SealRefusal::Form) } else { Ok(self.0.split_to(length)) }
    }

    fn byte(&mut self) -> Result<u8, SealRefusal> {
        self.0.try_get_u8().map_err(|_| SealRefusal::Form)
    }

    fn short(&mut self) -> Result<usize, SealRefusal> {
        self.0.try_get_u16_le().map(usize::from).map_err(|_| SealRefusal::Form)
    }

    fn word(&mut self) -> Result<usize, SealRefusal> {
        let number = self.0.try_get_u32_le().map_err(|_| SealRefusal::Form)?;
        usize::try_from(number).map_err(|_| SealRefusal::Form)
    }

    fn number(&mut self) -> Result<u64, SealRefusal> {
        self.0.try_get_u64_le().map_err(|_| SealRefusal::Form)
    }

    fn id(&mut self) -> Result<Option<IdPlace>, SealRefusal> {
        let (kind, [a, b, c, d]) = (self.byte()?, [self.word()?, self.word()?, self.word()?, self.word()?]);
        Ok(match kind {
            0 => None,
            1 => Some(IdPlace::Present { value: a..b, member: c..d }),
            2 | 3 => Some(IdPlace::Absent { at: a, is_followed: kind == 3 }),
            _ => return Err(SealRefusal::Form),
        })
    }

    fn fields(&mut self) -> Result<Box<[(HeaderName, HeaderValue)]>, SealRefusal> {
        let count = self.short()?;
        (0..count).map(|_| self.field()).collect()
    }

    fn field(&mut self) -> Result<(HeaderName, HeaderValue), SealRefusal> {
        let length = self.short()?;
        let name = HeaderName::from_bytes(&self.take(length)?).map_err(|_| SealRefusal::Form)?;
        let is_sensitive = self.byte()? == 1;
        let length = self.word()?;
        let mut value = HeaderValue::from_maybe_shared(self.take(length)?).map_err(|_| SealRefusal::Form)?;
        value.set_sensitive(is_sensitive);
        Ok((name, value))
    }
}
