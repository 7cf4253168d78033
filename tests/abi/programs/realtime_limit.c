/* RLIMIT_RTTIME: what a real-time thread may run without sleeping. Told at the soft limit and each second after, killed at the hard one.
 * abi: limit 60
 */
#include "abi.h"

static volatile sig_atomic_t told;

static void on_limit(int number)
{
    (void)number;
    told++;
}

static double used(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void limit(long soft_us, long hard_us)
{
    struct rlimit wanted = { soft_us, hard_us };
    SHOW(setrlimit(RLIMIT_RTTIME, &wanted));
}

static void real_time(int policy)
{
    struct sched_param parameters = { 1 };
    SHOW(sched_setscheduler(0, policy, &parameters));
}

static void compute(double seconds)
{
    for (double begin = used(); used() - begin < seconds;)
        ;
}

static void show_limit(void)
{
    struct rlimit now;
    getrlimit(RLIMIT_RTTIME, &now);
    printf("limit %ld\n", (long)now.rlim_cur);
}

int main(void)
{
    signal(SIGXCPU, on_limit);
    fflush(stdout);
    pid_t child = CHILD({
        limit(50000, 5000000);
        compute(0.2);
        printf("told as an ordinary thread: %d\n", told);
        real_time(SCHED_FIFO);
        compute(0.3);
        printf("told as a real-time thread: %d\n", told);
        show_limit();
    });
    REAP(child);
    child = CHILD({
        real_time(SCHED_RR);
        limit(100000, 5000000);
        for (int i = 0; i < 20; i++) {
            compute(0.02);
            usleep(1000);
        }
        printf("told one that sleeps: %d\n", told);
        show_limit();
    });
    REAP(child);
    child = CHILD({
        real_time(SCHED_FIFO);
        limit(50000, 400000);
        fflush(stdout);
        for (;;)
            ;
    });
    REAP(child);
    child = CHILD({
        real_time(SCHED_FIFO);
        limit(50000, 400000);
        fflush(stdout);
        pid_t grandchild = CHILD({ for (;;); });
        REAP(grandchild);
    });
    REAP(child);
    return 0;
}
