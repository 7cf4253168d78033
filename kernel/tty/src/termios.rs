//! Terminal attributes: the `termios` structures of the Linux ABI and their defaults.

use bitflags::bitflags;

/// Number of control characters in the kernel's structures.
pub const CONTROL_CHARACTERS: usize = 19;

/// Value of a control character that is switched off.
pub const DISABLED: u8 = 0;

bitflags! {
    /// `c_iflag`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InputFlags: u32 {
        /// Ignore breaks.
        const IGNBRK = 0o1;
        /// A break is an interrupt.
        const BRKINT = 0o2;
        /// Ignore characters with parity errors.
        const IGNPAR = 0o4;
        /// Mark parity errors.
        const PARMRK = 0o10;
        /// Check parity.
        const INPCK = 0o20;
        /// Strip the eighth bit.
        const ISTRIP = 0o40;
        /// Newline becomes carriage return.
        const INLCR = 0o100;
        /// Ignore carriage return.
        const IGNCR = 0o200;
        /// Carriage return becomes newline.
        const ICRNL = 0o400;
        /// Upper case becomes lower case.
        const IUCLC = 0o1000;
        /// START and STOP control the output.
        const IXON = 0o2000;
        /// Any character restarts the output.
        const IXANY = 0o4000;
        /// The terminal sends START and STOP when its input queue is low or full.
        const IXOFF = 0o10000;
        /// Ring the bell when the line is full.
        const IMAXBEL = 0o20000;
        /// Input is UTF-8: erase whole characters.
        const IUTF8 = 0o40000;
        /// Bits without a meaning are kept as programs set them.
        const _ = !0;
    }

    /// `c_oflag`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OutputFlags: u32 {
        /// Process output at all.
        const OPOST = 0o1;
        /// Lower case becomes upper case.
        const OLCUC = 0o2;
        /// Newline becomes carriage return and newline.
        const ONLCR = 0o4;
        /// Carriage return becomes newline.
        const OCRNL = 0o10;
        /// No carriage return at column 0.
        const ONOCR = 0o20;
        /// Newline does the carriage return too.
        const ONLRET = 0o40;
        /// Tabs become spaces (both bits of the tab delay field).
        const XTABS = 0o14000;
        /// Bits without a meaning are kept as programs set them.
        const _ = !0;
    }

    /// `c_lflag`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LocalFlags: u32 {
        /// INTR, QUIT and SUSP raise signals.
        const ISIG = 0o1;
        /// Lines are edited before they can be read.
        const ICANON = 0o2;
        /// Echo input.
        const ECHO = 0o10;
        /// ERASE rubs out the character.
        const ECHOE = 0o20;
        /// KILL starts a new line.
        const ECHOK = 0o40;
        /// Echo newlines even without ECHO.
        const ECHONL = 0o100;
        /// Signals do not flush the queues.
        const NOFLSH = 0o200;
        /// Background processes that write are stopped.
        const TOSTOP = 0o400;
        /// Control characters are echoed as ^X.
        const ECHOCTL = 0o1000;
        /// Erased characters are echoed backwards between `\` and `/`.
        const ECHOPRT = 0o2000;
        /// KILL rubs the whole line out.
        const ECHOKE = 0o4000;
        /// Output is being flushed.
        const FLUSHO = 0o10000;
        /// Retype pending input at the next character.
        const PENDIN = 0o40000;
        /// The extended control characters work.
        const IEXTEN = 0o100000;
        /// Line editing happens at the other end of a pseudo-terminal.
        const EXTPROC = 0o200000;
        /// Bits without a meaning are kept as programs set them.
        const _ = !0;
    }
}

/// Index of a control character in `c_cc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants are the names of termios(3)")]
pub enum Control {
    Interrupt = 0,
    Quit = 1,
    Erase = 2,
    Kill = 3,
    EndOfFile = 4,
    Time = 5,
    Minimum = 6,
    Start = 8,
    Stop = 9,
    Suspend = 10,
    EndOfLine = 11,
    Reprint = 12,
    Discard = 13,
    WordErase = 14,
    LiteralNext = 15,
    EndOfLine2 = 16,
}

/// Attributes of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termios {
    /// Input modes.
    pub input: InputFlags,
    /// Output modes.
    pub output: OutputFlags,
    /// Control modes (`c_cflag`): line speed and framing, kept but without effect here.
    pub control: u32,
    /// Local modes.
    pub local: LocalFlags,
    /// Line discipline number (`c_line`).
    pub line: u8,
    /// Control characters.
    pub characters: [u8; CONTROL_CHARACTERS],
    /// Input speed in bits per second (`c_ispeed` of `termios2`).
    pub input_speed: u32,
    /// Output speed in bits per second (`c_ospeed` of `termios2`).
    pub output_speed: u32,
}

/// Bytes of `struct termios` as TCGETS and TCSETS transfer it.
pub const TERMIOS_BYTES: usize = 36;
/// Bytes of `struct termios2` as TCGETS2 and TCSETS2 transfer it.
pub const TERMIOS2_BYTES: usize = 44;
/// Bytes of `struct termio` as TCGETA and TCSETA transfer it.
pub const TERMIO_BYTES: usize = 18;

const CBAUD: u32 = 0o10017;
const B38400: u32 = 0o17;
const CS8: u32 = 0o60;
const CREAD: u32 = 0o200;
const HUPCL: u32 = 0o2000;
const BOTHER: u32 = 0o10000;

/// Speeds of the constants B0 to B38400.
const SPEEDS: [u32; 16] =
    [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400];
/// Speeds of the constants B57600 to B4000000.
const FAST_SPEEDS: [u32; 15] = [
    57600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000, 1_500_000, 2_000_000,
    2_500_000, 3_000_000, 3_500_000, 4_000_000,
];

fn speed_of(control: u32) -> Option<u32> {
    let code = control & CBAUD;
    if code & BOTHER == 0 {
        return SPEEDS.get(code as usize).copied();
    }
    let fast = (code & 0o17) as usize;
    if fast == 0 { None } else { FAST_SPEEDS.get(fast - 1).copied() }
}

impl Termios {
    /// What a terminal starts with, as on Linux.
    pub const fn initial() -> Self {
        let mut characters = [DISABLED; CONTROL_CHARACTERS];
        characters[Control::Interrupt as usize] = 0x03;
        characters[Control::Quit as usize] = 0x1c;
        characters[Control::Erase as usize] = 0x7f;
        characters[Control::Kill as usize] = 0x15;
        characters[Control::EndOfFile as usize] = 0x04;
        characters[Control::Minimum as usize] = 1;
        characters[Control::Start as usize] = 0x11;
        characters[Control::Stop as usize] = 0x13;
        characters[Control::Suspend as usize] = 0x1a;
        characters[Control::Reprint as usize] = 0x12;
        characters[Control::Discard as usize] = 0x0f;
        characters[Control::WordErase as usize] = 0x17;
        characters[Control::LiteralNext as usize] = 0x16;
        Self {
            input: InputFlags::ICRNL.union(InputFlags::IXON),
            output: OutputFlags::OPOST.union(OutputFlags::ONLCR),
            control: B38400 | CS8 | CREAD | HUPCL,
            local: LocalFlags::ISIG
                .union(LocalFlags::ICANON)
                .union(LocalFlags::ECHO)
                .union(LocalFlags::ECHOE)
                .union(LocalFlags::ECHOK)
                .union(LocalFlags::ECHOCTL)
                .union(LocalFlags::ECHOKE)
                .union(LocalFlags::IEXTEN),
            line: 0,
            characters,
            input_speed: 38400,
            output_speed: 38400,
        }
    }

    /// What a pseudo terminal starts with: no line to hang up.
    pub const fn initial_pseudo() -> Self {
        let initial = Self::initial();
        Self { control: initial.control & !HUPCL, ..initial }
    }

    /// A control character.
    pub fn character(&self, control: Control) -> u8 {
        self.characters[control as usize]
    }

    /// Whether `byte` is this control character (a disabled one matches nothing).
    pub fn is(&self, control: Control, byte: u8) -> bool {
        let character = self.character(control);
        character != DISABLED && character == byte
    }

    /// `struct termios`.
    pub fn to_bytes(&self) -> [u8; TERMIOS_BYTES] {
        let mut bytes = [0; TERMIOS_BYTES];
        for (at, word) in
            [self.input.bits(), self.output.bits(), self.control, self.local.bits()].iter().enumerate()
        {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[16] = self.line;
        bytes[17..].copy_from_slice(&self.characters);
        bytes
    }

    /// `struct termios2`.
    pub fn to_bytes2(&self) -> [u8; TERMIOS2_BYTES] {
        let mut bytes = [0; TERMIOS2_BYTES];
        bytes[..TERMIOS_BYTES].copy_from_slice(&self.to_bytes());
        bytes[36..40].copy_from_slice(&self.input_speed.to_ne_bytes());
        bytes[40..].copy_from_slice(&self.output_speed.to_ne_bytes());
        bytes
    }

    /// `struct termio`: the old, shorter form with eight control characters.
    pub fn to_short_bytes(&self) -> [u8; TERMIO_BYTES] {
        let mut bytes = [0; TERMIO_BYTES];
        for (at, word) in
            [self.input.bits(), self.output.bits(), self.control, self.local.bits()].iter().enumerate()
        {
            bytes[at * 2..at * 2 + 2].copy_from_slice(&(*word as u16).to_ne_bytes());
        }
        bytes[8] = self.line;
        bytes[9..17].copy_from_slice(&self.characters[..8]);
        bytes
    }

    /// Reads `struct termios`; the speeds follow from the control modes.
    pub fn from_bytes(bytes: &[u8; TERMIOS_BYTES], previous: &Self) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut characters = [0; CONTROL_CHARACTERS];
        characters.copy_from_slice(&bytes[17..]);
        let control = word(8);
        let speed = speed_of(control).unwrap_or(previous.output_speed);
        Self {
            input: InputFlags::from_bits_retain(word(0)),
            output: OutputFlags::from_bits_retain(word(4)),
            control,
            local: LocalFlags::from_bits_retain(word(12)),
            line: bytes[16],
            characters,
            input_speed: speed,
            output_speed: speed,
        }
    }

    /// Reads `struct termios2`; the speeds are taken literally when the control modes say BOTHER.
    pub fn from_bytes2(bytes: &[u8; TERMIOS2_BYTES], previous: &Self) -> Self {
        let mut short = [0; TERMIOS_BYTES];
        short.copy_from_slice(&bytes[..TERMIOS_BYTES]);
        let mut termios = Self::from_bytes(&short, previous);
        if termios.control & CBAUD == BOTHER {
            termios.input_speed = u32::from_ne_bytes([bytes[36], bytes[37], bytes[38], bytes[39]]);
            termios.output_speed = u32::from_ne_bytes([bytes[40], bytes[41], bytes[42], bytes[43]]);
        }
        termios
    }

    /// What becomes of a change to `wanted`: the bits and characters that `locks` names stay as they are (TIOCSLCKTRMIOS).
    #[must_use]
    pub fn changed(&self, wanted: &Self, locks: &Self) -> Self {
        let keep = |old: u32, new: u32, locked: u32| old & locked | new & !locked;
        let mut termios = *wanted;
        termios.input =
            InputFlags::from_bits_retain(keep(self.input.bits(), wanted.input.bits(), locks.input.bits()));
        termios.output = OutputFlags::from_bits_retain(keep(
            self.output.bits(),
            wanted.output.bits(),
            locks.output.bits(),
        ));
        termios.control = keep(self.control, wanted.control, locks.control);
        termios.local =
            LocalFlags::from_bits_retain(keep(self.local.bits(), wanted.local.bits(), locks.local.bits()));
        if locks.line != 0 {
            termios.line = self.line;
        }
        for (at, &locked) in locks.characters.iter().enumerate() {
            if locked != 0 {
                termios.characters[at] = self.characters[at];
            }
        }
        termios
    }

    /// Locks nothing: what [`Termios::changed`] gets for a terminal whose attributes nobody has locked.
    pub const fn unlocked() -> Self {
        Self {
            input: InputFlags::empty(),
            output: OutputFlags::empty(),
            control: 0,
            local: LocalFlags::empty(),
            line: 0,
            characters: [0; CONTROL_CHARACTERS],
            input_speed: 0,
            output_speed: 0,
        }
    }

    /// Reads `struct termio`: the upper halves and the other control characters stay.
    pub fn from_short_bytes(bytes: &[u8; TERMIO_BYTES], previous: &Self) -> Self {
        let merge = |at: usize, old: u32| {
            (old & 0xffff_0000) | u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]))
        };
        let mut termios = *previous;
        termios.input = InputFlags::from_bits_retain(merge(0, previous.input.bits()));
        termios.output = OutputFlags::from_bits_retain(merge(2, previous.output.bits()));
        termios.control = merge(4, previous.control);
        termios.local = LocalFlags::from_bits_retain(merge(6, previous.local.bits()));
        termios.line = bytes[8];
        termios.characters[..8].copy_from_slice(&bytes[9..17]);
        termios
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn termios_survives_the_abi_round_trip() {
        let initial = Termios::initial();
        assert_eq!(Termios::from_bytes(&initial.to_bytes(), &initial), initial);
        assert_eq!(Termios::from_bytes2(&initial.to_bytes2(), &initial), initial);
        assert_eq!(Termios::from_short_bytes(&initial.to_short_bytes(), &initial), initial);
    }

    #[test]
    fn what_is_locked_stays() {
        let old = Termios::initial();
        let mut wanted = old;
        wanted.local = LocalFlags::ISIG;
        wanted.input = InputFlags::IUTF8;
        wanted.characters = [7; CONTROL_CHARACTERS];
        assert_eq!(old.changed(&wanted, &Termios::unlocked()), wanted);
        let mut locks = Termios::unlocked();
        locks.local = LocalFlags::ECHO.union(LocalFlags::NOFLSH);
        locks.characters[Control::Erase as usize] = 1;
        let new = old.changed(&wanted, &locks);
        assert_eq!(new.local, LocalFlags::ISIG.union(LocalFlags::ECHO));
        assert_eq!(new.input, wanted.input);
        assert_eq!(new.character(Control::Erase), old.character(Control::Erase));
        assert_eq!(new.character(Control::Kill), 7);
    }

    #[test]
    fn initial_attributes_are_those_of_linux() {
        let bytes = Termios::initial().to_bytes();
        assert_eq!(&bytes[..4], &0x500_u32.to_ne_bytes());
        assert_eq!(&bytes[4..8], &5_u32.to_ne_bytes());
        assert_eq!(&bytes[8..12], &0x4bf_u32.to_ne_bytes());
        assert_eq!(&bytes[12..16], &0x8a3b_u32.to_ne_bytes());
    }

    #[test]
    fn a_custom_speed_is_kept() {
        let initial = Termios::initial();
        let mut bytes = initial.to_bytes2();
        bytes[8..12].copy_from_slice(&(CS8 | BOTHER).to_ne_bytes());
        bytes[40..].copy_from_slice(&250_000_u32.to_ne_bytes());
        assert_eq!(Termios::from_bytes2(&bytes, &initial).output_speed, 250_000);
    }
}
