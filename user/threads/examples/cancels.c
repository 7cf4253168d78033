/* Threads that use mutexes while they may be cancelled at any time, and are: `cancels ROUNDS`. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_int begun;

static void *works(void *unused)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    atomic_store(&begun, 1);
    for (;;) {
        pthread_mutex_init(&mutex, NULL);
        pthread_mutex_trylock(&mutex);
        for (volatile int i = 0; i < 10000; i++)
            ;
    }
    return unused;
}

int main(int count, char **words)
{
    for (int rounds = count > 1 ? atoi(words[1]) : 100; rounds > 0; rounds--) {
        pthread_t thread;
        void *end;
        atomic_store(&begun, 0);
        pthread_create(&thread, NULL, works, NULL);
        while (!atomic_load(&begun))
            ;
        pthread_cancel(thread);
        pthread_join(thread, &end);
        if (end != PTHREAD_CANCELED)
            return 1;
    }
    return 0;
}
