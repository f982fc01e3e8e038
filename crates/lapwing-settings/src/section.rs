//! The description that each section of the configuration gives of itself. With it, code that knows no section by name can read
//! and check a section, and name its faults.
//!
//! A section's default already shows which keys it has, and which of them are numbers, switches or sections.
//! [`Section::FORMS`] describes what a default cannot show: lists, names that the user chooses, and secrets.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Checks;

/// A section of the configuration.
pub trait Section: Default + Serialize + DeserializeOwned {
    /// The keys whose default does not show what they hold. All other keys hold what their default is: a section, a number,
    /// `true` or `false`, or text.
    const FORMS: &'static [(&'static str, Form)] = &[];

    /// Reports values that are out of range, and values of this section that contradict one another.
    fn check(&self, checks: &mut Checks);
}

/// What a key holds.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Text. A number counts as its text.
    Text,
    /// Text that is compared with a value (a span's attribute): a number, `true` and `false` count as their text.
    Literal,
    /// A number.
    Number,
    /// A section with its own forms.
    Section(&'static [(&'static str, Form)]),
    /// A few keys that belong together, all of them optional.
    Record(&'static Record),
    /// A list of records.
    List(&'static Record),
    /// A list of texts.
    Texts,
    /// Values of this form under names that the user chooses. A name may have dots in it.
    Named(&'static Form),
    /// A secret, which is never shown.
    Secret,
    /// Secrets under names of headers. They are never shown. In the names of environment variables `_` replaces `-`.
    SecretHeaders,
}

/// A few keys that belong together: an element of a list, or the value of a name.
#[derive(Debug)]
pub struct Record {
    /// What such a record is, in words that fit after "must be".
    pub what: &'static str,
    /// Every key, and what it holds.
    pub keys: &'static [(&'static str, Form)],
    /// The smallest record that can be read, as text by key. It replaces an element that cannot be read, and its values replace
    /// those of required keys that are missing or wrong, so that later faults are found too.
    pub stand_in: &'static [(&'static str, &'static str)],
}

/// The fields of the struct that `T` is read from, as serde's derive names them. Tests compare [`Record::keys`] with them.
///
/// # Panics
///
/// If `T` is no struct.
#[cfg(any(test, feature = "testing"))]
#[must_use]
pub fn fields_of<T: DeserializeOwned>() -> Vec<&'static str> {
    use serde::de::value::Error;
    use serde::de::{Deserializer, Error as _, Visitor};

    struct Asking<'f>(&'f mut Vec<&'static str>);

    impl<'de> Deserializer<'de> for Asking<'_> {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("only structs are asked for"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            self.0.extend(fields);
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
            tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut fields = Vec::new();
    assert!(T::deserialize(Asking(&mut fields)).is_err());
    fields
}

#[cfg(any(test, feature = "testing"))]
impl Record {
    /// Asserts that this record has the keys of `T`, and that its stand-in can be read as one.
    ///
    /// # Panics
    ///
    /// If it has not, or cannot.
    pub fn assert_describes<T: DeserializeOwned>(&self) {
        let keys: Vec<_> = self.keys.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, fields_of::<T>());
        let stand_in: serde_json::Map<_, _> =
            self.stand_in.iter().map(|(key, text)| ((*key).to_owned(), (*text).into())).collect();
        assert!(serde_json::from_value::<T>(stand_in.into()).is_ok(), "{:?}", self.stand_in);
    }
}
