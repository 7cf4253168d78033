/* A child asks its parent to trace it while that ends: it is an orphan then, and no dead tracer keeps its end from who inherits it.
 * abi: limit 60
 * abi: cpus 1,2,4,8
 */
#include "tracing.h"

enum { ROUNDS = 1500, STEPS = 40 };

static void spin(unsigned turns)
{
    for (volatile unsigned i = 0; i < turns * 20; i++)
        ;
}

/* Both begin when both are there, on one processor whoever comes first. */
static void meet(volatile int *there)
{
    __atomic_add_fetch(there, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; *there < 2 && i < 100000; i++)
        if (i % 1000 == 999)
            sched_yield();
}

int main(void)
{
    volatile int *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ended = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        *there = 0;
        pid_t parent = fork();
        if (parent == 0) {
            if (fork() == 0) {
                meet(there);
                spin(round % STEPS);
                request(TRACEME, 0, 0, 0);
                _exit(0);
            }
            meet(there);
            spin(STEPS / 2);
            _exit(0);
        }
        for (int i = 0; i < 2; i++)
            ended += waitpid(-1, NULL, 0) > 0;
    }
    printf("%d of %d ended, then %s\n", ended, 2 * ROUNDS, ERRNO_NAME(waitpid(-1, NULL, 0) < 0 ? errno : 0));
    return 0;
}
