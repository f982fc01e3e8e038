//! Round trips, and the reasons for refused values.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

fn returns<T>(value: &T)
where
    T: FromStr<Err = Invalid> + Display + Debug + PartialEq + Serialize + DeserializeOwned,
{
    let text = value.to_string();
    assert_eq!(text.parse::<T>().as_ref(), Ok(value), "{text}");
    let json = serde_json::to_value(value).unwrap();
    assert_eq!(json, text);
    assert_eq!(&serde_json::from_value::<T>(json).unwrap(), value);
}

fn never_panics<T: FromStr<Err = Invalid> + Display + Debug + PartialEq + Serialize + DeserializeOwned>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => returns(&value),
        Err(Invalid { reason, .. }) => assert!(!reason.is_empty()),
    }
}

proptest! {
    #[test]
    fn any_text_is_a_value_or_a_reason(text in r"(\PC{0,24}|-?[0-9.]{0,12} ?[a-zA-Zµ%]{0,4}[0-9.]{0,5}[a-z]{0,3}|(http|grpc|h2c|redis|unix)://?[a-z0-9.:@/?\[\]-]{0,20})") {
        never_panics::<Period>(&text);
        never_panics::<Size>(&text);
        never_panics::<Share>(&text);
        never_panics::<Bind>(&text);
        never_panics::<Upstream>(&text);
        never_panics::<DownstreamAddress>(&text);
        never_panics::<RedisAddress>(&text);
        never_panics::<RedisDeadline>(&text);
        never_panics::<Collector>(&text);
        never_panics::<Switch<Size>>(&text);
        never_panics::<Switch<Bind>>(&text);
    }

    #[test]
    fn every_value_survives_its_text(n in any::<u64>(), zeros in 0_u32..12, share in 0.0_f64..=1.0, ip in any::<std::net::IpAddr>(), port in any::<u16>()) {
        for n in [n, n % 10_u64.pow(zeros) , (n % 1000) * 10_u64.pow(zeros), (n % 1000) << (zeros * 4)] {
            returns(&Period(Duration::from_nanos(n)));
            returns(&Size(n));
            returns(&Switch::On(Size(n)));
        }
        returns(&share.to_string().parse::<Share>().unwrap());
        returns(&format!("{}%", n % 101).parse::<Share>().unwrap());
        returns(&Bind((ip, port).into()));
    }
}

#[test]
fn canonical_text_is_what_people_write() {
    for (text, canonical) in [
        ("1m30s", "90s"),
        ("250us", "250us"),
        ("1500ms", "1500ms"),
        ("1.5h", "90m"),
        ("3600s", "1h"),
        ("0ms", "0s"),
        ("2 µs", "2us"),
    ] {
        assert_eq!(text.parse::<Period>().unwrap().to_string(), canonical);
    }
    for (text, canonical) in [
        ("65536", "64KiB"),
        ("10MB", "10MB"),
        ("64mib", "64MiB"),
        ("16Mi", "16MiB"),
        ("1.5KiB", "1536B"),
        ("0", "0B"),
        ("1000kb", "1MB"),
    ] {
        assert_eq!(text.parse::<Size>().unwrap().to_string(), canonical);
    }
    for (text, canonical) in [("0.2", "20%"), ("20%", "20%"), ("7%", "7%"), ("1", "100%"), ("0.005", "0.5%")] {
        assert_eq!(text.parse::<Share>().unwrap().to_string(), canonical);
    }
    for (text, canonical) in [(":8080", "0.0.0.0:8080"), ("localhost:1", "127.0.0.1:1"), ("[::1]:80", "[::1]:80")] {
        assert_eq!(text.parse::<Bind>().unwrap().to_string(), canonical);
    }
    for (text, canonical) in [
        ("http://Model:8000/", "http://model:8000"),
        ("http://model", "http://model:80"),
        ("h2c://[::1]:9", "h2c://[::1]:9"),
        ("HTTPS://Model/", "https://model:443"),
        ("unix:///run/m.sock", "unix:/run/m.sock"),
        ("unix:////run//m.sock", "unix:/run//m.sock"),
        ("unix://///m", "unix:/m"),
    ] {
        assert_eq!(text.parse::<Upstream>().unwrap().to_string(), canonical);
    }
    let collector = "http://otel:4318/prefix/".parse::<Collector>().unwrap();
    assert_eq!((collector.to_string().as_str(), collector.authority()), ("http://otel:4318/prefix", "otel:4318"));
    assert_eq!("grpc://otel:4317".parse(), Ok(Collector::Grpc("grpc://otel:4317".into())));
}

#[test]
fn what_is_refused_is_told_why() {
    fn refused<T: FromStr<Err = Invalid> + Debug>(text: &str, part: &str) {
        let Invalid { value, reason } = text.parse::<T>().unwrap_err();
        assert_eq!(value, text);
        assert!(reason.contains(part), "{text}: {reason}");
    }
    refused::<Period>("5", "needs a unit");
    refused::<Period>("1m30", "needs a unit");
    refused::<Period>("5 fortnights", "unknown unit");
    refused::<Period>("-5s", "negative");
    refused::<Period>("0.1ns", "finer");
    refused::<Period>("6000000h", "too large");
    refused::<Period>("off", "not a duration");
    refused::<Size>("64k", "unknown unit");
    refused::<Size>("0.5B", "whole number of bytes");
    refused::<Size>("20000000TiB", "too large");
    refused::<Share>("20", "write %");
    refused::<Share>("101%", "between 0% and 100%");
    refused::<Share>("NaN", "between 0% and 100%");
    refused::<Bind>("8080", "host:port");
    refused::<Bind>("example.com:80", "IP address");
    refused::<Bind>("http://127.0.0.1:80", "is a URL");
    refused::<Bind>("127.0.0.1:70000", "0 to 65535");
    refused::<Upstream>("127.0.0.1:8000", "needs a scheme");
    refused::<Upstream>("grpcs://model:8000", "gRPC upstreams over TLS are written https://host:port");
    refused::<Upstream>("http://model:8000/v2", "must not have a path");
    refused::<Upstream>("http://model:0", "needs a port");
    refused::<Upstream>("http://:8000", "needs a host");
    refused::<Upstream>("unix:run/m.sock", "absolute path");
    refused::<Upstream>("unix://run/m.sock", "absolute path");
    refused::<Upstream>("unix:////", "absolute path");
    refused::<Collector>("http://otel", "needs a port");
    refused::<Collector>("http://otel:4318/v1/traces", "base address");
    refused::<Collector>("ftp://otel:4318", "the schemes are http, grpc, https and grpcs");
    refused::<Switch<Bind>>("on", "or off");
}

#[test]
fn numbers_are_read_as_their_text() {
    assert_eq!(serde_json::from_str::<Size>("4096").unwrap(), Size::kib(4));
    assert_eq!(serde_json::from_str::<Share>("0.2").unwrap().get(), 0.2);
    assert!(serde_json::from_str::<Period>("5").unwrap_err().to_string().contains("needs a unit"));
    assert!(serde_json::from_str::<Bind>("8080").unwrap_err().to_string().contains("host:port"));
    assert_eq!(serde_json::from_str::<Switch<Size>>("false").unwrap(), Switch::Off);
    assert_eq!(serde_json::from_str::<Switch<Size>>("\"off\"").unwrap(), Switch::Off);
}

#[test]
fn secrets_are_never_shown() {
    let secret = "hunter2".parse::<Secret>().unwrap();
    assert_eq!(secret.expose(), "hunter2");
    assert_eq!(format!("{secret} {secret:?} {}", serde_json::to_string(&secret).unwrap()), "*** *** \"***\"");
    assert!(!serde_json::from_str::<Secret>("20304").unwrap_err().to_string().contains("20304"));
    let invalid = "http://me:hunter2@model:8000".parse::<Upstream>().unwrap_err();
    assert_eq!(invalid.to_string(), "http://***@model:8000: must not carry a user or password");
}

#[test]
fn listeners_collide_by_port_and_interface() {
    let bind = |text: &str| text.parse::<Bind>().unwrap();
    assert!(bind(":80").collides(bind("127.0.0.1:80")));
    assert!(bind("127.0.0.1:80").collides(bind("127.0.0.1:80")));
    assert!(!bind("127.0.0.1:80").collides(bind("127.0.0.2:80")));
    assert!(!bind(":0").collides(bind(":0")));
}

#[test]
fn a_setting_is_reported_once_and_not_where_it_is_a_stand_in() {
    let mut checks = Checks::new(BTreeSet::from(["proxy.workers".to_owned()]));
    checks.section("proxy", |checks| {
        checks.range("workers", &0, 1..=64);
        checks.range("tcp_backlog", &0, 1..=65535);
        checks.fault("tcp_backlog", 0, "again");
    });
    let faults = checks.into_faults();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].to_string(), "proxy.tcp_backlog: 0: must be between 1 and 65535");
}
