//! JSON read as text: one validating pass over the bytes that yields spans, never values.
//!
//! Messages go through byte for byte, so numbers beyond any machine type (`1e400`) and escapes of
//! lone surrogates are accepted as RFC 8259 writes them down (sections 6 and 8.2) and kept as they
//! are. Nesting is counted on a bit stack, not on the thread's stack: no text can exhaust it.

use std::borrow::Cow;

use crate::limits::JSON_DEPTH_MAX;

// The bit stack of `Scanner::value` holds one bit for each open container.
const _: () = assert!(JSON_DEPTH_MAX <= u128::BITS as usize);

/// Why a text is not JSON as this program accepts it, in words for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub &'static str);

/// An object names one of the members that were asked for twice (RFC 8259 section 4: what a
/// reader makes of it is unpredictable, so two readers would see two different messages).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate;

/// White space between tokens, RFC 8259 section 2.
pub fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// A validating reader at one position of a text.
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// A reader at the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is not white space; the reader stands on it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if !is_space(byte as char) {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Nothing but white space is left.
    pub fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(Fault("text after the JSON value")),
        }
    }

    /// Reads an object inside `depth` open containers and gives each member to `each` as raw
    /// text: the key with its quotes, the value.
    #[inline]
    pub fn object(
        &mut self,
        depth: usize,
        mut each: impl FnMut(&'a str, &'a str),
    ) -> Result<(), Fault> {
        self.token(b'{', "expected an object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            let value = self.value(depth + 1)?;
            each(key, value);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(Fault("expected ',' or '}'")),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Reads an array inside `depth` open containers and gives each element's raw text to `each`.
    pub fn array(&mut self, depth: usize, mut each: impl FnMut(&'a str)) -> Result<(), Fault> {
        self.token(b'[', "expected an array")?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            each(self.value(depth + 1)?);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(Fault("expected ',' or ']'")),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Reads any value inside `depth` open containers: its raw text without the space around it.
    #[inline]
    pub fn value(&mut self, depth: usize) -> Result<&'a str, Fault> {
        self.peek();
        let start = self.at;
        let mut open = Open { objects: 0, level: depth };
        loop {
            // A value starts here.
            match self.peek() {
                Some(b'"') => self.string()?,
                Some(byte @ (b'{' | b'[')) => {
                    let object = byte == b'{';
                    self.at += 1;
                    open.push(object)?;
                    match self.peek() {
                        // Left for the loop below, which closes it.
                        Some(b'}') if object => {}
                        Some(b']') if !object => {}
                        _ => {
                            if object {
                                self.key()?;
                            }
                            continue;
                        }
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                Some(_) => return Err(Fault("expected a JSON value")),
                None => return Err(Fault("the JSON text ends too early")),
            }
            // A value has ended here.
            loop {
                if open.level == depth {
                    return Ok(self.span(start));
                }
                let object = open.in_object();
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    _ => return Err(Fault("expected ',' or the end of an array or object")),
                }
                self.at += 1;
                open.pop();
            }
        }
    }

    /// The text from `start` to here. Both ends stand beside ASCII bytes that were just read, so
    /// they are character boundaries.
    fn span(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    fn token(&mut self, byte: u8, otherwise: &'static str) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return Err(Fault(otherwise));
        }
        self.at += 1;
        Ok(())
    }

    /// A member's key and the colon after it.
    #[inline]
    fn key(&mut self) -> Result<&'a str, Fault> {
        if self.peek() != Some(b'"') {
            return Err(Fault("expected a member name"));
        }
        let start = self.at;
        self.string()?;
        let key = self.span(start);
        self.token(b':', "expected ':'")?;
        Ok(key)
    }

    /// The string whose opening quote the reader stands on, RFC 8259 section 7.
    #[inline]
    fn string(&mut self) -> Result<(), Fault> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            self.at = string_stop(bytes, self.at);
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => match bytes.get(self.at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
                    Some(b'u') => {
                        let digits = bytes.get(self.at + 2..self.at + 6);
                        if !digits.is_some_and(|four| four.iter().all(u8::is_ascii_hexdigit)) {
                            return Err(Fault("a \\u escape needs four hexadecimal digits"));
                        }
                        self.at += 6;
                    }
                    _ => return Err(Fault("unknown escape in a string")),
                },
                Some(_) => return Err(Fault("control character in a string")),
                None => return Err(Fault("a string does not end")),
            }
        }
    }

    /// A number, RFC 8259 section 6; its size is nobody's business here.
    fn number(&mut self) -> Result<(), Fault> {
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        if bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { Err(Fault("a number lacks digits")) } else { Ok(()) }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), Fault> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(Fault("expected a JSON value"));
        }
        self.at += word.len();
        Ok(())
    }
}

/// The containers that are open: a bit for each, set for an object.
struct Open {
    objects: u128,
    level: usize,
}

impl Open {
    fn push(&mut self, object: bool) -> Result<(), Fault> {
        if self.level >= JSON_DEPTH_MAX {
            return Err(Fault("nested too deep"));
        }
        self.level += 1;
        self.objects = self.objects << 1 | u128::from(object);
        Ok(())
    }

    fn pop(&mut self) {
        self.level -= 1;
        self.objects >>= 1;
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }
}

const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;

/// Where a string's plain run that starts at `at` ends: at a quote, a backslash, a control
/// character, or the end of the text. Eight bytes a step: strings are most of what a message is.
#[inline]
fn string_stop(bytes: &[u8], mut at: usize) -> usize {
    // Marks in each byte's top bit; a borrow can only spoil marks above a true one, and only the
    // lowest is used.
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGHS;
    let equal = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let marks = equal(word, b'"') | equal(word, b'\\') | below(word, 0x20);
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
        at += 1;
    }
    at
}

/// The value of the member `name` of the object `text`, raw; `None` where there is no such member
/// or `text` is no object. A key may be spelled with escapes. `text` comes from a [`Scanner`].
pub fn member<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>, Duplicate> {
    let mut found = None;
    let mut twice = false;
    // A fault cannot be: the text has been scanned before. Of text that is no object, none is read.
    let _ = Scanner::new(text).object(0, |key, value| {
        if decode(key) == name {
            twice |= found.is_some();
            found = Some(value);
        }
    });
    if twice { Err(Duplicate) } else { Ok(found) }
}

/// Whether the raw value `text` is a string.
pub fn is_string(text: &str) -> bool {
    text.starts_with('"')
}

/// Whether the raw value `text` is a number.
pub fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

/// Whether the raw value `text` is a number without fraction and exponent.
pub fn is_integer(text: &str) -> bool {
    is_number(text) && !text.contains(['.', 'e', 'E'])
}

/// The characters of a raw string (with its quotes); U+FFFD stands for a lone surrogate.
/// `raw` comes from a [`Scanner`].
#[inline]
pub fn decode(raw: &str) -> Cow<'_, str> {
    let inner = inside(raw);
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    let character = |point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
    Cow::Owned(CodePoints { rest: inner }.map(character).collect())
}

/// Whether two raw strings hold the same characters, however each is escaped. Lone surrogates are
/// compared as what they are.
pub fn same_string(a: &str, b: &str) -> bool {
    a == b || CodePoints { rest: inside(a) }.eq(CodePoints { rest: inside(b) })
}

fn inside(raw: &str) -> &str {
    raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(raw)
}

/// The code points of a string's inside, lone surrogates among them.
struct CodePoints<'a> {
    rest: &'a str,
}

impl CodePoints<'_> {
    /// The code unit of a `\uXXXX` at the front, which is taken off.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.rest.strip_prefix("\\u")?.get(..4)?;
        let unit = u32::from_str_radix(digits, 16).ok()?;
        self.rest = self.rest.get(6..).unwrap_or_default();
        Some(unit)
    }
}

impl Iterator for CodePoints<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if let Some(high) = self.unit() {
            if !(0xD800..0xDC00).contains(&high) {
                return Some(high);
            }
            let before = self.rest;
            return match self.unit() {
                Some(low) if (0xDC00..0xE000).contains(&low) => {
                    Some(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
                }
                _ => {
                    self.rest = before;
                    Some(high)
                }
            };
        }
        let mut chars = self.rest.chars();
        let mut first = chars.next()?;
        if first == '\\' {
            first = match chars.next()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                itself => itself,
            };
        }
        self.rest = chars.as_str();
        Some(u32::from(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Result<&str, Fault> {
        let mut scanner = Scanner::new(text);
        let value = scanner.value(0)?;
        scanner.end().map(|()| value)
    }

    #[test]
    fn takes_what_rfc_8259_calls_json() {
        for text in [
            "{}",
            "[]",
            "[[],{}]",
            "-0",
            "0.5e+10",
            "1e400",
            "123456789012345678901234567890",
            r#"" \" \\ \/ \b\f\n\r\t\u00e9 é""#,
            r#""\ud800""#,
            r#"{"a":[1,{"b":null}],"a":true}"#,
            "[ 1 ,\r\n\t2 ]",
            "\"\u{7f}\"",
            "false",
        ] {
            assert_eq!(scan(text), Ok(text));
            assert_eq!(scan(&format!(" {text}\r\n")), Ok(text));
        }
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in [
            "",
            " ",
            "{",
            "[1",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u12",
            "\"a\nb\"",
            "\"\u{1}\"",
            "[1}",
            "{\"a\":1]",
            "1 2",
            "[1 2]",
            "{\"a\":1 \"b\":2}",
            "NaN",
            "\u{feff}1",
            "'a'",
            "[1]]",
            "\"aaaaaaaaaaaaaaaa\u{1f}\"",
            "/**/1",
        ] {
            assert!(scan(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn counts_nesting_without_using_the_stack() {
        let nest = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(scan(&nest(JSON_DEPTH_MAX)).is_ok());
        assert_eq!(scan(&nest(JSON_DEPTH_MAX + 1)), Err(Fault("nested too deep")));
        assert_eq!(scan(&"[".repeat(1_000_000)), Err(Fault("nested too deep")));
        let mixed = "{\"a\":[".repeat(JSON_DEPTH_MAX / 2) + &"]}".repeat(JSON_DEPTH_MAX / 2);
        assert!(scan(&mixed).is_ok());
    }

    #[test]
    fn finds_the_end_of_a_plain_run_at_every_offset() {
        for stop in ["\"", "\\", "\u{0}", "\u{1f}"] {
            for length in 0..40 {
                let text = format!(
                    "{}{stop}é and more",
                    "é~ "
                        .repeat(20)
                        .get(..length)
                        .map_or_else(|| "x".repeat(length), str::to_owned,)
                );
                assert_eq!(string_stop(text.as_bytes(), 0), length, "{text:?}");
            }
        }
    }

    #[test]
    fn decodes_escapes() {
        assert_eq!(decode(r#""plain""#), "plain");
        assert_eq!(decode(r#""\u0069d""#), "id");
        assert_eq!(decode(r#""\ud83d\ude00\n\/\"""#), "😀\n/\"");
        assert_eq!(decode(r#""\ud800x\udc00\ud800""#), "\u{fffd}x\u{fffd}\u{fffd}");
        assert_eq!(decode(r#""\ud800\ud83d\ude00""#), "\u{fffd}😀");
    }

    #[test]
    fn compares_strings_by_their_characters() {
        assert!(same_string(r#""\u0061b""#, r#""ab""#));
        assert!(same_string(r#""\ud83d\ude00""#, r#""😀""#));
        assert!(!same_string(r#""\ud800""#, r#""\ud801""#));
        assert!(!same_string(r#""\ud800""#, r#""\ufffd""#));
        assert!(!same_string(r#""a""#, r#""ab""#));
    }

    #[test]
    fn finds_a_member_however_its_key_is_spelled() {
        assert_eq!(member(r#"{"a":1, "b" : [2] }"#, "b"), Ok(Some("[2]")));
        assert_eq!(member(r#"{"\u0062":3}"#, "b"), Ok(Some("3")));
        assert_eq!(member(r#"{"b":1,"\u0062":3}"#, "b"), Err(Duplicate));
        assert_eq!(member(r#"{"a":{"b":1}}"#, "b"), Ok(None));
        assert_eq!(member("[1]", "b"), Ok(None));
    }
}
