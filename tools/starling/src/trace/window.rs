//! What the plugin recorded: the accesses of a processor from one marker to the next. The format is the plugin's
//! (`tools/qemu-plugin`).

/// Bytes of a cache line.
pub(super) const LINE: u64 = 64;

/// How memory was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// An atomic read-modify-write.
    Atomic,
}

impl Kind {
    /// Whether others lose the line by it.
    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Accesses to one cache line by one instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) kind: Kind,
    /// The number of the line in physical memory.
    pub(super) line: u64,
    /// The first byte that was touched.
    pub(super) address: u64,
    /// The instruction.
    pub(super) code: u64,
    /// How often.
    pub(super) count: u64,
}

/// What one processor did between two markers.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub(super) processor: usize,
    pub(super) accesses: Vec<Access>,
}

impl Window {
    /// Atomic read-modify-writes, lock acquisitions among them.
    pub(super) fn atomics(&self) -> u64 {
        self.accesses.iter().filter(|access| access.kind == Kind::Atomic).map(|access| access.count).sum()
    }
}

/// Reads what the plugin wrote. A window without an end, which a machine that stopped leaves behind, is left out.
///
/// # Errors
/// The line that makes no sense.
pub(super) fn parse(text: &str) -> Result<Vec<Window>, String> {
    let mut windows = Vec::new();
    let mut open: Option<Window> = None;
    for line in text.lines() {
        let understood = match (line.split_once(' '), &mut open) {
            (None, window) if line == "end" => window.take().map(|window| windows.push(window)),
            (Some(("window", rest)), window) => {
                let processor = rest.split(' ').next().and_then(|number| number.parse().ok());
                processor.map(|processor| *window = Some(Window { processor, accesses: Vec::new() }))
            }
            (Some(_), Some(window)) => access(line).map(|access| window.accesses.push(access)),
            _ => None,
        };
        understood.ok_or_else(|| line.to_owned())?;
    }
    Ok(windows)
}

fn access(line: &str) -> Option<Access> {
    let mut words = line.split(' ');
    let kind = match words.next()? {
        "r" => Kind::Read,
        "w" => Kind::Write,
        "a" => Kind::Atomic,
        _ => return None,
    };
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (physical, address, code, count) = (number()?, number()?, number()?, number()?);
    Some(Access { kind, line: physical / LINE, address, code, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_in_order() {
        let text = "window 1 1\nr 47 ffff800000000047 ffffffff80000010 2\na 80 ffff800000000080 ffffffff80000020 1\nend\nwindow 0 1\nend\nwindow 1 1\n";
        let windows = parse(text).expect("a good text");
        assert_eq!(windows.len(), 2);
        assert_eq!(windows[0].processor, 1);
        let [read, atomic] = windows[0].accesses[..] else { panic!("two accesses") };
        assert_eq!((read.kind, read.line, read.code), (Kind::Read, 1, 0xffff_ffff_8000_0010));
        assert_eq!((atomic.kind, atomic.line, atomic.address), (Kind::Atomic, 2, 0xffff_8000_0000_0080));
        assert_eq!((read.count, atomic.count, windows[0].atomics()), (2, 1, 1));
        assert!(windows[1].accesses.is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(parse("r 1 2 3 4\n").expect_err("outside"), "r 1 2 3 4");
        assert!(parse("window x 1\n").is_err());
        assert!(parse("window 0 1\nq 1 2 3 4\n").is_err());
        assert!(parse("end\n").is_err());
    }
}
