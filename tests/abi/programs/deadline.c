/* SCHED_DEADLINE: who may have how much, what is told of it, and what it is at odds with. */
#include "abi.h"

#define DEADLINE 6
#define MS 1000000ull

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static long set(pid_t pid, uint64_t runtime, uint64_t deadline, uint64_t period, uint64_t flags)
{
    struct attributes wanted = { .size = sizeof wanted, .policy = DEADLINE, .flags = flags, .runtime = runtime,
                                 .deadline = deadline, .period = period };
    return syscall(SYS_sched_setattr, pid, &wanted, 0);
}

static void show(const char *who, pid_t pid)
{
    struct attributes now;
    memset(&now, -1, sizeof now);
    long result = syscall(SYS_sched_getattr, pid, &now, sizeof now, 0);
    printf("%s: %ld, policy %u, flags %llu, priority %u, %llu %llu %llu\n", who, result, now.policy,
           (unsigned long long)now.flags, now.priority,
           /* Of others newer kernels tell a slice here. */
           now.policy == DEADLINE ? (unsigned long long)now.runtime : 0, (unsigned long long)now.deadline,
           (unsigned long long)now.period);
}

static void be_ordinary(void)
{
    struct sched_param none = { 0 };
    SHOW(sched_setscheduler(0, SCHED_OTHER, &none));
}

static void terms(void)
{
    SHOW(set(0, 0, 0, 0, 0));
    SHOW(set(0, 1023, 10 * MS, 10 * MS, 0));
    SHOW(set(0, 11 * MS, 10 * MS, 20 * MS, 0));
    SHOW(set(0, 5 * MS, 20 * MS, 10 * MS, 0));
    SHOW(set(0, 2000, 3000, 99999, 0));
    SHOW(set(0, MS, 10 * MS, 5000 * MS, 0));
    SHOW(set(0, MS, 1ull << 63, 1ull << 63, 0));
    SHOW(set(0, MS, 10 * MS, 10 * MS, 1ull << 40));
    struct attributes wrong = { .size = sizeof wrong, .policy = DEADLINE, .priority = 1, .runtime = MS,
                                .deadline = 10 * MS };
    SHOW(syscall(SYS_sched_setattr, 0, &wrong, 0));
    SHOW(set(999999, MS, 10 * MS, 10 * MS, 0));
    SHOW(set(-1, MS, 10 * MS, 10 * MS, 0));
    show("nothing yet", 0);
    SHOW(set(0, MS, 10 * MS, 0, 0));
    show("as long as the deadline", 0);
    SHOW(set(0, 20 * MS, 30 * MS, 40 * MS, 0));
    show("other terms", 0);
    SHOW(sched_getscheduler(0));
    struct sched_param parameters = { 77 };
    SHOW(sched_getparam(0, &parameters));
    SHOW(parameters.sched_priority);
    SHOW(sched_setparam(0, &parameters));
    parameters.sched_priority = 0;
    SHOW(sched_setparam(0, &parameters));
    SHOW(sched_setscheduler(0, DEADLINE, &parameters));
    SHOW(sched_get_priority_max(DEADLINE));
    SHOW(sched_get_priority_min(DEADLINE));
    struct timespec slice = { 5, 5 };
    SHOW(sched_rr_get_interval(0, &slice));
    printf("%ld %ld\n", (long)slice.tv_sec, slice.tv_nsec);
    be_ordinary();
    show("ordinary again", 0);
}

static void relations(void)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    int several = CPU_COUNT(&all) > 1;
    SHOW(set(0, 5 * MS, 10 * MS, 10 * MS, 0));
    /* It must be able to go everywhere. */
    TRUE(several ? sched_setaffinity(0, sizeof one, &one) == -1 && errno == EBUSY : sched_setaffinity(0, sizeof one, &one) == 0);
    OK(sched_setaffinity(0, sizeof all, &all));
    be_ordinary();
    OK(sched_setaffinity(0, sizeof one, &one));
    TRUE(several ? set(0, MS, 10 * MS, 10 * MS, 0) == -1 && errno == EPERM : set(0, MS, 10 * MS, 10 * MS, 0) == 0);
    be_ordinary();
    OK(sched_setaffinity(0, sizeof all, &all));
    /* What it has reserved is its own. */
    SHOW(set(0, MS, 10 * MS, 10 * MS, 0));
    SHOW(fork());
    pthread_t thread;
    CODE(pthread_create(&thread, NULL, (void *(*)(void *))pause, NULL));
    SHOW(set(0, MS, 10 * MS, 10 * MS, 1));
    show("children start without", 0);
    REAP(CHILD(show("child", 0)));
    REAP(CHILD({
        SHOW(setresuid(1000, 1000, 1000));
        SHOW(set(0, MS, 10 * MS, 10 * MS, 0));
        SHOW(set(getppid(), MS, 10 * MS, 10 * MS, 0));
        show("somebody else's", getppid());
    }));
    be_ordinary();
    struct sched_param ten = { 10 };
    SHOW(sched_setscheduler(0, SCHED_FIFO, &ten));
    SHOW(set(0, MS, 10 * MS, 10 * MS, 0));
    SHOW(sched_setscheduler(0, SCHED_FIFO, &ten));
    be_ordinary();
    show("at the end", 0);
}

/* What somebody had is had by others at the end of its period only. */
static long set_at_last(pid_t pid, uint64_t runtime, uint64_t period)
{
    long result = -1;
    for (int tries = 0; tries < LOOKS && (result = set(pid, runtime, period, period, 0)) < 0 && errno == EBUSY; tries++)
        pause_ms(1);
    return result;
}

/* Half a processor each, until no more is to be had. */
static void admission(void)
{
    enum { MANY = 300 };
    static pid_t children[MANY];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int count = 0, refused = 0;
    for (; count < MANY && !refused; count++) {
        children[count] = CHILD(pause());
        if (set(children[count], 5 * MS, 10 * MS, 10 * MS, 0) < 0) {
            refused = errno;
            printf("refused: %s\n", ERRNO_NAME(errno));
        }
    }
    TRUE(count - 1 == processors * 95 / 50);
    /* A smaller part of what is left. */
    printf("less: %s\n", set(children[count - 1], MS, 10 * MS, 10 * MS, 0) < 0 ? ERRNO_NAME(errno) : "ok");
    /* Whoever dies leaves it to others. */
    kill(children[0], SIGKILL);
    waitpid(children[0], NULL, 0);
    SHOW(set_at_last(children[count - 1], 5 * MS, 10 * MS));
    for (int index = 1; index < count; index++) {
        kill(children[index], SIGKILL);
        waitpid(children[index], NULL, 0);
    }
    pid_t child = CHILD(pause());
    SHOW(set_at_last(child, 9 * MS, 10 * MS));
    kill(child, SIGKILL);
    REAP(child);
}

static long long nanoseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* However much it wants, it has no more than was reserved; and what it gives up is gone. */
static void budget(void)
{
    SHOW(set(0, 10 * MS, 100 * MS, 100 * MS, 0));
    long long begin = nanoseconds(CLOCK_MONOTONIC), used = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    while (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - used < 50 * (long long)MS)
        continue;
    TRUE(nanoseconds(CLOCK_MONOTONIC) - begin >= 300 * (long long)MS);
    begin = nanoseconds(CLOCK_MONOTONIC);
    for (int round = 0; round < 5; round++)
        sched_yield();
    TRUE(nanoseconds(CLOCK_MONOTONIC) - begin >= 350 * (long long)MS);
    be_ordinary();
}

int main(void)
{
    terms();
    relations();
    admission();
    budget();
    return 0;
}
