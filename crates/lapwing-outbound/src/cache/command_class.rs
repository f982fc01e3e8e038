//! What a command does to keys, as far as that is known: which are answered from memory, which forget what is kept, and which change
//! the connection. What is not known may change everything.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::name::MAX_NAME;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandClass {
    /// It reads keys only, and may be answered from memory.
    Read(ReadShape),
    /// It changes no key, and nothing of the connection that matters.
    Harmless,
    /// It may change these keys, and no others.
    Writes(WrittenKeys),
    /// It may change any key.
    Unknown,
    Select,
    Auth,
    Hello,
    Multi,
    /// The end of a transaction, either way.
    EndOfTransaction,
    Watch,
    Unwatch,
    /// From here on, replies are not one for each command, or depend on what is not known here.
    Leaves,
}

/// What of a reading command and its reply belongs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadShape {
    /// `GET key`
    Value,
    /// `MGET key…`: an element each, as `GET` has it.
    Values,
    /// `HGET key field`
    Field,
    /// `HMGET key field…`: an element each, as `HGET` has it.
    Fields,
    /// `NAME key …`: the whole reply, to exactly this.
    Whole,
}

/// Which arguments are keys that a command may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenKeys {
    First,
    Second,
    FirstTwo,
    All,
    AllButLast,
    /// The first, the third, and so on.
    EveryOther,
}

const WHOLE: &str = "EXISTS GETRANGE HEXISTS HGETALL HKEYS HLEN HSTRLEN HVALS JSON.GET LINDEX LLEN LRANGE SCARD SISMEMBER SMEMBERS \
    SMISMEMBER STRLEN ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYSCORE ZREVRANK ZSCORE";

const HARMLESS: &str = "BF.EXISTS BF.MEXISTS BGREWRITEAOF BGSAVE BITCOUNT BITFIELD_RO BITPOS CF.EXISTS CMS.QUERY COMMAND DBSIZE DUMP \
    ECHO EVALSHA_RO EVAL_RO EXPIRETIME FCALL_RO FT.AGGREGATE FT.INFO FT.SEARCH GEODIST GEOHASH GEOPOS GEORADIUSBYMEMBER_RO \
    GEORADIUS_RO GEOSEARCH GETBIT HEXPIRETIME HPEXPIRETIME HPTTL HRANDFIELD HSCAN HTTL INFO JSON.MGET JSON.STRLEN JSON.TYPE KEYS \
    LASTSAVE LATENCY LCS LOLWUT LPOS MEMORY OBJECT PEXPIRETIME PING PTTL PUBLISH PUBSUB QUIT RANDOMKEY REPLCONF ROLE SAVE SCAN \
    SDIFF SINTER SINTERCARD SLOWLOG SORT_RO SPUBLISH SRANDMEMBER SSCAN SUBSTR SUNION TIME TOPK.QUERY TOUCH TS.GET TS.MGET TS.MRANGE \
    TS.RANGE TS.REVRANGE TTL TYPE VEMB VGETATTR VSIM WAIT WAITAOF XACK XINFO XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE ZDIFF ZINTER \
    ZINTERCARD ZLEXCOUNT ZRANDMEMBER ZRANGEBYLEX ZREVRANGEBYLEX ZSCAN ZUNION";

const WRITES: &[(WrittenKeys, &str)] = &[
    (
        WrittenKeys::First,
        "APPEND BF.ADD BITFIELD CF.ADD DECR DECRBY EXPIRE EXPIREAT GEOADD GEOSEARCHSTORE GETDEL GETEX GETSET HDEL HEXPIRE HEXPIREAT \
         HGETDEL HGETEX HINCRBY HINCRBYFLOAT HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX INCR INCRBY INCRBYFLOAT JSON.DEL \
         JSON.MERGE JSON.NUMINCRBY JSON.SET LINSERT LPOP LPUSH LPUSHX LREM LSET LTRIM MOVE PERSIST PEXPIRE PEXPIREAT PFADD PSETEX RESTORE \
         RPOP RPUSH RPUSHX SADD SET SETBIT SETEX SETNX SETRANGE SPOP SREM TS.ADD VADD XADD XDEL XTRIM ZADD ZDIFFSTORE ZINCRBY ZINTERSTORE \
         ZPOPMAX ZPOPMIN ZRANGESTORE ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZUNIONSTORE",
    ),
    (WrittenKeys::Second, "BITOP XGROUP"),
    (WrittenKeys::FirstTwo, "BLMOVE BRPOPLPUSH COPY LMOVE RENAME RENAMENX RPOPLPUSH SMOVE"),
    (WrittenKeys::All, "DEL PFCOUNT PFMERGE SDIFFSTORE SINTERSTORE SUNIONSTORE UNLINK"),
    (WrittenKeys::AllButLast, "BLPOP BRPOP BZPOPMAX BZPOPMIN"),
    (WrittenKeys::EveryOther, "MSET MSETNX"),
];

const LEAVES: &str = "ASKING MONITOR PSUBSCRIBE PSYNC PUNSUBSCRIBE READONLY READWRITE RESET SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC \
    UNSUBSCRIBE";

static CLASSES: LazyLock<FxHashMap<&'static str, CommandClass>> = LazyLock::new(|| {
    let all = |names: &'static str, class| names.split_whitespace().map(move |name| (name, class));
    let mut classes: FxHashMap<_, _> = all(WHOLE, CommandClass::Read(ReadShape::Whole)).collect();
    classes.extend(all(HARMLESS, CommandClass::Harmless));
    classes.extend(all(LEAVES, CommandClass::Leaves));
    WRITES.iter().for_each(|(keys, names)| classes.extend(all(names, CommandClass::Writes(*keys))));
    classes.extend([
        ("GET", CommandClass::Read(ReadShape::Value)),
        ("MGET", CommandClass::Read(ReadShape::Values)),
        ("HGET", CommandClass::Read(ReadShape::Field)),
        ("HMGET", CommandClass::Read(ReadShape::Fields)),
        ("SELECT", CommandClass::Select),
        ("AUTH", CommandClass::Auth),
        ("HELLO", CommandClass::Hello),
        ("MULTI", CommandClass::Multi),
        ("EXEC", CommandClass::EndOfTransaction),
        ("DISCARD", CommandClass::EndOfTransaction),
        ("WATCH", CommandClass::Watch),
        ("UNWATCH", CommandClass::Unwatch),
    ]);
    classes
});

/// What `CLIENT`, `CONFIG`, `CLUSTER` and `ACL` change depends on the word after them.
fn class_of_container(name: &str, words: &[&[u8]]) -> Option<CommandClass> {
    let is = |names: &str| {
        words.get(1).is_some_and(|word| names.split_whitespace().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
    };
    let class = match name {
        "CLIENT" if is("CACHING REPLY TRACKING") => CommandClass::Leaves,
        "CLIENT" => CommandClass::Harmless,
        "CONFIG" if is("GET") => CommandClass::Harmless,
        "ACL" if is("WHOAMI CAT LIST USERS GETUSER") => CommandClass::Harmless,
        "CLUSTER" if is("COUNTKEYSINSLOT INFO KEYSLOT LINKS MYID NODES SHARDS SLOTS") => CommandClass::Harmless,
        _ => return None,
    };
    Some(class)
}

impl CommandClass {
    /// That of a command with these words.
    pub(crate) fn of(words: &[&[u8]]) -> Self {
        match Self::of_beginning(words) {
            // the store answers with an error
            Self::Read(shape) if !shape.fits(words) => Self::Harmless,
            class => class,
        }
    }

    /// That of a command that begins with these words.
    pub(crate) fn of_beginning(words: &[&[u8]]) -> Self {
        let mut upper = [0; MAX_NAME];
        let Some(name) = words.first().and_then(|name| upper.get_mut(..name.len()).map(|upper| (name, upper))) else {
            return Self::Unknown;
        };
        let (name, upper) = name;
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        let Ok(name) = std::str::from_utf8(upper) else { return Self::Unknown };
        CLASSES.get(name).copied().or_else(|| class_of_container(name, words)).unwrap_or(Self::Unknown)
    }
}

impl ReadShape {
    /// Whether a command of this shape has so many arguments. Of several keys, `EXISTS` only counts.
    fn fits(self, words: &[&[u8]]) -> bool {
        let arguments = words.len().saturating_sub(1);
        match self {
            Self::Value => arguments == 1,
            Self::Field => arguments == 2,
            Self::Fields => arguments >= 2,
            Self::Whole if words.first().is_some_and(|name| name.eq_ignore_ascii_case(b"EXISTS")) => arguments == 1,
            Self::Values | Self::Whole => arguments >= 1,
        }
    }
}

impl WrittenKeys {
    /// Those of a command with these arguments, which stand after its name.
    pub(crate) fn of<'w>(self, arguments: &'w [&'w [u8]]) -> impl Iterator<Item = &'w [u8]> {
        let (from, to, step) = match self {
            Self::First => (0, 1, 1),
            Self::Second => (1, 2, 1),
            Self::FirstTwo => (0, 2, 1),
            Self::All => (0, usize::MAX, 1),
            Self::AllButLast => (0, arguments.len().saturating_sub(1), 1),
            Self::EveryOther => (0, usize::MAX, 2),
        };
        let to = to.min(arguments.len());
        arguments[from.min(to)..to].iter().step_by(step).copied()
    }

    /// Whether the first so many arguments have all of them.
    pub(crate) const fn are_among(self, arguments: usize) -> bool {
        match self {
            Self::First => arguments >= 1,
            Self::Second | Self::FirstTwo => arguments >= 2,
            Self::All | Self::AllButLast | Self::EveryOther => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(command: &str) -> CommandClass {
        CommandClass::of(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    #[test]
    fn commands_have_their_class_in_any_case() {
        for (command, expected) in [
            ("get a", CommandClass::Read(ReadShape::Value)),
            ("GET", CommandClass::Harmless),
            ("HMGET h f g", CommandClass::Read(ReadShape::Fields)),
            ("HMGET h", CommandClass::Harmless),
            ("EXISTS a", CommandClass::Read(ReadShape::Whole)),
            ("EXISTS a b", CommandClass::Harmless),
            ("GETEX a PERSIST", CommandClass::Writes(WrittenKeys::First)),
            ("client setname a", CommandClass::Harmless),
            ("CLIENT tracking on", CommandClass::Leaves),
            ("CONFIG SET maxmemory 1", CommandClass::Unknown),
            ("EVAL s 0", CommandClass::Unknown),
            ("FLUSHALL", CommandClass::Unknown),
            ("SORT a STORE b", CommandClass::Unknown),
            ("NEW.COMMAND a", CommandClass::Unknown),
            ("", CommandClass::Unknown),
            ("A-COMMAND-WITH-A-VERY-LONG-NAME a", CommandClass::Unknown),
        ] {
            assert_eq!(class(command), expected, "{command}");
        }
        assert_eq!(CommandClass::of(&[]), CommandClass::Unknown);
    }

    #[test]
    fn each_command_has_one_class() {
        let writes = WRITES.iter().flat_map(|(_, names)| names.split_whitespace());
        let names: Vec<_> = [WHOLE, HARMLESS, LEAVES].iter().flat_map(|names| names.split_whitespace()).chain(writes).collect();
        // those of the table that are not in the lists
        assert_eq!(names.len() + 12, CLASSES.len());
    }

    #[test]
    fn the_written_keys_are_where_the_command_has_them() {
        let words: Vec<&[u8]> = vec![b"a", b"b", b"c", b"d"];
        for (keys, expected) in [
            (WrittenKeys::First, &[&b"a"[..]][..]),
            (WrittenKeys::Second, &[b"b"]),
            (WrittenKeys::FirstTwo, &[b"a", b"b"]),
            (WrittenKeys::All, &[b"a", b"b", b"c", b"d"]),
            (WrittenKeys::AllButLast, &[b"a", b"b", b"c"]),
            (WrittenKeys::EveryOther, &[b"a", b"c"]),
        ] {
            assert_eq!(keys.of(&words).collect::<Vec<_>>(), expected, "{keys:?}");
            assert_eq!(keys.of(&[]).count(), 0);
        }
    }
}
