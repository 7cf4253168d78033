/* What a process is told of its processor time, beside others on its processor and while it makes many calls: the sums agree, whoever tells them. */
#include "abi.h"

enum { OTHERS = 3, CALLS = 2000 };

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

static void use_first_processor(void)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
}

static long long stat_ticks(void)
{
    unsigned long user = 0, system = 0;
    const char *end = strrchr(get_text("/proc/self/stat"), ')');
    if (end)
        sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (long long)(user + system);
}

/* Each clock is read after the one that it may not be behind. */
static void compare_sums(void)
{
    enum { ROUNDS = 200, ROUNDING_NS = 2000 };
    int behind = 0, ahead = 0, ticks_behind = 0, ticks_ahead = 0;
    long long tick = 1000000000LL / sysconf(_SC_CLK_TCK);
    for (int round = 0; round < ROUNDS; round++) {
        struct rusage usage;
        struct tms times_now;
        for (int calls = 0; calls < CALLS; calls++)
            syscall(SYS_getppid);
        long long before = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
        getrusage(RUSAGE_SELF, &usage);
        times(&times_now);
        long long ticks = stat_ticks();
        long long after = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
        long long sum = of(usage.ru_utime) + of(usage.ru_stime);
        long long told = (times_now.tms_utime + times_now.tms_stime) * tick;
        behind += sum + ROUNDING_NS < before;
        ahead += sum > after;
        ticks_behind += told + 2 * tick < before || ticks * tick + 2 * tick < before;
        ticks_ahead += told > after || ticks * tick > after;
    }
    printf("getrusage behind the clock: %d times, ahead: %d times\n", behind, ahead);
    printf("times and /proc/self/stat behind the clock: %d times, ahead: %d times\n", ticks_behind, ticks_ahead);
}

int main(void)
{
    use_first_processor();
    compare_sums();
    pid_t others[OTHERS];
    for (int index = 0; index < OTHERS; index++)
        others[index] = CHILD(for (;;) continue);
    compare_sums();
    for (int index = 0; index < OTHERS; index++) {
        kill(others[index], SIGKILL);
        REAP(others[index]);
    }
    return 0;
}
