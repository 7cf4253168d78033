//! `/proc/starling/rcu`: the state of RCU as text.

use core::fmt::{self, Write};

use machine::{cpu, time};

use super::flavour::Kind;
use super::grace_period::domain;
use super::{bulk, parameters, pressure, queue, statistics};

/// Writes the state: a block for each flavour, then one for each CPU.
///
/// # Errors
/// What the writer says.
pub fn write_report(out: &mut dyn Write) -> fmt::Result {
    let policy = parameters::policy();
    writeln!(
        out,
        "policy {policy:?} blimit {} qhimark {} qlowmark {} bytes_limit {} protected {}",
        parameters::batch_limit(),
        parameters::high_mark(),
        parameters::low_mark(),
        pressure::bytes_limit(),
        u8::from(parameters::is_protected()),
    )?;
    for kind in Kind::ALL {
        write_flavour(out, kind)?;
    }
    for cpu in cpu::online().iter() {
        for kind in Kind::ALL {
            let counts = queue::counts(cpu, kind);
            writeln!(
                out,
                "cpu{cpu} {}: queued {} ran {} bytes {} flooded {} floods {} most {} hand_overs {}",
                kind.name(),
                counts.queued,
                counts.ran,
                counts.bytes,
                u8::from(counts.flooded),
                counts.floods,
                counts.most,
                counts.hand_overs,
            )?;
        }
        let (blocks, refused) = bulk::counts(cpu);
        let (put, dropped, waits) = (bulk::put(cpu), bulk::dropped(cpu), pressure::waits(cpu));
        writeln!(
            out,
            "cpu{cpu} bulk: put {put} dropped {dropped} blocks {blocks} refused {refused} producers_slowed {waits}"
        )?;
        let (softirqs, longest) = statistics::windows(cpu);
        writeln!(out, "cpu{cpu} batch_length: {}", statistics::batches(cpu))?;
        writeln!(out, "cpu{cpu} softirqs_per_4ms: {softirqs}")?;
        writeln!(out, "cpu{cpu} longest_grace_period_us_per_4ms: {longest}")?;
    }
    Ok(())
}

fn write_flavour(out: &mut dyn Write, kind: Kind) -> fmt::Result {
    let (domain, name) = (domain(kind), kind.name());
    let ([started, completed, wanted], [forced, hurried, stalls]) = (domain.numbers(), domain.urges());
    writeln!(
        out,
        "{name}: started {started} completed {completed} wanted {wanted} forced {forced} hurried {hurried} stalls {stalls}"
    )?;
    if let Some(since_ns) = domain.running_since() {
        let age_us = time::now_ns().saturating_sub(since_ns) / 1_000;
        writeln!(out, "{name}: running for {age_us} us, waits for CPUs {:?}", domain.owing())?;
    }
    writeln!(out, "{name} grace_period_us: {}", statistics::grace_periods(kind))
}
