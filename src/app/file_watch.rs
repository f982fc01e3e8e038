//! Sees when files have another content.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::MAX_RELOADED_BYTES;
use lapwing_ledger::Stamp;

/// What was seen of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// One cannot be read.
    Absent,
    /// One is empty: somebody is writing it.
    Empty,
    /// One is larger than what is read while requests are served.
    TooLarge,
    /// A hash of what they hold.
    Holds(u64),
}

/// Sees when files have another content. It follows links, so that the mounted files of a ConfigMap or Secret are seen.
#[derive(Debug)]
pub(crate) struct FileWatch {
    files: Vec<PathBuf>,
    hasher: RandomState,
    seen: Content,
    /// Another content, which counts once it is the same at the next look: who writes it may not be done.
    arriving: Option<Content>,
    looked: Stamp,
}

impl FileWatch {
    /// Sees what changes from now on: to be made before the files are read. A pipe, which can be read once, is not looked at.
    pub(crate) fn new(mut files: Vec<PathBuf>) -> Self {
        files.retain(|file| std::fs::metadata(file).is_ok_and(|found| found.is_file()));
        let mut watch = Self { files, hasher: RandomState::new(), seen: Content::Absent, arriving: None, looked: Stamp::now() };
        watch.begin();
        watch
    }

    /// Whether there is nothing to look at.
    pub(crate) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What is looked at.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.files
    }

    /// Takes what is there for seen.
    pub(crate) fn begin(&mut self) {
        (self.seen, self.arriving) = (self.content(), None);
    }

    /// Looks if the last look is `interval` ago. Whether another content has arrived.
    pub(crate) fn has_changed(&mut self, interval: Duration) -> bool {
        if self.arriving.is_none() && u128::from(self.looked.elapsed()) < interval.as_nanos() {
            return false;
        }
        self.looked = Stamp::now();
        let content = self.content();
        let is_new = content != self.seen && content != Content::Empty;
        let is_whole = is_new && self.arriving == Some(content);
        self.arriving = is_new.then_some(content);
        is_whole
    }

    fn content(&self) -> Content {
        let mut all = Vec::new();
        for file in &self.files {
            match std::fs::metadata(file) {
                Ok(found) if found.len() > MAX_RELOADED_BYTES => return Content::TooLarge,
                Ok(found) if found.is_file() && found.len() > 0 => {}
                Ok(_) => return Content::Empty,
                Err(_) => return Content::Absent,
            }
            match std::fs::read(file) {
                Ok(bytes) => all.push(self.hasher.hash_one(bytes)),
                Err(_) => return Content::Absent,
            }
        }
        Content::Holds(self.hasher.hash_one(all))
    }
}
