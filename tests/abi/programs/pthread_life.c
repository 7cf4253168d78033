/* Threads' lives: create and join in number, detach, cancel, clean-up, TLS and keys, once, names, stacks, fork inside. */
#include "abi.h"

static __thread int local = 5;
static __thread char big_local[3000];
static pthread_key_t key;
static int destroyed, cleaned;
static int pipes[2];

static void *identity(void *argument)
{
    local += (int)(long)argument;
    big_local[2999] = (char)local;
    return (void *)(long)(local + big_local[2999]);
}

static void destructor(void *value)
{
    __atomic_add_fetch(&destroyed, (int)(long)value, __ATOMIC_SEQ_CST);
}

static void *with_key(void *argument)
{
    pthread_setspecific(key, argument);
    return NULL;
}

static void clean(void *argument)
{
    cleaned += (int)(long)argument;
}

static void *cancelled(void *unused)
{
    (void)unused;
    pthread_cleanup_push(clean, (void *)1);
    pthread_cleanup_push(clean, (void *)10);
    char byte;
    read(pipes[0], &byte, 1);
    printf("not reached\n");
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *asynchronous(void *unused)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    tell(pipes[1]);
    for (;;)
        ;
    return unused;
}

static void *refuses(void *unused)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    tell(pipes[1]);
    pause_ms(30);
    (void)unused;
    return (void *)77;
}

static int once_count;

static void once_body(void)
{
    once_count++;
    pause_ms(10);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *calls_once(void *unused)
{
    pthread_once(&once, once_body);
    return unused;
}

static void *forks(void *unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        struct dirent *entry;
        int threads = 0;
        DIR *folder = opendir("/proc/self/task");
        while ((entry = readdir(folder)))
            threads += entry->d_name[0] != '.';
        printf("forked in a thread: %d task, tid is pid %d, local %d\n", threads, gettid() == getpid(), local);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    return (void *)(long)WEXITSTATUS(status);
}

static void *waits_forever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static int deep(int depth)
{
    volatile char frame[1000];
    frame[0] = 1;
    return depth ? deep(depth - 1) + frame[0] : 0;
}

static void *uses_stack(void *unused)
{
    (void)unused;
    return (void *)(long)deep(900);
}

static long join(pthread_t thread)
{
    void *result;
    CODE(pthread_join(thread, &result));
    return result == PTHREAD_CANCELED ? -99 : (long)result;
}

int main(void)
{
    pthread_t threads[64], thread;
    pipe(pipes);
    long sum = 0;
    for (int round = 0; round < 4; round++) {
        for (long i = 0; i < 64; i++)
            pthread_create(&threads[i], NULL, identity, (void *)i);
        for (int i = 0; i < 64; i++) {
            void *result;
            pthread_join(threads[i], &result);
            sum += (long)result;
        }
    }
    SHOW(sum);
    SHOW(local);
    pthread_key_create(&key, destructor);
    for (long i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, with_key, (void *)(i + 1));
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    SHOW(destroyed);

    pthread_create(&thread, NULL, cancelled, NULL);
    CODE(pthread_cancel(thread));
    SHOW(join(thread));
    SHOW(cleaned);
    pthread_create(&thread, NULL, asynchronous, NULL);
    hear(pipes[0]);
    pthread_cancel(thread);
    SHOW(join(thread));
    pthread_create(&thread, NULL, refuses, NULL);
    hear(pipes[0]);
    pthread_cancel(thread);
    SHOW(join(thread));

    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, calls_once, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    SHOW(once_count);
    pthread_create(&thread, NULL, forks, NULL);
    SHOW(join(thread));

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CODE(pthread_attr_setstacksize(&attributes, 1 << 20));
    pthread_create(&thread, &attributes, uses_stack, NULL);
    SHOW(join(thread));
    pthread_create(&thread, NULL, waits_forever, NULL);
    CODE(pthread_setname_np(thread, "a-name"));
    char name[32];
    CODE(pthread_getname_np(thread, name, sizeof name));
    printf("name %s\n", name);
    CODE(pthread_setname_np(thread, "a-name-that-is-too-long"));
    CODE(pthread_kill(thread, 0));
    CODE(pthread_tryjoin_np(thread, NULL));
    struct timespec past = { 1, 0 };
    CODE(pthread_timedjoin_np(thread, NULL, &past));
    CODE(pthread_detach(thread));
    CODE(pthread_join(pthread_self(), NULL));
    /* A thread that is never joined goes away with the process. */
    REAP(CHILD({
        pthread_create(&thread, NULL, waits_forever, NULL);
        return 6;
    }));
    return 0;
}
