//! A drawing as JSON for the viewers of browsers: `chrome://tracing`, Perfetto.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::model::{Effect, Model, State};
use super::names::Names;

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Writes the drawing.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(model: &Model, names: &Names, out: &mut Vec<u8>) -> io::Result<()> {
    let mut events = Vec::new();
    for (&(pid, tid), thread) in &model.threads {
        let name = names.thread_or_number(pid, tid);
        events.push(
            json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }),
        );
        for span in &thread.spans {
            let what = match span.what {
                State::Running => "running".into(),
                State::Waiting(address) => format!("waits for {}", names.object_or_address(pid, address)),
            };
            let duration = us(span.to_ns.saturating_sub(span.from_ns));
            events.push(json!({ "ph": "X", "name": what, "pid": pid, "tid": tid, "ts": us(span.from_ns), "dur": duration }));
        }
    }
    for (id, link) in model.links.iter().enumerate() {
        let name = match link.effect {
            Effect::Creates => "creates",
            Effect::Wakes => "wakes",
            Effect::IsJoinedBy => "is joined by",
            Effect::Cancels => "cancels",
        };
        let end = |phase: &str, thread: u32, ns: u64| -> Value {
            json!({ "ph": phase, "bp": "e", "cat": "threads", "name": name, "id": id, "pid": link.process, "tid": thread, "ts": us(ns) })
        };
        events.push(end("s", link.from, link.from_ns));
        events.push(end("f", link.to, link.to_ns));
    }
    for (pid, process) in &model.processes {
        if let Some(program) = &process.program {
            events
                .push(json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": program } }));
        }
    }
    writeln!(out, "{}", json!({ "traceEvents": events, "displayTimeUnit": "ns" }))
}
