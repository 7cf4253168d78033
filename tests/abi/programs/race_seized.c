/* A seized process is continued at any moment while it stops: before it has heard of the stop, while it looks, when it stands and
 * its tracer listens. Whatever the moment, it tells of the SIGCONT: it may not listen for ever.
 * abi: limit 60
 * abi: cpus 1,2,4
 */
#include "tracing.h"

enum { ROUNDS = 1500, STEP = 3, SWEEP = 500 };

static volatile sig_atomic_t late;

static void too_late(int number)
{
    (void)number;
    late = 1;
}

static void spin(unsigned rounds)
{
    for (volatile unsigned i = 0; i < rounds; i++)
        ;
}

/* Lets the tracee go on from all it tells until it takes that signal; false if that takes too long, or it ends. */
static int takes(pid_t pid, int number, int given)
{
    for (;;) {
        int status;
        alarm(20);
        pid_t got = waitpid(pid, &status, __WALL);
        alarm(0);
        if (got != pid || late || !WIFSTOPPED(status))
            return 0;
        int is_event = status >> 16 != 0;
        if (!is_event && WSTOPSIG(status) == number) {
            request(CONT, pid, 0, given);
            return 1;
        }
        int is_stop = is_event && WSTOPSIG(status) != SIGTRAP;
        request(is_stop ? LISTEN : CONT, pid, 0, 0);
    }
}

/* The rounds that went wrong. */
static int rounds(void)
{
    pid_t pid = CHILD({
        for (;;)
            syscall(SYS_getppid);
    });
    request(SEIZE, pid, 0, EXITKILL);
    int missed = 0;
    for (int round = 0; round < ROUNDS && !missed; round++) {
        kill(pid, SIGSTOP);
        missed += !takes(pid, SIGSTOP, SIGSTOP);
        spin(round % SWEEP * STEP);
        kill(pid, SIGCONT);
        missed += !takes(pid, SIGCONT, 0);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, __WALL);
    return missed;
}

int main(void)
{
    struct sigaction action = { .sa_handler = too_late };
    sigaction(SIGALRM, &action, NULL);
    SHOW(rounds());
    return 0;
}
