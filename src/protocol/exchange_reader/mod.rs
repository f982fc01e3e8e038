//! Reads one exchange as its bytes pass, piece by piece, in constant memory: the model, the work, token timing, and what the
//! server reports in the body. It never delays bytes, keeps nothing but short names (and a prompt, if a tokenizer is to count
//! it), and never fails: what cannot be read stays unknown.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method};

use super::body_reader::BodyReader;
use super::config::{Config, Flops, Side};
use super::detect::{Family, detect, detect_grpc};
use super::facts::ExchangeFacts;
use super::families::custom::Rule;
use super::families::spec;
use super::media::Media;
use super::passing_body::{PassingBody, UnreadBody};
use super::plan::{ReadPlan, WatchedFields};
use super::tokens::PromptKeeper;
use crate::compression::DecoderMemory;
use crate::ledger::{Annotation, Basis, Ledger, PromptBody, Unit, label_text};

/// The compiled protocols and rules: built once from the configuration, shared by all requests.
#[derive(Clone, Debug)]
pub struct Protocols(Arc<Tables>);

#[derive(Debug)]
struct Tables {
    read_bodies: bool,
    /// By [`Family`].
    plans: Vec<ReadPlan>,
    rules: Vec<Rule>,
    flops: BTreeMap<String, Flops>,
    keep: Option<PromptKeeper>,
    /// What the decoders of compressed bodies may hold together.
    decoders: DecoderMemory,
}

/// How many bytes the decoders of compressed bodies may hold together.
const DECODER_BYTES: usize = 128 << 20;

impl Default for Protocols {
    fn default() -> Self {
        Self::new(&Config::default())
    }
}

impl Protocols {
    /// Compiles the fields to watch. The configuration must have been checked.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(Arc::new(Tables {
            read_bodies: config.read_bodies,
            plans: Family::ALL.iter().map(|family| ReadPlan::new(spec(*family))).collect(),
            rules: config.custom.iter().map(Rule::new).collect(),
            flops: config.flops.clone(),
            keep: PromptKeeper::new(config),
            decoders: DecoderMemory::new(DECODER_BYTES),
        }))
    }

    /// Returns the protocol used on this path, which has no query.
    #[must_use]
    pub fn detect(&self, method: &Method, path: &str) -> DetectedProtocol {
        let nothing = DetectedProtocol { plain: None, grpc: None, model: None };
        if !self.0.read_bodies {
            return nothing;
        }
        if let Some(rule) = self.0.rules.iter().position(|rule| rule.fits(method, path)) {
            let rule = Some(Protocol::Custom(rule));
            return DetectedProtocol { plain: rule, grpc: rule, model: None };
        }
        if method != Method::POST {
            return nothing;
        }
        let (plain, model) = detect(path).unzip();
        let grpc = detect_grpc(path).map(Protocol::Known);
        DetectedProtocol { plain: plain.map(Protocol::Known), grpc, model: model.flatten().map(|name| label_text(name).into()) }
    }

    /// Whether a request with this head is one call of a known inference protocol. Nothing is changed by such a call, so it may be
    /// repeated. Rules of the configuration and long-lived streams are not among them.
    #[must_use]
    pub fn is_inference(&self, method: &Method, path: &str, headers: &HeaderMap) -> bool {
        if method != Method::POST || headers.contains_key(http::header::UPGRADE) {
            return false;
        }
        let is_grpc = Media::of(headers) == Media::Grpc;
        if is_grpc { detect_grpc(path).is_some_and(|family| family != Family::OipGrpcStream) } else { detect(path).is_some() }
    }

    /// Creates a reader for a request with this head; `None` if there is nothing to read in its bodies.
    #[must_use]
    pub fn open(&self, spoken: &DetectedProtocol, headers: &HeaderMap) -> Option<ExchangeReader> {
        if spoken.is_nothing() {
            return None;
        }
        let media = Media::of(headers);
        let protocol = if media == Media::Grpc { spoken.grpc } else { spoken.plain }?;
        let plan = self.0.plan(protocol);
        let mut facts = ExchangeFacts::default();
        if let Some(model) = spoken.model.as_ref().filter(|_| media != Media::Grpc) {
            facts.name_model(model.as_bytes());
        }
        if let Some(rule) = self.0.rule(protocol) {
            rule.request_head(headers, &mut facts);
        }
        let mut request = PassingBody::plain(BodyReader::new(&plan.request, media, headers));
        let kept = self.0.keep.as_ref().filter(|_| media == Media::Json).and_then(|keep| keep.body(protocol.place()));
        if request.reader.is_on() || kept.is_some() {
            request.decode(headers, &self.0.decoders);
        }
        let kept = kept.filter(|_| request.unread.is_none());
        let tables = Arc::clone(&self.0);
        let response = PassingBody::plain(BodyReader::Off);
        let is_json_infer = media == Media::Json && matches!(protocol, Protocol::Known(Family::OipRest));
        Some(ExchangeReader(Box::new(Inner {
            protocol,
            request,
            response,
            facts,
            kept,
            at_ns: 0,
            is_answered: false,
            is_json_infer,
            tables,
        })))
    }
}

impl Tables {
    fn plan(&self, protocol: Protocol) -> &ReadPlan {
        match protocol {
            Protocol::Known(family) => &self.plans[family as usize],
            Protocol::Custom(at) => &self.rules[at].plan,
        }
    }

    fn rule(&self, protocol: Protocol) -> Option<&Rule> {
        if let Protocol::Custom(at) = protocol { self.rules.get(at) } else { None }
    }

    fn flops(&self, model: Option<&str>) -> Option<&Flops> {
        model.and_then(|model| self.flops.get(model)).or_else(|| self.flops.get("*"))
    }
}

/// A protocol or a rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    /// A known protocol.
    Known(Family),
    /// The rule at this index of the configuration.
    Custom(usize),
}

impl Protocol {
    /// The index in lists of known protocols followed by rules.
    const fn place(self) -> usize {
        match self {
            Self::Known(family) => family as usize,
            Self::Custom(at) => Family::ALL.len() + at,
        }
    }
}

/// The protocol used on a path: the same for every request to it.
#[derive(Clone, Debug)]
pub struct DetectedProtocol {
    pub(super) plain: Option<Protocol>,
    /// The protocol if the body is gRPC.
    pub(super) grpc: Option<Protocol>,
    /// The model that the path names, as a label.
    model: Option<Box<str>>,
}

impl DetectedProtocol {
    const fn is_nothing(&self) -> bool {
        self.plain.is_none() && self.grpc.is_none()
    }
}

/// Reads one exchange.
#[derive(Debug)]
pub struct ExchangeReader(Box<Inner>);

#[derive(Debug)]
struct Inner {
    tables: Arc<Tables>,
    protocol: Protocol,
    request: PassingBody,
    response: PassingBody,
    facts: ExchangeFacts,
    /// The request's body, as long as its tokens may have to be counted.
    kept: Option<PromptBody>,
    /// When the last piece of the response arrived.
    at_ns: u64,
    /// Whether the response's head came and is not that of an error.
    is_answered: bool,
    /// Whether the request is an inference of the Open Inference Protocol as JSON, whose tensors could come in binary form.
    is_json_infer: bool,
}

impl ExchangeReader {
    /// Reads the next piece of the request's body.
    pub fn request(&mut self, bytes: &[u8]) {
        let Inner { request, facts, kept, .. } = &mut *self.0;
        facts.read(Side::Request);
        let read = request.feed(bytes, |reader, piece| {
            if kept.as_mut().is_some_and(|kept| !kept.push(piece)) {
                *kept = None;
            }
            reader.feed(piece, 0, facts);
        });
        if !read {
            *kept = None;
            facts.forget();
        }
    }

    /// Reads the response's head. The body of an error is not read. Returns how many fields that a rule names were refused.
    pub fn response_head(&mut self, status: u16, headers: &HeaderMap) -> usize {
        let this = &mut *self.0;
        this.response = PassingBody::plain(BodyReader::Off);
        this.is_answered = (200..300).contains(&status);
        if !this.is_answered {
            this.kept = None; // the model did not read a refused request
            return 0;
        }
        let rule = this.tables.rule(this.protocol);
        let refused = rule.map_or(0, |rule| rule.response_fields(headers, &mut this.facts));
        let plan = this.tables.plan(this.protocol);
        if !matches!(plan.response, WatchedFields::Nothing) {
            this.response = PassingBody::plain(BodyReader::new(&plan.response, Media::of(headers), headers));
            if this.response.reader.is_on() {
                this.response.decode(headers, &this.tables.decoders);
            }
            if this.response.reader.streams() {
                this.facts.streams();
            }
        }
        refused
    }

    /// Reads the response's trailers, whose values win over those of the head. Those of an error are not read. Returns how many
    /// fields that a rule names were refused.
    pub fn response_trailers(&mut self, trailers: &HeaderMap) -> usize {
        let this = &mut *self.0;
        let rule = this.tables.rule(this.protocol).filter(|_| this.is_answered);
        rule.map_or(0, |rule| rule.response_fields(trailers, &mut this.facts))
    }

    /// Reads the next piece of the response's body, which arrived `at_ns` after the request's start.
    pub fn response(&mut self, bytes: &[u8], at_ns: u64) {
        let Inner { response, facts, at_ns: latest, .. } = &mut *self.0;
        *latest = at_ns;
        facts.read(Side::Response);
        if !response.feed(bytes, |reader, piece| reader.feed(piece, at_ns, facts)) {
            facts.forget();
        }
    }

    /// Whether further pieces of the request's body are needed.
    #[must_use]
    pub fn wants_request(&self) -> bool {
        self.0.request.reader.is_on() || self.0.kept.is_some()
    }

    /// Whether further pieces of the response's body are needed; false before its head arrived.
    #[must_use]
    pub fn wants_response(&self) -> bool {
        self.0.response.reader.is_on()
    }

    /// Whether the answer declared itself complete, so that nothing follows that a client waits for.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.facts.is_complete()
    }

    /// Why bodies were not read, or not to their end: the request's and the response's.
    #[must_use]
    pub fn unread(&self) -> [Option<UnreadBody>; 2] {
        [self.0.request.unread, self.0.response.unread]
    }

    /// Writes the results into the ledger, which already knows the bodies' lengths: work, token timing, server, and reports in
    /// the body. Returns the model's name, if the path, the head or a body names one.
    pub fn close(&mut self, ledger: &mut Ledger) -> Option<&str> {
        let this = &mut *self.0;
        this.facts.read(Side::Request);
        this.request.reader.end(0, &mut this.facts);
        this.facts.read(Side::Response);
        this.response.reader.end(this.at_ns, &mut this.facts);
        let plan = this.tables.plan(this.protocol);
        if let Some(rule) = this.tables.rule(this.protocol) {
            rule.lengths(ledger.request_bytes, ledger.response_bytes, &mut this.facts);
        }
        // a body that was not read may have any number of rows
        if plan.row_each && this.request.unread.is_none() {
            this.facts.add_row_each();
        }
        if ledger.request_bytes > 0 {
            this.facts.set(Unit::Byte, ledger.request_bytes, Basis::Counted);
        }
        if this.is_json_infer && this.facts.has_tensors() {
            ledger.circumstances.annotations.add(Annotation::JsonTensors);
        }
        let flops = this.tables.flops(this.facts.model());
        this.facts.write(plan.primary, plan.primary_otherwise, ledger, flops);
        if let Some(keep) = &this.tables.keep
            && let Some(kept) = this.kept.take()
            && matches!(ledger.work.get(Unit::InputToken), Some((_, Basis::Estimated)))
        {
            ledger.prompt = keep.prompt(kept, this.protocol.place(), this.facts.model()).map(Arc::new);
        }
        this.facts.model()
    }
}

#[cfg(test)]
mod tests;
