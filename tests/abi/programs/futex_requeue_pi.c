/* FUTEX_WAIT_REQUEUE_PI and FUTEX_CMP_REQUEUE_PI: words, counts, errors, time-outs and signals before and after the move.
 * abi: limit 60
 */
#include "abi.h"
#include <linux/futex.h>

static long futex(void *word, int op, uint32_t value, const void *timeout, void *other, uint32_t third)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, other, third);
}

static uint32_t condition, lock, another;

#define WAIT(timeout) futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, timeout, &lock, 0)
#define REQUEUE(wake, count, value) futex(&condition, FUTEX_CMP_REQUEUE_PI, wake, (void *)(long)(count), &lock, value)

static const char *shown(uint32_t value)
{
    static char text[64];
    uint32_t tid = value & FUTEX_TID_MASK;
    snprintf(text, sizeof text, "%s%s%s", tid == 0 ? "free" : tid == (uint32_t)gettid() ? "me" : "other",
             value & FUTEX_WAITERS ? " waiters" : "", value & FUTEX_OWNER_DIED ? " died" : "");
    return text;
}

struct waiter {
    pthread_t thread;
    int priority;
    const struct timespec *until;
    atomic_int tid, returned, let_go;
    long result;
    int error, order;
};

static atomic_int order;

static void until(atomic_int *flag)
{
    while (!atomic_load(flag))
        usleep(500);
}

static void *waits(void *argument)
{
    struct waiter *waiter = argument;
    if (waiter->priority) {
        struct sched_param parameters = { waiter->priority };
        sched_setscheduler(0, SCHED_FIFO, &parameters);
    }
    atomic_store(&waiter->tid, gettid());
    waiter->result = WAIT(waiter->until);
    waiter->error = errno;
    waiter->order = atomic_fetch_add(&order, 1);
    atomic_store(&waiter->returned, 1);
    until(&waiter->let_go);
    if (waiter->result == 0)
        futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
    return NULL;
}

static void until_asleep(int tid)
{
    for (int look = 0; look < LOOKS; look++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        const char *end = strrchr(get_text(path), ')');
        if (end && end[2] == 'S')
            return;
        pause_ms(1);
    }
    printf("thread did not fall asleep\n");
}

static void start(struct waiter *waiter)
{
    pthread_create(&waiter->thread, NULL, waits, waiter);
    until(&waiter->tid);
    until_asleep(waiter->tid);
}

static void finish(struct waiter *waiter)
{
    until(&waiter->returned);
    atomic_store(&waiter->let_go, 1);
    pthread_join(waiter->thread, NULL);
    printf("waited: %ld %s\n", waiter->result, waiter->result ? ERRNO_NAME(waiter->error) : "");
}

static void errors(void)
{
    struct timespec past = { 1, 0 }, bad = { 0, -1 };
    SHOW(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &condition, 0));
    SHOW(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 1, NULL, &lock, 0));
    SHOW(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, &bad, &lock, 0));
    SHOW(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, NULL, (char *)&lock + 1, 0));
    SHOW(futex(NULL, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &lock, 0));
    SHOW(WAIT(&past));
    SHOW(futex(&condition, FUTEX_WAIT_REQUEUE_PI | FUTEX_CLOCK_REALTIME, 0, &past, &lock, 0));
    SHOW(REQUEUE(1, 0, 0));
    SHOW(REQUEUE(1, 10, 1));
    SHOW(REQUEUE(0, 1, 0));
    SHOW(REQUEUE(2, 1, 0));
    SHOW(REQUEUE(1, -1, 0));
    SHOW(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, NULL, &condition, 0));
    SHOW(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, NULL, (char *)&lock + 2, 0));
}

static void free_lock(void)
{
    struct waiter waiter = { 0 };
    lock = 0;
    start(&waiter);
    SHOW(futex(&condition, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(futex(&condition, FUTEX_REQUEUE, 0, (void *)1, &another, 0));
    SHOW(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, &another, 0));
    SHOW(REQUEUE(1, 0, 0));
    until(&waiter.returned);
    printf("given: %s\n", shown(lock));
    finish(&waiter);
    printf("in the end: %s\n", shown(lock));
    struct waiter two[2] = { 0 };
    start(&two[0]);
    start(&two[1]);
    SHOW(REQUEUE(1, 100, 0));
    until(&two[0].returned);
    printf("given: %s, the other %s\n", shown(lock), two[1].returned ? "has returned" : "waits");
    finish(&two[0]);
    finish(&two[1]);
    printf("in the end: %s\n", shown(lock));
}

static void taken_lock(void)
{
    struct waiter waiters[3] = { { .priority = 3 }, { .priority = 9 }, { .priority = 6 } };
    atomic_store(&order, 0);
    futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
    for (int i = 0; i < 3; i++)
        start(&waiters[i]);
    SHOW(REQUEUE(1, 0, 0));
    printf("moved: %s\n", shown(lock));
    SHOW(REQUEUE(1, 1, 0));
    SHOW(REQUEUE(1, 1, 0));
    SHOW(futex(&lock, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    static const int next[] = { 1, 2, 0 };
    for (int i = 0; i < 3; i++) {
        finish(&waiters[next[i]]);
        printf("number %d\n", waiters[next[i]].order);
    }
    printf("in the end: %s\n", shown(lock));
    lock = 0x3ffffff0;
    struct waiter waiter = { 0 };
    start(&waiter);
    SHOW(REQUEUE(1, 1, 0));
    lock = waiter.tid;
    SHOW(REQUEUE(1, 1, 0));
    lock = 0;
    SHOW(REQUEUE(1, 1, 0));
    finish(&waiter);
}

static void nothing(int number)
{
    (void)number;
}

static void given_up(void)
{
    struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    struct waiter waiter = { 0 };
    futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
    start(&waiter);
    pthread_kill(waiter.thread, SIGUSR1);
    pause_ms(5);
    until_asleep(waiter.tid);
    printf("a signal before the move: %s\n", waiter.returned ? "it has returned" : "it waits");
    SHOW(REQUEUE(1, 0, 0));
    pthread_kill(waiter.thread, SIGUSR1);
    finish(&waiter);
    struct timespec soon;
    clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_sec += 1;
    struct waiter timed = { .until = &soon };
    start(&timed);
    SHOW(REQUEUE(1, 0, 0));
    finish(&timed);
    SHOW(futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    printf("in the end: %s\n", shown(lock));
}

static void *dies(void *unused)
{
    (void)unused;
    futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
    atomic_store(&order, 1);
    until((atomic_int *)&another);
    return NULL;
}

static void owner_dies(void)
{
    pthread_t thread;
    struct waiter waiter = { 0 };
    another = 0;
    atomic_store(&order, 0);
    pthread_create(&thread, NULL, dies, NULL);
    until(&order);
    start(&waiter);
    SHOW(REQUEUE(1, 0, 0));
    another = 1;
    pthread_join(thread, NULL);
    until(&waiter.returned);
    printf("left by its owner: %s\n", shown(lock));
    finish(&waiter);
    printf("in the end: %s\n", shown(lock));
}

int main(void)
{
    errors();
    free_lock();
    taken_lock();
    given_up();
    owner_dies();
    return 0;
}
