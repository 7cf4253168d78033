//! Whatever the other side sends, decoding it ends in a frame or an error; what was encoded comes back.
//! `PROPTEST_CASES` says how many inputs are tried.
#![forbid(unsafe_code)]

use hostlink_protocol::request::Records;
use hostlink_protocol::{BootRecords, Deframer, GuestFrame, HostFrame, MAX_FRAME};
use proptest::collection::vec;
use proptest::prelude::*;

/// Decodes a frame as both sides would, and encodes what came out of it again.
fn decode(kind: u8, payload: &[u8]) {
    let mut out = [0; MAX_FRAME];
    if let Ok(frame) = GuestFrame::decode(kind, payload) {
        let length = frame.encode(&mut out).expect("what was decoded can be encoded");
        assert_eq!(GuestFrame::decode(out[0], &out[3..length]), Ok(frame));
    }
    if let Ok(frame) = HostFrame::decode(kind, payload) {
        let length = frame.encode(&mut out).expect("what was decoded can be encoded");
        assert_eq!(HostFrame::decode(out[0], &out[3..length]), Ok(frame));
    }
    if let Ok(records) = BootRecords::decode(payload) {
        records.for_each(drop);
    }
    Records::new(payload).for_each(drop);
}

/// Feeds a stream in pieces of one size; returns the frames until the stream breaks.
fn frames(stream: &[u8], piece: usize) -> Vec<(u8, Vec<u8>)> {
    let mut deframer = Deframer::new();
    let mut found = Vec::new();
    for part in stream.chunks(piece) {
        let mut rest = part;
        while !rest.is_empty() {
            match deframer.feed(rest) {
                Ok((taken, frame)) => {
                    assert!(taken <= rest.len() && (taken > 0 || frame.is_some()), "no progress");
                    rest = &rest[taken..];
                    found.extend(frame.map(|(kind, payload)| (kind, payload.to_vec())));
                }
                Err(_) => return found,
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_payloads_are_frames_or_errors(kind in 0_u8..32, payload in vec(any::<u8>(), 0..64)) {
        decode(kind, &payload);
    }

    #[test]
    fn hostile_streams_are_cut_the_same_however_they_arrive(
        pieces in vec((0_u8..32, 0_u16..40, vec(any::<u8>(), 0..40)), 1..6),
        piece in 1_usize..20,
    ) {
        // Headers that look right make it past the first one.
        let mut stream = Vec::new();
        for (kind, length, bytes) in &pieces {
            stream.push(*kind);
            stream.extend(length.to_le_bytes());
            stream.extend(bytes);
        }
        let whole = frames(&stream, stream.len());
        prop_assert_eq!(&frames(&stream, piece), &whole);
        whole.iter().for_each(|(kind, payload)| decode(*kind, payload));
    }
}
