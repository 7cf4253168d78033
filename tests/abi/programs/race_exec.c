/* A thread that is not the leader executes a program while the leader is on its way out: the new program bears the leader's
 * number, and signals to that number reach it.
 * abi: limit 60
 */
#include "abi.h"

enum { ROUNDS = 60, OTHERS = 2 };

static char *self;
static volatile sig_atomic_t handled;

static void count(int number)
{
    (void)number;
    handled++;
}

/* The new program: its only thread is found under its number. */
static int is_found(void)
{
    signal(SIGUSR1, count);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", getpid());
    /* The old leader may take a while to leave, and must leave nothing that is the new one's. */
    for (int i = 0; i < 50; i++) {
        if (gettid() != getpid())
            return 1;
        int before = handled;
        if (syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1) != 0)
            return 2;
        if (handled != before + 1)
            return 3;
        if (access(path, F_OK) != 0)
            return 4;
        sched_yield();
    }
    return 0;
}

static void *execute(void *unused)
{
    execl(self, self, "new", NULL);
    _exit(9);
    return unused;
}

static void *wait_for_end(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(int count, char **arguments)
{
    self = arguments[0];
    if (count > 1)
        return is_found();
    int ended[10] = { 0 };
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            for (int i = 0; i < OTHERS; i++)
                pthread_create(&thread, NULL, wait_for_end, NULL);
            pthread_create(&thread, NULL, execute, NULL);
            if (round % 2)
                syscall(SYS_exit, 0);
            for (;;)
                if (round % 4)
                    pause();
        }
        int status = 0;
        waitpid(child, &status, 0);
        ended[WIFEXITED(status) && WEXITSTATUS(status) < 9 ? WEXITSTATUS(status) : 9]++;
    }
    printf("found %d, tid %d, not found %d, not handled %d, not in /proc %d, else %d\n", ended[0], ended[1], ended[2],
           ended[3], ended[4], ended[9]);
    return 0;
}
