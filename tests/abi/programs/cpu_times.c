/* CPU times of a process whose threads end all the time: no reader sees them run backwards or ahead of the clock. */
#include "abi.h"

enum { MAKERS = 3, THREADS_EACH = 400, CLOCKS = 5 };

static atomic_int makers_left = MAKERS;

static long long nanoseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long of(struct timeval time)
{
    return time.tv_sec * 1000000000LL + time.tv_usec * 1000LL;
}

static void *burn(void *unused)
{
    (void)unused;
    while (nanoseconds(CLOCK_THREAD_CPUTIME_ID) < 400000)
        continue;
    return NULL;
}

static void *make(void *unused)
{
    (void)unused;
    for (int count = 0; count < THREADS_EACH; count++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, burn, NULL) == 0)
            pthread_join(thread, NULL);
    }
    makers_left--;
    return NULL;
}

int main(void)
{
    static const char *names[CLOCKS] = {"process clock", "user time", "system time", "times", "faults"};
    long long last[CLOCKS] = {0}, backwards[CLOCKS] = {0}, ahead = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t makers[MAKERS];
    long long begin = nanoseconds(CLOCK_MONOTONIC);
    for (int index = 0; index < MAKERS; index++)
        pthread_create(&makers[index], NULL, make, NULL);
    while (makers_left > 0) {
        long long now[CLOCKS];
        struct rusage usage;
        struct tms ticks;
        now[0] = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
        /* What ran before the program did is small, and so is what the two clocks differ by. */
        long long elapsed = nanoseconds(CLOCK_MONOTONIC) - begin;
        ahead += now[0] > elapsed * cpus + elapsed / 50 + 100000000;
        getrusage(RUSAGE_SELF, &usage);
        now[1] = of(usage.ru_utime);
        now[2] = of(usage.ru_stime);
        times(&ticks);
        now[3] = ticks.tms_utime + ticks.tms_stime;
        now[4] = usage.ru_minflt;
        for (int index = 0; index < CLOCKS; index++) {
            backwards[index] += now[index] < last[index];
            last[index] = now[index];
        }
    }
    for (int index = 0; index < MAKERS; index++)
        pthread_join(makers[index], NULL);
    for (int index = 0; index < CLOCKS; index++)
        printf("%s: %lld times backwards\n", names[index], backwards[index]);
    printf("ahead of the clock: %lld times\n", ahead);
    TRUE(nanoseconds(CLOCK_PROCESS_CPUTIME_ID) >= MAKERS * THREADS_EACH * 400000LL);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    TRUE(of(usage.ru_utime) + of(usage.ru_stime) >= MAKERS * THREADS_EACH * 390000LL);
    return 0;
}
