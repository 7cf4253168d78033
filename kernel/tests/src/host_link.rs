//! Tests of the host link that need somebody at the other end: they run only when named, not with `test=all`.

use super::{Outcome, Test, check, fail};
use hostlink::{Link, Output};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "host_link::input_comes_back_as_output", run: input_comes_back_as_output },
    Test { name: "host_link::output_arrives", run: output_arrives },
];

/// Bytes that [`output_arrives`] sends.
const OUTPUT_BYTES: usize = 1 << 20;

/// Sends a known pattern as standard error, and logs how fast that went.
fn output_arrives() -> Outcome {
    let Some(link) = Link::get() else { fail!("no host link") };
    let pattern: [u8; 256] = core::array::from_fn(|index| index as u8);
    let start = ::machine::time::now_ns();
    let mut sent = 0;
    while sent < OUTPUT_BYTES {
        let Ok(count) = link.write(Output::Stderr, &pattern[sent % pattern.len()..]) else {
            fail!("the host does not listen");
        };
        sent += count;
    }
    link.flush();
    let elapsed_us = (::machine::time::now_ns() - start) / 1000;
    log::info!("{sent} bytes in {elapsed_us} us");
    Ok(())
}

/// Sends standard input back as standard output until it ends.
fn input_comes_back_as_output() -> Outcome {
    let Some(link) = Link::get() else { fail!("no host link") };
    let mut piece = [0; 1024];
    loop {
        check!(link.input_queue().wait_interruptible(|| link.can_read()).is_ok(), "interrupted by nobody");
        let count = link.try_read(&mut piece).unwrap_or(0);
        if count == 0 {
            return Ok(());
        }
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            let Ok(sent) = link.write(Output::Stdout, rest) else { fail!("the host does not listen") };
            rest = &rest[sent..];
        }
    }
}
