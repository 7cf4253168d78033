/* Process groups that change while they are used: a signal to a group while a member forks, and a process that its parent and
 * itself move at the same time.
 * abi: limit 100
 */
#include "abi.h"
#include <pthread.h>

enum { KILLS = 60, MOVES = 100 };

static atomic_int *shared;

static void spin(unsigned rounds)
{
    for (volatile unsigned i = 0; i < rounds; i++)
        ;
}

/* Waits for all children; returns how many of them nobody had killed. */
static int reap_all(pid_t group)
{
    int survivors = 0;
    long long since = now_ms();
    for (;;) {
        int status;
        pid_t found = waitpid(-1, &status, WNOHANG);
        if (found < 0 && errno == ECHILD)
            return survivors;
        if (found > 0)
            continue;
        if (now_ms() - since > 10000) {
            since = now_ms();
            survivors++;
            kill(-group, SIGKILL);
        }
        sched_yield();
    }
}

static int kill_while_forking(void)
{
    int survivors = 0;
    for (int round = 0; round < KILLS; round++) {
        atomic_store(shared, 0);
        pid_t leader = fork();
        if (leader == 0) {
            setpgid(0, 0);
            atomic_store(shared, 1);
            for (int i = 0; i < 30; i++)
                if (fork() == 0)
                    for (;;)
                        pause();
            for (;;)
                pause();
        }
        while (!atomic_load(shared))
            sched_yield();
        spin(round * 9973 % 200000);
        if (kill(-leader, SIGKILL) != 0)
            survivors += 1000;
        survivors += reap_all(leader);
        if (kill(-leader, 0) == 0 || errno != ESRCH)
            survivors += 100;
    }
    return survivors;
}

static void *wait_for_signals(void *unused)
{
    (void)unused;
    /* A thread begins with all signals blocked. */
    atomic_store(shared, 1);
    for (;;)
        pause();
}

/* The thread that forks is not the one that the signal ends: its children, who get it or are never made, let it through. */
static int terminate_while_another_forks(void)
{
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    int survivors = 0;
    for (int round = 0; round < KILLS; round++) {
        atomic_store(shared, 0);
        pid_t leader = fork();
        if (leader == 0) {
            setpgid(0, 0);
            pthread_t other;
            pthread_create(&other, NULL, wait_for_signals, NULL);
            sigprocmask(SIG_BLOCK, &term, NULL);
            while (!atomic_load(shared))
                sched_yield();
            atomic_store(shared, 2);
            for (int i = 0; i < 30; i++)
                if (fork() == 0) {
                    sigprocmask(SIG_UNBLOCK, &term, NULL);
                    for (;;)
                        pause();
                }
            for (;;)
                pause();
        }
        while (atomic_load(shared) != 2)
            sched_yield();
        spin(round * 9973 % 200000);
        if (kill(-leader, SIGTERM) != 0)
            survivors += 1000;
        survivors += reap_all(leader);
    }
    return survivors;
}

/* What a shell does: it and the child both put the child into a group. Then a second process joins, the first one goes. */
static int moved_by_two(void)
{
    int wrong = 0;
    for (int round = 0; round < MOVES; round++) {
        int hold[2];
        pipe(hold);
        atomic_store(shared, 0);
        pid_t first = fork();
        if (first == 0) {
            close(hold[1]);
            while (!atomic_load(shared))
                ;
            setpgid(0, 0);
            hear(hold[0]);
            _exit(0);
        }
        spin(round * 31 % 500);
        atomic_store(shared, 1);
        spin(round * 7 % 300);
        wrong += setpgid(first, first) != 0;
        pid_t second = fork();
        if (second == 0) {
            close(hold[1]);
            for (;;)
                pause();
        }
        wrong += setpgid(second, first) != 0;
        wrong += getpgid(second) != first;
        close(hold[0]);
        close(hold[1]);
        wrong += waitpid(first, NULL, 0) != first;
        /* The group is there as long as it has a member. */
        wrong += kill(-first, 0) != 0;
        wrong += kill(-first, SIGKILL) != 0;
        kill(second, SIGKILL);
        wrong += waitpid(-first, NULL, 0) != second;
        wrong += kill(-first, 0) == 0;
    }
    return wrong;
}

/* The child leaves the session while its parent wants to move it within it: one of the two comes first. */
static int moved_out(void)
{
    int wrong = 0;
    for (int round = 0; round < MOVES; round++) {
        atomic_store(shared, 0);
        pid_t child = fork();
        if (child == 0) {
            while (!atomic_load(shared))
                ;
            spin(round * 13 % 400);
            int left = setsid() == getpid();
            /* Who leads a session leads its group, whatever its parent wanted. */
            if (left)
                _exit(getsid(0) != getpid() || getpgid(0) != getpid());
            _exit(getpgid(0) != getpid() || getsid(0) == getpid());
        }
        spin(round * 17 % 400);
        atomic_store(shared, 1);
        setpgid(child, child);
        int status;
        waitpid(child, &status, 0);
        wrong += status != 0;
        wrong += kill(-child, 0) == 0;
    }
    return wrong;
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    SHOW(kill_while_forking());
    SHOW(terminate_while_another_forks());
    SHOW(moved_by_two());
    SHOW(moved_out());
    return 0;
}
