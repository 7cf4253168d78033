//! Numbers as programs write them into files of groups.

use vfs::{Error, Result};

/// A number: decimal, or with `0x` hexadecimal, or with `0` octal; `EINVAL` for anything else, `ERANGE` for what is too large.
pub(crate) fn parse(text: &[u8]) -> Result<i64> {
    let text = core::str::from_utf8(text).map_err(|_| Error::Invalid)?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (base, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        None => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| char::from(byte).is_digit(base)) {
        return Err(Error::Invalid);
    }
    let number = i64::from_str_radix(digits, base).map_err(|_| Error::Range)?;
    Ok(if negative { -number } else { number })
}

/// The same for what is an `int` on Linux.
pub(crate) fn parse_int(text: &[u8]) -> Result<i32> {
    i32::try_from(parse(text)?).map_err(|_| Error::Range)
}

/// A limit: a number that is not negative, or `max`, which is none.
pub(crate) fn parse_limit(text: &[u8]) -> Result<Option<u64>> {
    if text == b"max" {
        return Ok(None);
    }
    u64::try_from(parse(text)?).map(Some).map_err(|_| Error::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_bases() {
        assert_eq!(parse(b"42"), Ok(42));
        assert_eq!(parse(b"-1"), Ok(-1));
        assert_eq!(parse(b"0x1f"), Ok(31));
        assert_eq!(parse(b"010"), Ok(8));
        assert_eq!(parse(b"0"), Ok(0));
        for wrong in [&b""[..], b"-", b"1 ", b"max", b"09", b"0x", b"1a", b"\xff", b"--1"] {
            assert_eq!(parse(wrong), Err(Error::Invalid), "{wrong:?}");
        }
        assert_eq!(parse(b"99999999999999999999"), Err(Error::Range));
        assert_eq!(parse_int(b"4294967296"), Err(Error::Range));
        assert_eq!(parse_limit(b"max"), Ok(None));
        assert_eq!(parse_limit(b"-1"), Err(Error::Invalid));
    }
}
