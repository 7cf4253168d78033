/* Timers that are set while they expire, by the thread that is about to change their signal's effect; made by two threads at once; and
 * read by one thread while another sets them.
 * abi: limit 100
 */
#include "abi.h"

enum { ROUNDS = 3000, MADE = 300 };

static void spin(unsigned rounds)
{
    for (volatile unsigned i = 0; i < rounds; i++)
        ;
}

static void ignore(int number)
{
    (void)number;
}

/* After setitimer has disarmed the timer nothing sends its signal: what it does can be changed without danger. */
static int disarmed(void)
{
    pid_t child = CHILD(for (int round = 0; round < ROUNDS; round++) {
        signal(SIGALRM, ignore);
        struct itimerval soon = { .it_value = { 0, 20 + round % 60 } }, never = { 0 };
        setitimer(ITIMER_REAL, &soon, NULL);
        spin(round * 7 % 6000);
        setitimer(ITIMER_REAL, &never, NULL);
        signal(SIGALRM, SIG_DFL);
        spin(100);
    });
    int status;
    waitpid(child, &status, 0);
    return status;
}

/* The same timer, set again and again as it expires, to a time soon: it never waits for what was to come before. */
static int set_again(void)
{
    static sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int late = 0;
    struct timespec limit = { 10, 0 };
    for (int round = 0; round < ROUNDS / 4 && !late; round++) {
        struct itimerval often = { .it_value = { 0, 50 }, .it_interval = { 1000, 0 } };
        struct itimerval soon = { .it_value = { 0, 100 } };
        setitimer(ITIMER_REAL, &often, NULL);
        spin(round * 13 % 9000);
        setitimer(ITIMER_REAL, &soon, NULL);
        late += sigtimedwait(&set, NULL, &limit) != SIGALRM;
        /* One more may have come of the second setting. */
        struct timespec none = { 0, 300000 };
        sigtimedwait(&set, NULL, &none);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return late;
}

static atomic_int go, failed;

static void *make_timers(void *unused)
{
    for (int round = 0; round < MADE; round++) {
        struct sigevent event = { .sigev_notify = SIGEV_NONE };
        timer_t timer;
        atomic_fetch_add(&go, 1);
        while (atomic_load(&go) < 2 * (round + 1))
            sched_yield();
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
            atomic_fetch_add(&failed, 1);
        else if (timer_delete(timer) != 0)
            atomic_fetch_add(&failed, 1000);
    }
    return unused;
}

static int made_by_two(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, make_timers, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return atomic_load(&failed);
}

static int timer_fd;
static atomic_int stop;

static void *read_timer(void *unused)
{
    unsigned long ticks;
    while (!atomic_load(&stop))
        if (read(timer_fd, &ticks, sizeof ticks) < 0)
            sched_yield();
    return unused;
}

/* A timer with a long interval expires as it is set to something soon: then it expires soon. */
static int read_and_set(void)
{
    int late = 0;
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    pthread_t thread;
    pthread_create(&thread, NULL, read_timer, NULL);
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct itimerspec often = { { 1000, 0 }, { 0, 30000 } };
        timerfd_settime(timer_fd, 0, &often, NULL);
        spin(round * 17 % 9000);
        struct itimerspec soon = { { 0, 0 }, { 0, 50000 } }, left;
        timerfd_settime(timer_fd, 0, &soon, NULL);
        struct pollfd wanted = { timer_fd, POLLIN, 0 };
        /* Either this thread sees that it has expired, or the other one, which then reads it. */
        for (int tries = 0;; tries++) {
            if (poll(&wanted, 1, 1) == 1)
                break;
            timerfd_gettime(timer_fd, &left);
            if (left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0)
                break;
            if (tries == 10000) {
                late++;
                break;
            }
        }
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    return late;
}

int main(void)
{
    SHOW(disarmed());
    SHOW(set_again());
    SHOW(made_by_two());
    SHOW(read_and_set());
    return 0;
}
