/* Futexes with priority inheritance: words, errors, order, chains, boosts, owners that end, time-outs, signals.
 * abi: limit 60
 */
#include "abi.h"
#include <linux/futex.h>

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

static long futex(void *word, int op, uint32_t value, const void *timeout, void *other, uint32_t third)
{
    return syscall(SYS_futex, word, op, value, timeout, other, third);
}

#define LOCK(word) futex(word, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0)
#define TRYLOCK(word) futex(word, FUTEX_TRYLOCK_PI_PRIVATE, 0, NULL, NULL, 0)
#define UNLOCK(word) futex(word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0)

static uint32_t word, other;

/* The word with the caller's number as "me". */
static const char *shown(uint32_t value)
{
    static char text[64];
    uint32_t tid = value & FUTEX_TID_MASK;
    snprintf(text, sizeof text, "%s%s%s", tid == 0 ? "free" : tid == (uint32_t)gettid() ? "me" : "other",
             value & FUTEX_WAITERS ? " waiters" : "", value & FUTEX_OWNER_DIED ? " died" : "");
    return text;
}

static int field_of(int tid, int field)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    const char *at = strrchr(get_text(path), ')');
    if (!at)
        return 0;
    for (at += 2; field > 3; field--)
        at = strchr(at, ' ') + 1;
    return field == 3 && at[0] >= 'A' ? at[0] : atoi(at);
}

static void until_asleep(int tid)
{
    for (int look = 0; look < LOOKS; look++) {
        if (field_of(tid, 3) == 'S')
            return;
        pause_ms(1);
    }
    printf("thread did not fall asleep\n");
}

static void until_priority(int tid, int priority)
{
    for (int look = 0; look < LOOKS; look++) {
        if (field_of(tid, 18) == priority)
            return;
        pause_ms(1);
    }
    printf("priority is %d, not %d\n", field_of(tid, 18), priority);
}

/* A thread that takes locks, waits to be told, and gives them back. */
struct actor {
    pthread_t thread;
    int priority;
    uint32_t *first, *second;
    struct timespec *until;
    atomic_int tid, has_first, go_on, has_second, let_go;
    long result;
    int error, died, order;
};

static atomic_int order;

static void until(atomic_int *flag)
{
    while (!atomic_load(flag))
        usleep(500);
}

static void *acts(void *argument)
{
    struct actor *actor = argument;
    if (actor->priority) {
        struct sched_param parameters = { actor->priority };
        sched_setscheduler(0, SCHED_FIFO, &parameters);
    }
    atomic_store(&actor->tid, gettid());
    if (actor->first) {
        actor->result = futex(actor->first, FUTEX_LOCK_PI_PRIVATE, 0, actor->until, NULL, 0);
        actor->error = errno;
        actor->died = (__atomic_load_n(actor->first, __ATOMIC_SEQ_CST) & FUTEX_OWNER_DIED) != 0;
        actor->order = atomic_fetch_add(&order, 1);
        atomic_store(&actor->has_first, 1);
    }
    until(&actor->go_on);
    if (actor->second) {
        actor->result = LOCK(actor->second);
        actor->error = errno;
        atomic_store(&actor->has_second, 1);
        if (actor->result == 0)
            UNLOCK(actor->second);
    }
    until(&actor->let_go);
    if (actor->first && actor->result == 0)
        UNLOCK(actor->first);
    return NULL;
}

static void start(struct actor *actor)
{
    pthread_create(&actor->thread, NULL, acts, actor);
    until(&actor->tid);
}

static void finish(struct actor *actor)
{
    atomic_store(&actor->go_on, 1);
    atomic_store(&actor->let_go, 1);
    pthread_join(actor->thread, NULL);
}

static void words(void)
{
    word = 0;
    SHOW(LOCK(&word));
    printf("locked: %s\n", shown(word));
    SHOW(LOCK(&word));
    SHOW(TRYLOCK(&word));
    SHOW(UNLOCK(&word));
    printf("unlocked: %s\n", shown(word));
    SHOW(UNLOCK(&word));
    SHOW(TRYLOCK(&word));
    printf("tried: %s\n", shown(word));
    word |= FUTEX_WAITERS;
    SHOW(UNLOCK(&word));
    printf("unlocked: %s\n", shown(word));
    word = FUTEX_OWNER_DIED;
    SHOW(LOCK(&word));
    printf("of a dead owner: %s\n", shown(word));
    SHOW(UNLOCK(&word));
    word = FUTEX_OWNER_DIED | FUTEX_WAITERS;
    SHOW(TRYLOCK(&word));
    printf("of a dead owner: %s\n", shown(word));
    word = 0x3ffffff0;
    SHOW(LOCK(&word));
    printf("of nobody: %x\n", word);
    SHOW(TRYLOCK(&word));
    SHOW(UNLOCK(&word));
    word = 0;
    SHOW(futex(&word, FUTEX_LOCK_PI2 | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    printf("%s\n", shown(word));
}

static void errors(void)
{
    struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 };
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t *read_only = (uint32_t *)page;
    word = 0;
    SHOW(LOCK((char *)&word + 1));
    SHOW(TRYLOCK((char *)&word + 2));
    SHOW(UNLOCK((char *)&word + 1));
    SHOW(LOCK(NULL));
    SHOW(TRYLOCK((void *)-4096L));
    SHOW(UNLOCK(NULL));
    SHOW(LOCK(read_only));
    SHOW(UNLOCK(read_only));
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, &bad, NULL, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, &negative, NULL, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, (void *)8, NULL, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_TRYLOCK_PI | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_UNLOCK_PI | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_CMP_REQUEUE_PI | FUTEX_CLOCK_REALTIME, 1, NULL, &other, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME, 0, &bad, NULL, 0));
    SHOW(word);
}

static void time_outs(void)
{
    struct actor owner = { .first = &word };
    word = 0;
    start(&owner);
    until(&owner.has_first);
    struct timespec now, past = { 1, 0 };
    SHOW(futex(&word, FUTEX_LOCK_PI_PRIVATE, 0, &past, NULL, 0));
    printf("after a time-out: %s\n", shown(word));
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec += 20000000;
    if (now.tv_nsec >= 1000000000)
        now.tv_sec++, now.tv_nsec -= 1000000000;
    SHOW(futex(&word, FUTEX_LOCK_PI_PRIVATE, 0, &now, NULL, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI2 | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, 0, &now, NULL, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI2 | FUTEX_PRIVATE_FLAG, 0, &past, NULL, 0));
    SHOW(TRYLOCK(&word));
    SHOW(UNLOCK(&word));
    SHOW(futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    finish(&owner);
    printf("in the end: %s\n", shown(word));
}

static void handed_on(void)
{
    struct actor waiter = { .first = &word };
    word = 0;
    LOCK(&word);
    start(&waiter);
    until_asleep(waiter.tid);
    printf("waited for: %s\n", shown(word));
    SHOW(futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    SHOW(LOCK(&word));
    SHOW(UNLOCK(&word));
    printf("handed on: %s\n", shown(word));
    until(&waiter.has_first);
    SHOW(waiter.result);
    finish(&waiter);
    printf("in the end: %s\n", shown(word));
    /* A word that does not agree with what the kernel knows. */
    struct actor second = { .first = &word }, third = { .first = &word };
    LOCK(&word);
    start(&second);
    until_asleep(second.tid);
    uint32_t right = word;
    word = 0;
    start(&third);
    until(&third.has_first);
    printf("free, but waited for: %ld %s\n", third.result, ERRNO_NAME(third.error));
    finish(&third);
    word = right;
    SHOW(UNLOCK(&word));
    until(&second.has_first);
    finish(&second);
}

static void ordered(void)
{
    struct actor waiters[4] = { { .priority = 5 }, { .priority = 20 }, { .priority = 5 }, { .priority = 7 } };
    word = 0;
    LOCK(&word);
    atomic_store(&order, 0);
    for (int i = 0; i < 4; i++) {
        waiters[i].first = &word;
        start(&waiters[i]);
        until_asleep(waiters[i].tid);
    }
    until_priority(gettid(), -21);
    printf("own policy %d\n", sched_getscheduler(0));
    struct sched_param parameters = { 30 };
    sched_setscheduler(waiters[2].tid, SCHED_RR, &parameters);
    until_priority(gettid(), -31);
    parameters.sched_priority = 40;
    sched_setscheduler(0, SCHED_FIFO, &parameters);
    until_priority(gettid(), -41);
    parameters.sched_priority = 0;
    sched_setscheduler(0, SCHED_OTHER, &parameters);
    until_priority(gettid(), -31);
    UNLOCK(&word);
    until_priority(gettid(), 20);
    for (int i = 0; i < 4; i++) {
        static const int next[] = { 2, 1, 3, 0 };
        until(&waiters[next[i]].has_first);
        finish(&waiters[next[i]]);
    }
    for (int i = 0; i < 4; i++)
        printf("priority %d is number %d, %ld\n", waiters[i].priority, waiters[i].order, waiters[i].result);
}

enum { LINKS = 4 };

static void chain(void)
{
    static uint32_t locks[LINKS + 1];
    struct actor links[LINKS] = { 0 };
    for (int i = 0; i < LINKS; i++) {
        links[i].first = &locks[i];
        links[i].second = i ? &locks[i - 1] : NULL;
        start(&links[i]);
        until(&links[i].has_first);
    }
    for (int i = 1; i < LINKS; i++) {
        atomic_store(&links[i].go_on, 1);
        until_asleep(links[i].tid);
        for (int look = 0; look < LOOKS && !(locks[i - 1] & FUTEX_WAITERS); look++)
            pause_ms(1);
    }
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec += 1000;
    struct actor urgent = { .priority = 60, .first = &locks[LINKS - 1], .until = &soon };
    start(&urgent);
    for (int i = 0; i < LINKS; i++)
        until_priority(links[i].tid, -61);
    printf("all are urgent\n");
    struct sched_param lower = { 50 };
    sched_setscheduler(urgent.tid, SCHED_FIFO, &lower);
    for (int i = 0; i < LINKS; i++)
        until_priority(links[i].tid, -51);
    /* The first would close the ring. */
    links[0].second = &locks[LINKS - 1];
    atomic_store(&links[0].go_on, 1);
    until(&links[0].has_second);
    printf("a ring: %ld %s\n", links[0].result, ERRNO_NAME(links[0].error));
    links[0].result = 0;
    for (int i = 0; i < LINKS; i++)
        atomic_store(&links[i].let_go, 1);
    for (int i = 0; i < LINKS; i++)
        finish(&links[i]);
    finish(&urgent);
    SHOW(urgent.result);
    for (int i = 0; i < LINKS; i++)
        printf("%s\n", shown(locks[i]));
}

static atomic_int interrupted;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&interrupted, 1);
}

static void signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGUSR1, &action, NULL);
    struct actor waiter = { .first = &word };
    word = 0;
    LOCK(&word);
    start(&waiter);
    until_asleep(waiter.tid);
    for (int i = 1; i <= 3; i++) {
        pthread_kill(waiter.thread, SIGUSR1);
        while (atomic_load(&interrupted) < i)
            pause_ms(1);
        until_asleep(waiter.tid);
    }
    SHOW(waiter.has_first);
    UNLOCK(&word);
    until(&waiter.has_first);
    SHOW(waiter.result);
    finish(&waiter);
    SHOW(interrupted);
}

static uint32_t *shared;

/* Owners that end with the lock: with and without waiters, killed, in another process. */
static void ends(void)
{
    fflush(stdout);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        futex(shared, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
        shared[1] = 1;
        pause();
    }
    while (!__atomic_load_n(&shared[1], __ATOMIC_SEQ_CST))
        pause_ms(1);
    pid_t second = fork();
    if (second == 0) {
        long result = futex(shared, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
        printf("of a killed owner: %ld, %s\n", result, shown(shared[0]));
        fflush(stdout);
        result = futex(shared, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
        printf("given back: %ld, %s\n", result, shown(shared[0]));
        fflush(stdout);
        _exit(0);
    }
    wait_state(second, "S");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    waitpid(second, NULL, 0);
    child = fork();
    if (child == 0) {
        futex(shared, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    SHOW(futex(shared, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex(shared, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    shared[0] = 0;
    /* A waiter that is killed. */
    futex(shared, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
    child = fork();
    if (child == 0) {
        futex(shared, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
        _exit(0);
    }
    wait_state(child, "S");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("after the waiter's end: %s\n", shown(shared[0]));
    SHOW(futex(shared, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    printf("%s\n", shown(shared[0]));
}

static void *dies_with(void *mutex)
{
    pthread_mutex_lock(mutex);
    return NULL;
}

static void *dies_waited_for(void *mutex)
{
    pthread_mutex_lock(mutex);
    until(&interrupted);
    for (int look = 0; look < LOOKS && !(*(uint32_t *)mutex & FUTEX_WAITERS); look++)
        pause_ms(1);
    return NULL;
}

static void library(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_t thread;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    SHOW(pthread_mutex_init(&mutex, &attributes));
    pthread_create(&thread, NULL, dies_with, &mutex);
    pthread_join(thread, NULL);
    SHOW(pthread_mutex_trylock(&mutex) == EOWNERDEAD);
    SHOW(pthread_mutex_consistent(&mutex));
    SHOW(pthread_mutex_unlock(&mutex));
    atomic_store(&interrupted, 0);
    pthread_create(&thread, NULL, dies_waited_for, &mutex);
    while (pthread_mutex_trylock(&mutex) == 0) {
        pthread_mutex_unlock(&mutex);
        sched_yield();
    }
    atomic_store(&interrupted, 1);
    SHOW(pthread_mutex_lock(&mutex) == EOWNERDEAD);
    pthread_join(thread, NULL);
    SHOW(pthread_mutex_unlock(&mutex));
    SHOW(pthread_mutex_lock(&mutex) == ENOTRECOVERABLE);
}

int main(void)
{
    words();
    errors();
    time_outs();
    handed_on();
    ordered();
    chain();
    signals();
    ends();
    library();
    return 0;
}
