//! `apps`: Debian's programs at their usual work, on a disk with Debian. What a test needs is made before its time begins.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use bench::measure::Suite;

const SUITE: Suite = Suite::new("apps");
/// Where they work: on the disk, as their users do.
const PLACE: &str = "/var/tmp/apps";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A test: its name, what it needs, and what is timed.
struct App {
    name: &'static str,
    before: &'static str,
    script: &'static str,
}

const fn app(name: &'static str, before: &'static str, script: &'static str) -> App {
    App { name, before, script }
}

const APPS: [App; 16] = [
    app("bash_start", "", "for i in 1 2 3 4 5 6 7 8 9 10; do bash -c true; done"),
    app("bash_loop", "", "s=0; for ((i = 1; i <= 20000; i++)); do ((s += i)); done"),
    app(
        "shell_pipelines",
        "seq 2000 > f",
        "for i in 1 2 3 4 5 6 7 8 9 10; do cat f | sort -n | uniq | wc -l; done",
    ),
    app("python_start", "", "python3 -c pass; python3 -c pass; python3 -c pass"),
    app("python_import", "", "python3 -c 'import json, sqlite3, asyncio, multiprocessing, subprocess'"),
    app("perl_text", "seq 50000 > f", "perl -ne '$h{$_ % 97} += $_; END { print join \",\", %h }' f"),
    app("sort_large", "seq 100000 | rev > f", "sort f > g"),
    app(
        "find_and_grep",
        "cp -r /usr/share/perl5 d",
        "find d -type f | wc -l; grep -r nothing_like_it d || true",
    ),
    app("tar_and_gzip", "cp -r /usr/share/perl5 d", "tar czf t.gz d; mkdir o; tar xzf t.gz -C o"),
    app("xz", "seq 100000 > f", "xz -1 -T1 -k f; xz -dc f.xz > g"),
    app("copy_and_remove", "cp -r /usr/share/perl5 d", "cp -a d e; rm -r e"),
    app(
        "gcc_compile",
        "printf '#include <stdio.h>\\nint main(void) { puts(\"x\"); }\\n' > h.c",
        "gcc -O2 -o h h.c; ./h",
    ),
    app(
        "make_lua",
        "tar xzf /usr/src/debian/lua5.4_*.orig.tar.gz --strip-components=1",
        "cd src; make -j2 lapi.o lcode.o ldo.o lgc.o ltable.o lstring.o",
    ),
    app(
        "git",
        "git init -q s; cp -r /usr/share/perl5/D* s; export GIT_CONFIG_GLOBAL=/dev/null",
        "cd s; git add .; git -c user.name=a -c user.email=b commit -qm x; cd ..; git clone -q s c; git -C c fsck; git -C c status",
    ),
    app(
        "sqlite",
        "",
        "sqlite3 db 'create table t(i);'; for i in 1 2 3 4 5 6 7 8 9 10; do sqlite3 db \"insert into t values($i)\"; done; sqlite3 db 'pragma integrity_check'",
    ),
    app("hackbench", "", "hackbench -g 2 -l 30"),
];

/// Runs the suite.
///
/// # Errors
/// When there is no Debian, or no room on its disk.
pub(crate) fn run() -> io::Result<()> {
    if !std::path::Path::new("/bin/bash").exists() {
        return Err(io::Error::other("there is no Debian on this disk"));
    }
    for app in APPS {
        SUITE.single(app.name, || {
            SUITE.time_slow(&[app.name], || {
                bash("rm -rf \"$0\"; mkdir -p \"$0\"", "/")?;
                bash(app.before, PLACE)?;
                // What was written before is not to be written while it counts.
                rustix::fs::sync();
                let start = Instant::now();
                bash(app.script, PLACE)?;
                Ok(vec![start.elapsed()])
            })
        });
    }
    bash("rm -rf \"$0\"", "/")
}

/// Runs a script, whose first argument is the place, and which must end well.
fn bash(script: &str, directory: &str) -> io::Result<()> {
    let mut command = Command::new("/bin/bash");
    command.args(["-e", "-c", script, PLACE]).current_dir(directory);
    command.env_clear().envs([("PATH", PATH), ("HOME", "/root"), ("LC_ALL", "C.UTF-8")]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{script}: {status}"))) }
}
