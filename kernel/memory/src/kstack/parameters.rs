//! The boot parameters of kernel stacks.
//!
//! | parameter | values | default |
//! |---|---|---|
//! | `kstack=` | `fault`: grown on page faults; `fixed` or `static`: all pages from the start; `lend`: the CPU lends pages at the switch; `df`: grown on double faults | `fault` |
//! | `kstack.pages=` | pages of a stack, 1 to 127 | 4 |
//! | `kstack.layout=` | `A` (lowest page backed too) or `B` | `B` |
//! | `kstack.overflow=` | `kill` the thread or `panic` | `kill` |
//! | `kstack.trim_secs=` | seconds between trims of sleeping threads' stacks, 0 for never | 60 |
//! | `kstack.pin_rt=` | 1: the stacks of real-time threads have all their pages | 1 |
//! | `kstack.fail_growth=` | every n-th growth fault that may sleep finds no frame (a test) | 0: none |
//! | `kstack.fail_reserve=` | every n-th fetch of a frame for a reserve fails (a test) | 0: none |

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};

use super::geometry::{Layout, MAX_PAGES};

/// How stacks get their pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// One page at creation, the others on first touch, by page fault.
    #[default]
    Fault,
    /// All at creation: the baseline to compare with.
    Fixed,
    /// As [`Mode::Fault`], but page faults have no stack of their own: most growth happens in double faults.
    DoubleFault,
    /// One page at creation; at each switch the CPU maps its reserve into the rest, and takes back what stayed clean.
    Lend,
}

/// What becomes of a thread whose stack is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OverflowPolicy {
    /// It is killed, if it holds no lock; else the kernel panics.
    #[default]
    Kill,
    /// The kernel panics.
    Panic,
}

/// All parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `kstack=`
    pub mode: Mode,
    /// `kstack.pages=`
    pub pages: u32,
    /// `kstack.layout=`
    pub layout: Layout,
    /// `kstack.overflow=`
    pub overflow: OverflowPolicy,
    /// `kstack.trim_secs=`
    pub trim_secs: u32,
    /// `kstack.fail_reserve=`
    pub fail_reserve: u32,
    /// `kstack.fail_growth=`
    pub fail_growth: u32,
    /// `kstack.pin_rt=`
    pub pin_realtime: bool,
}

/// The thesis' window of 16 KiB.
pub(crate) const DEFAULT_PAGES: u32 = 4;

impl Parameters {
    /// What holds without boot parameters.
    pub(crate) const DEFAULT: Self = Self {
        mode: Mode::Fault,
        pages: DEFAULT_PAGES,
        layout: Layout::B,
        overflow: OverflowPolicy::Kill,
        trim_secs: 60,
        fail_reserve: 0,
        fail_growth: 0,
        pin_realtime: true,
    };

    /// Reads the parameters; an unknown value is logged and the default stays.
    pub(crate) fn parse(option: impl Fn(&str) -> Option<&'static str>) -> Self {
        let mut parameters = Self::DEFAULT;
        let number = |key: &str, value: &mut u32, most: u32| {
            if let Some(text) = option(key) {
                match text.parse::<u32>() {
                    Ok(given) if given <= most => *value = given,
                    _ => log::warn!("{key}={text} is not a number up to {most}"),
                }
            }
        };
        number("kstack.pages", &mut parameters.pages, MAX_PAGES);
        number("kstack.trim_secs", &mut parameters.trim_secs, u32::MAX);
        number("kstack.fail_reserve", &mut parameters.fail_reserve, u32::MAX);
        number("kstack.fail_growth", &mut parameters.fail_growth, u32::MAX);
        let mut pin = 1;
        number("kstack.pin_rt", &mut pin, 1);
        parameters.pin_realtime = pin != 0;
        parameters.pages = parameters.pages.max(1);
        match option("kstack") {
            None | Some("fault") => {}
            Some("fixed" | "static") => parameters.mode = Mode::Fixed,
            Some("lend") => parameters.mode = Mode::Lend,
            Some("df") => parameters.mode = Mode::DoubleFault,
            Some(other) => log::warn!("kstack={other} is none of fault, fixed, static, lend, df"),
        }
        match option("kstack.layout") {
            None | Some("B" | "b") => {}
            Some("A" | "a") => parameters.layout = Layout::A,
            Some(other) => log::warn!("kstack.layout={other} is neither A nor B"),
        }
        match option("kstack.overflow") {
            None | Some("kill") => {}
            Some("panic") => parameters.overflow = OverflowPolicy::Panic,
            Some(other) => log::warn!("kstack.overflow={other} is neither kill nor panic"),
        }
        parameters
    }
}

/// The parameters in force: written at start-up, some of them later through sysctls.
struct InForce {
    mode: AtomicU8,
    pages: AtomicU32,
    layout: AtomicU8,
    overflow: AtomicU8,
    trim_secs: AtomicU32,
    fail_reserve: AtomicU32,
    fail_growth: AtomicU32,
    pin_realtime: AtomicBool,
}

static IN_FORCE: InForce = InForce {
    mode: AtomicU8::new(Mode::Fault as u8),
    pages: AtomicU32::new(DEFAULT_PAGES),
    layout: AtomicU8::new(Layout::B as u8),
    overflow: AtomicU8::new(OverflowPolicy::Kill as u8),
    trim_secs: AtomicU32::new(Parameters::DEFAULT.trim_secs),
    fail_reserve: AtomicU32::new(0),
    fail_growth: AtomicU32::new(0),
    pin_realtime: AtomicBool::new(Parameters::DEFAULT.pin_realtime),
};

/// Puts the parameters in force.
pub(crate) fn set(parameters: Parameters) {
    IN_FORCE.mode.store(parameters.mode as u8, Relaxed);
    IN_FORCE.pages.store(parameters.pages, Relaxed);
    IN_FORCE.layout.store(parameters.layout as u8, Relaxed);
    IN_FORCE.fail_reserve.store(parameters.fail_reserve, Relaxed);
    IN_FORCE.fail_growth.store(parameters.fail_growth, Relaxed);
    IN_FORCE.pin_realtime.store(parameters.pin_realtime, Relaxed);
    IN_FORCE.trim_secs.store(parameters.trim_secs, Relaxed);
    set_overflow_policy(parameters.overflow);
}

/// The parameters in force.
pub fn parameters() -> Parameters {
    let mode = IN_FORCE.mode.load(Relaxed);
    Parameters {
        mode: [Mode::Fault, Mode::Fixed, Mode::DoubleFault, Mode::Lend]
            .into_iter()
            .find(|m| *m as u8 == mode)
            .unwrap_or_default(),
        pages: IN_FORCE.pages.load(Relaxed),
        layout: if IN_FORCE.layout.load(Relaxed) == Layout::A as u8 { Layout::A } else { Layout::B },
        overflow: overflow_policy(),
        trim_secs: IN_FORCE.trim_secs.load(Relaxed),
        fail_reserve: IN_FORCE.fail_reserve.load(Relaxed),
        fail_growth: fail_growth(),
        pin_realtime: pin_realtime(),
    }
}

/// How stacks get their pages.
#[inline]
pub fn mode() -> Mode {
    match IN_FORCE.mode.load(Relaxed) {
        value if value == Mode::Fixed as u8 => Mode::Fixed,
        value if value == Mode::Lend as u8 => Mode::Lend,
        value if value == Mode::DoubleFault as u8 => Mode::DoubleFault,
        _ => Mode::Fault,
    }
}

/// What becomes of a thread whose stack is full (`kernel.stack_overflow`).
pub fn overflow_policy() -> OverflowPolicy {
    if IN_FORCE.overflow.load(Relaxed) == OverflowPolicy::Panic as u8 {
        OverflowPolicy::Panic
    } else {
        OverflowPolicy::Kill
    }
}

/// Sets `kernel.stack_overflow`.
pub fn set_overflow_policy(policy: OverflowPolicy) {
    IN_FORCE.overflow.store(policy as u8, Relaxed);
}

/// Makes every n-th fetch of a frame for a reserve fail, or none with 0.
pub fn set_fail_reserve(every: u32) {
    IN_FORCE.fail_reserve.store(every, Relaxed);
}

/// Every which growth fault finds no frame; 0 for none.
pub(crate) fn fail_growth() -> u32 {
    IN_FORCE.fail_growth.load(Relaxed)
}

/// Makes every n-th growth fault of code that may sleep find no frame, or none with 0.
pub fn set_fail_growth(every: u32) {
    IN_FORCE.fail_growth.store(every, Relaxed);
}

/// Whether the stacks of real-time threads have all their pages (`kernel.kstack_pin_rt`).
pub fn pin_realtime() -> bool {
    IN_FORCE.pin_realtime.load(Relaxed)
}

/// Sets `kernel.kstack_pin_rt`, for threads that become real-time threads from now on.
pub fn set_pin_realtime(pin: bool) {
    IN_FORCE.pin_realtime.store(pin, Relaxed);
}

/// Seconds between trims (`kernel.kstack_trim_secs`); 0 for never.
pub fn trim_secs() -> u32 {
    IN_FORCE.trim_secs.load(Relaxed)
}

/// Sets `kernel.kstack_trim_secs`. It counts from the last trim.
pub fn set_trim_secs(seconds: u32) {
    IN_FORCE.trim_secs.store(seconds, Relaxed);
    super::wake_service();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &'static [(&str, &str)]) -> Parameters {
        Parameters::parse(|key| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        assert_eq!(parse(&[]), Parameters::DEFAULT);
    }

    #[test]
    fn all_parameters_are_understood() {
        let parameters = parse(&[
            ("kstack", "static"),
            ("kstack.pages", "8"),
            ("kstack.layout", "A"),
            ("kstack.overflow", "panic"),
            ("kstack.trim_secs", "1"),
            ("kstack.fail_reserve", "100"),
            ("kstack.fail_growth", "7"),
            ("kstack.pin_rt", "0"),
        ]);
        let expected = Parameters {
            mode: Mode::Fixed,
            pages: 8,
            layout: Layout::A,
            overflow: OverflowPolicy::Panic,
            trim_secs: 1,
            fail_reserve: 100,
            fail_growth: 7,
            pin_realtime: false,
        };
        assert_eq!(parameters, expected);
    }

    #[test]
    fn nonsense_leaves_the_defaults() {
        assert_eq!(
            parse(&[("kstack", "elastic"), ("kstack.pages", "4000"), ("kstack.layout", "C")]),
            Parameters::DEFAULT
        );
        assert_eq!(parse(&[("kstack.pages", "0")]).pages, 1);
    }
}
