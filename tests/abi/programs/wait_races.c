/* The end and the stop of a child, seen by a parent that looks at just that moment: the change, its SIGCHLD and what a
 * wait says of it come as one. The child waits a little longer from round to round, so that the parent looks at every moment.
 * abi: limit 120
 */
#include "abi.h"

enum { ROUNDS = 200 };

static void spin(int round)
{
    for (volatile int i = 0; i < round * 40; i++)
        ;
}

static int got_child_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    struct timespec now = { 0, 0 };
    return sigtimedwait(&set, NULL, &now) == SIGCHLD;
}

/* Looks without sleeping every other time. */
static pid_t wait_for(pid_t child, int *status, int options, int round)
{
    if (round % 2)
        return waitpid(child, status, options);
    pid_t found;
    while ((found = waitpid(child, status, options | WNOHANG)) == 0)
        sched_yield();
    return found;
}

static void ignored(int flags)
{
    struct sigaction action = { .sa_handler = flags ? SIG_DFL : SIG_IGN, .sa_flags = flags };
    sigaction(SIGCHLD, &action, NULL);
    int waited = 0, other = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = CHILD(spin(round));
        errno = 0;
        if (wait_for(child, NULL, 0, round) != -1)
            waited++;
        else if (errno != ECHILD)
            other++;
    }
    SHOW(waited);
    SHOW(other);
    action = (struct sigaction){ .sa_handler = SIG_DFL };
    sigaction(SIGCHLD, &action, NULL);
}

static void signal_is_there_before_the_wait_returns(void)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &old);
    int ends = 0, stops = 0, kills = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = CHILD({ spin(round); raise(SIGSTOP); });
        int status;
        wait_for(child, &status, WUNTRACED, round);
        stops += WIFSTOPPED(status);
        /* That it stops and goes on may be told later than it is seen, but not later than the end. */
        kill(child, SIGCONT);
        wait_for(child, &status, 0, round);
        got_child_signal();
        child = CHILD(spin(round));
        wait_for(child, &status, 0, round);
        ends += WIFEXITED(status) && got_child_signal();
        child = CHILD(pause());
        spin(round);
        kill(child, SIGKILL);
        wait_for(child, &status, 0, round);
        kills += WIFSIGNALED(status) && got_child_signal();
    }
    SHOW(stops);
    SHOW(ends);
    SHOW(kills);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static volatile sig_atomic_t handled, found;

static void on_child(int signal)
{
    (void)signal;
    handled++;
    found += waitpid(-1, NULL, WNOHANG) > 0;
}

static void child_is_there_when_the_handler_runs(void)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &old);
    struct sigaction action = { .sa_handler = on_child };
    sigaction(SIGCHLD, &action, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        CHILD(spin(round));
        sigsuspend(&old);
    }
    SHOW(handled);
    SHOW(found);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static pid_t wanted;
static atomic_int got, refused;

static void *waiter(void *unused)
{
    (void)unused;
    if (waitpid(wanted, NULL, 0) == wanted)
        atomic_fetch_add(&got, 1);
    else if (errno == ECHILD)
        atomic_fetch_add(&refused, 1);
    return NULL;
}

static void two_waiters(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        wanted = CHILD(spin(round));
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, waiter, NULL);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    }
    SHOW(got);
    SHOW(refused);
}

/* A parent that does not wait ends at the same time as its child: nobody is left over for the heir, who waits for all. */
static void heir(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int parents = 0, orphans = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t parent = CHILD({
            if (round % 3 == 0)
                signal(SIGCHLD, SIG_IGN);
            CHILD({ spin(round); _exit(7); });
            spin(ROUNDS / 2);
        });
        int status;
        pid_t ended;
        while ((ended = waitpid(-1, &status, 0)) > 0) {
            parents += ended == parent;
            /* Of an ignoring parent the child may come to the heir or not. */
            orphans += round % 3 != 0 && WEXITSTATUS(status) == 7;
        }
        if (errno != ECHILD)
            perror("waitpid");
    }
    SHOW(parents);
    SHOW(orphans);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void only_who_is_waited_for_counts(void)
{
    struct rusage before, after;
    signal(SIGCHLD, SIG_IGN);
    getrusage(RUSAGE_CHILDREN, &before);
    CHILD({
        struct timespec used;
        do
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        while (used.tv_sec == 0 && used.tv_nsec < 30000000);
    });
    SHOW(wait(NULL));
    getrusage(RUSAGE_CHILDREN, &after);
    TRUE(before.ru_utime.tv_sec == after.ru_utime.tv_sec && before.ru_utime.tv_usec == after.ru_utime.tv_usec);
    TRUE(before.ru_stime.tv_sec == after.ru_stime.tv_sec && before.ru_stime.tv_usec == after.ru_stime.tv_usec);
    signal(SIGCHLD, SIG_DFL);
}

int main(void)
{
    ignored(0);
    ignored(SA_NOCLDWAIT);
    signal_is_there_before_the_wait_returns();
    child_is_there_when_the_handler_runs();
    two_waiters();
    heir();
    only_who_is_waited_for_counts();
    return 0;
}
