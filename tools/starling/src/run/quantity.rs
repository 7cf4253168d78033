//! Parsers of option values. Each error is the end of a line that starts with the option's name.

use std::time::Duration;

const MEBIBYTE: u64 = 1 << 20;

/// Less memory than this holds neither the kernel nor the default image.
const MINIMUM_MEMORY: u64 = 16 * MEBIBYTE;
/// The physical addresses that QEMU gives these machines by default end here.
const MAXIMUM_MEMORY: u64 = 1 << 39;
/// As `sethostname(2)`.
const MAXIMUM_HOST_NAME: usize = 64;
/// A year: longer is as good as no timeout, and no arithmetic on the time overflows.
const MAXIMUM_TIMEOUT_SECONDS: f64 = 366.0 * 86_400.0;

/// A size as docker writes it: a number and `b`, `k`, `m`, `g` or `t`, in either case and with an optional
/// `b` or `ib` after it; bytes without a suffix.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, suffix) = lower.split_at(digits);
    let number: f64 = number.parse().map_err(|_| "not a size such as 512M".to_string())?;
    let factor: f64 = match suffix.trim() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err("not a size such as 512M".into()),
    };
    // The conversion saturates, and sizes in range are far below 2^53, where every whole number is exact.
    Ok((number * factor) as u64)
}

/// A size of memory, rounded up to whole mebibytes.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    match bytes {
        ..MINIMUM_MEMORY => Err(format!("less than the minimum of {}M", MINIMUM_MEMORY / MEBIBYTE)),
        MINIMUM_MEMORY..=MAXIMUM_MEMORY => Ok(bytes.next_multiple_of(MEBIBYTE)),
        _ => Err(format!("more than the maximum of {}G", MAXIMUM_MEMORY >> 30)),
    }
}

/// A positive number of seconds, fractions allowed.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if seconds > 0.0 && seconds.is_finite() {
        Ok(Duration::from_secs_f64(seconds.min(MAXIMUM_TIMEOUT_SECONDS)))
    } else {
        Err("not a positive number of seconds".into())
    }
}

/// A path in the guest.
pub(super) fn absolute_path(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.into()) } else { Err("not an absolute path".into()) }
}

/// A host name.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    if text.is_empty() || text.len() > MAXIMUM_HOST_NAME || !text.chars().all(legal) {
        return Err(format!("not a host name of at most {MAXIMUM_HOST_NAME} letters, digits, '-', '.'"));
    }
    Ok(text.into())
}

/// A word of the kernel command line.
pub(super) fn kernel_word(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("not a single word".into());
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_as_docker_writes_it() {
        for text in ["512M", "512m", "512mb", "512MiB", "536870912", "536870912b", "0.5g", "524288k"] {
            assert_eq!(memory(text), Ok(512 << 20), "{text}");
        }
        assert_eq!(memory("32M"), Ok(32 << 20));
        assert_eq!(memory("17000k"), Ok(17 << 20));
    }

    #[test]
    fn bad_memory_is_refused() {
        for text in ["", "M", "x", "12Q", "-1G", "1.2.3G", "15M", "0", "9999999T"] {
            assert!(memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn timeout_is_positive() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(seconds("1e300").is_ok());
        for text in ["0", "-1", "nan", "inf", "x", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn guest_paths_are_absolute() {
        assert!(absolute_path("/tmp").is_ok());
        assert!(absolute_path("tmp").is_err());
    }

    #[test]
    fn host_names_have_no_spaces() {
        assert!(host_name("web-1.example").is_ok());
        assert!(host_name("").is_err());
        assert!(host_name("two words").is_err());
        assert!(host_name(&"x".repeat(65)).is_err());
    }

    #[test]
    fn kernel_argument_is_one_word() {
        assert!(kernel_word("test=all").is_ok());
        assert!(kernel_word("a b").is_err());
        assert!(kernel_word("").is_err());
    }
}
