//! Messages about ports.

/// What they are about.
pub(super) mod event {
    pub(in crate::console) const DEVICE_READY: u16 = 0;
    pub(in crate::console) const PORT_ADDED: u16 = 1;
    pub(in crate::console) const PORT_REMOVED: u16 = 2;
    pub(in crate::console) const PORT_READY: u16 = 3;
    pub(in crate::console) const IS_CONSOLE: u16 = 4;
    pub(in crate::console) const RESIZE: u16 = 5;
    pub(in crate::console) const OPEN: u16 = 6;
    pub(in crate::console) const NAME: u16 = 7;
}

/// A message; what follows it is taken apart by who knows the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) port: u32,
    pub(super) event: u16,
    pub(super) value: u16,
}

impl Message {
    /// Bytes of one.
    pub(super) const BYTES: usize = 8;

    /// As the device wants it.
    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.port.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.event.to_le_bytes());
        bytes[6..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// From the device, with what follows. None if it is too short.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        let [p0, p1, p2, p3, e0, e1, v0, v1] = *head;
        let port = u32::from_le_bytes([p0, p1, p2, p3]);
        let (event, value) = (u16::from_le_bytes([e0, e1]), u16::from_le_bytes([v0, v1]));
        Some((Self { port, event, value }, rest))
    }
}

/// Columns and rows of a terminal, as they follow [`event::RESIZE`].
pub(super) fn size(rest: &[u8]) -> Option<(u16, u16)> {
    let [c0, c1, r0, r1] = *rest.first_chunk::<4>()?;
    Some((u16::from_le_bytes([c0, c1]), u16::from_le_bytes([r0, r1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_the_specification_says() {
        let message = Message { port: 0x0102_0304, event: event::OPEN, value: 1 };
        assert_eq!(message.encode(), [4, 3, 2, 1, 6, 0, 1, 0]);
        let bytes = [&message.encode()[..], b"rest"].concat();
        assert_eq!(Message::decode(&bytes), Some((message, &b"rest"[..])));
        assert_eq!(Message::decode(&bytes[..7]), None);
        assert_eq!(size(&[80, 0, 24, 0, 9]), Some((80, 24)));
        assert_eq!(size(&[80, 0, 24]), None);
    }
}
