/* A tracee is killed while its tracer lets it go: who was asked to wait for it is told of its end in any case, though the tracer lives on.
 * abi: limit 60
 * abi: cpus 1,2,4,8
 */
#include "tracing.h"

enum { ROUNDS = 400, STEPS = 40 };

#define WORKS(call) works_((long)(call), #call)

static void works_(long result, const char *what)
{
    if (result < 0)
        printf("%s: %s\n", what, ERRNO_NAME(errno));
}

static void spin(unsigned turns)
{
    for (volatile unsigned i = 0; i < turns * 50; i++)
        ;
}

/* Attaches, says so, and lets go at about the time at which its parent kills the tracee. Ends when the parent has seen the end. */
static void tracer(pid_t pid, unsigned delay, int told, int over)
{
    char byte = 0;
    WORKS(request(ATTACH, pid, 0, 0));
    WORKS(waitpid(pid, NULL, __WALL));
    WORKS(write(told, &byte, 1));
    spin(delay);
    /* Where it has ended, it is the tracer's first. */
    if (request(DETACH, pid, 0, 0) < 0)
        WORKS(waitpid(pid, NULL, __WALL));
    WORKS(read(over, &byte, 1));
    _exit(0);
}

int main(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    int told[2], over[2], rounds = 0;
    WORKS(pipe(told));
    WORKS(pipe(over));
    for (unsigned round = 0; round < ROUNDS; round++) {
        char byte = 0;
        pid_t pid = CHILD(for (;;) pause());
        pid_t other = CHILD(tracer(pid, round / STEPS, told[1], over[0]));
        WORKS(read(told[0], &byte, 1));
        spin(round % STEPS);
        kill(pid, SIGKILL);
        int number, status;
        /* Every other time it waits for the end itself. */
        if (round % 2)
            do
                sigwait(&ends, &number);
            while (waitpid(pid, &status, WNOHANG) == 0);
        else
            WORKS(waitpid(pid, &status, 0));
        rounds += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        WORKS(write(over[1], &byte, 1));
        WORKS(waitpid(other, NULL, 0));
        struct timespec now = { 0 };
        while (sigtimedwait(&ends, NULL, &now) > 0)
            ;
    }
    printf("%d of %d ended as they were killed\n", rounds, ROUNDS);
    return 0;
}
