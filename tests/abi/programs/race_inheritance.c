/* Locks with priority inheritance under races: rings, time-outs, signals, changes of policy, owners and waiters that are killed. Nobody may own a
 * lock twice, nobody may wait for a lock that nobody owns, and in the end nobody is more urgent than by itself.
 * abi: limit 90
 */
#include "abi.h"
#include <linux/futex.h>

enum { THREADS = 6, LOCKS = 4, ROUNDS = 400, VICTIMS = 40 };

struct shared {
    uint32_t word[LOCKS];
    atomic_int owners[LOCKS];
    atomic_int owned_twice, odd_error, deadlocks, taken, give_up;
};

static struct shared *shared;

static long futex(void *word, int op, uint32_t value, const void *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static unsigned next(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 16;
}

static int take(int lock, unsigned *state)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += next(state) % 3000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (futex(&shared->word[lock], FUTEX_LOCK_PI, 0, next(state) % 2 ? &until : NULL)) {
        if (errno == EDEADLK)
            atomic_fetch_add(&shared->deadlocks, 1);
        else if (errno != ETIMEDOUT)
            atomic_fetch_add(&shared->odd_error, 1);
        return 0;
    }
    if (atomic_fetch_add(&shared->owners[lock], 1) != 0)
        atomic_fetch_add(&shared->owned_twice, 1);
    atomic_fetch_add(&shared->taken, 1);
    return 1;
}

static void give_back(int lock)
{
    atomic_fetch_sub(&shared->owners[lock], 1);
    if (futex(&shared->word[lock], FUTEX_UNLOCK_PI, 0, NULL))
        atomic_fetch_add(&shared->odd_error, 1);
}

static pthread_t threads[THREADS];
static pthread_barrier_t all_done;

static void *works(void *argument)
{
    unsigned state = (unsigned)(long)argument * 7919 + 1;
    int me = (int)(long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        int first = next(&state) % LOCKS, second = (first + 1 + next(&state) % (LOCKS - 1)) % LOCKS;
        if (next(&state) % 4 == 0) {
            struct sched_param parameters = { (int)(next(&state) % 5) };
            sched_setscheduler(0, parameters.sched_priority ? SCHED_RR : SCHED_OTHER, &parameters);
        }
        if (next(&state) % 4 == 0)
            pthread_kill(threads[(me + 1) % THREADS], SIGUSR1);
        if (!take(first, &state))
            continue;
        if (next(&state) % 2 == 0)
            sched_yield();
        if (take(second, &state))
            give_back(second);
        give_back(first);
    }
    struct sched_param none = { 0 };
    sched_setscheduler(0, SCHED_OTHER, &none);
    /* Others may signal this one until they are done, too. */
    pthread_barrier_wait(&all_done);
    return NULL;
}

static void nothing(int number)
{
    (void)number;
}

static int priority(void)
{
    const char *at = strrchr(get_text("/proc/thread-self/stat"), ')') + 2;
    for (int field = 3; field < 18; field++)
        at = strchr(at, ' ') + 1;
    return atoi(at);
}

static void *ends_normal(void *unused)
{
    (void)unused;
    return (void *)(long)(priority() != 20);
}

static void all_at_once(void)
{
    pthread_barrier_init(&all_done, NULL, THREADS);
    /* Signals to threads that are not made yet come here. */
    for (long i = 0; i < THREADS; i++)
        threads[i] = pthread_self();
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, works, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    SHOW(shared->owned_twice);
    SHOW(shared->odd_error);
    TRUE(shared->taken > 0);
    for (int lock = 0; lock < LOCKS; lock++)
        SHOW(shared->word[lock]);
    printf("own urgency: %s\n", priority() == 20 ? "as it was" : "lent");
    pthread_t fresh;
    void *lent;
    pthread_create(&fresh, NULL, ends_normal, NULL);
    pthread_join(fresh, &lent);
    SHOW((long)lent);
}

/* Processes that take and give back a lock until they are killed: whoever is next gets it, or finds that its owner is gone. */
static void killed(void)
{
    unsigned state = 17;
    int stuck = 0;
    for (int victim = 0; victim < VICTIMS; victim++) {
        shared->word[0] = 0;
        pid_t children[2];
        for (int i = 0; i < 2; i++)
            if ((children[i] = fork()) == 0)
                for (;;) {
                    futex(&shared->word[0], FUTEX_LOCK_PI, 0, NULL);
                    futex(&shared->word[0], FUTEX_UNLOCK_PI, 0, NULL);
                }
        usleep(next(&state) % 2000);
        kill(children[0], SIGKILL);
        waitpid(children[0], NULL, 0);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1000;
        /* The other one gives it back or died with it: both let this one go on. */
        kill(children[1], SIGKILL);
        waitpid(children[1], NULL, 0);
        long result = futex(&shared->word[0], FUTEX_LOCK_PI, 0, &until);
        stuck += result != 0 && errno != ESRCH;
        if (result == 0)
            futex(&shared->word[0], FUTEX_UNLOCK_PI, 0, NULL);
    }
    SHOW(stuck);
}

int main(void)
{
    struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all_at_once();
    fflush(stdout);
    killed();
    return 0;
}
