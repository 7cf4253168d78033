//! A drawing in Pajé's format: threads and objects as bars coloured by their states, what threads do to each other as arrows.

use std::io::{self, Write};

use super::model::{Effect, Model, State};
use super::names::Names;

/// The events that are used, with their numbers and fields.
const DEFINITIONS: [(&str, &[(&str, &str)]); 9] = [
    ("PajeDefineContainerType", &[("Alias", "string"), ("Type", "string"), ("Name", "string")]),
    ("PajeDefineStateType", &[("Alias", "string"), ("Type", "string"), ("Name", "string")]),
    (
        "PajeDefineEntityValue",
        &[("Alias", "string"), ("Type", "string"), ("Name", "string"), ("Color", "color")],
    ),
    (
        "PajeDefineLinkType",
        &[
            ("Alias", "string"),
            ("Type", "string"),
            ("StartContainerType", "string"),
            ("EndContainerType", "string"),
            ("Name", "string"),
        ],
    ),
    (
        "PajeCreateContainer",
        &[
            ("Time", "date"),
            ("Alias", "string"),
            ("Type", "string"),
            ("Container", "string"),
            ("Name", "string"),
        ],
    ),
    ("PajeDestroyContainer", &[("Time", "date"), ("Name", "string"), ("Type", "string")]),
    ("PajeSetState", &[("Time", "date"), ("Type", "string"), ("Container", "string"), ("Value", "string")]),
    (
        "PajeStartLink",
        &[
            ("Time", "date"),
            ("Type", "string"),
            ("Container", "string"),
            ("StartContainer", "string"),
            ("Value", "string"),
            ("Key", "string"),
        ],
    ),
    (
        "PajeEndLink",
        &[
            ("Time", "date"),
            ("Type", "string"),
            ("Container", "string"),
            ("EndContainer", "string"),
            ("Value", "string"),
            ("Key", "string"),
        ],
    ),
];
const CREATE: usize = 4;
const DESTROY: usize = 5;
const SET_STATE: usize = 6;
const START_LINK: usize = 7;
const END_LINK: usize = 8;

const TYPES: &str = "\
0 P 0 Process
0 T P Thread
0 O P Object
1 ST T \"Thread state\"
1 SO O \"Object state\"
2 running ST running \"0.2 0.7 0.2\"
2 waiting ST waiting \"0.9 0.3 0.2\"
2 dead ST dead \"0.5 0.5 0.5\"
2 taken SO taken \"0.9 0.6 0.1\"
2 free SO free \"0.8 0.9 1.0\"
3 creates P T T creates
3 wakes P T T wakes
3 joins P T T \"is joined by\"
3 cancels P T T cancels
";

const fn link_type(effect: Effect) -> &'static str {
    match effect {
        Effect::Creates => "creates",
        Effect::Wakes => "wakes",
        Effect::IsJoinedBy => "joins",
        Effect::Cancels => "cancels",
    }
}

/// Quotation marks would end a name.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace(['"', '\n'], "'"))
}

/// Lines with their times; those of one time in the order in which they were added.
#[derive(Default)]
struct Lines(Vec<(u64, String)>);

impl Lines {
    fn add(&mut self, time_ns: u64, event: usize, fields: &str) {
        self.0.push((time_ns, format!("{event} {:.9} {fields}", time_ns as f64 / 1e9)));
    }
}

/// Writes the drawing.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(model: &Model, names: &Names, out: &mut Vec<u8>) -> io::Result<()> {
    for (number, (name, fields)) in DEFINITIONS.iter().enumerate() {
        writeln!(out, "%EventDef {name} {number}")?;
        for (field, kind) in *fields {
            writeln!(out, "%\t{field} {kind}")?;
        }
        writeln!(out, "%EndEventDef")?;
    }
    write!(out, "{TYPES}")?;
    let mut lines = Lines::default();
    add_containers(model, names, &mut lines);
    add_states(model, &mut lines);
    add_links(model, &mut lines);
    let mut processes: Vec<_> = model.threads.keys().map(|(pid, _)| *pid).collect();
    processes.dedup();
    for pid in processes {
        lines.add(model.end_ns, DESTROY, &format!("P{pid} P"));
    }
    lines.0.sort_by_key(|(time_ns, _)| *time_ns);
    lines.0.iter().try_for_each(|(_, line)| writeln!(out, "{line}"))
}

/// All are there from the beginning: an arrow may come before the first record of its thread.
fn add_containers(model: &Model, names: &Names, lines: &mut Lines) {
    let mut last = None;
    for &(pid, tid) in model.threads.keys() {
        if last != Some(pid) {
            let program = model.processes.get(&pid).and_then(|process| process.program.clone());
            let name = format!("{pid} {}", program.unwrap_or_default());
            lines.add(0, CREATE, &format!("P{pid} P 0 {}", quoted(name.trim_end())));
            last = Some(pid);
        }
        // Names need be different everywhere.
        let name = format!("{} ({pid}/{tid})", names.thread_or_number(pid, tid));
        lines.add(0, CREATE, &format!("T{pid}.{tid} T P{pid} {}", quoted(&name)));
    }
    for (&(pid, address), object) in model.objects.iter().filter(|(_, object)| !object.held.is_empty()) {
        let name = format!("{} {} ({pid})", object.class, names.object_or_address(pid, address));
        lines.add(0, CREATE, &format!("O{pid}.{address:x} O P{pid} {}", quoted(&name)));
    }
}

fn add_states(model: &Model, lines: &mut Lines) {
    for (&(pid, tid), thread) in &model.threads {
        for span in &thread.spans {
            let state = if span.what == State::Running { "running" } else { "waiting" };
            lines.add(span.from_ns, SET_STATE, &format!("ST T{pid}.{tid} {state}"));
        }
        let to_ns = thread.spans.last().map_or(thread.to_ns, |span| span.to_ns);
        lines.add(to_ns, SET_STATE, &format!("ST T{pid}.{tid} dead"));
    }
    for (&(pid, address), object) in &model.objects {
        for span in &object.held {
            lines.add(span.from_ns, SET_STATE, &format!("SO O{pid}.{address:x} taken"));
            lines.add(span.to_ns, SET_STATE, &format!("SO O{pid}.{address:x} free"));
        }
    }
}

fn add_links(model: &Model, lines: &mut Lines) {
    for (key, link) in model.links.iter().enumerate() {
        let (kind, pid) = (link_type(link.effect), link.process);
        lines.add(link.from_ns, START_LINK, &format!("{kind} P{pid} T{pid}.{} {kind} {key}", link.from));
        lines.add(link.to_ns, END_LINK, &format!("{kind} P{pid} T{pid}.{} {kind} {key}", link.to));
    }
}
