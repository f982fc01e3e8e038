//! The requests of a warm-up, from a recording or from a list.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::io::BufRead;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING, UPGRADE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::recording::{FileError, FileLimits, JsonLines, RecordingHeader, read_recording};

/// Fields that are written for the connection that a request is sent on.
const OF_CONNECTION: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE];
/// Fields in which requests for the same answer may differ: they are in no key.
const IN_NO_KEY: [HeaderName; 3] = [USER_AGENT, HeaderName::from_static("x-user-agent"), HeaderName::from_static("grpc-timeout")];
/// What recordings write instead of a hidden value, in JSON and in forms.
const HIDDEN: [&[u8]; 2] = [b"\"***\"", b"=***"];

/// The bounds of a file.
#[derive(Clone, Copy, Debug)]
pub struct WarmLimits {
    /// Of its lines, and of all.
    pub file: FileLimits,
    /// How many different requests are sent. Of more, the most frequent ones.
    pub requests: usize,
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WarmRequest {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    pub(crate) http2: bool,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What a file asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarmRequests {
    /// Different ones, the most frequent first.
    pub(crate) list: Vec<WarmRequest>,
    /// How many the file has.
    pub(crate) read: u64,
    /// Those of them that are not sent, for a recording has `***` instead of a value of theirs.
    pub(crate) hidden: u64,
    /// Different ones that are not sent because there are too many.
    pub(crate) beyond: usize,
}

impl WarmRequests {
    /// How many different ones there are to send.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.list.len()
    }
}

/// A line of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
}

/// Reads a recording, or a list: a line of JSON for each request, with `path` and, if it needs them, `method`, `headers` and `body`.
///
/// # Errors
///
/// If it is neither, is broken anywhere, or exceeds a limit.
pub fn read_warm_requests(mut reader: impl BufRead, limits: WarmLimits) -> Result<WarmRequests, FileError> {
    // the first line of a recording names its format within its first bytes
    let is_recording = String::from_utf8_lossy(reader.fill_buf()?).lines().next().is_some_and(|line| {
        serde_json::from_str::<RecordingHeader>(line).is_ok_and(|header| header.format == RecordingHeader::FORMAT)
    });
    let mut counted = CountedRequests::default();
    if is_recording {
        for one in read_recording(reader, limits.file)?.exchanges {
            let (path, body) = (one.path, one.body);
            let hides = |part: &[u8]| HIDDEN.iter().any(|hidden| memchr::memmem::find(part, hidden).is_some());
            let is_hidden = hides(&body) || hides(path.as_str().as_bytes());
            counted.add(WarmRequest { method: one.method, path, http2: one.http2, headers: one.headers, body }, is_hidden);
        }
    } else {
        // whoever writes a list by hand may leave the last line open
        let mut lines = JsonLines::new(reader.chain(&b"\n"[..]), limits.file);
        while let Some(line) = lines.next_value::<RequestLine>()? {
            let request = line.request().map_err(|reason| lines.fault(reason))?;
            counted.add(request, false);
        }
    }
    if counted.read == 0 {
        return Err(FileError::Empty);
    }
    Ok(counted.in_order(limits.requests))
}

impl RequestLine {
    fn request(self) -> Result<WarmRequest, String> {
        let Self { method, path, headers, body } = self;
        let method = method.map_or(Ok(Method::POST), |method| method.parse());
        let method = method.map_err(|_| "method: is no method, as in POST".to_owned())?;
        let path: PathAndQuery = path.parse().map_err(|error| format!("path: {path:?}: {error}"))?;
        if !path.as_str().starts_with('/') {
            return Err(format!("path: {path:?} does not begin with /"));
        }
        let mut fields = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            let field = HeaderName::try_from(&name).map_err(|_| format!("headers: {name:?} is no header's name"))?;
            let value = HeaderValue::try_from(&value).map_err(|_| format!("headers.{name}: {value:?} is no header's value"))?;
            fields.append(field, value);
        }
        let (body, is_json) = body.map_or(Ok((Bytes::new(), false)), |body| body_of(&body))?;
        if is_json && !fields.contains_key(CONTENT_TYPE) {
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(WarmRequest { method, path, http2: false, headers: fields, body })
    }
}

/// The bytes of a body, and whether it is a JSON value: of a text, the text; of another value, the value as it is written there, for
/// a client that writes it otherwise asks another question.
fn body_of(value: &RawValue) -> Result<(Bytes, bool), String> {
    if value.get().starts_with('"') {
        let text: String = serde_json::from_str(value.get()).map_err(|error| format!("body: {error}"))?;
        return Ok((text.into(), false));
    }
    Ok((value.get().to_owned().into(), true))
}

/// What makes two requests of a file the same.
type Identity = (Method, PathAndQuery, Vec<(HeaderName, HeaderValue)>, Bytes);

/// The different requests of a file, and how often each is there.
#[derive(Default)]
struct CountedRequests {
    places: HashMap<Identity, usize>,
    list: Vec<(u64, WarmRequest)>,
    read: u64,
    hidden: u64,
}

impl CountedRequests {
    fn add(&mut self, mut request: WarmRequest, is_hidden: bool) {
        self.read += 1;
        if is_hidden {
            self.hidden += 1;
            return;
        }
        OF_CONNECTION.iter().for_each(|name| drop(request.headers.remove(name)));
        let asks =
            |(name, value): (&HeaderName, &HeaderValue)| (!IN_NO_KEY.contains(name)).then(|| (name.clone(), value.clone()));
        let mut fields: Vec<_> = request.headers.iter().filter_map(asks).collect();
        // values of one name keep their order
        fields.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        match self.places.entry((request.method.clone(), request.path.clone(), fields, request.body.clone())) {
            Entry::Occupied(place) => {
                if let Some((count, _)) = self.list.get_mut(*place.get()) {
                    *count += 1;
                }
            }
            Entry::Vacant(place) => {
                place.insert(self.list.len());
                self.list.push((1, request));
            }
        }
    }

    /// The most frequent first, those of equal frequency as they are in the file.
    fn in_order(mut self, most: usize) -> WarmRequests {
        self.list.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let beyond = self.list.len().saturating_sub(most);
        self.list.truncate(most);
        let list = self.list.into_iter().map(|(_, request)| request).collect();
        WarmRequests { list, read: self.read, hidden: self.hidden, beyond }
    }
}
