/* Name spaces of process numbers end while their processes fork, trace, stop and continue each other, and end: each time all are gone, and whoever made the
 * name space is told so.
 * abi: limit 120
 * abi: cpus 1,2,4,8
 */
#include "tracing.h"

enum { ROUNDS = 500, DEPTH = 3 };

static unsigned turn(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

static void *busy(void *none)
{
    for (int i = 0; i < 20; i++)
        sched_yield();
    return none;
}

static void live(unsigned seed, int depth);

static pid_t child_of(unsigned seed, int depth, unsigned long flags)
{
    pid_t child = (pid_t)syscall(SYS_clone, flags, 0, 0, 0, 0);
    if (child == 0) {
        live(seed, depth);
        _exit(0);
    }
    return child;
}

/* Does what can be done to relatives, some of whom are as good as dead. Numbers in the name space are small. */
static void live(unsigned seed, int depth)
{
    static const int signals[] = { SIGSTOP, SIGCONT, SIGKILL, SIGCONT, SIGTSTP, SIGCHLD };
    for (int i = 0; i < 12; i++) {
        pid_t other = 2 + (pid_t)(turn(&seed) % 8);
        switch (turn(&seed) % 12) {
        case 0: case 1:
            if (depth > 0)
                child_of(seed + (unsigned)i, depth - 1, SIGCHLD);
            break;
        case 2:
            if (depth > 0)
                child_of(seed + (unsigned)i, depth - 1, CLONE_PARENT | SIGCHLD);
            break;
        case 3:
            if (depth > 0)
                child_of(seed + (unsigned)i, depth - 1, turn(&seed) % 2 ? SIGUSR1 : 0);
            break;
        case 4: {
            pthread_t thread;
            pthread_create(&thread, NULL, busy, NULL);
            break;
        }
        case 5:
            request(TRACEME, 0, 0, 0);
            break;
        case 6:
            request(turn(&seed) % 2 ? SEIZE : ATTACH, other, 0, 0);
            break;
        case 7:
            request(turn(&seed) % 2 ? DETACH : CONT, other, 0, 0);
            break;
        case 8:
            waitpid(-1, NULL, WNOHANG | WUNTRACED | WCONTINUED | (turn(&seed) % 2 ? __WALL : 0));
            break;
        case 9:
            signal(SIGCHLD, turn(&seed) % 2 ? SIG_IGN : SIG_DFL);
            break;
        case 10:
            prctl(PR_SET_CHILD_SUBREAPER, turn(&seed) % 2);
            break;
        case 11:
            kill(other, signals[turn(&seed) % 6]);
            break;
        }
    }
    if (turn(&seed) % 3 == 0)
        pause();
}

/* The first process of a name space: it lives as the others do, or waits for one of them. */
static void first(unsigned seed)
{
    setpgid(0, 0);
    pid_t second = child_of(seed, DEPTH, SIGCHLD);
    if (seed % 2)
        live(seed * 3, DEPTH);
    else
        while (waitpid(second, NULL, 0) < 0 && errno == EINTR)
            ;
    if (seed % 3)
        pause();
    _exit(0);
}

int main(void)
{
    int ended = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
        if (child < 0) {
            printf("clone: %s\n", ERRNO_NAME(errno));
            return 1;
        }
        if (child == 0)
            first(round);
        unsigned seed = round;
        for (volatile unsigned i = 0; i < turn(&seed) % 4096 * 64; i++)
            ;
        if (turn(&seed) % 2)
            kill(-child, SIGKILL);
        kill(child, SIGKILL);
        /* It may have asked to be traced, and stand. When its end has been waited for nobody of its name space is left. */
        int status;
        do
            while (waitpid(child, &status, __WALL) < 0 && errno == EINTR)
                ;
        while (WIFSTOPPED(status));
        ended += waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD;
    }
    printf("%d of %d ended\n", ended, ROUNDS);
    return 0;
}
