/* clock_nanosleep on the processor time of processes and threads.
 * abi: limit 60
 */
#include "abi.h"

static long sleeps(clockid_t clock, int flags, const void *time, void *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, time, left);
}

static atomic_int stop, worker_tid;

static void *computes(void *unused)
{
    (void)unused;
    atomic_store(&worker_tid, gettid());
    while (!atomic_load(&stop))
        ;
    return NULL;
}

static long long now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static struct timespec at(long long ns)
{
    return (struct timespec){ ns / 1000000000, ns % 1000000000 };
}

static void nothing(int number)
{
    (void)number;
}

static pthread_t main_thread;
static atomic_int signalled;

static void *interrupts(void *unused)
{
    (void)unused;
    while (!atomic_load(&signalled)) {
        pthread_kill(main_thread, SIGUSR1);
        pause_ms(2);
    }
    return NULL;
}

int main(void)
{
    struct timespec some = at(30000000), bad = { 0, 1000000000 }, left, far = { 1000, 0 };
    clockid_t of_worker;
    pthread_t worker, interrupter;
    SHOW(sleeps(CLOCK_THREAD_CPUTIME_ID, 0, &some, NULL));
    SHOW(sleeps(CLOCK_PROCESS_CPUTIME_ID, 0, &bad, NULL));
    SHOW(sleeps(CLOCK_PROCESS_CPUTIME_ID, 0, NULL, NULL));
    SHOW(sleeps((clockid_t)(~(unsigned)getpid() << 3 | 6), 0, &some, NULL));
    SHOW(sleeps((clockid_t)(~0x0ffffff0u << 3 | 2), 0, &some, NULL));
    SHOW(sleeps((clockid_t)(~0x0ffffff0u << 3 | 6), 0, &some, NULL));
    pthread_create(&worker, NULL, computes, NULL);
    while (!atomic_load(&worker_tid))
        sched_yield();
    long long begin = now(CLOCK_PROCESS_CPUTIME_ID);
    SHOW(sleeps(CLOCK_PROCESS_CPUTIME_ID, 0, &some, NULL));
    TRUE(now(CLOCK_PROCESS_CPUTIME_ID) - begin >= 30000000);
    struct timespec then = at(now(CLOCK_PROCESS_CPUTIME_ID) + 20000000);
    SHOW(sleeps(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &then, NULL));
    TRUE(now(CLOCK_PROCESS_CPUTIME_ID) >= then.tv_sec * 1000000000ll + then.tv_nsec);
    then = at(1);
    SHOW(sleeps(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &then, NULL));
    SHOW(pthread_getcpuclockid(worker, &of_worker));
    begin = now(of_worker);
    SHOW(sleeps(of_worker, 0, &some, NULL));
    TRUE(now(of_worker) - begin >= 30000000);
    struct sigaction action = { .sa_handler = nothing };
    sigaction(SIGUSR1, &action, NULL);
    main_thread = pthread_self();
    pthread_create(&interrupter, NULL, interrupts, NULL);
    SHOW(sleeps(CLOCK_PROCESS_CPUTIME_ID, 0, &far, &left));
    TRUE(left.tv_sec >= 900 && left.tv_sec < 1000);
    SHOW(sleeps(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &far, &left));
    atomic_store(&signalled, 1);
    pthread_join(interrupter, NULL);
    atomic_store(&stop, 1);
    pthread_join(worker, NULL);
    return 0;
}
