//! The values that Feast keeps in Redis: its protobuf messages `Value` and `Timestamp`, as far as they can be numbers.

use prost::Message;

use crate::number::{FeatureNumber, Found, LookupMiss};

/// A value. Exactly one field of Feast's is there, or none, or one that is no number and not read.
#[derive(Clone, PartialEq, Message)]
struct FeastValue {
    #[prost(int32, optional, tag = "3")]
    int32: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    int64: Option<i64>,
    #[prost(double, optional, tag = "5")]
    double: Option<f64>,
    #[prost(float, optional, tag = "6")]
    float: Option<f32>,
    #[prost(bool, optional, tag = "7")]
    boolean: Option<bool>,
    #[prost(int64, optional, tag = "8")]
    unix_timestamp: Option<i64>,
    #[prost(message, optional, tag = "13")]
    int32s: Option<Int32List>,
    #[prost(message, optional, tag = "14")]
    int64s: Option<Int64List>,
    #[prost(message, optional, tag = "15")]
    doubles: Option<DoubleList>,
    #[prost(message, optional, tag = "16")]
    floats: Option<FloatList>,
    #[prost(message, optional, tag = "17")]
    booleans: Option<BooleanList>,
}

#[derive(Clone, PartialEq, Message)]
struct Int32List {
    #[prost(int32, repeated, tag = "1")]
    values: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Int64List {
    #[prost(int64, repeated, tag = "1")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct DoubleList {
    #[prost(double, repeated, tag = "1")]
    values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct FloatList {
    #[prost(float, repeated, tag = "1")]
    values: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct BooleanList {
    #[prost(bool, repeated, tag = "1")]
    values: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct FeastTime {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

/// The numbers of a value. Feast writes what is null as no bytes.
pub(crate) fn numbers(value: &[u8]) -> Found {
    if value.is_empty() {
        return Err(LookupMiss::Absent);
    }
    let value = FeastValue::decode(value).map_err(|_| LookupMiss::NotNumber)?;
    let FeastValue { int32, int64, double, float, boolean, unix_timestamp, int32s, int64s, doubles, floats, booleans } = value;
    let scalar = int32
        .map(|number| FeatureNumber::Integer(number.into()))
        .or(int64.or(unix_timestamp).map(FeatureNumber::Integer))
        .or(double.map(FeatureNumber::Double))
        .or(float.map(FeatureNumber::Single))
        .or(boolean.map(|is_true| FeatureNumber::Integer(is_true.into())));
    fn all<T>(values: Vec<T>, of: impl Fn(T) -> FeatureNumber) -> Vec<FeatureNumber> {
        values.into_iter().map(of).collect()
    }
    scalar
        .map(|number| vec![number])
        .or(int32s.map(|list| all(list.values, |number| FeatureNumber::Integer(number.into()))))
        .or(int64s.map(|list| all(list.values, FeatureNumber::Integer)))
        .or(doubles.map(|list| all(list.values, FeatureNumber::Double)))
        .or(floats.map(|list| all(list.values, FeatureNumber::Single)))
        .or(booleans.map(|list| all(list.values, |is_true| FeatureNumber::Integer(is_true.into()))))
        .ok_or(LookupMiss::NotNumber)
}

/// The seconds since 1970 that a time says; `None` if it is none.
pub(crate) fn unix_seconds(time: &[u8]) -> Option<i64> {
    FeastTime::decode(time).ok().map(|time| time.seconds)
}
