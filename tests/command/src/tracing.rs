//! Debian's `strace` and `gdb`, unmodified, of the host's own tree: a shell and its children are watched, somebody is attached to, and a program with threads is
//! taken through breakpoints, a watchpoint and a caught fork.

use std::fs;
use std::process::Command;

use crate::case::starling;
use crate::disks::{said, successful, text};

/// What is promised.
pub(crate) const NAME: &str = "strace and gdb watch programs, attach to them, and stop them where they shall";

const CPUS: [&str; 2] = ["1", "4"];

const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int counter, watched;
static int work(int n) { counter += n; watched = counter * 2; return counter; }
static void *body(void *n) { for (int i = 0; i < 3; i++) work((int)(long)n); return NULL; }
int main(void)
{
    for (long i = 1; i <= 3; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, body, (void *)i);
        pthread_join(thread, NULL);
    }
    printf("counter %d\n", counter);
    if (fork() == 0)
        _exit(3);
    return wait(NULL) < 0;
}
"#;

/// `$1` is the folder.
const SCRIPT: &str = r#"
set -e
cd $1
has() { grep -q -e "$2" $1 || { echo "$1 without $2"; cat $1; exit 9; }; }
strace -f -o watched sh -c 'echo hello; (exit 2); exit 3' > /dev/null || [ $? = 3 ]
has watched 'execve("/usr/bin/sh"'
has watched 'write(1, "hello.n", 6) *= 6'
has watched '+++ exited with 2 +++'
has watched '+++ exited with 3 +++'
strace -c -o counted true
has counted ' execve$'
mkfifo fifo
cat fifo > /dev/null & pid=$!
strace -o attached -p $pid 2> /dev/null & tracer=$!
until grep -q -e open -e restart attached 2> /dev/null; do sleep 0.1; done
gdb -q -batch -p $pid 2>&1 | grep -q 'ptrace: Operation not permitted'
kill $tracer
wait $tracer || :
gdb -q -batch -p $pid -ex 'info inferiors' -ex detach > looked 2>&1
has looked 'process'
echo > fifo
wait $pid
gdb -q -batch -ex 'set pagination off' -ex 'break work' -ex run -ex 'info threads' -ex finish -ex delete -ex 'watch watched' -ex continue \
    -ex continue -ex delete -ex 'catch fork' -ex continue -ex delete -ex continue ./program > led 2>&1
has led 'hit Breakpoint 1, work (n=1)'
has led '^\* 2 .* work (n=1)'
has led 'Value returned is $1 = 1'
has led 'Hardware watchpoint 2: watched'
has led 'Old value = 4'
has led 'New value = 6'
has led 'hit Catchpoint 3 (forked process'
has led '^counter 18'
has led 'exited normally'
gdb -q -batch -ex 'break main' -ex run -ex stepi -ex 'hbreak body' -ex 'catch syscall write' -ex continue -ex 'print (int)getppid() > 0' -ex continue \
    -ex 'delete 2' -ex continue ./program > stepped 2>&1
has stepped 'hit Breakpoint 2, body'
has stepped '$1 = 1'
has stepped 'call to syscall write'
echo end
"#;

/// Runs the script with one processor and with several.
pub(crate) fn check() -> Result<(), String> {
    for cpus in CPUS {
        let folder = tempfile::tempdir().map_err(text)?;
        let source = folder.path().join("program.c");
        fs::write(&source, PROGRAM).map_err(text)?;
        let program = folder.path().join("program").display().to_string();
        successful("cc", &["-g", "-O0", "-pthread", "-o", &program], &source)?;
        let script = folder.path().join("script");
        fs::write(&script, SCRIPT).map_err(text)?;
        let output = guest(cpus, &script.display().to_string(), &folder.path().display().to_string())
            .output()
            .map_err(text)?;
        if !output.status.success() || !output.stdout.ends_with(b"end\n") {
            return Err(format!("{cpus} processors: {}", said(&output)));
        }
    }
    Ok(())
}

fn guest(cpus: &str, script: &str, folder: &str) -> Command {
    let mut command = starling();
    command
        .args(["--root", "/", "--memory", "1G", "--cpus", cpus, "--timeout", "280"])
        .args(["--", "sh", script, folder]);
    command
}
