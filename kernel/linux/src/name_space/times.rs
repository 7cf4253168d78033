//! Name spaces of times (time_namespaces(7)): clocks that begin elsewhere.
//!
//! All clocks of the kernel are those of the first name space. What a program in another one reads of CLOCK_MONOTONIC and CLOCK_BOOTTIME is the kernel's time plus
//! an offset, and what it waits for, at a time of one of them, is that time less the offset. So nothing that runs knows of offsets: they count where times come in
//! and go out, and who is in the first name space pays a test of an empty pointer there.
//!
//! Who makes one does not enter it, his children do. A name space is *open* until somebody is in it: its offsets may be written. The first who enters it
//! *freezes* them, for good: nobody sees a clock step. Both are decided under one lock, so that no offset is written after somebody has looked at his clock.
//!
//! In the first name space clocks are read without a call ([`crate::vdso`]); in others the page that says how tells programs to ask the kernel.

use core::fmt::Write;
use core::sync::atomic::{AtomicI64, Ordering};

use sync::SpinLock;
use vfs::UserSpace;
use vfs::user_space::Owner;

use super::First;
use super::kind::Kind;
use crate::abi::NANOSECONDS;
use crate::errno::Errno;
use crate::time::Clock;

/// Clocks that a name space has offsets of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shifted {
    Monotonic,
    BootTime,
}

const CLOCKS: [(Shifted, &str, &str); 2] =
    [(Shifted::Monotonic, "monotonic", "1"), (Shifted::BootTime, "boottime", "7")];

/// No clock is set to more seconds than this, half of what fits: about 146 years.
const LATEST_SECONDS: i64 = i64::MAX / NANOSECONDS as i64 / 2;

/// A name space of times.
pub(crate) struct TimeSpace {
    number: u64,
    owner: Owner,
    /// Whether somebody is in it, or was. Offsets are written with it locked.
    frozen: SpinLock<bool>,
    /// In nanoseconds, by clock. Relaxed: whoever reads his clock by them has frozen them before, or was made by who has.
    offsets_ns: [AtomicI64; CLOCKS.len()],
}

impl First for TimeSpace {
    fn first() -> &'static Self {
        static FIRST: TimeSpace = TimeSpace {
            number: Kind::Time.first_number(),
            owner: Owner::FIRST,
            frozen: SpinLock::named("offsets of clocks", true),
            offsets_ns: [const { AtomicI64::new(0) }; CLOCKS.len()],
        };
        &FIRST
    }
}

impl TimeSpace {
    /// Another one, with the same offsets until others are written.
    pub(super) fn copy(&self, number: u64, owner: Owner) -> Self {
        let offsets_ns = [Shifted::Monotonic, Shifted::BootTime].map(|clock| self.offset_ns(clock).into());
        Self { number, owner, frozen: SpinLock::named("offsets of clocks", false), offsets_ns }
    }

    /// Its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The name space of users that it belongs to.
    pub(crate) fn owner(&self) -> &UserSpace {
        self.owner.space()
    }

    /// What a clock shows there, less what it shows in the first one.
    pub(crate) fn offset_ns(&self, clock: Shifted) -> i64 {
        self.offsets_ns[clock as usize].load(Ordering::Relaxed)
    }

    /// Somebody enters it.
    pub(crate) fn freeze(&self) {
        *self.frozen.lock() = true;
    }

    /// `/proc/PID/timens_offsets`
    pub(crate) fn show(&self, out: &mut dyn Write) {
        for (clock, name, _) in CLOCKS {
            let offset = self.offset_ns(clock);
            let second = NANOSECONDS as i64;
            let (seconds, rest) = (offset.div_euclid(second), offset.rem_euclid(second));
            let _ = writeln!(out, "{name:<10} {seconds:>10} {rest:>9}");
        }
    }

    /// Sets offsets.
    ///
    /// # Errors
    /// ERANGE for a clock that would show less than nothing, or more than half of all; EACCES when somebody is in it.
    pub(crate) fn write(&self, wanted: &Wanted) -> Result<(), Errno> {
        let now_seconds = (machine::time::now_ns() / NANOSECONDS) as i64;
        let mut offsets = [None; CLOCKS.len()];
        for (clock, seconds, nanoseconds) in wanted.offsets.iter().flatten() {
            let shown = now_seconds.checked_add(*seconds).ok_or(Errno::ERANGE)?;
            if !(0..=LATEST_SECONDS).contains(&shown) {
                return Err(Errno::ERANGE);
            }
            let offset = seconds.checked_mul(NANOSECONDS as i64).and_then(|ns| ns.checked_add(*nanoseconds));
            offsets[*clock as usize] = Some(offset.ok_or(Errno::ERANGE)?);
        }
        let frozen = self.frozen.lock();
        if *frozen {
            return Err(Errno::EACCES);
        }
        for (place, offset) in self.offsets_ns.iter().zip(offsets) {
            if let Some(offset) = offset {
                place.store(offset, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// What somebody wrote: clocks, seconds and nanoseconds of at most two lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    offsets: [Option<(Shifted, i64, i64)>; CLOCKS.len()],
    /// How much of the text they are.
    pub(crate) length: usize,
}

impl Wanted {
    /// Of two lines, what is behind them stays unread.
    ///
    /// # Errors
    /// EINVAL.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Errno> {
        let mut wanted = Self { offsets: [None; CLOCKS.len()], length: 0 };
        for place in &mut wanted.offsets {
            let rest = &text[wanted.length..];
            let end = rest.iter().position(|&byte| byte == b'\n');
            *place = Some(parse_line(&rest[..end.unwrap_or(rest.len())])?);
            wanted.length += end.map_or(rest.len(), |end| end + 1);
            if wanted.length == text.len() {
                break;
            }
        }
        Ok(wanted)
    }
}

/// A clock by name or number, seconds, nanoseconds; what follows does not count.
fn parse_line(line: &[u8]) -> Result<(Shifted, i64, i64), Errno> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or(Errno::EINVAL);
    let clock = word()?;
    let is_it = |name: &str| name.as_bytes() == clock;
    let (clock, ..) =
        CLOCKS.iter().find(|(_, name, number)| is_it(name) || is_it(number)).ok_or(Errno::EINVAL)?;
    let seconds = word()?;
    let (seconds, sign) = seconds.strip_prefix(b"-").map_or((seconds, 1), |seconds| (seconds, -1));
    let (seconds, rest) = leading_number(seconds)?;
    let (nanoseconds, _) = leading_number(word()?)?;
    if !rest.is_empty() || nanoseconds >= NANOSECONDS as i64 {
        return Err(Errno::EINVAL);
    }
    Ok((*clock, sign * seconds, nanoseconds))
}

/// The number that a word begins with, the largest one for a larger one, and what is behind it.
fn leading_number(word: &[u8]) -> Result<(i64, &[u8]), Errno> {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = word.split_at(digits);
    if number.is_empty() {
        return Err(Errno::EINVAL);
    }
    let add = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
    Ok((number.iter().fold(0, add), rest))
}

impl Clock {
    /// Which offset counts for it.
    pub(crate) fn shifted(self) -> Option<Shifted> {
        match self {
            Clock::Monotonic => Some(Shifted::Monotonic),
            Clock::BootTime => Some(Shifted::BootTime),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_clocks_and_offsets() {
        let one = |text: &str| Wanted::parse(text.as_bytes()).map(|wanted| wanted.offsets[0]);
        assert_eq!(one("monotonic 1 2\n"), Ok(Some((Shifted::Monotonic, 1, 2))));
        assert_eq!(one(" 7   -5 999999999x"), Ok(Some((Shifted::BootTime, -5, 999_999_999))));
        for bad in [
            "",
            "\n",
            "monotonic 1",
            "realtime 1 1",
            "1 1 1000000000",
            "1 1 -1",
            "1 +1 1",
            "1 0x1 1",
            "1 1x 1",
        ] {
            assert_eq!(one(bad), Err(Errno::EINVAL), "{bad}");
        }
        let three = Wanted::parse(b"1 1 1\n7 2 2\nnothing").expect("the third line is not read");
        assert_eq!((three.length, three.offsets[1]), (12, Some((Shifted::BootTime, 2, 2))));
        assert_eq!(Wanted::parse(b"1 1 1\n\n"), Err(Errno::EINVAL));
    }

    #[test]
    fn offsets_are_written_until_somebody_enters() {
        let space = TimeSpace::first().copy(1, Owner::FIRST);
        let write = |text: &str| space.write(&Wanted::parse(text.as_bytes()).expect("it is sound"));
        assert_eq!(write("1 -1 5"), Err(Errno::ERANGE));
        assert_eq!(write("1 4611686019 0"), Err(Errno::ERANGE));
        assert_eq!(write("1 9223372036854775807 0"), Err(Errno::ERANGE));
        assert_eq!(write("1 100 7\n7 3 0"), Ok(()));
        assert_eq!(space.offset_ns(Shifted::Monotonic), 100_000_000_007);
        space.freeze();
        assert_eq!(write("1 5 0"), Err(Errno::EACCES));
        assert_eq!(TimeSpace::first().write(&Wanted::parse(b"1 5 0").expect("sound")), Err(Errno::EACCES));
        let copy = space.copy(2, Owner::FIRST);
        assert_eq!(copy.offset_ns(Shifted::BootTime), 3_000_000_000);
    }
}
