//! Reads one exchange as its bytes pass, piece by piece, in constant memory: the model, the work, token timing, and what the
//! server reports in the body. It never delays bytes, keeps nothing but short names (and a prompt, if a tokenizer is to count
//! it), and never fails: what cannot be read stays unknown.

mod detected;
mod request_known;
mod unread;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method};

pub use self::detected::DetectedProtocol;
pub(crate) use self::detected::Protocol;
pub use self::request_known::ToldByBody;
use self::unread::{UnreadBodies, is_text};
use super::body_error::EndFrameReader;
use super::config::{Config, Flops, Side};
use super::detect::{Family, detect, detect_grpc};
use super::facts::ExchangeFacts;
use super::families::custom::Rule;
use super::families::spec;
use super::media::Media;
use super::passing_body::{BodyReader, PassingBody, UnreadBody};
use super::plan::{ReadPlan, WatchedFields};
use super::tokens::PromptKeeper;
use lapwing_compression::DecoderMemory;
use lapwing_ledger::{Annotation, Basis, Ledger, NameProof, Outcome, PromptBody, Unit, label_text};

/// The compiled protocols and rules: built once from the configuration, shared by all requests.
#[derive(Clone, Debug)]
pub struct Protocols(Arc<Tables>);

#[derive(Debug)]
struct Tables {
    read_bodies: bool,
    /// By [`Family`].
    plans: Vec<ReadPlan>,
    /// What is watched in answers of which nothing is read but whether they say that they failed.
    errors: WatchedFields,
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
            errors: ReadPlan::errors(),
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

    /// Whether a request with this head may be one call of a known inference protocol: by its path, and because its body is no form. Its body
    /// may show that it is none ([`Recogniser`](super::Recogniser)). Rules of the configuration and long-lived streams are not among them.
    #[must_use]
    pub fn may_be_inference(&self, method: &Method, path: &str, headers: &HeaderMap) -> bool {
        if method != Method::POST || headers.contains_key(http::header::UPGRADE) {
            return false;
        }
        let is_grpc = Media::of(headers) == Media::Grpc;
        if is_grpc {
            detect_grpc(path).is_some_and(|family| family != Family::OipGrpcStream)
        } else {
            detect(path).is_some() && !Media::is_form(headers)
        }
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
        let mut inner = Inner::boxed(Some(protocol), Arc::clone(&self.0));
        if let Some(model) = spoken.model.as_ref().filter(|_| media != Media::Grpc) {
            inner.facts.name_model(model.as_bytes());
        }
        if let Some(rule) = self.0.rule(protocol) {
            rule.request_head(headers, &mut inner.facts);
        }
        inner.request.reader = BodyReader::new(&plan.request, media, headers);
        let is_on = inner.request.reader.is_on();
        inner.unread.request = !is_on && !matches!(plan.request, WatchedFields::Nothing) && is_text(headers);
        let kept = self.0.keep.as_ref().filter(|_| media == Media::Json).and_then(|keep| keep.body(protocol.place()));
        if is_on || kept.is_some() {
            inner.request.decode(headers, &self.0.decoders);
        }
        inner.kept = kept.filter(|_| inner.request.unread.is_none());
        inner.is_json_infer = media == Media::Json && matches!(protocol, Protocol::Known(Family::OipRest));
        Some(ExchangeReader(inner))
    }

    /// Creates a reader for an answer of which nothing else is read, which only finds out whether it says that it failed; `None`
    /// if bodies are not to be read.
    #[must_use]
    pub fn open_for_errors(&self) -> Option<ExchangeReader> {
        self.0.read_bodies.then(|| ExchangeReader(Inner::boxed(None, Arc::clone(&self.0))))
    }
}

impl Tables {
    /// The reader of an answer with this head for `watched`, after its coding is decoded.
    fn open_body(&self, watched: &WatchedFields, headers: &HeaderMap) -> PassingBody {
        let mut body = PassingBody::plain(BodyReader::new(watched, Media::of(headers), headers));
        if body.reader.is_on() {
            body.decode(headers, &self.decoders);
        }
        body
    }

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

/// Reads one exchange.
#[derive(Debug)]
pub struct ExchangeReader(Box<Inner>);

#[derive(Debug)]
struct Inner {
    tables: Arc<Tables>,
    /// `None` if only errors are looked for.
    protocol: Option<Protocol>,
    request: PassingBody,
    response: PassingBody,
    /// What ends the answer, if it is of gRPC-Web or Connect.
    end_frame: Option<Box<EndFrameReader>>,
    facts: ExchangeFacts,
    /// The request's body, as long as its tokens may have to be counted.
    kept: Option<PromptBody>,
    /// When the last piece of the response arrived.
    at_ns: u64,
    /// Whether the response's head came and is not that of an error.
    is_answered: bool,
    /// Whether the request is an inference of the Open Inference Protocol as JSON, whose tensors could come in binary form.
    is_json_infer: bool,
    unread: UnreadBodies,
}

impl Inner {
    /// Made where it stays, for it is large: `Box::new` is given one that was made, and copies all of it, though most of it is empty yet.
    fn boxed(protocol: Option<Protocol>, tables: Arc<Tables>) -> Box<Self> {
        let place = Box::new_uninit();
        let this = Self {
            tables,
            protocol,
            request: PassingBody::plain(BodyReader::Off),
            response: PassingBody::plain(BodyReader::Off),
            end_frame: None,
            facts: ExchangeFacts::default(),
            kept: None,
            at_ns: 0,
            is_answered: false,
            is_json_infer: false,
            unread: UnreadBodies { request: false, response: false, is_compressed: false },
        };
        Box::write(place, this)
    }

    /// Corrects the outcome of an exchange that would be a success, if its body says otherwise.
    fn correct_outcome(&mut self, ledger: &mut Ledger) {
        if ledger.outcome != Outcome::Ok {
            return;
        }
        if let Some(code) = self.end_frame.as_ref().and_then(|frame| frame.code()) {
            (ledger.outcome, ledger.name_proof) = (Outcome::of_grpc(code), NameProof::of_grpc(code));
        }
        if ledger.outcome == Outcome::Ok && self.facts.errors().has_failed() {
            ledger.outcome = Outcome::BodyError;
        }
    }
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
        (this.response, this.end_frame) = (PassingBody::plain(BodyReader::Off), None);
        this.is_answered = (200..300).contains(&status);
        if !this.is_answered {
            this.kept = None; // the model did not read a refused request
            return 0;
        }
        let Some(protocol) = this.protocol else {
            this.response = this.tables.open_body(&this.tables.errors, headers);
            if this.response.reader.streams() {
                this.facts.streams();
            }
            return 0;
        };
        let rule = this.tables.rule(protocol);
        let refused = rule.map_or(0, |rule| rule.response_fields(headers, &mut this.facts));
        let plan = this.tables.plan(protocol);
        if !matches!(plan.response, WatchedFields::Nothing) {
            this.response = this.tables.open_body(&plan.response, headers);
            if this.response.reader.streams() {
                this.facts.streams();
            }
            if !this.response.reader.is_on() && is_text(headers) {
                (this.unread.response, this.unread.is_compressed) = (true, headers.contains_key(CONTENT_ENCODING));
            }
        }
        refused
    }

    /// Reads the response's trailers, whose values win over those of the head. Those of an error are not read. Returns how many
    /// fields that a rule names were refused.
    pub fn response_trailers(&mut self, trailers: &HeaderMap) -> usize {
        let this = &mut *self.0;
        let rule = this.protocol.and_then(|protocol| this.tables.rule(protocol)).filter(|_| this.is_answered);
        rule.map_or(0, |rule| rule.response_fields(trailers, &mut this.facts))
    }

    /// Reads the next piece of the response's body, which arrived `at_ns` after the request's start.
    pub fn response(&mut self, bytes: &[u8], at_ns: u64) {
        let Inner { response, facts, at_ns: latest, end_frame, .. } = &mut *self.0;
        *latest = at_ns;
        facts.read(Side::Response);
        if !response.feed(bytes, |reader, piece| reader.feed(piece, at_ns, facts)) {
            facts.forget();
        }
        if let Some(frame) = end_frame {
            frame.feed(bytes);
        }
    }

    /// Reads the answer, whose head has arrived, for errors inside it, in addition to whatever else is read: a stream as its
    /// head says. To be called before its first piece.
    pub fn read_stream_errors(&mut self, headers: &HeaderMap) {
        let this = &mut *self.0;
        let content_type = headers.get(http::header::CONTENT_TYPE).map_or(&[][..], http::HeaderValue::as_bytes);
        this.end_frame = EndFrameReader::of(content_type).map(Box::new);
        if !this.response.reader.is_on() && this.end_frame.is_none() {
            this.response = this.tables.open_body(&this.tables.errors, headers);
            if this.response.reader.streams() {
                this.facts.streams();
            }
        }
    }

    /// Reads the answer, whose head has arrived, from its first byte for errors inside it.
    pub fn read_document_errors(&mut self) {
        self.0.response = PassingBody::plain(BodyReader::errors(&self.0.tables.errors));
    }

    /// Whether nothing is read of the answer, so that a glance at it is all that shows an error.
    #[must_use]
    pub fn reads_nothing(&self) -> bool {
        self.0.is_answered && !self.wants_response()
    }

    /// Whether further pieces of the request's body are needed.
    #[must_use]
    pub fn wants_request(&self) -> bool {
        self.0.request.reader.is_on() || self.0.kept.is_some()
    }

    /// Whether further pieces of the response's body are needed; false before its head arrived.
    #[must_use]
    pub fn wants_response(&self) -> bool {
        self.0.response.reader.is_on() || self.0.end_frame.is_some()
    }

    /// Whether the answer declared itself complete, so that nothing follows that a client waits for.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.facts.is_complete() || self.0.end_frame.as_ref().is_some_and(|frame| frame.is_over())
    }

    /// Why bodies were not read, or not to their end: the request's and the response's.
    #[must_use]
    pub fn unread(&self) -> [Option<UnreadBody>; 2] {
        [self.0.request.unread, self.0.response.unread]
    }

    /// Whether the request says how long it may take, and not in microseconds.
    #[must_use]
    pub fn has_malformed_timeout(&self) -> bool {
        self.0.facts.timeout().is_malformed()
    }

    /// Writes the results into the ledger, which already knows the bodies' lengths: work, token timing, server, and reports in
    /// the body. Returns the model's name, if the path, the head or a body names one.
    pub fn close(&mut self, ledger: &mut Ledger) -> Option<&str> {
        let this = &mut *self.0;
        this.unread.undecoded([this.request.unread, this.response.unread]).note(ledger);
        this.facts.read(Side::Request);
        this.request.reader.end(0, &mut this.facts);
        this.facts.read(Side::Response);
        this.response.reader.end(this.at_ns, &mut this.facts);
        this.correct_outcome(ledger);
        let protocol = this.protocol?;
        let plan = this.tables.plan(protocol);
        if let Some(rule) = this.tables.rule(protocol) {
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
            ledger.prompt = keep.prompt(kept, protocol.place(), this.facts.model()).map(Arc::new);
        }
        this.facts.model()
    }
}

#[cfg(test)]
mod tests;
