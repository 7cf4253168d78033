/* Uses each kind of object a known number of times, with waits that are forced, and prints the objects' names for `--aliases`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, MEETING = 3, HELD_MS = 20 };

static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER, recursive, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t of_child = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t semaphore;
static atomic_int waiter;
static int signalled;

static void named(const void *object, const char *name)
{
    printf("%p %s\n", object, name);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

/* Until the thread that said so sleeps. */
static void until_it_sleeps(void)
{
    char path[64], line[512];
    while (!atomic_load(&waiter))
        pause_ms(1);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter));
    for (int quiet = 0; quiet < 3; pause_ms(2)) {
        FILE *file = fopen(path, "r");
        if (!file || !fgets(line, sizeof line, file))
            exit(9);
        fclose(file);
        const char *state = line;
        for (const char *at = line; *at; at++)
            if (*at == ')')
                state = at + 2;
        quiet = *state == 'S' ? quiet + 1 : 0;
    }
    atomic_store(&waiter, 0);
}

static void sleeps_soon(void)
{
    atomic_store(&waiter, (int)syscall(SYS_gettid));
}

static void *locks(void *unused)
{
    if (pthread_mutex_trylock(&contended) != EBUSY)
        exit(9);
    sleeps_soon();
    pthread_mutex_lock(&contended);
    pthread_mutex_unlock(&contended);
    return unused;
}

static void *waits(void *unused)
{
    pthread_mutex_lock(&guard);
    sleeps_soon();
    while (!signalled)
        pthread_cond_wait(&condition, &guard);
    pthread_mutex_unlock(&guard);
    pthread_exit(unused);
}

static void give_back(void *mutex)
{
    pthread_mutex_unlock(mutex);
}

static void *is_cancelled(void *unused)
{
    pthread_mutex_lock(&guard);
    pthread_cleanup_push(give_back, &guard);
    sleeps_soon();
    for (;;)
        pthread_cond_wait(&never, &guard);
    pthread_cleanup_pop(1);
    return unused;
}

static void *meets(void *unused)
{
    for (int i = 0; i < ROUNDS; i++)
        pthread_barrier_wait(&barrier);
    return unused;
}

static void *takes(void *unused)
{
    sleeps_soon();
    sem_wait(&semaphore);
    return unused;
}

static atomic_int gone;

static void *goes(void *unused)
{
    atomic_store(&gone, 1);
    return unused;
}

static void mutexes(void)
{
    pthread_t thread;
    pthread_mutex_lock(&contended);
    pthread_create(&thread, NULL, locks, NULL);
    until_it_sleeps();
    pause_ms(HELD_MS);
    pthread_mutex_unlock(&contended);
    pthread_join(thread, NULL);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attributes);
    for (int i = 0; i < 3; i++)
        pthread_mutex_lock(&recursive);
    for (int i = 0; i < 3; i++)
        pthread_mutex_unlock(&recursive);
    pthread_mutex_destroy(&recursive);
}

static void conditions(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, waits, NULL);
    until_it_sleeps();
    pthread_mutex_lock(&guard);
    signalled = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&guard);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&guard);
    struct timespec past = { 1, 0 };
    if (pthread_cond_timedwait(&condition, &guard, &past) != ETIMEDOUT)
        exit(9);
    pthread_mutex_unlock(&guard);
    pthread_cond_broadcast(&condition);
    pthread_create(&thread, NULL, is_cancelled, NULL);
    until_it_sleeps();
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

static void barriers(void)
{
    pthread_t threads[MEETING];
    pthread_barrier_init(&barrier, NULL, MEETING);
    for (int i = 0; i < MEETING; i++)
        pthread_create(&threads[i], NULL, meets, NULL);
    for (int i = 0; i < MEETING; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static void semaphores(void)
{
    pthread_t thread;
    sem_init(&semaphore, 0, 2);
    sem_wait(&semaphore);
    sem_wait(&semaphore);
    if (sem_trywait(&semaphore) == 0)
        exit(9);
    pthread_create(&thread, NULL, takes, NULL);
    until_it_sleeps();
    sem_post(&semaphore);
    pthread_join(thread, NULL);
    sem_destroy(&semaphore);
}

static void others(void)
{
    pthread_rwlock_rdlock(&rwlock);
    pthread_rwlock_rdlock(&rwlock);
    if (pthread_rwlock_trywrlock(&rwlock) != EBUSY)
        exit(9);
    pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    pthread_spin_init(&spin, 0);
    for (int i = 0; i < 10; i++) {
        pthread_spin_lock(&spin);
        pthread_spin_unlock(&spin);
    }
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_NONE };
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        timer_delete(timer);
    pthread_key_t key;
    pthread_key_create(&key, NULL);
    for (int i = 0; i < 3; i++)
        pthread_setspecific(key, &key);
    pthread_key_delete(key);
    struct mq_attr attributes = { .mq_maxmsg = 4, .mq_msgsize = 8 };
    mqd_t queue = mq_open("/counts-of-threads", O_CREAT | O_RDWR, 0600, &attributes);
    char message[8] = "";
    for (int i = 0; queue >= 0 && i < 4; i++)
        mq_send(queue, message, sizeof message, 0);
    for (int i = 0; queue >= 0 && i < 4; i++)
        mq_receive(queue, message, sizeof message, NULL);
    mq_close(queue);
    mq_unlink("/counts-of-threads");
}

static void threads(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, goes, NULL);
    pthread_detach(thread);
    while (!atomic_load(&gone))
        pause_ms(1);
}

int main(void)
{
    named(&contended, "contended");
    named(&recursive, "recursive");
    named(&guard, "guard");
    named(&of_child, "of_child");
    named(&condition, "condition");
    named(&never, "never");
    named(&barrier, "barrier");
    named(&rwlock, "rwlock");
    named((const void *)&spin, "spin");
    named(&semaphore, "semaphore");
    fflush(stdout);
    pthread_setname_np(pthread_self(), "counts");
    mutexes();
    conditions();
    barriers();
    semaphores();
    others();
    threads();
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 7; i++) {
            pthread_mutex_lock(&of_child);
            pthread_mutex_unlock(&of_child);
        }
        exit(5);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
