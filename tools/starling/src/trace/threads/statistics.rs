//! Counts and times of threads, objects and functions, as tables for people or as JSON for programs.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::file::Trace;
use super::model::{Durations, Model, Object, Thread};
use super::names::{NameArguments, Names};
use super::replay;
use crate::failure::{Context, Outcome};

#[derive(Args, Debug)]
pub(super) struct StatisticsArguments {
    /// What was recorded
    file: PathBuf,

    /// For programs
    #[arg(long)]
    json: bool,

    /// Rows of a table at most: those waited for longest
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,

    #[command(flatten)]
    names: NameArguments,
}

/// Writes the statistics of a trace.
///
/// # Errors
/// When the file is no trace.
pub(super) fn statistics(arguments: &StatisticsArguments, out: &mut Vec<u8>) -> Outcome<()> {
    let trace = Trace::read(&arguments.file)?;
    let model = replay::replay(&trace);
    let names = Names::new(&model, &arguments.names)?;
    let written = if arguments.json {
        writeln!(out, "{:#}", as_json(&model, &names))
    } else {
        Tables { model: &model, names: &names, top: arguments.top }.write(out)
    };
    written.context(|| "the statistics".into())
}

fn as_json(model: &Model, names: &Names) -> Value {
    let processes = model.processes.iter().map(|(pid, process)| {
        json!({ "pid": pid, "parent": process.parent, "program": process.program, "status": process.status })
    });
    let threads = model.threads.iter().map(|(&(pid, tid), thread)| {
        json!({
            "pid": pid, "tid": tid, "name": names.thread(pid, tid), "routine": thread.routine, "ended": thread.has_ended,
            "joined": thread.joined, "detached": thread.detached, "cancelled": thread.cancelled, "start_ns": thread.start_ns,
            "life_ns": thread.to_ns.saturating_sub(thread.from_ns), "waits": thread.waits,
        })
    });
    let objects = model.objects.iter().map(|(&(pid, address), object)| {
        json!({
            "pid": pid, "object": names.object_or_address(pid, address), "class": object.class, "taken": object.taken,
            "taken_by_writers": object.taken_by_writers, "contended": object.contended, "refused": object.refused,
            "given": object.given, "broadcasts": object.broadcasts, "rounds": object.rounds, "timed_out": object.timed_out,
            "waits": object.waits, "holds": object.holds,
        })
    });
    let functions = model.functions.iter().map(|(name, calls)| {
        json!({ "function": name, "calls": calls.durations.count, "errors": calls.errors, "total_ns": calls.durations.total_ns })
    });
    json!({
        "records": model.records, "record_bytes": model.record_bytes, "skipped_bytes": model.skipped_bytes,
        "lost_bytes": model.lost_bytes, "duration_ns": model.end_ns,
        "processes": processes.collect::<Vec<_>>(), "threads": threads.collect::<Vec<_>>(),
        "objects": objects.collect::<Vec<_>>(), "functions": functions.collect::<Vec<_>>(),
    })
}

/// What a column is called, and what stands in it.
type Column = (&'static str, fn(&Object) -> u64);

/// A class of objects and the columns of its table.
struct Class {
    name: &'static str,
    title: &'static str,
    columns: &'static [Column],
    /// Whether it is held for a time.
    held: bool,
}

const CLASSES: [Class; 7] = [
    Class {
        name: "MUTEX",
        title: "mutexes",
        columns: &[("taken", |o| o.taken), ("contended", |o| o.contended), ("refused", |o| o.refused)],
        held: true,
    },
    Class {
        name: "RWLOCK",
        title: "read-write locks",
        columns: &[
            ("taken", |o| o.taken),
            ("by writers", |o| o.taken_by_writers),
            ("contended", |o| o.contended),
            ("refused", |o| o.refused),
        ],
        held: true,
    },
    Class {
        name: "SPIN",
        title: "spin locks",
        columns: &[("taken", |o| o.taken), ("contended", |o| o.contended), ("refused", |o| o.refused)],
        held: true,
    },
    Class {
        name: "COND",
        title: "condition variables",
        columns: &[
            ("waits", |o| o.waits.count),
            ("timed out", |o| o.timed_out),
            ("signals", |o| o.given),
            ("broadcasts", |o| o.broadcasts),
        ],
        held: false,
    },
    Class {
        name: "BARRIER",
        title: "barriers",
        columns: &[("waits", |o| o.waits.count), ("rounds", |o| o.rounds)],
        held: false,
    },
    Class {
        name: "SEM",
        title: "semaphores",
        columns: &[
            ("taken", |o| o.taken),
            ("contended", |o| o.contended),
            ("given", |o| o.given),
            ("refused", |o| o.refused),
        ],
        held: false,
    },
    Class {
        name: "QUEUE",
        title: "message queues",
        columns: &[("received", |o| o.taken), ("sent", |o| o.given)],
        held: false,
    },
];

struct Tables<'a> {
    model: &'a Model,
    names: &'a Names,
    top: usize,
}

fn ms(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

fn waiting_columns(waits: Durations) -> [String; 2] {
    [ms(waits.total_ns), ms(waits.longest_ns)]
}

/// Rows under a head, right-justified but for the last column.
fn write_table(out: &mut Vec<u8>, title: &str, head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    let last = head.len() - 1;
    let head: Vec<_> = head.iter().map(|word| (*word).to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        for (cell, name) in row[..last].iter().zip(&head) {
            write!(out, "{cell:>width$} ", width = name.len().max(10))?;
        }
        writeln!(out, " {}", row[last])?;
    }
    Ok(())
}

impl Tables<'_> {
    fn write(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let model = self.model;
        let seconds = model.end_ns as f64 / 1e9;
        let each = model.record_bytes as f64 / model.records.max(1) as f64;
        writeln!(out, "{} records in {seconds:.6} s, {each:.1} bytes each", model.records)?;
        if model.skipped_bytes as u64 + model.lost_bytes > 0 {
            let lost = model.skipped_bytes as u64 + model.lost_bytes;
            writeln!(out, "{lost} bytes belong to records that were never finished")?;
        }
        self.write_processes(out)?;
        self.write_threads(out)?;
        for class in &CLASSES {
            self.write_objects(class, out)?;
        }
        self.write_functions(out)
    }

    fn write_processes(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let rows = self.model.processes.iter().map(|(pid, process)| {
            let number = |value: Option<i64>| value.map_or("-".into(), |value| value.to_string());
            let program = process.program.clone().unwrap_or_default();
            vec![
                pid.to_string(),
                number(process.parent.map(i64::from)),
                status(process.status),
                ms(process.from_ns),
                program,
            ]
        });
        write_table(
            out,
            "processes",
            &["process", "parent", "status", "begins ms", "program"],
            &rows.collect::<Vec<_>>(),
        )
    }

    fn write_threads(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut threads: Vec<_> = self.model.threads.iter().collect();
        threads.sort_by_key(|(_, thread)| Reverse(thread.waits.total_ns));
        let rows = threads.iter().take(self.top).map(|&(&(pid, tid), thread)| {
            let mut row =
                vec![pid.to_string(), tid.to_string(), ms(thread.to_ns.saturating_sub(thread.from_ns))];
            row.push(thread.start_ns.map_or("-".into(), ms));
            row.push(thread.waits.count.to_string());
            row.extend(waiting_columns(thread.waits));
            row.push(end_of(thread).into());
            row.push(self.names.thread_or_number(pid, tid));
            row
        });
        let head =
            ["process", "thread", "life ms", "start ms", "waits", "waiting ms", "longest ms", "end", "name"];
        write_table(out, "threads", &head, &rows.collect::<Vec<_>>())
    }

    fn write_objects(&self, class: &Class, out: &mut Vec<u8>) -> io::Result<()> {
        let mut objects: Vec<_> =
            self.model.objects.iter().filter(|(_, object)| object.class == class.name).collect();
        objects.sort_by_key(|(_, object)| Reverse((object.waits.total_ns, object.taken + object.given)));
        let mut head = vec!["process"];
        head.extend(class.columns.iter().map(|(name, _)| *name));
        head.extend(["waiting ms", "longest ms"]);
        if class.held {
            head.extend(["holding ms", "longest ms"]);
        }
        head.push("object");
        let rows = objects.iter().take(self.top).map(|&(&(pid, address), object)| {
            let mut row = vec![pid.to_string()];
            row.extend(class.columns.iter().map(|(_, value)| value(object).to_string()));
            row.extend(waiting_columns(object.waits));
            if class.held {
                row.extend(waiting_columns(object.holds));
            }
            row.push(self.names.object_or_address(pid, address));
            row
        });
        write_table(out, class.title, &head, &rows.collect::<Vec<_>>())
    }

    fn write_functions(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut functions: Vec<_> = self.model.functions.iter().collect();
        functions.sort_by_key(|(_, calls)| Reverse(calls.durations.total_ns));
        let rows = functions.iter().map(|(name, calls)| {
            let mut row = vec![calls.durations.count.to_string(), calls.errors.to_string()];
            row.extend(waiting_columns(calls.durations));
            row.push((*name).clone());
            row
        });
        write_table(
            out,
            "functions",
            &["calls", "errors", "in all ms", "longest ms", "function"],
            &rows.collect::<Vec<_>>(),
        )
    }
}

/// How a process ended, from what wait(2) told.
fn status(status: Option<i64>) -> String {
    match status {
        None => "-".into(),
        Some(status) if status & 0x7f == 0 => format!("exit {}", status >> 8 & 0xff),
        Some(status) => format!("signal {}", status & 0x7f),
    }
}

fn end_of(thread: &Thread) -> &'static str {
    match (thread.cancelled, thread.joined, thread.detached, thread.has_ended) {
        (true, ..) => "cancelled",
        (_, true, ..) => "joined",
        (_, _, true, true) => "detached",
        (.., true) => "ended",
        (.., false) => "-",
    }
}
