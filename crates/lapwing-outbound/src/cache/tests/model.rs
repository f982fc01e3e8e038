//! A store that is played: a few commands of Redis, with its transactions and databases.

use std::collections::BTreeMap;

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
enum Held {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// The store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelStore {
    keys: BTreeMap<(u64, Vec<u8>), Held>,
}

impl ModelStore {
    /// Whether a key of the first database is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(&(0, key.as_bytes().to_vec()))
    }
}

/// One connection, as the store sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    received: Vec<u8>,
    database: u64,
    is_resp3: bool,
    queued: Option<Vec<Vec<Vec<u8>>>>,
}

const WRONG_TYPE: &[u8] = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

fn integer(number: usize) -> Vec<u8> {
    format!(":{number}\r\n").into()
}

impl Session {
    /// Takes bytes; the replies to the commands that they complete.
    pub(crate) fn receive(&mut self, bytes: &[u8], store: &mut ModelStore) -> Vec<u8> {
        self.received.extend_from_slice(bytes);
        let mut replies = Vec::new();
        while let Some(command) = self.next() {
            replies.extend(self.command(command, store));
        }
        replies
    }

    /// Takes bytes without answering any.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Answers one command, if one has come.
    pub(crate) fn step(&mut self, store: &mut ModelStore) -> Vec<u8> {
        self.next().map_or_else(Vec::new, |command| self.command(command, store))
    }

    fn next(&mut self) -> Option<Vec<Vec<u8>>> {
        let text = &self.received;
        let line = |from: usize| text[from..].iter().position(|byte| *byte == b'\n').map(|end| from + end + 1);
        let number = |from: usize, to: usize| std::str::from_utf8(&text[from + 1..to - 2]).unwrap().parse::<usize>().unwrap();
        let mut at = line(0)?;
        let count = number(0, at);
        let mut words = Vec::new();
        for _ in 0..count {
            let end = line(at)?;
            let length = number(at, end);
            words.push(text.get(end..end + length)?.to_vec());
            at = end + length + 2;
        }
        if text.len() < at {
            return None;
        }
        self.received.drain(..at);
        Some(words)
    }

    fn command(&mut self, words: Vec<Vec<u8>>, store: &mut ModelStore) -> Vec<u8> {
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        match (&mut self.queued, name.as_str()) {
            (None, "MULTI") => {
                self.queued = Some(Vec::new());
                b"+OK\r\n".to_vec()
            }
            (None, "EXEC" | "DISCARD") => b"-ERR without MULTI\r\n".to_vec(),
            (Some(_), "DISCARD") => {
                self.queued = None;
                b"+OK\r\n".to_vec()
            }
            (Some(queued), "EXEC") => {
                let commands = std::mem::take(queued);
                self.queued = None;
                let replies = commands.iter().map(|words| self.run(words, store)).collect::<Vec<_>>();
                [format!("*{}\r\n", replies.len()).into_bytes(), replies.concat()].concat()
            }
            (Some(queued), _) => {
                queued.push(words);
                b"+QUEUED\r\n".to_vec()
            }
            (None, _) => self.run(&words, store),
        }
    }

    fn null(&self) -> Vec<u8> {
        if self.is_resp3 { b"_\r\n".to_vec() } else { b"$-1\r\n".to_vec() }
    }

    fn run(&mut self, words: &[Vec<u8>], store: &mut ModelStore) -> Vec<u8> {
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        let place = |key: &[u8]| (self.database, key.to_vec());
        let field =
            |hash: &BTreeMap<Vec<u8>, Vec<u8>>, field: &[u8]| hash.get(field).map_or_else(|| self.null(), |text| bulk(text));
        let arguments: Vec<&[u8]> = words[1..].iter().map(Vec::as_slice).collect();
        match (name.as_str(), &arguments[..]) {
            ("GET", [key]) => match store.keys.get(&place(key)) {
                Some(Held::Text(text)) => bulk(text),
                Some(Held::Hash(_)) => WRONG_TYPE.to_vec(),
                None => self.null(),
            },
            ("MGET", keys) => {
                let value = |key: &&[u8]| match store.keys.get(&place(key)) {
                    Some(Held::Text(text)) => bulk(text),
                    _ => self.null(),
                };
                [format!("*{}\r\n", keys.len()).into_bytes(), keys.iter().flat_map(value).collect()].concat()
            }
            ("HGET", [key, name]) => match store.keys.get(&place(key)) {
                Some(Held::Hash(hash)) => field(hash, name),
                Some(Held::Text(_)) => WRONG_TYPE.to_vec(),
                None => self.null(),
            },
            ("HMGET", [key, names @ ..]) => match store.keys.get(&place(key)) {
                Some(Held::Text(_)) => WRONG_TYPE.to_vec(),
                held => {
                    let none = BTreeMap::new();
                    let hash = if let Some(Held::Hash(hash)) = held { hash } else { &none };
                    [format!("*{}\r\n", names.len()).into_bytes(), names.iter().flat_map(|name| field(hash, name)).collect()]
                        .concat()
                }
            },
            ("HGETALL", [key]) => match store.keys.get(&place(key)) {
                Some(Held::Text(_)) => WRONG_TYPE.to_vec(),
                held => {
                    let none = BTreeMap::new();
                    let hash = if let Some(Held::Hash(hash)) = held { hash } else { &none };
                    let begin = if self.is_resp3 { format!("%{}\r\n", hash.len()) } else { format!("*{}\r\n", 2 * hash.len()) };
                    [begin.into_bytes(), hash.iter().flat_map(|(name, text)| [bulk(name), bulk(text)].concat()).collect()]
                        .concat()
                }
            },
            ("EXISTS", keys) => integer(keys.iter().filter(|key| store.keys.contains_key(&place(key))).count()),
            _ => self.change(&name, &arguments, store),
        }
    }

    /// A command that changes something, or is unknown.
    fn change(&mut self, name: &str, arguments: &[&[u8]], store: &mut ModelStore) -> Vec<u8> {
        let database = self.database;
        let place = |key: &[u8]| (database, key.to_vec());
        match (name, arguments) {
            ("SET", [key, text, ..]) => {
                store.keys.insert(place(key), Held::Text(text.to_vec()));
                b"+OK\r\n".to_vec()
            }
            ("MSET", pairs) => {
                for pair in pairs.chunks(2) {
                    store.keys.insert(place(pair[0]), Held::Text(pair[1].to_vec()));
                }
                b"+OK\r\n".to_vec()
            }
            ("HSET", [key, name, text]) => match store.keys.entry(place(key)).or_insert_with(|| Held::Hash(BTreeMap::new())) {
                Held::Text(_) => WRONG_TYPE.to_vec(),
                Held::Hash(hash) => integer(usize::from(hash.insert(name.to_vec(), text.to_vec()).is_none())),
            },
            ("DEL", keys) => integer(keys.iter().filter(|key| store.keys.remove(&place(key)).is_some()).count()),
            ("RENAME", [from, to]) => match store.keys.remove(&place(from)) {
                None => b"-ERR no such key\r\n".to_vec(),
                Some(held) => {
                    store.keys.insert(place(to), held);
                    b"+OK\r\n".to_vec()
                }
            },
            ("FLUSHALL", []) => {
                store.keys.clear();
                b"+OK\r\n".to_vec()
            }
            // a script that sets a key
            ("EVAL", [_, key, text]) => {
                store.keys.insert(place(key), Held::Text(text.to_vec()));
                b"+OK\r\n".to_vec()
            }
            ("SELECT", [database]) => match std::str::from_utf8(database).ok().and_then(|database| database.parse().ok()) {
                Some(database) if database < 16 => {
                    self.database = database;
                    b"+OK\r\n".to_vec()
                }
                _ => b"-ERR DB index is out of range\r\n".to_vec(),
            },
            ("HELLO", [version]) => {
                self.is_resp3 = *version == b"3";
                if self.is_resp3 { b"%1\r\n+proto\r\n:3\r\n".to_vec() } else { b"*2\r\n+proto\r\n:2\r\n".to_vec() }
            }
            ("WATCH" | "UNWATCH", _) => b"+OK\r\n".to_vec(),
            ("PING", []) => b"+PONG\r\n".to_vec(),
            _ => b"-ERR unknown command or wrong number of arguments\r\n".to_vec(),
        }
    }
}
