/* Many processes in two groups: they move between them, end and are reaped in any order. Then a signal to one group ends its members,
 * and no others.
 *
 * abi: limit 60
 */
#include "abi.h"

#define MEMBERS 64
#define STEPS 600

static pid_t pids[MEMBERS];
/* The group that each is in: 0 or 1, -1 without a process. */
static int groups[MEMBERS];

static unsigned next(void)
{
    static unsigned seed = 12345;
    seed = seed * 1103515245 + 12345;
    return seed >> 16;
}

static pid_t leaders[2];

static void make(int which)
{
    pids[which] = fork();
    if (pids[which] == 0) {
        for (;;)
            pause();
    }
    groups[which] = next() & 1;
    if (setpgid(pids[which], leaders[groups[which]]))
        printf("setpgid of a new one: %s\n", strerror(errno));
}

static void end(int which)
{
    int status = 0;
    kill(pids[which], SIGKILL);
    if (waitpid(pids[which], &status, 0) != pids[which] || !WIFSIGNALED(status))
        printf("one did not end: status %x\n", status);
    groups[which] = -1;
}

int main(void)
{
    for (int group = 0; group < 2; group++) {
        leaders[group] = fork();
        if (leaders[group] == 0) {
            for (;;)
                pause();
        }
        SHOW(setpgid(leaders[group], 0));
    }
    for (int which = 0; which < MEMBERS; which++)
        make(which);
    for (int step = 0; step < STEPS; step++) {
        int which = next() % MEMBERS;
        if (groups[which] < 0) {
            make(which);
        } else if (next() % 3 == 0) {
            end(which);
        } else {
            groups[which] ^= 1;
            if (setpgid(pids[which], leaders[groups[which]]))
                printf("setpgid: %s\n", strerror(errno));
        }
    }
    int expected = 1, ended = 0, wrong = 0, status;
    for (int which = 0; which < MEMBERS; which++)
        expected += groups[which] == 0;
    SHOW(kill(-leaders[0], SIGTERM));
    for (pid_t pid; ended < expected && (pid = wait(&status)) > 0; ended++) {
        wrong += !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM;
        for (int which = 0; which < MEMBERS; which++)
            wrong += pids[which] == pid && groups[which] == 1;
    }
    printf("as many ended as were in the group: %d, others: %d\n", ended == expected, wrong);
    SHOW(kill(-leaders[0], 0));
    SHOW(waitpid(-leaders[0], NULL, WNOHANG));
    SHOW(kill(-leaders[1], 0));
    SHOW(kill(-leaders[1], SIGKILL));
    while (wait(&status) > 0)
        wrong += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
    printf("wrong ends: %d\n", wrong);
    SHOW(kill(-leaders[1], 0));
    return 0;
}
