//! What the bytes of an x86 instruction say: whether it is a marker, and whether it locks.

/// The first bytes of `nop dword ptr [rax + disp32]`.
const LONG_NOP: [u8; 3] = [0x0f, 0x1f, 0x80];
/// The upper half of the displacement of a marker: no compiler pads with such a thing.
const MAGIC: u32 = 0x5347;

/// An instruction that says where a window begins or ends: a long no-operation whose displacement is
/// `0x5347_0000 + kind << 12 + label`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// Kind 1: from here on accesses of this processor are recorded, under a label of 12 bits.
    Begin(u16),
    /// Kind 2: to here.
    End,
}

impl Marker {
    /// The marker that an instruction is.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let displacement: [u8; 4] = bytes.strip_prefix(&LONG_NOP)?.try_into().ok()?;
        let displacement = u32::from_le_bytes(displacement);
        let number = (displacement & 0xffff) as u16;
        match (displacement >> 16, number >> 12) {
            (MAGIC, 1) => Some(Self::Begin(number & 0xfff)),
            (MAGIC, 2) => Some(Self::End),
            _ => None,
        }
    }
}

/// Whether an instruction that accesses memory does so atomically: with a lock prefix, or as an exchange, which needs none.
pub(crate) fn is_locked(bytes: &[u8]) -> bool {
    const LEGACY: [u8; 11] = [0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x66, 0x67];
    let prefixes = bytes.iter().take_while(|byte| LEGACY.contains(byte)).count();
    if bytes[..prefixes].contains(&0xf0) {
        return true;
    }
    let rest = &bytes[prefixes..];
    let opcode =
        if rest.first().is_some_and(|byte| byte & 0xf0 == 0x40) { rest.get(1) } else { rest.first() };
    matches!(opcode, Some(0x86 | 0x87))
}

/// Whether an instruction is an atomic read-modify-write of memory, also where it is one exchange without a lock prefix.
pub(crate) fn is_atomic(bytes: &[u8]) -> bool {
    if !is_locked(bytes) {
        return false;
    }
    // An exchange of two registers touches no memory.
    let exchange = bytes.iter().position(|byte| matches!(byte, 0x86 | 0x87));
    let locked = bytes.iter().take(5).any(|byte| *byte == 0xf0);
    locked || exchange.and_then(|at| bytes.get(at + 1)).is_some_and(|operands| operands >> 6 != 3)
}

/// Whether an instruction stores a byte that it contains itself: how the kernel marks the calls that it is in.
pub(crate) fn stores_constant_byte(bytes: &[u8]) -> bool {
    match bytes {
        [0xc6, ..] => true,
        [prefix, 0xc6, ..] => prefix & 0xf0 == 0x40,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_told_from_padding() {
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x80, 0x05, 0x10, 0x47, 0x53]), Some(Marker::Begin(5)));
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x80, 0x00, 0x20, 0x47, 0x53]), Some(Marker::End));
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x80, 0x00, 0x30, 0x47, 0x53]), None);
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x80, 0, 0, 0, 0]), None);
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x40, 0]), None);
        assert_eq!(Marker::decode(&[]), None);
    }

    #[test]
    fn exchanges_of_registers_and_plain_stores_are_not_atomic() {
        assert!(is_atomic(&[0xf0, 0x48, 0x0f, 0xb1, 0x0f]) && is_atomic(&[0x48, 0x87, 0x08]));
        assert!(!is_atomic(&[0x87, 0xc8]) && !is_atomic(&[0xff, 0x00]));
        assert!(
            stores_constant_byte(&[0xc6, 0x87, 0, 0, 0, 0x81, 1]) && !stores_constant_byte(&[0x88, 0x07])
        );
    }

    #[test]
    fn lock_prefix_and_exchange_lock() {
        // lock inc dword ptr [rax]; the same after a segment prefix
        assert!(is_locked(&[0xf0, 0xff, 0x00]));
        assert!(is_locked(&[0x65, 0xf0, 0xff, 0x00]));
        // xchg dword ptr [rax], ecx; xchg qword ptr [rax], rcx
        assert!(is_locked(&[0x87, 0x08]));
        assert!(is_locked(&[0x48, 0x87, 0x08]));
        // inc dword ptr [rax]; rep movsb; mov rax, gs:[0]; nothing
        assert!(!is_locked(&[0xff, 0x00]));
        assert!(!is_locked(&[0xf3, 0xa4]));
        assert!(!is_locked(&[0x65, 0x48, 0xa1, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!is_locked(&[]));
    }
}
