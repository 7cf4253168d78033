//! xz: a stream for each block, with a filter for the machine code of x86 at most.

use alloc::boxed::Box;

use memory::fallible;
use sched::Mutex;
use xz4rust::{DICT_SIZE_MIN, XzDecoder, XzNextBlockResult};

use super::damaged;
use crate::Result;
use crate::store::METADATA_BYTES;

/// Bytes that a decompressor takes, generously.
const DECODER_BYTES: usize = 64 << 10;

/// See the theory of this file.
pub(crate) struct Inflater {
    decoder: Mutex<Box<XzDecoder<'static>>>,
}

impl Inflater {
    pub(super) fn new(block_bytes: usize) -> Result<Self> {
        // A dictionary is never larger than what can be referred to.
        let most = block_bytes.max(METADATA_BYTES).max(DICT_SIZE_MIN);
        let dictionary = fallible::try_vec_of(0, most)?;
        // The decompressor itself is allocated without asking: here it is asked.
        drop(fallible::try_vec::<u8>(DECODER_BYTES)?);
        let decoder = XzDecoder::in_heap_with_alloc_dict(dictionary, most);
        Ok(Self { decoder: Mutex::named("xz decompressor", decoder) })
    }

    pub(super) fn inflate(&self, bytes: &[u8], out: &mut [u8]) -> Result<usize> {
        let mut decoder = self.decoder.lock();
        decoder.reset();
        let (mut read, mut written) = (0, 0);
        loop {
            let step = decoder.decode(&bytes[read..], &mut out[written..]).map_err(|_| damaged())?;
            read += step.input_consumed();
            written += step.output_produced();
            match step {
                XzNextBlockResult::EndOfStream(..) => return Ok(written),
                // Nothing more can come in, or what comes out does not fit.
                XzNextBlockResult::NeedMoreData(0, 0) => return Err(damaged()),
                XzNextBlockResult::NeedMoreData(..) => {}
            }
        }
    }
}
