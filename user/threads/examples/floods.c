/* Threads that do nothing but use a mutex each: `floods THREADS ROUNDS [END]`, without end if ROUNDS is 0. END says how the program ends when they
 * have begun: `kill` and `crash` by a signal.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long rounds;
static atomic_int begun;

static void *floods(void *unused)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    atomic_fetch_add(&begun, 1);
    for (long i = 0; rounds == 0 || i < rounds; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

int main(int count, char **words)
{
    int threads = count > 1 ? atoi(words[1]) : 1;
    rounds = count > 2 ? atol(words[2]) : 0;
    pthread_t thread;
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, NULL, floods, NULL);
    while (atomic_load(&begun) < threads)
        usleep(1000);
    if (count > 3)
        raise(strcmp(words[3], "kill") == 0 ? SIGKILL : SIGSEGV);
    pthread_exit(NULL);
}
