//! What a connection's replies depend on beside the command: its protocol, its database, and as whom it is known.

use crate::resp::number;

/// What the replies of a connection depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RespContext {
    is_resp3: bool,
    database: u64,
    /// The hash of the credentials that it presented; `None` if it presented none.
    user: Option<[u8; 32]>,
}

/// What a command changes of it, if its reply is no error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContextChange {
    is_resp3: Option<bool>,
    database: Option<u64>,
    user: Option<[u8; 32]>,
}

impl RespContext {
    /// Applies a change.
    pub(crate) fn apply(&mut self, change: ContextChange) {
        self.is_resp3 = change.is_resp3.unwrap_or(self.is_resp3);
        self.database = change.database.unwrap_or(self.database);
        self.user = change.user.or(self.user);
    }

    /// Begins a key with it.
    pub(crate) fn write(&self, key: &mut Vec<u8>) {
        key.push(u8::from(self.is_resp3));
        key.extend_from_slice(&self.database.to_le_bytes());
        key.push(u8::from(self.user.is_some()));
        key.extend_from_slice(&self.user.unwrap_or_default());
    }
}

/// The hash of credentials, which are not kept themselves.
fn hash_of(credentials: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for one in credentials {
        hasher.update(&(one.len() as u64).to_le_bytes());
        hasher.update(one);
    }
    *hasher.finalize().as_bytes()
}

impl ContextChange {
    /// What `SELECT` changes; `None` if that is not understood.
    pub(crate) fn of_select(arguments: &[&[u8]]) -> Option<Self> {
        let [database] = arguments else { return None };
        let database = number(database).and_then(|database| u64::try_from(database).ok())?;
        Some(Self { database: Some(database), ..Self::default() })
    }

    /// What `AUTH` changes.
    pub(crate) fn of_auth(arguments: &[&[u8]]) -> Self {
        Self { user: Some(hash_of(arguments)), ..Self::default() }
    }

    /// What `HELLO` changes; `None` if that is not understood.
    pub(crate) fn of_hello(arguments: &[&[u8]]) -> Option<Self> {
        let mut change = Self::default();
        let Some((version, mut rest)) = arguments.split_first() else { return Some(change) };
        change.is_resp3 = Some(match *version {
            b"2" => false,
            b"3" => true,
            _ => return None,
        });
        while let Some((option, after)) = rest.split_first() {
            rest = match after {
                [user, password, after @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    change.user = Some(hash_of(&[user, password]));
                    after
                }
                [_, after @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => after,
                _ => return None,
            };
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(changes: &[ContextChange]) -> Vec<u8> {
        let mut context = RespContext::default();
        changes.iter().for_each(|change| context.apply(*change));
        let mut key = Vec::new();
        context.write(&mut key);
        key
    }

    #[test]
    fn each_difference_makes_another_key() {
        let hello = |words: &str| ContextChange::of_hello(&words.split_whitespace().map(str::as_bytes).collect::<Vec<_>>());
        let select = ContextChange::of_select(&[b"1"]).unwrap();
        let auth = ContextChange::of_auth(&[b"u", b"p"]);
        let keys = [
            key(&[]),
            key(&[select]),
            key(&[auth]),
            key(&[ContextChange::of_auth(&[b"u", b"q"])]),
            key(&[ContextChange::of_auth(&[b"up", b""])]),
            key(&[hello("3").unwrap()]),
            key(&[hello("3").unwrap(), auth]),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(one) && one.len() == keys[0].len());
        }
        assert_eq!(key(&[hello("3 AUTH u p SETNAME x").unwrap()]), key(&[auth, hello("3").unwrap()]));
        assert_eq!(key(&[hello("").unwrap(), select, ContextChange::of_select(&[b"0"]).unwrap()]), key(&[]));
        for unknown in ["4", "x", "3 NEW 1", "3 AUTH u"] {
            assert_eq!(hello(unknown), None, "{unknown}");
        }
        assert_eq!(ContextChange::of_select(&[b"x"]), None);
    }
}
