/* Name spaces of process numbers whose init ends, or is killed, while those inside fork, end and are entered from outside.
 * abi: limit 100
 */
#include "abi.h"
#include <sys/mount.h>

enum { WORKERS = 4, ROUNDS = 40, FORKERS = 4, BOMB_MAX = 60 };

static pid_t make(unsigned long flags)
{
    return syscall(SYS_clone, CLONE_NEWPID | flags | SIGCHLD, NULL, NULL, NULL, 0);
}

/* Forks until forks fail for good, which is when its name space ends, if it is not killed before. */
static void fork_on(void)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            if (getpid() % 3 == 0)
                fork();
            _exit(0);
        }
        if (child > 0 && getpid() % 2)
            waitpid(child, NULL, 0);
        else
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
    }
}

/* How it ended; every process inside holds the pipe's end open, so that its closing says that all are gone. */
static int round_of(int round)
{
    int ends[2];
    int started[2];
    pipe(ends);
    pipe(started);
    pid_t init = make(0);
    if (init == 0) {
        int wrong = getpid() != 1;
        for (int forker = 0; forker < FORKERS; forker++)
            if (fork() == 0)
                fork_on();
        tell(started[1]);
        if (round % 2)
            for (int pauses = 0; pauses < round % 5; pauses++)
                sched_yield();
        else
            pause();
        _exit(wrong);
    }
    close(ends[1]);
    close(started[1]);
    hear(started[0]);
    int wrong = 0;
    if (round % 2 == 0) {
        /* Somebody comes in from outside at the same time. */
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/pid", init);
        int space = open(path, O_RDONLY);
        pid_t visitor = fork();
        if (visitor == 0) {
            if (setns(space, CLONE_NEWPID) == 0)
                for (int forks = 0; forks < 10; forks++) {
                    pid_t child = fork();
                    if (child == 0)
                        _exit(getpid() <= 1);
                    if (child > 0)
                        waitpid(child, NULL, 0);
                }
            _exit(0);
        }
        kill(init, SIGKILL);
        int status;
        wrong += waitpid(visitor, &status, 0) != visitor || status != 0;
        if (space >= 0)
            close(space);
    }
    int status = 0;
    wrong += waitpid(init, &status, 0) != init;
    wrong += round % 2 ? status != 0 : !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
    /* Who has been waited for is gone, and so is everybody in there. */
    struct pollfd left = { .fd = ends[0], .events = POLLIN };
    wrong += poll(&left, 1, 0) != 1 || !(left.revents & POLLHUP);
    close(ends[0]);
    close(started[0]);
    return wrong;
}

static void bomb(void)
{
    for (;;)
        fork();
}

int main(void)
{
    pid_t workers[WORKERS];
    for (int worker = 0; worker < WORKERS; worker++)
        workers[worker] = CHILD({
            int wrong = 0;
            for (int round = 0; round < ROUNDS; round++)
                wrong += round_of(round);
            SHOW(wrong);
        });
    for (int worker = 0; worker < WORKERS; worker++)
        waitpid(workers[worker], NULL, 0);
    /* A fork bomb as an ordinary user, with a limit that it reaches. */
    int ends[2];
    pipe(ends);
    pid_t init = make(0);
    if (init == 0) {
        struct rlimit limit = { BOMB_MAX, BOMB_MAX };
        setrlimit(RLIMIT_NPROC, &limit);
        setresuid(4321, 4321, 4321);
        pid_t first = fork();
        if (first == 0)
            bomb();
        pid_t more;
        while ((more = fork()) > 0)
            ;
        if (more == 0)
            bomb();
        tell(ends[1]);
        pause();
    }
    hear(ends[0]);
    close(ends[1]);
    SHOW(kill(init, SIGKILL));
    REAP(init);
    char byte;
    while (read(ends[0], &byte, 1) > 0)
        ;
    SHOW(read(ends[0], &byte, 1));
    return 0;
}
