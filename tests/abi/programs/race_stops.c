/* Stops and continuations that follow each other at once, of a process with threads; each stop is completed and reported, and
 * none outlives the SIGCONT that came after it.
 * abi: limit 100
 */
#include "abi.h"

enum { THREADS = 4, ROUNDS = 400 };

static void spin(unsigned rounds)
{
    for (volatile unsigned i = 0; i < rounds; i++)
        ;
}

static void *sleep_forever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void *spin_forever(void *unused)
{
    for (;;)
        sched_yield();
    return unused;
}

static volatile sig_atomic_t late;

static void too_late(int number)
{
    (void)number;
    late = 1;
}

/* Waits for the child to stop; false if that takes too long. */
static int stops(pid_t child)
{
    int status;
    late = 0;
    alarm(10);
    pid_t found = waitpid(child, &status, WUNTRACED);
    alarm(0);
    return found == child && WIFSTOPPED(status) && !late;
}

static int stop_again_at_once(void)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        for (int i = 1; i < THREADS; i++)
            pthread_create(&thread, NULL, i % 2 ? sleep_forever : spin_forever, NULL);
        sleep_forever(NULL);
    }
    int missed = 0;
    pause_ms(20);
    kill(child, SIGSTOP);
    missed += !stops(child);
    for (int round = 0; round < ROUNDS && missed == 0; round++) {
        kill(child, SIGCONT);
        spin(round * 37 % 4000);
        kill(child, SIGSTOP);
        missed += !stops(child);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return missed;
}

/* The SIGCONT is ignored, or taken by another thread than the stop. */
static int continue_at_once(int threads)
{
    int ask[2], answer[2], stuck = 0;
    pipe(ask);
    pipe(answer);
    pid_t child = fork();
    if (child == 0) {
        close(ask[1]);
        close(answer[0]);
        if (!threads)
            signal(SIGCONT, SIG_IGN);
        pthread_t thread;
        for (int i = 0; i < threads; i++)
            pthread_create(&thread, NULL, spin_forever, NULL);
        tell(answer[1]);
        while (hear(ask[0]))
            tell(answer[1]);
        _exit(0);
    }
    /* In a group that its parent could continue, so that the stop signals of terminals have their effect. */
    setpgid(child, child);
    close(ask[0]);
    close(answer[1]);
    hear(answer[0]);
    for (int round = 0; round < ROUNDS && !stuck; round++) {
        tell(ask[1]);
        spin(round * 11 % 1000);
        kill(child, SIGTSTP);
        spin(round * 29 % 2000);
        kill(child, SIGCONT);
        struct pollfd wanted = { answer[0], POLLIN, 0 };
        if (poll(&wanted, 1, 10000) == 1)
            hear(answer[0]);
        else
            stuck++;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ask[1]);
    close(answer[0]);
    return stuck;
}

int main(void)
{
    struct sigaction action = { .sa_handler = too_late };
    sigaction(SIGALRM, &action, NULL);
    SHOW(stop_again_at_once());
    SHOW(continue_at_once(0));
    SHOW(continue_at_once(2));
    return 0;
}
