/* pthread mutexes, conditions, barriers, read-write locks, semaphores and spin locks under load. */
#include "abi.h"
#include <semaphore.h>

enum { THREADS = 8, ROUNDS = 2000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static long counter, turn, torn, pair[2];

static void run(void *(*body)(void *), const char *name)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, body, (void *)i))
            printf("no thread\n");
    long sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    printf("%s: counter %ld, sum %ld\n", name, counter, sum);
    counter = 0;
}

static void *counts(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *turns(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != me)
            pthread_cond_wait(&changed, &mutex);
        turn++;
        counter++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return argument;
}

static void *steps(void *argument)
{
    long serial = 0;
    for (int i = 0; i < 100; i++) {
        long before = __atomic_load_n(&counter, __ATOMIC_SEQ_CST);
        if (before / THREADS != i)
            torn++;
        serial += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
        __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST);
        pthread_barrier_wait(&barrier);
    }
    (void)argument;
    return (void *)serial;
}

static void *reads_and_writes(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < 500; i++) {
        if (me < 2) {
            pthread_rwlock_wrlock(&lock);
            pair[0]++;
            sched_yield();
            pair[1]++;
            counter++;
            pthread_rwlock_unlock(&lock);
        } else {
            pthread_rwlock_rdlock(&lock);
            if (pair[0] != pair[1])
                __atomic_add_fetch(&torn, 1, __ATOMIC_SEQ_CST);
            pthread_rwlock_unlock(&lock);
        }
    }
    return NULL;
}

static void *semaphores(void *argument)
{
    static long inside;
    for (int i = 0; i < 200; i++) {
        sem_wait(&semaphore);
        if (__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) > 3)
            __atomic_add_fetch(&torn, 1, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST);
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        sem_post(&semaphore);
    }
    return argument;
}

static void kinds(void)
{
    int types[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK };
    for (int i = 0; i < 3; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, types[i]);
        pthread_mutex_t one;
        pthread_mutex_init(&one, &attributes);
        printf("kind %d\n", i);
        CODE(pthread_mutex_lock(&one));
        CODE(pthread_mutex_trylock(&one));
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 10000000;
        if (soon.tv_nsec >= 1000000000) {
            soon.tv_nsec -= 1000000000;
            soon.tv_sec++;
        }
        CODE(pthread_mutex_timedlock(&one, &soon));
        CODE(pthread_mutex_unlock(&one));
    }
    struct timespec past = { 1, 0 };
    pthread_mutex_lock(&mutex);
    CODE(pthread_cond_timedwait(&changed, &mutex, &past));
    pthread_mutex_unlock(&mutex);
    SHOW(sem_trywait(&semaphore));
    SHOW(sem_timedwait(&semaphore, &past));
    CODE(pthread_rwlock_rdlock(&lock));
    CODE(pthread_rwlock_tryrdlock(&lock));
    CODE(pthread_rwlock_trywrlock(&lock));
    CODE(pthread_rwlock_timedwrlock(&lock, &past));
    pthread_rwlock_unlock(&lock);
    pthread_rwlock_unlock(&lock);
}

int main(void)
{
    run(counts, "mutex");
    run(turns, "condition");
    pthread_barrier_init(&barrier, NULL, THREADS);
    run(steps, "barrier");
    run(reads_and_writes, "rwlock");
    sem_init(&semaphore, 0, 3);
    run(semaphores, "semaphore");
    SHOW(torn);
    for (int i = 0; i < 3; i++)
        sem_wait(&semaphore);
    kinds();
    return 0;
}
