/* SCHED_DEADLINE on one processor, overloaded: each has what it reserved and no more, whatever the others want.
 *
 * Shares are of the guest's processor time; since a busy host may take the processor away in one process's time, the first good attempt decides.
 *
 * abi: guest
 * abi: cpus 1
 * abi: limit 120
 */
#include "guest.h"

enum { ATTEMPTS = 8, LOOPS = 4, MS = 1000000, ROUNDS = 30 };

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static volatile struct {
    long long used[LOOPS];
    int ready, go, stop;
} *shared;

static long long nanoseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int reserve(pid_t pid, uint64_t runtime_ms, uint64_t deadline_ms, uint64_t period_ms)
{
    struct attributes wanted = { .size = sizeof wanted, .policy = 6, .runtime = runtime_ms * MS,
                                 .deadline = deadline_ms * MS, .period = period_ms * MS };
    return (int)syscall(SYS_sched_setattr, pid, &wanted, 0);
}

static pid_t loop(int place)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    shared->ready++;
    while (!shared->go)
        usleep(1000);
    while (!shared->stop)
        shared->used[place] = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    _exit(0);
}

/* Two with reservations, one of the highest priority and an ordinary one, all of whom want everything. In thousandths of what they had. */
static void overload(long shares[LOOPS])
{
    pid_t children[LOOPS];
    memset((void *)shared, 0, sizeof *shared);
    for (int place = 0; place < LOOPS; place++)
        children[place] = loop(place);
    while (shared->ready < LOOPS)
        usleep(1000);
    EXPECT(reserve(children[0], 3, 10, 10) == 0, "%s", strerror(errno));
    EXPECT(reserve(children[1], 4, 15, 20) == 0, "%s", strerror(errno));
    struct sched_param highest = { 99 };
    EXPECT(sched_setscheduler(children[2], SCHED_FIFO, &highest) == 0, "%s", strerror(errno));
    /* Who ends it goes before all. */
    EXPECT(reserve(0, 1, 10, 10) == 0, "%s", strerror(errno));
    shared->go = 1;
    struct timespec second = { 1, 0 };
    nanosleep(&second, NULL);
    nanosleep(&second, NULL);
    shared->stop = 1;
    struct sched_param none = { 0 };
    sched_setscheduler(0, SCHED_OTHER, &none);
    long long all = 0;
    for (int place = 0; place < LOOPS; place++) {
        waitpid(children[place], NULL, 0);
        all += shared->used[place];
    }
    for (int place = 0; place < LOOPS; place++)
        shares[place] = (long)(shared->used[place] * 1000 / all);
}

/* A thread that needs less than it reserved meets its deadlines beside one that loops with the highest priority. Returns how many it missed. */
static int missed(void)
{
    int late = 0;
    memset((void *)shared, 0, sizeof *shared);
    pid_t child = loop(0);
    struct sched_param highest = { 99 }, none = { 0 };
    EXPECT(sched_setscheduler(child, SCHED_FIFO, &highest) == 0, "%s", strerror(errno));
    EXPECT(reserve(0, 5, 20, 20) == 0, "%s", strerror(errno));
    shared->go = 1;
    long long begin = nanoseconds(CLOCK_MONOTONIC);
    for (int round = 1; round <= ROUNDS; round++) {
        long long used = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        while (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - used < MS)
            continue;
        late += nanoseconds(CLOCK_MONOTONIC) > begin + round * 20LL * MS;
        long long next = begin + round * 20LL * MS;
        struct timespec when = { next / 1000000000, next % 1000000000 };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
    }
    shared->stop = 1;
    sched_setscheduler(0, SCHED_OTHER, &none);
    waitpid(child, NULL, 0);
    return late;
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long shares[LOOPS];
    /* On several processors nobody has to wait for anybody, and shares say nothing. */
    int good = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    for (int attempt = 0; attempt < ATTEMPTS && !good; attempt++) {
        overload(shares);
        printf("300 and 200 reserved, highest priority, ordinary: %ld %ld %ld %ld\n", shares[0], shares[1], shares[2], shares[3]);
        good = shares[0] >= 250 && shares[0] <= 330 && shares[1] >= 160 && shares[1] <= 230 && shares[2] >= 350;
    }
    EXPECT(good, "each has what it reserved, and the others share the rest");
    /* A thread that had to wait for the loop would miss nearly all on one processor; a busy host makes it miss some. */
    int late = ROUNDS;
    for (int attempt = 0; attempt < ATTEMPTS && late > ROUNDS / 3; attempt++) {
        late = missed();
        printf("deadlines missed: %d of %d\n", late, ROUNDS);
    }
    EXPECT(late <= ROUNDS / 3, "%d of %d", late, ROUNDS);
    return verdict_failed;
}
