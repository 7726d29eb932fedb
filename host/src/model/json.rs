//! JSON from outside: bounded and checked before anything reads it, then kept as text in one canonical form.
//!
//! Canonical: keys sorted, no white space, shortest escapes, numbers as written. The text passes through
//! the host unread; [`Json::value`] parses it where somebody has to look inside.
//!
//! Our own scanner, because a general parser accepts what two readers understand differently
//! (duplicate keys), recurses on the input's terms, and gives two private key names a meaning.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One JSON value as canonical text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

/// How large and how deep a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonBounds {
    pub bytes_max: usize,
    pub depth_max: usize,
}

impl JsonBounds {
    /// For what the host itself wrote: only the depth is held, which every reader relies on.
    pub const TRUSTED: Self = Self { bytes_max: usize::MAX, depth_max: 128 };
}

/// Why a text is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("{value} bytes of JSON; at most {limit} are taken")]
    Bytes { limit: usize, value: usize },
    #[error("JSON nested deeper than {limit} levels")]
    Depth { limit: usize },
    #[error("no JSON at byte {at}: {what}")]
    Syntax { at: usize, what: &'static str },
    #[error("the key {key:?} stands twice in one object (byte {at})")]
    DuplicateKey { at: usize, key: String },
    #[error("the key {key:?} is reserved (byte {at})")]
    ReservedKey { at: usize, key: String },
    #[error("an escape of half a surrogate pair, which is no character (byte {at})")]
    LoneSurrogate { at: usize },
    #[error("{word} is no JSON number (byte {at}); use null or a string")]
    NotANumber { at: usize, word: &'static str },
}

impl Json {
    /// Checks and canonicalises a text from outside.
    pub fn parse(text: &str, bounds: JsonBounds) -> Result<Self, JsonError> {
        if text.len() > bounds.bytes_max {
            return Err(JsonError::Bytes { limit: bounds.bytes_max, value: text.len() });
        }
        let mut scan = Scan { bytes: text.as_bytes(), text, at: 0, depth_max: bounds.depth_max };
        scan.space();
        let mut out = String::with_capacity(text.len());
        scan.value(&mut out, 0)?;
        scan.space();
        if scan.at != text.len() {
            return Err(scan.syntax("something follows the value"));
        }
        Ok(Self(out.into()))
    }

    /// From a value that the host or its embedder made. Refused is only what a text could not say either.
    pub fn from_value(value: &Value) -> Result<Self, JsonError> {
        // `Value` sorts its keys, but a dependency may switch that off for the whole build.
        Self::parse(&value.to_string(), JsonBounds::TRUSTED)
    }

    /// For text that was canonical when it was stored.
    pub fn from_canonical(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    pub fn null() -> Self {
        Self("null".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parsed, for those who look inside.
    pub fn value(&self) -> Value {
        // Canonical text is valid JSON of bounded depth, so this cannot fail on anything that came
        // through `parse`; a damaged database shows as null here and as a digest error elsewhere.
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }

    pub fn kind(&self) -> JsonKind {
        match self.0.as_bytes().first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') => JsonKind::Boolean,
            Some(b'n') | None => JsonKind::Null,
            _ => JsonKind::Number,
        }
    }

    /// An object's members in order; `None` if it is none.
    pub fn members(&self) -> Option<Vec<(String, Json)>> {
        if self.kind() != JsonKind::Object {
            return None;
        }
        let members: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str(&self.0).ok()?;
        Some(members.into_iter().map(|(key, raw)| (key, Self(raw.get().into()))).collect())
    }

    /// The text between an array's brackets; `None` if it is none.
    pub fn elements_text(&self) -> Option<&str> {
        self.0.strip_prefix('[')?.strip_suffix(']')
    }

    /// An object of members whose names are given in any order.
    pub fn object<'a>(members: impl IntoIterator<Item = (&'a str, &'a Json)>) -> Self {
        let sorted: std::collections::BTreeMap<&str, &Json> = members.into_iter().collect();
        let mut out = String::from("{");
        for (i, (key, value)) in sorted.into_iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            write_string(key, &mut out);
            out.push(':');
            out.push_str(&value.0);
        }
        out.push('}');
        Self(out.into())
    }

    /// An array of values in this order.
    pub fn array<'a>(values: impl IntoIterator<Item = &'a Json>) -> Self {
        let mut out = String::from("[");
        for (i, value) in values.into_iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(&value.0);
        }
        out.push(']');
        Self(out.into())
    }

    pub fn string(text: &str) -> Self {
        let mut out = String::with_capacity(text.len() + 2);
        write_string(text, &mut out);
        Self(out.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

impl fmt::Display for JsonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(d)?;
        Self::parse(raw.get(), JsonBounds::TRUSTED).map_err(serde::de::Error::custom)
    }
}

/// For an optional field in which `null` is a value: what stands there is `Some`, what is missing `None`.
pub fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

struct Scan<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    depth_max: usize,
}

impl Scan<'_> {
    fn syntax(&self, what: &'static str) -> JsonError {
        JsonError::Syntax { at: self.at, what }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, out: &mut String, depth: usize) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.object(out, depth + 1),
            Some(b'[') => self.array(out, depth + 1),
            Some(b'"') => {
                let string = self.string()?;
                write_string(&string, out);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(out),
            Some(b't') => self.word("true", out),
            Some(b'f') => self.word("false", out),
            Some(b'n') => self.word("null", out),
            Some(b'N') => Err(self.not_a_number("NaN")),
            Some(b'I') => Err(self.not_a_number("Infinity")),
            Some(_) => Err(self.syntax("a value does not start like this")),
            None => Err(self.syntax("it ends where a value should be")),
        }
    }

    fn not_a_number(&self, word: &'static str) -> JsonError {
        if self.text[self.at..].starts_with(word) {
            JsonError::NotANumber { at: self.at, word }
        } else {
            self.syntax("a value does not start like this")
        }
    }

    fn word(&mut self, word: &'static str, out: &mut String) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.syntax("only true, false and null are words"));
        }
        self.at += word.len();
        out.push_str(word);
        Ok(())
    }

    fn number(&mut self, out: &mut String) -> Result<(), JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.peek() == Some(b'I') {
                return Err(self.not_a_number("Infinity"));
            }
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.syntax("a number needs a digit here")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        out.push_str(&self.text[start..self.at]);
        Ok(())
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.digits();
        if self.at == start {
            return Err(self.syntax("a number needs a digit here"));
        }
        Ok(())
    }

    fn deeper(&self, depth: usize) -> Result<(), JsonError> {
        if depth > self.depth_max {
            return Err(JsonError::Depth { limit: self.depth_max });
        }
        Ok(())
    }

    fn array(&mut self, out: &mut String, depth: usize) -> Result<(), JsonError> {
        self.deeper(depth)?;
        self.at += 1;
        out.push('[');
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            out.push(']');
            return Ok(());
        }
        loop {
            self.space();
            self.value(out, depth)?;
            self.space();
            match self.peek() {
                Some(b',') => out.push(','),
                Some(b']') => {
                    self.at += 1;
                    out.push(']');
                    return Ok(());
                }
                _ => return Err(self.syntax("an array goes on with ',' or ']'")),
            }
            self.at += 1;
        }
    }

    fn object(&mut self, out: &mut String, depth: usize) -> Result<(), JsonError> {
        self.deeper(depth)?;
        self.at += 1;
        // Members are written as they come and copied once more only if they are out of order.
        let start = out.len();
        out.push('{');
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            out.push('}');
            return Ok(());
        }
        let mut members: Vec<(String, std::ops::Range<usize>)> = Vec::new();
        let mut sorted = true;
        loop {
            self.space();
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.syntax("a key is a string"));
            }
            let key = self.string()?;
            if key.starts_with("$serde_json::private::") {
                return Err(JsonError::ReservedKey { at: key_at, key: clip(&key) });
            }
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.syntax("a key is followed by ':'"));
            }
            self.at += 1;
            self.space();
            let from = out.len();
            write_string(&key, out);
            out.push(':');
            self.value(out, depth)?;
            if let Some((last, _)) = members.last() {
                match last.as_str().cmp(&key) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => {
                        return Err(JsonError::DuplicateKey { at: key_at, key: clip(&key) });
                    }
                    std::cmp::Ordering::Greater => sorted = false,
                }
            }
            members.push((key, from..out.len()));
            self.space();
            match self.peek() {
                Some(b',') => out.push(','),
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                _ => return Err(self.syntax("an object goes on with ',' or '}'")),
            }
            self.at += 1;
        }
        if !sorted {
            members.sort_by(|a, b| a.0.cmp(&b.0));
            if let Some(twice) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(JsonError::DuplicateKey { at: self.at, key: clip(&twice[0].0) });
            }
            let mut again = String::with_capacity(out.len() - start);
            again.push('{');
            for (i, (_, range)) in members.iter().enumerate() {
                if i > 0 {
                    again.push(',');
                }
                again.push_str(&out[range.clone()]);
            }
            out.truncate(start);
            out.push_str(&again);
        }
        out.push('}');
        Ok(())
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while matches!(self.peek(), Some(b) if b != b'"' && b != b'\\' && b >= 0x20) {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(_) => return Err(self.syntax("a control character is written as an escape")),
                None => return Err(self.syntax("it ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let at = self.at - 1;
        let Some(letter) = self.peek() else {
            return Err(self.syntax("it ends inside an escape"));
        };
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hex4()?;
                if (0xd800..0xdc00).contains(&unit) {
                    if self.peek() != Some(b'\\') || self.bytes.get(self.at + 1) != Some(&b'u') {
                        return Err(JsonError::LoneSurrogate { at });
                    }
                    self.at += 2;
                    let low = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(JsonError::LoneSurrogate { at });
                    }
                    let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                    char::from_u32(code).ok_or(JsonError::LoneSurrogate { at })?
                } else {
                    char::from_u32(unit).ok_or(JsonError::LoneSurrogate { at })?
                }
            }
            _ => {
                self.at -= 1;
                return Err(self.syntax("no such escape"));
            }
        })
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self
                .peek()
                .and_then(|b| char::from(b).to_digit(16))
                .ok_or(JsonError::Syntax { at: self.at, what: "\\u takes four hex digits" })?;
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }
}

/// Keys in errors come from outside: they are cut before they are shown.
fn clip(key: &str) -> String {
    key.chars().take(80).collect()
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut start = 0;
    for (i, byte) in text.bytes().enumerate() {
        let escape: &str = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..0x20 => {
                out.push_str(&text[start..i]);
                out.push_str(&format!("\\u{byte:04x}"));
                start = i + 1;
                continue;
            }
            _ => continue,
        };
        out.push_str(&text[start..i]);
        out.push_str(escape);
        start = i + 1;
    }
    out.push_str(&text[start..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: JsonBounds = JsonBounds { bytes_max: 1 << 20, depth_max: 64 };

    fn canonical(text: &str) -> String {
        Json::parse(text, BOUNDS).unwrap().to_string()
    }

    #[test]
    fn one_form_for_every_spelling() {
        for (given, right) in [
            (r#" { "b" : 1 , "a" : [ ] } "#, r#"{"a":[],"b":1}"#),
            (r#"{"z":{"y":1,"x":2},"a":0}"#, r#"{"a":0,"z":{"x":2,"y":1}}"#),
            (r#""\u00e9\ud83d\ude00\/""#, "\"é😀/\""),
            (r#""\u0001\u000a""#, r#""\u0001\n""#),
            ("12345678901234567890123", "12345678901234567890123"),
            ("1.10", "1.10"),
            ("-0e+5", "-0e+5"),
            ("[1,2 , 3]", "[1,2,3]"),
        ] {
            assert_eq!(canonical(given), right);
            assert_eq!(canonical(right), right, "canonical text is its own canonical form");
        }
    }

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        let refused = |text: &str| Json::parse(text, BOUNDS).unwrap_err();
        assert!(matches!(refused(r#"{"a":1,"a":2}"#), JsonError::DuplicateKey { .. }));
        assert!(matches!(refused(r#"{"a":1,"b":0,"\u0061":2}"#), JsonError::DuplicateKey { .. }));
        assert!(matches!(refused("NaN"), JsonError::NotANumber { word: "NaN", .. }));
        assert!(matches!(refused("[-Infinity]"), JsonError::NotANumber { .. }));
        assert!(matches!(refused(r#""\ud800""#), JsonError::LoneSurrogate { .. }));
        assert!(matches!(refused(r#""\udc00\ud800""#), JsonError::LoneSurrogate { .. }));
        assert!(matches!(refused(r#"{"$serde_json::private::Number":"1"}"#), JsonError::ReservedKey { .. }));
        for text in ["", "01", "1.", "+1", "[1,]", "{\"a\"}", "tru", "\"\n\"", "1 2", "\"\\x\"", "nul"] {
            assert!(matches!(refused(text), JsonError::Syntax { .. }), "{text:?}");
        }
    }

    #[test]
    fn depth_and_size_are_refused_before_they_cost_anything() {
        let deep = "[".repeat(100_000);
        assert_eq!(Json::parse(&deep, BOUNDS), Err(JsonError::Depth { limit: 64 }));
        let long = format!("\"{}\"", "x".repeat(2 << 20));
        assert!(matches!(Json::parse(&long, BOUNDS), Err(JsonError::Bytes { .. })));
    }

    #[test]
    fn members_keep_numbers_as_written() {
        let object = Json::parse(r#"{"n":1.10,"m":{"k":12345678901234567890123}}"#, BOUNDS).unwrap();
        let members = object.members().unwrap();
        assert_eq!(members[0].0, "m");
        assert_eq!(members[1].1.as_str(), "1.10");
        assert_eq!(serde_json::to_string(&object).unwrap(), object.as_str());
    }
}
