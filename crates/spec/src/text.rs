//! How values stand in JSON: as the text that people write, and bytes as text where they are UTF-8.

use crate::llm::UpstreamKind;
use crate::{ByteSize, Cpus, parse_time};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// Reads a type in serde by its `FromStr`.
macro_rules! read_as_text {
    ($($type:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

/// Reads a type in serde by its `FromStr`, and writes it by its `Display`.
macro_rules! serde_as_text {
    ($($type:ty),+ $(,)?) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        $crate::text::read_as_text!($type);
    )+};
}

pub(crate) use {read_as_text, serde_as_text};

/// A value whose text in a request reads back as the same value. `Display` rounds some of them for people, and `Serialize` writes some of
/// them as numbers elsewhere.
pub(crate) trait ExactText: Sized {
    fn read(text: &str) -> Result<Self, impl fmt::Display>;
    fn write(&self) -> String;
}

impl ExactText for ByteSize {
    fn read(text: &str) -> Result<ByteSize, impl fmt::Display> {
        text.parse::<ByteSize>()
    }

    fn write(&self) -> String {
        let bytes = self.as_u64();
        let units = [("t", 40), ("g", 30), ("m", 20), ("k", 10)];
        match units.into_iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift)) {
            Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
            None => bytes.to_string(),
        }
    }
}

impl ExactText for Duration {
    fn read(text: &str) -> Result<Duration, impl fmt::Display> {
        parse_time(text)
    }

    fn write(&self) -> String {
        match (self.as_secs(), self.subsec_nanos()) {
            (seconds, 0) if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
            (seconds, 0) if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
            _ => format!("{}s", self.as_secs_f64()),
        }
    }
}

macro_rules! exact_by_display {
    ($($type:ty),+) => {$(
        impl ExactText for $type {
            fn read(text: &str) -> Result<$type, impl fmt::Display> {
                text.parse::<$type>()
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

exact_by_display!(Cpus, UpstreamKind, u32, u64);

/// For `#[serde(with)]`: an optional value as its exact text.
pub(crate) mod exact {
    use super::*;

    pub(crate) fn serialize<T: ExactText, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(ExactText::write).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: ExactText, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| T::read(&text).map_err(D::Error::custom)).transpose()
    }
}

/// An argument or a value of an environment variable: bytes. In JSON a string, or `{"base64": "…"}` where they are not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OsText(OsString);

impl OsText {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// For people: what is not UTF-8 is replaced.
    pub fn to_string_lossy(&self) -> std::borrow::Cow<'_, str> {
        self.0.to_string_lossy()
    }

    pub fn into_os_string(self) -> OsString {
        self.0
    }
}

impl AsRef<OsStr> for OsText {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl<T: Into<OsString>> From<T> for OsText {
    fn from(text: T) -> OsText {
        OsText(text.into())
    }
}

impl PartialEq<&str> for OsText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl Serialize for OsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => serialize_base64(self.as_bytes(), serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OsText, D::Error> {
        let bytes = match Written::deserialize(deserializer)? {
            Written::Text(text) => text.into_bytes(),
            Written::Bytes(bytes) => bytes,
        };
        Ok(OsText(OsString::from_vec(bytes)))
    }
}

/// Writes `{"base64": "…"}`.
pub(crate) fn serialize_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(BASE64, &STANDARD.encode(bytes))?;
    map.end()
}

/// A string, or `{"base64": "…"}`.
pub(crate) enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written, D::Error> {
        struct TextOrBase64;
        impl<'de> Visitor<'de> for TextOrBase64 {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or an object with `base64`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Written, E> {
                Ok(Written::Text(text.to_string()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
                let mut bytes = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key != BASE64 {
                        return Err(A::Error::unknown_field(&key, &[BASE64]));
                    }
                    let text: String = map.next_value()?;
                    let decoded =
                        STANDARD.decode(text).map_err(|_| A::Error::custom("this is not base64"))?;
                    if bytes.replace(decoded).is_some() {
                        return Err(A::Error::duplicate_field(BASE64));
                    }
                }
                bytes.map(Written::Bytes).ok_or_else(|| A::Error::missing_field(BASE64))
            }
        }
        deserializer.deserialize_any(TextOrBase64)
    }
}

/// In the OpenAPI document: a string, or an object with `base64`.
#[cfg(feature = "schema")]
impl utoipa::PartialSchema for OsText {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::{ObjectBuilder, OneOfBuilder, Type};
        let text = ObjectBuilder::new().schema_type(Type::String);
        let bytes = ObjectBuilder::new()
            .property(BASE64, ObjectBuilder::new().schema_type(Type::String))
            .required(BASE64)
            .additional_properties(Some(utoipa::openapi::schema::AdditionalProperties::FreeForm(false)));
        let both = OneOfBuilder::new().item(text).item(bytes);
        both.description(Some("Text, or base64 of bytes that are not UTF-8.")).into()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for OsText {}

const BASE64: &str = "base64";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_text_reads_back_as_the_same_value() {
        for (bytes, text) in
            [(1, "1"), (1536, "1536"), (1 << 20, "1m"), (1536 << 20, "1536m"), (1 << 40, "1t")]
        {
            assert_eq!(ByteSize::bytes(bytes).write(), text);
            assert_eq!(ByteSize::read(text).ok(), Some(ByteSize::bytes(bytes)));
        }
        for millis in [1, 1500, 90_000, 3_600_000, 366 * 86_400_000] {
            let time = Duration::from_millis(millis);
            assert_eq!(Duration::read(&time.write()).ok(), Some(time));
        }
    }

    #[test]
    fn bytes_are_a_string_where_they_can_be() {
        for (bytes, json) in
            [(&b"plain"[..], r#""plain""#), (b"", r#""""#), (b"a\xff", r#"{"base64":"Yf8="}"#)]
        {
            let text = OsText(OsString::from_vec(bytes.to_vec()));
            assert_eq!(serde_json::to_string(&text).unwrap(), json);
            assert_eq!(serde_json::from_str::<OsText>(json).unwrap(), text);
        }
        assert_eq!(serde_json::from_str::<OsText>(r#"{"base64":"cGxhaW4="}"#).unwrap(), "plain");
        for json in ["5", "{}", r#"{"base64":"%"}"#, r#"{"base64":"","x":""}"#, "[]"] {
            assert!(serde_json::from_str::<OsText>(json).is_err(), "{json}");
        }
    }
}
