/* `/proc/sys/kernel/yama/ptrace_scope` at its four levels, and PR_SET_PTRACER. The last level can't be left, so it comes last. A host need not have it.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 1,4
 * abi: limit 60
 */
#include "guest.h"
#include <sys/ptrace.h>

#define LEVEL "/proc/sys/kernel/yama/ptrace_scope"
#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

static int set_level(const char *level)
{
    int fd = open(LEVEL, O_WRONLY);
    int result = write(fd, level, strlen(level)) < 0 ? errno : 0;
    close(fd);
    return result;
}

static void as_user(void)
{
    if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
        _exit(98);
    /* Changing who one is makes one not to be looked into. */
    prctl(PR_SET_DUMPABLE, 1);
}

static int word = 7;

/* What opening and reading a file of /proc/PID says: 0, or the error. */
static int attempt_file(pid_t target, const char *name)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/%s", target, name);
    int fd = open(path, O_RDONLY);
    int result = fd < 0 || read(fd, text, sizeof text) < 0 ? errno : 0;
    close(fd);
    return result;
}

/* What attaching, reading memory and opening `mem` say: 0, or the error. */
static void attempts(pid_t target, int results[3])
{
    int copy;
    struct iovec here = { &copy, sizeof copy }, there = { &word, sizeof word };
    results[0] = ptrace(PTRACE_SEIZE, target, NULL, NULL) < 0 ? errno : 0;
    if (!results[0]) {
        ptrace(PTRACE_INTERRUPT, target, NULL, NULL);
        waitpid(target, NULL, __WALL);
        ptrace(PTRACE_DETACH, target, NULL, NULL);
    }
    results[1] = process_vm_readv(target, &here, 1, &there, 1, 0) < 0 ? errno : 0;
    /* Nothing is at address 0. */
    results[2] = attempt_file(target, "mem");
    results[2] = results[2] == EIO ? 0 : results[2];
    /* What tells where it is, is as guarded as its memory; what only tells what it is, is not. */
    EXPECT(attempt_file(target, "syscall") == results[1], "syscall: %d\n", attempt_file(target, "syscall"));
    EXPECT(attempt_file(target, "personality") == results[1], "personality: %d\n", attempt_file(target, "personality"));
    EXPECT(geteuid() || attempt_file(target, "stack") == results[1], "stack: %d\n", attempt_file(target, "stack"));
    EXPECT(attempt_file(target, "maps") == 0, "maps: %d\n", attempt_file(target, "maps"));
    fflush(stdout);
    if (verdict_failed)
        results[0] = -1;
}

/* A sibling (`others`) or the parent tries what it may with a process that has named somebody. */
static void try(const char *what, int by_sibling, int names, int user, int seize, int memory)
{
    int ready[2], done[2], results[3], told[2];
    if (pipe(ready) || pipe(done) || pipe(told))
        _exit(97);
    pid_t target = fork();
    if (target == 0) {
        char byte;
        pid_t named;
        if (user)
            as_user();
        if (read(told[0], &named, sizeof named) < 0)
            _exit(96);
        if (names == 1)
            prctl(PR_SET_PTRACER, named, 0, 0, 0);
        if (names == 2)
            prctl(PR_SET_PTRACER, -1L, 0, 0, 0);
        if (names == 4)
            prctl(PR_SET_PTRACER, 0xffffffffL, 0, 0, 0);
        if (names == 3) {
            prctl(PR_SET_PTRACER, named, 0, 0, 0);
            prctl(PR_SET_PTRACER, 0, 0, 0, 0);
        }
        if (write(ready[1], "r", 1) < 0 || read(done[0], &byte, 1) < 0)
            _exit(95);
        _exit(0);
    }
    int answers[2];
    if (pipe(answers))
        _exit(94);
    pid_t tracer = fork();
    if (tracer == 0) {
        char byte;
        if (user)
            as_user();
        if (read(ready[0], &byte, 1) < 0)
            _exit(93);
        if (by_sibling)
            attempts(target, results);
        if (write(answers[1], results, sizeof results) < 0)
            _exit(92);
        _exit(0);
    }
    if (write(told[1], &tracer, sizeof tracer) < 0)
        _exit(91);
    if (read(answers[0], results, sizeof results) < 0)
        _exit(90);
    if (!by_sibling) {
        attempts(target, results);
    }
    EXPECT(results[0] == seize && results[1] == memory && (results[2] != 0) == (memory != 0), "%s: %d %d %d\n", what, results[0], results[1], results[2]);
    if (write(done[1], "d", 1) < 0)
        _exit(89);
    waitpid(target, NULL, 0);
    waitpid(tracer, NULL, 0);
    for (int index = 0; index < 2; index++) {
        close(ready[index]);
        close(done[index]);
        close(told[index]);
        close(answers[index]);
    }
}

static int traced_by_parent(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0)
            as_user();
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ? errno : 0);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(void)
{
    EXPECT(atoi(contents_of(LEVEL)) == 0, "the level is not 0 at first\n");
    EXPECT(set_level("4") == EINVAL && set_level("-1") == EINVAL && set_level("x") == EINVAL, "levels\n");
    EXPECT(prctl(PR_SET_PTRACER, 999999999L, 0, 0, 0) < 0 && errno == EINVAL, "nobody there\n");
    try("0: a sibling", 1, 0, 1, 0, 0);
    EXPECT(set_level("1") == 0, "1\n");
    try("1: a sibling", 1, 0, 1, EPERM, EPERM);
    try("1: a sibling that is named", 1, 1, 1, 0, 0);
    try("1: everybody is named", 1, 2, 1, 0, 0);
    try("1: everybody is named by an int", 1, 4, 1, 0, 0);
    try("1: a name taken back", 1, 3, 1, EPERM, EPERM);
    try("1: root", 1, 0, 0, 0, 0);
    try("1: the parent", 0, 0, 0, 0, 0);
    EXPECT(traced_by_parent() == 0, "1: traced by the parent\n");
    EXPECT(set_level("2") == 0, "2\n");
    try("2: a sibling that is named", 1, 1, 1, EPERM, EPERM);
    try("2: root", 1, 0, 0, 0, 0);
    EXPECT(traced_by_parent() == 0, "2: root traces\n");
    pid_t child = fork();
    if (child == 0) {
        as_user();
        EXPECT(set_level("0") != 0, "a user sets it\n");
        EXPECT(traced_by_parent() == EPERM, "2: a user traces\n");
        fflush(stdout);
        _exit(verdict_failed);
    }
    int status;
    waitpid(child, &status, 0);
    EXPECT(status == 0, "as a user\n");
    EXPECT(set_level("0") == 0, "back to 0\n");
    EXPECT(set_level("3") == 0, "3\n");
    try("3: root", 1, 0, 0, EPERM, EPERM);
    EXPECT(traced_by_parent() == EPERM, "3: root traces\n");
    EXPECT(set_level("0") == EINVAL && set_level("3") == 0, "3 stays\n");
    return verdict_failed;
}
