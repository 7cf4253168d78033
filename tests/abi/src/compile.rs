//! Building the programs, once for each content.
//!
//! An object's file name carries a hash of its source, its headers and its flags, so a second run compiles nothing. Files are
//! written under a temporary name and renamed: a build that is interrupted leaves nothing half done.

use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter::once;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::cases::{self, Case};
use crate::image::Place;

/// How C is compiled. No fortify: the tests hand the kernel what a checked libc would stop.
const C_FLAGS: [&str; 6] =
    ["-O2", "-std=gnu11", "-pthread", "-static", "-fno-stack-protector", "-U_FORTIFY_SOURCE"];

/// What was built.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// The binary that holds all small C programs.
    pub(crate) multi_call: PathBuf,
    /// The names it answers to.
    pub(crate) multi_call_names: Vec<String>,
    /// Programs with a file of their own: path in the image, file here.
    pub(crate) separate: Vec<(String, PathBuf)>,
    /// The same for programs that carry a large run-time system.
    pub(crate) large: Vec<(String, PathBuf)>,
}

/// A command that makes one file.
struct Step {
    output: PathBuf,
    command: Command,
}

/// Builds every program that the image needs; the second list says what cannot be built here, and why.
pub(crate) fn build(place: &Place, cases: &[Case]) -> Result<(Programs, Vec<(String, String)>), String> {
    fs::create_dir_all(place.built()).map_err(|error| format!("{}: {error}", place.built().display()))?;
    let mut programs = Programs::default();
    let objects = compile_multi_call(place, &mut programs)?;
    link_multi_call(place, &objects, &mut programs)?;
    let mut steps = Vec::new();
    let mut skipped = Vec::new();
    for (name, flags) in
        [("runner", &C_FLAGS[..]), ("hello", &C_FLAGS[..]), ("tiny", &["-O2", "-nostdlib", "-static"])]
    {
        let source = place.user().join("separate").join(format!("{name}.c"));
        let output = place.built().join(format!("{name}-{:016x}", hash(&[&source], flags)?));
        let mut command = Command::new("gcc");
        command.args(flags).arg("-s").arg("-o").arg(temporary(&output)).arg(&source);
        programs.separate.push((format!("abi/{name}"), output.clone()));
        steps.push(Step { output, command });
    }
    steps.push(space_tools(place, &mut programs)?);
    for case in cases {
        let step = match case.source.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => rust_step(place, case)?,
            Some("go") => match go_step(place, case)? {
                Some(step) => step,
                None => {
                    skipped.push((case.name.clone(), String::from("no Go toolchain on this machine")));
                    continue;
                }
            },
            _ => continue,
        };
        programs.large.push((format!("abi/bin/{}", case.name), step.output.clone()));
        steps.push(step);
    }
    perform(steps)?;
    Ok((programs, skipped))
}

/// The tools of private name spaces: one program of several files, which looks at the name that it is called by.
fn space_tools(place: &Place, programs: &mut Programs) -> Result<Step, String> {
    let folder = place.user().join("spaces");
    let sources = cases::sources(&folder, "c")?;
    let mut files = cases::sources(&folder, "h")?;
    files.extend(sources.iter().cloned());
    let output = place.built().join(format!("spaces-{:016x}", hash(&files, &C_FLAGS)?));
    let mut command = Command::new("gcc");
    command.args(C_FLAGS).arg("-s").arg("-o").arg(temporary(&output)).args(&sources);
    programs.separate.push(("abi/spaces".into(), output.clone()));
    Ok(Step { output, command })
}

/// Compiles each small program to an object whose `main` has the program's name.
fn compile_multi_call(place: &Place, programs: &mut Programs) -> Result<Vec<PathBuf>, String> {
    let mut headers = cases::sources(&place.programs(), "h")?;
    headers.extend(cases::sources(&place.user(), "h")?);
    headers.extend(cases::sources(&place.user().join("ipc/include"), "h")?);
    let mut sources = cases::sources(&place.programs(), "c")?;
    sources.extend(cases::sources(&place.user(), "c")?);
    let mut steps = Vec::new();
    let mut objects = Vec::new();
    for source in sources {
        let name = cases::stem(&source);
        let output = place.built().join(format!(
            "{name}-{:016x}.o",
            hash(&once(&source).chain(&headers).collect::<Vec<_>>(), &C_FLAGS)?
        ));
        let mut command = Command::new("gcc");
        command.args(C_FLAGS).arg(format!("-Dmain=abi_main_{name}")).arg("-I").arg(place.programs());
        command.arg("-c").arg("-o").arg(temporary(&output)).arg(&source);
        objects.push(output.clone());
        steps.push(Step { output, command });
        programs.multi_call_names.push(name);
    }
    perform(steps)?;
    Ok(objects)
}

/// Links the objects with a `main` that calls the one that is asked for.
fn link_multi_call(place: &Place, objects: &[PathBuf], programs: &mut Programs) -> Result<(), String> {
    let mut text = String::from("#include <stdio.h>\n#include <string.h>\n");
    for name in &programs.multi_call_names {
        text += &format!("int abi_main_{name}(int, char **, char **);\n");
    }
    text += "static const struct { const char *name; int (*main)(int, char **, char **); } programs[] = {\n";
    for name in &programs.multi_call_names {
        text += &format!("    {{ \"{name}\", abi_main_{name} }},\n");
    }
    text += "};\nint main(int count, char **words, char **environment) {\n\
             \x20   const char *slash = words[0] ? strrchr(words[0], '/') : NULL;\n\
             \x20   const char *name = slash ? slash + 1 : words[0] ? words[0] : \"\";\n\
             \x20   setvbuf(stdout, NULL, _IOLBF, 0);\n\
             \x20   for (unsigned i = 0; i < sizeof programs / sizeof *programs; i++)\n\
             \x20       if (strcmp(programs[i].name, name) == 0)\n\
             \x20           return programs[i].main(count, words, environment);\n\
             \x20   fprintf(stderr, \"abi: no program called %s\\n\", name);\n\
             \x20   return 127;\n}\n";
    let source = place.built().join("multi_call.c");
    fs::write(&source, &text).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    objects.hash(&mut hasher);
    programs.multi_call = place.built().join(format!("multi_call-{:016x}", hasher.finish()));
    let mut command = Command::new("gcc");
    command.args(C_FLAGS).arg("-s").arg("-o").arg(temporary(&programs.multi_call)).arg(&source).args(objects);
    command.arg("-lm");
    perform(vec![Step { output: programs.multi_call.clone(), command }])
}

/// A static program of Rust's standard library on glibc.
fn rust_step(place: &Place, case: &Case) -> Result<Step, String> {
    let flags = [
        "--edition=2024",
        "-O",
        "-Cstrip=symbols",
        "-Ctarget-feature=+crt-static",
        "-Crelocation-model=static",
    ];
    let output = place.built().join(format!("{}-{:016x}", case.name, hash(&[&case.source], &flags)?));
    let mut command = Command::new("rustc");
    command.args(flags).arg("--target").arg("x86_64-unknown-linux-gnu");
    command.arg("-o").arg(temporary(&output)).arg(&case.source).current_dir(place.built());
    Ok(Step { output, command })
}

/// A static Go program; none without a toolchain.
fn go_step(place: &Place, case: &Case) -> Result<Option<Step>, String> {
    let candidates = ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"];
    let found = candidates.into_iter().find(|go| Command::new(go).arg("version").output().is_ok());
    let Some(go) = found else { return Ok(None) };
    let flags = ["build", "-trimpath", "-ldflags=-s -w"];
    let output = place.built().join(format!("{}-{:016x}", case.name, hash(&[&case.source], &flags)?));
    let mut command = Command::new(go);
    command.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOFLAGS", "").env("GOTOOLCHAIN", "local");
    command.env("GOCACHE", place.built().join("go-cache")).current_dir(place.built());
    command.args(flags).arg("-o").arg(temporary(&output)).arg(&case.source);
    Ok(Some(Step { output, command }))
}

/// Runs the steps whose output is missing, as many at once as there are CPUs.
fn perform(steps: Vec<Step>) -> Result<(), String> {
    let queue: VecDeque<Step> = steps.into_iter().filter(|step| !step.output.exists()).collect();
    if queue.is_empty() {
        return Ok(());
    }
    let workers = thread::available_parallelism().map_or(1, |count| count.get());
    let queue = Mutex::new(queue);
    let errors = Mutex::new(String::new());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let step = queue.lock().expect("no worker panics").pop_front();
                    let Some(step) = step else { break };
                    if let Err(message) = finish(step) {
                        errors.lock().expect("no worker panics").push_str(&message);
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().expect("no worker panics");
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Runs one step and gives its output its name.
fn finish(mut step: Step) -> Result<(), String> {
    let name = step.output.display().to_string();
    let output =
        step.command.output().map_err(|error| format!("{:?}: {error}\n", step.command.get_program()))?;
    if !output.status.success() {
        return Err(format!("{name}:\n{}\n", String::from_utf8_lossy(&output.stderr)));
    }
    fs::rename(temporary(&step.output), &step.output).map_err(|error| format!("{name}: {error}\n"))
}

fn temporary(output: &Path) -> PathBuf {
    output.with_extension("new")
}

fn hash<P: AsRef<Path>>(files: &[P], flags: &[&str]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    flags.hash(&mut hasher);
    for file in files {
        let file = file.as_ref();
        fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}
