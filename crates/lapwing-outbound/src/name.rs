//! The names under which calls are counted: a fixed table, so that no peer can fill it. What is in no table is `other`.

use std::sync::LazyLock;

/// How many keys a reading command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// It reads none, or it is not known which of its arguments are keys.
    None,
    /// Its first argument.
    One,
    /// Its first two arguments.
    Two,
    /// All its arguments.
    All,
    /// All its arguments but the last.
    AllButLast,
    /// The argument at this place says how many.
    Numbered(usize),
    /// Half of what follows `STREAMS`.
    Streams,
}

/// How a reply shows whether what was asked for is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It does not.
    Unknown,
    /// A null is a miss, anything else a hit.
    Value,
    /// The same of each element; a null in the place of all is one miss.
    Each,
    /// A null, or nothing in it, is a miss.
    Whole,
}

/// Whether a command waits for what others do, so that its time says nothing of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Never,
    Always,
    /// With the argument `BLOCK`.
    IfAsked,
}

/// What is known of the commands of one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRow {
    pub(crate) name: &'static str,
    pub(crate) keys: Keys,
    pub(crate) found: Found,
    pub(crate) waits: Waits,
}

/// The longest name of a command.
pub(crate) const MAX_NAME: usize = 20;

/// Commands that read, by how their keys are counted and what their replies show.
const READS: &[(Keys, Found, &str)] = &[
    (Keys::One, Found::Value, "DUMP GET GETDEL GETEX HGET JSON.GET LINDEX VEMB VGETATTR ZRANK ZREVRANK ZSCORE"),
    (Keys::One, Found::Each, "GEOPOS HGETDEL HGETEX HMGET ZMSCORE"),
    (Keys::All, Found::Each, "MGET"),
    (Keys::AllButLast, Found::Each, "JSON.MGET"),
    (
        Keys::One,
        Found::Whole,
        "HGETALL HKEYS HVALS LRANGE SMEMBERS TS.GET XRANGE XREVRANGE ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX \
         ZREVRANGEBYSCORE",
    ),
    (Keys::All, Found::Whole, "SDIFF SINTER SUNION"),
    (Keys::Numbered(1), Found::Whole, "ZDIFF ZINTER ZUNION"),
    (Keys::Numbered(1), Found::Unknown, "SINTERCARD ZINTERCARD"),
    (Keys::Numbered(2), Found::Unknown, "EVALSHA_RO EVAL_RO FCALL_RO"),
    (Keys::All, Found::Unknown, "EXISTS PFCOUNT TOUCH"),
    (Keys::Two, Found::Unknown, "LCS"),
    (
        Keys::One,
        Found::Unknown,
        "BF.EXISTS BF.MEXISTS BITCOUNT BITFIELD_RO BITPOS CF.EXISTS CMS.QUERY EXPIRETIME GEODIST GEOHASH GEORADIUSBYMEMBER_RO \
         GEORADIUS_RO GEOSEARCH GETBIT GETRANGE HEXISTS HEXPIRETIME HLEN HPEXPIRETIME HPTTL HRANDFIELD HSCAN HSTRLEN HTTL \
         JSON.STRLEN JSON.TYPE LLEN LPOS PEXPIRETIME PTTL SCARD SISMEMBER SMISMEMBER SORT_RO SRANDMEMBER SSCAN STRLEN SUBSTR \
         TOPK.QUERY TS.RANGE TS.REVRANGE TTL TYPE VSIM XLEN XPENDING ZCARD ZCOUNT ZLEXCOUNT ZRANDMEMBER ZSCAN",
    ),
];

/// Commands that read no key, or of which it is not known which. Those of later versions of Redis and of modules are among them.
const OTHERS: &str = "ACL APPEND ASKING AUTH BF.ADD BGREWRITEAOF BGSAVE BITFIELD BITOP CF.ADD CLIENT CLUSTER COMMAND CONFIG COPY \
    DBSIZE DEBUG DECR DECRBY DEL DISCARD ECHO EVAL EVALSHA EXEC EXPIRE EXPIREAT FAILOVER FCALL FLUSHALL FLUSHDB FT.AGGREGATE \
    FT.INFO FT.SEARCH FUNCTION GEOADD GEORADIUS GEORADIUSBYMEMBER GEOSEARCHSTORE GETSET HDEL HELLO HEXPIRE HEXPIREAT HINCRBY \
    HINCRBYFLOAT HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX INCR INCRBY INCRBYFLOAT INFO JSON.DEL JSON.MERGE \
    JSON.MSET JSON.NUMINCRBY JSON.SET KEYS LASTSAVE LATENCY LINSERT LMOVE LMPOP LOLWUT LPOP LPUSH LPUSHX LREM LSET LTRIM MEMORY \
    MIGRATE MODULE MONITOR MOVE MSET MSETNX MULTI OBJECT PERSIST PEXPIRE PEXPIREAT PFADD PFDEBUG PFMERGE PFSELFTEST PING PSETEX \
    PSUBSCRIBE PSYNC PUBLISH PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY READWRITE RENAME RENAMENX REPLCONF REPLICAOF RESET \
    RESTORE RESTORE-ASKING ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN SCRIPT SDIFFSTORE SELECT SET SETBIT SETEX SETNX \
    SETRANGE SHUTDOWN SINTERSTORE SLAVEOF SLOWLOG SMOVE SORT SPOP SPUBLISH SREM SSUBSCRIBE SUBSCRIBE SUNIONSTORE SUNSUBSCRIBE \
    SWAPDB SYNC TIME TS.ADD TS.MADD TS.MGET TS.MRANGE UNLINK UNSUBSCRIBE UNWATCH VADD WATCH XACK XACKDEL XADD XAUTOCLAIM XCLAIM \
    XDEL XDELEX XGROUP XINFO XSETID XTRIM ZADD ZDIFFSTORE ZINCRBY ZINTERSTORE ZMPOP ZPOPMAX ZPOPMIN ZRANGESTORE ZREM \
    ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZUNIONSTORE";

/// Commands that wait for other clients, or for replicas.
const WAITING: &str = "BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN WAIT WAITAOF";

/// What calls over HTTP are counted as.
const HTTP: &str = "CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE get-online-features grpc";

static ROWS: LazyLock<(Vec<NameRow>, usize)> = LazyLock::new(|| {
    let row = |keys, found, waits| move |name| NameRow { name, keys, found, waits };
    let unknown = |waits| row(Keys::None, Found::Unknown, waits);
    let mut rows: Vec<_> =
        READS.iter().flat_map(|(keys, found, names)| names.split_whitespace().map(row(*keys, *found, Waits::Never))).collect();
    rows.extend(OTHERS.split_whitespace().map(unknown(Waits::Never)));
    rows.extend(WAITING.split_whitespace().map(unknown(Waits::Always)));
    rows.push(row(Keys::Streams, Found::Whole, Waits::IfAsked)("XREAD"));
    rows.push(unknown(Waits::IfAsked)("XREADGROUP"));
    rows.sort_unstable_by_key(|row| row.name);
    let commands = rows.len();
    rows.extend(HTTP.split_whitespace().map(unknown(Waits::Never)));
    rows.push(unknown(Waits::Never)("other"));
    (rows, commands)
});

/// The name of a call: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallName(u16);

impl CallName {
    /// How many names there are.
    pub(crate) fn count() -> usize {
        ROWS.0.len()
    }

    /// What is in no table.
    pub(crate) fn other() -> Self {
        Self((ROWS.0.len() - 1) as u16) // a few hundred
    }

    /// All names, in the table's order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..ROWS.0.len()).map(|at| Self(at as u16))
    }

    /// That of a command of Redis, in any case.
    pub(crate) fn of_command(name: &[u8]) -> Self {
        let (rows, commands) = &*ROWS;
        let mut upper = [0; MAX_NAME];
        let Some(upper) = upper.get_mut(..name.len()) else { return Self::other() };
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        let found = rows[..*commands].binary_search_by(|row| row.name.as_bytes().cmp(upper));
        found.map_or_else(|_| Self::other(), |at| Self(at as u16))
    }

    /// That of a call over HTTP: its method, or what is known of its path.
    pub(crate) fn of_http(name: &str) -> Self {
        let (rows, commands) = &*ROWS;
        let found = rows[*commands..].iter().position(|row| row.name == name);
        found.map_or_else(Self::other, |at| Self((commands + at) as u16))
    }

    /// What is known of it.
    pub(crate) fn row(self) -> NameRow {
        ROWS.0[self.index()]
    }

    /// The name on every surface.
    #[must_use]
    pub fn text(self) -> &'static str {
        self.row().name
    }

    /// Its place in arrays by name.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_what_is_unknown_is_other() {
        assert_eq!(CallName::of_command(b"hMgEt").text(), "HMGET");
        assert_eq!(CallName::of_command(b"hMgEt").row().found, Found::Each);
        assert_eq!(CallName::of_command(b"XREAD").row().waits, Waits::IfAsked);
        for unknown in [&b""[..], b"GE", b"GETT", b"get-online-features", b"other", &[b'A'; 400], b"\xff\x00"] {
            assert_eq!(CallName::of_command(unknown), CallName::other());
        }
        assert_eq!(CallName::of_http("GET").text(), "GET");
        assert_ne!(CallName::of_http("GET"), CallName::of_command(b"GET"), "one is a method, the other a command");
        assert_eq!(CallName::of_http("BREW"), CallName::other());
    }

    #[test]
    fn each_name_stands_once_and_fits() {
        let (rows, commands) = &*ROWS;
        assert!(rows[..*commands].is_sorted_by(|a, b| a.name < b.name), "each once");
        assert!(rows.iter().all(|row| row.name.len() <= MAX_NAME));
        assert_eq!(CallName::all().filter(|name| name.text() == "other").count(), 1);
    }
}
