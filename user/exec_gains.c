/* A set-user-ID program gains nothing when, after the look at its bits and before it runs, somebody begins to trace it, or another thread gives it a filter of
 * calls and no new privileges.
 *
 * abi: guest
 * abi: limit 120
 */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>

enum { NOBODY = 99, ROUNDS = 60, INSTRUCTIONS = 4095, FILTERED = 2 };

struct report {
    int user, filtered;
};

static int ready[2], go[2], reports[2];
static _Atomic pid_t sleeper_tid;

static int helper(int to)
{
    struct report report = { (int)geteuid(), (int)figure("/proc/self/status", "Seccomp") };
    return write(to, &report, sizeof report) != sizeof report;
}

/* What the program said that has ended. */
static struct report said(void)
{
    struct report report = { -1, -1 };
    struct pollfd there = { reports[0], POLLIN, 0 };
    if (poll(&there, 1, 0) == 1)
        read(reports[0], &report, sizeof report);
    return report;
}

static void execute(void)
{
    char number[12];
    snprintf(number, sizeof number, "%d", reports[1]);
    execl("./gains", "exec_gains", number, NULL);
    _exit(3);
}

static void *sleeps(void *none)
{
    sleeper_tid = (pid_t)syscall(SYS_gettid);
    pid_t tid = sleeper_tid;
    write(ready[1], &tid, sizeof tid);
    for (;;)
        pause();
    return none;
}

static long request(long what, pid_t pid, long data) { return syscall(SYS_ptrace, what, (long)pid, 0L, data); }

/* The other thread stands in its end, so its leader waits in execve; there it is attached to. */
static void traced(void)
{
    pid_t child = CHILD({
        pthread_t thread;
        char byte;
        prctl(PR_SET_DUMPABLE, 1);
        pthread_create(&thread, NULL, sleeps, NULL);
        read(go[0], &byte, 1);
        execute();
    });
    pid_t tid = 0;
    read(ready[0], &tid, sizeof tid);
    progress("traced: %d", tid);
    EXPECT(request(PTRACE_SEIZE, tid, PTRACE_O_TRACEEXIT) == 0, "%s", strerror(errno));
    write(go[1], "", 1);
    int status;
    EXPECT(waitpid(tid, &status, __WALL) == tid && status >> 16 == PTRACE_EVENT_EXIT, "status %#x", status);
    progress("it stands");
    int is_seized = request(PTRACE_SEIZE, child, PTRACE_O_TRACEEXEC) == 0;
    request(PTRACE_CONT, tid, 0);
    while (waitpid(-1, &status, __WALL) > 0)
        if (WIFSTOPPED(status))
            request(PTRACE_CONT, child, status >> 16 ? 0 : WSTOPSIG(status));
    struct report report = said();
    EXPECT(report.user == (is_seized ? NOBODY : 0), "traced: %d, user %d", is_seized, report.user);
}

static void *filters(void *delay)
{
    static struct sock_filter list[INSTRUCTIONS];
    for (int i = 0; i < INSTRUCTIONS; i++)
        list[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1);
    list[INSTRUCTIONS - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { INSTRUCTIONS, list };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    tell(ready[1]);
    for (volatile long i = 0; i < (long)delay; i++)
        ;
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    for (;;)
        pause();
    return NULL;
}

static void filtered(void)
{
    int gained = 0, restricted = 0, both = 0;
    for (long round = 0; round < ROUNDS; round++) {
        progress("filtered: round %ld", round);
        pid_t child = CHILD({
            pthread_t thread;
            pthread_create(&thread, NULL, filters, (void *)(round * 2000));
            hear(ready[0]);
            execute();
        });
        waitpid(child, NULL, 0);
        struct report report = said();
        gained += report.user == 0;
        restricted += report.filtered == FILTERED;
        both += report.user == 0 && report.filtered == FILTERED;
    }
    printf("%d gained, %d were restricted, %d both\n", gained, restricted, both);
    EXPECT(both == 0, "%d of %d", both, ROUNDS);
}

int main(int count, char **arguments)
{
    if (count > 1)
        return helper(atoi(arguments[1]));
    int from = open("/proc/self/exe", O_RDONLY), to = open("gains", O_CREAT | O_WRONLY, 0755);
    while (sendfile(to, from, NULL, 1 << 20) > 0)
        ;
    fchmod(to, 04755);
    close(to);
    chmod(".", 0755);
    pipe(ready);
    pipe(go);
    pipe(reports);
    pid_t child = CHILD({
        setresgid(NOBODY, NOBODY, NOBODY);
        setresuid(NOBODY, NOBODY, NOBODY);
        prctl(PR_SET_DUMPABLE, 1);
        traced();
        filtered();
        _exit(verdict_failed);
    });
    int status;
    waitpid(child, &status, 0);
    unlink("gains");
    return status != 0;
}
