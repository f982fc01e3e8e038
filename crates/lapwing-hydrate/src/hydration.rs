//! One rule, ready for requests: what it reads of them, what it asks the store, and what becomes of its answer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Request};
use smallvec::SmallVec;

use crate::asked::{Asked, EntityPart};
use crate::config::{HydrateRule, OnMiss};
use crate::edit::Into;
use crate::entity::EntityValues;
use crate::lookup::{HydrateAnswer, HydrateQuestion, Lookup};
use crate::number::{FeatureNumber, Found, LookupMiss};
use crate::passed::HydratePassed;
use crate::refused::{HydrateRefused, MissingFeature};
use crate::types::FeatureDatatype;
use lapwing_protocol::request_match::RequestMatch;

/// The most numbers that are written into one request.
const MAX_NUMBERS: usize = 1 << 18;
/// How many missing features are named.
const MAX_NAMED: usize = 16;

/// Fields of requests with a digest or a signature of the body, and the one that says where binary tensors begin.
const DIGESTS: [&str; 5] = ["content-digest", "repr-digest", "digest", "content-md5", "signature"];
const BINARY: HeaderName = HeaderName::from_static("inference-header-content-length");

/// A rule, ready for requests.
#[derive(Debug)]
pub struct Hydration {
    pub(crate) matches: RequestMatch,
    parts: Vec<EntityPart>,
    lookup: Lookup,
    features: Vec<Feature>,
    /// How many numbers a row has.
    width: usize,
    into: Into,
    datatype: FeatureDatatype,
    on_miss: OnMiss,
    deadline: Duration,
}

#[derive(Debug)]
struct Feature {
    name: Box<str>,
    width: usize,
    /// As it stands in a row.
    default: Option<String>,
}

/// A request that gets features.
#[derive(Debug)]
pub struct HydratingRequest {
    body: Bytes,
    asked: Asked,
}

/// A body with features in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HydratedBody {
    /// The body.
    pub body: Bytes,
    /// How many different entities were looked up.
    pub entities: usize,
    /// Of how many of them something was missing, and is a default.
    pub defaulted: usize,
}

impl Hydration {
    /// From settings that have been checked; `None` from others.
    #[must_use]
    pub fn new(rule: &HydrateRule) -> Option<Self> {
        let datatype = rule.into.datatype;
        let names: Vec<&str> = rule.entity.iter().map(|part| part.name.as_str()).collect();
        let features = rule.features.iter().map(|feature| Feature {
            name: feature.name.as_str().into(),
            width: feature.width,
            default: feature.default.and_then(|number| {
                let mut json = String::new();
                FeatureNumber::Double(number).write(datatype, &mut json).ok()?;
                Some(vec![json; feature.width].join(","))
            }),
        });
        Some(Self {
            matches: RequestMatch::new(&rule.matches),
            parts: rule.entity.iter().map(EntityPart::new).collect::<Option<_>>()?,
            lookup: Lookup::new(&rule.store, &rule.features, &names)?,
            features: features.collect(),
            width: rule.features.iter().map(|feature| feature.width).sum(),
            into: Into::new(&rule.into)?,
            datatype,
            on_miss: rule.on_miss,
            deadline: rule.deadline.get(),
        })
    }

    /// How long the store may take.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Why a request with this head is not read, if its head says so.
    #[must_use]
    pub fn passes<B>(request: &Request<B>) -> Option<HydratePassed> {
        let headers = request.headers();
        let is_coded = |value: &http::HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
        if headers.get_all(CONTENT_ENCODING).iter().any(is_coded) || DIGESTS.iter().any(|name| headers.contains_key(*name)) {
            Some(HydratePassed::Coded)
        } else if headers.contains_key(BINARY) {
            Some(HydratePassed::Binary)
        } else if is_other_type(headers) {
            Some(HydratePassed::Format)
        } else {
            None
        }
    }

    /// Reads whose features the request with this body needs.
    ///
    /// # Errors
    ///
    /// Why it passes as it came.
    pub fn read(&self, body: Bytes) -> Result<HydratingRequest, HydratePassed> {
        let asked = Asked::read(&body, &self.parts, &self.into)?;
        if asked.rows.len().saturating_mul(self.width) > MAX_NUMBERS {
            return Err(HydratePassed::TooMany);
        }
        Ok(HydratingRequest { body, asked })
    }

    /// What the store is asked.
    #[must_use]
    pub fn question(&self, request: &HydratingRequest) -> HydrateQuestion {
        self.lookup.question(&request.asked.entities)
    }

    /// Writes what the store answered into the body, at `now_s` seconds since 1970.
    ///
    /// # Errors
    ///
    /// If the request is refused: features are missing and have no default, or the answer is none.
    pub fn fill(&self, request: &HydratingRequest, answer: &HydrateAnswer, now_s: i64) -> Result<HydratedBody, HydrateRefused> {
        let entities = &request.asked.entities;
        match self.lookup.read(answer, entities.len(), now_s) {
            Some(found) => self.write(request, &found),
            None => self.without(request, HydrateRefused::Failed("its answer is not what was asked for".to_owned())),
        }
    }

    /// What becomes of a request whose store did not answer, because of `refused`.
    ///
    /// # Errors
    ///
    /// If the request is refused.
    pub fn without(&self, request: &HydratingRequest, refused: HydrateRefused) -> Result<HydratedBody, HydrateRefused> {
        match self.on_miss {
            OnMiss::Fail => Err(refused),
            OnMiss::Default => {
                let none = || self.features.iter().map(|_| Err(LookupMiss::Absent)).collect();
                let found: Vec<Vec<Found>> = request.asked.entities.iter().map(|_| none()).collect();
                self.write(request, &found)
            }
        }
    }

    fn write(&self, request: &HydratingRequest, found: &[Vec<Found>]) -> Result<HydratedBody, HydrateRefused> {
        let Asked { entities, rows, is_one, gaps } = &request.asked;
        let (mut texts, mut missing, mut missed) = (Vec::with_capacity(entities.len()), Vec::new(), 0);
        for (entity, found) in entities.iter().zip(found) {
            let (text, of_entity) = self.row(found);
            missed += usize::from(!of_entity.is_empty());
            missing.extend(of_entity.into_iter().map(|(feature, why)| self.missing(entity, feature, why)));
            missing.truncate(MAX_NAMED);
            texts.push(text);
        }
        if self.on_miss == OnMiss::Fail && missed > 0 {
            return Err(HydrateRefused::Missing { entities: entities.len(), missed, features: missing });
        }
        let rows: Vec<&str> = rows.iter().map(|at| texts[*at].as_str()).collect();
        let body = self.into.apply(&request.body, gaps, &rows, self.width, *is_one);
        Ok(HydratedBody { body, entities: entities.len(), defaulted: missed })
    }

    /// The numbers of one entity as JSON, and which features are missing.
    fn row(&self, found: &[Found]) -> (String, SmallVec<[(usize, LookupMiss); 1]>) {
        let (mut row, mut missing) = (String::new(), SmallVec::new());
        for (at, (feature, found)) in self.features.iter().zip(found).enumerate() {
            if at > 0 {
                row.push(',');
            }
            let begin = row.len();
            if let Err(why) = found.as_ref().map_err(|why| *why).and_then(|numbers| self.add(feature, numbers, &mut row)) {
                row.truncate(begin);
                row.push_str(feature.default.as_deref().unwrap_or("null"));
                missing.push((at, why));
            }
        }
        (row, missing)
    }

    fn add(&self, feature: &Feature, numbers: &[FeatureNumber], row: &mut String) -> Result<(), LookupMiss> {
        if numbers.len() != feature.width {
            return Err(LookupMiss::Width);
        }
        for (at, number) in numbers.iter().enumerate() {
            if at > 0 {
                row.push(',');
            }
            number.write(self.datatype, row)?;
        }
        Ok(())
    }

    fn missing(&self, entity: &EntityValues, feature: usize, why: LookupMiss) -> MissingFeature {
        let named = self.parts.iter().zip(entity).map(|(part, value)| (part.name.to_string(), value.json()));
        MissingFeature { entity: named.collect(), feature: self.features[feature].name.clone(), why }
    }
}

impl HydratingRequest {
    /// How many different entities it names.
    #[must_use]
    pub fn entities(&self) -> usize {
        self.asked.entities.len()
    }
}

/// Whether the head says that the body is no JSON. Where it says nothing, it may be.
fn is_other_type(headers: &HeaderMap) -> bool {
    let Some(named) = headers.get(CONTENT_TYPE) else { return false };
    let named = named.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_json = |ending: &[u8]| named.len() >= ending.len() && named[named.len() - ending.len()..].eq_ignore_ascii_case(ending);
    // curl's own type, with which JSON is sent often
    !is_json(b"/json") && !is_json(b"+json") && !named.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}
