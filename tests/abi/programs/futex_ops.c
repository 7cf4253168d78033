/* futex: wait, wake, bitset, requeue, wake_op, timeouts, robust lists, shared and private keys. */
#include "abi.h"
#include <linux/futex.h>

static long futex(void *word, int op, uint32_t value, const void *timeout, void *other, uint32_t third)
{
    return syscall(SYS_futex, word, op, value, timeout, other, third);
}

static uint32_t word, second;
static volatile int woken;

static void *waits(void *argument)
{
    long bits = (long)argument;
    long result = futex(&word, bits ? FUTEX_WAIT_BITSET_PRIVATE : FUTEX_WAIT_PRIVATE, 0, NULL, NULL, bits);
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return (void *)result;
}

/* Waits until this many threads of the process sleep. */
static void until_asleep(int count)
{
    for (int tries = 0; tries < LOOKS; tries++) {
        int asleep = 0;
        DIR *folder = opendir("/proc/self/task");
        struct dirent *entry;
        while ((entry = readdir(folder)))
            if (entry->d_name[0] != '.' && atoi(entry->d_name) != getpid()) {
                char path[64];
                snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
                const char *text = get_text(path);
                const char *end = strrchr(text, ')');
                asleep += end && end[2] == 'S';
            }
        closedir(folder);
        if (asleep >= count)
            return;
        pause_ms(2);
    }
    printf("threads did not fall asleep\n");
}

static void errors(void)
{
    struct timespec short_time = { 0, 20000000 }, bad = { 0, 1000000000 };
    word = 0;
    SHOW(futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAIT, 0, &short_time, NULL, 0));
    SHOW(futex(&word, FUTEX_WAIT, 0, &bad, NULL, 0));
    SHOW(futex((char *)&word + 1, FUTEX_WAIT, 0, NULL, NULL, 0));
    SHOW(futex((char *)&word + 1, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(futex((void *)16, FUTEX_WAIT, 0, NULL, NULL, 0));
    SHOW(futex((void *)16, FUTEX_WAKE, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
    SHOW(futex(&word, 99, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &second, 5));
    SHOW(futex(&word, FUTEX_FD, 0, NULL, NULL, 0));
    struct timespec past = { 1, 0 };
    SHOW(futex(&word, FUTEX_WAIT_BITSET, 0, &past, NULL, 1));
    SHOW(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &past, NULL, 1));
}

static void wake_counts(void)
{
    pthread_t threads[6];
    word = 0;
    woken = 0;
    for (int i = 0; i < 6; i++)
        pthread_create(&threads[i], NULL, waits, (void *)0);
    until_asleep(6);
    SHOW(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0));
    SHOW(futex(&second, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_REQUEUE_PRIVATE, 0, (void *)2, &second, 0));
    SHOW(futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0));
    SHOW(futex(&second, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)9, &word, 0));
    SHOW(futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0));
    SHOW(futex(&second, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0));
    long sum = 0;
    for (int i = 0; i < 6; i++) {
        void *result = NULL;
        if (i < 6 && woken >= 0) {
            word = 0;
            futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
            pthread_join(threads[i], &result);
        }
        sum += (long)result;
    }
    SHOW(sum);
}

static void private_wakes(void)
{
    pthread_t thread[3];
    woken = 0;
    for (long i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, waits, (void *)(1l << i));
    until_asleep(3);
    SHOW(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, 8));
    SHOW(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, 2));
    pthread_join(thread[1], NULL);
    SHOW(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, 5));
    pthread_join(thread[0], NULL);
    pthread_join(thread[2], NULL);
    SHOW(woken);
}

static void operation(void)
{
    pthread_t thread[2];
    word = 0;
    for (long i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, waits, (void *)0);
    until_asleep(2);
    second = 5;
    SHOW(futex(&second, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &word, FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_EQ, 3)));
    SHOW(word);
    word = 3;
    SHOW(futex(&second, FUTEX_WAKE_OP_PRIVATE, 1, (void *)5, &word, FUTEX_OP(FUTEX_OP_SET, 9, FUTEX_OP_CMP_EQ, 3)));
    SHOW(word);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    uint32_t values[] = { FUTEX_OP_SET, FUTEX_OP_ADD, FUTEX_OP_OR, FUTEX_OP_ANDN, FUTEX_OP_XOR };
    for (int i = 0; i < 5; i++) {
        word = 0xff;
        futex(&second, FUTEX_WAKE_OP_PRIVATE, 0, NULL, &word, FUTEX_OP(values[i], 0x10f, FUTEX_OP_CMP_EQ, 0));
        printf("op %d: %#x\n", i, word);
    }
}

static void shared(void)
{
    uint32_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = CHILD({ _exit(futex(page, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 21 : 22); });
    wait_state(child, "S");
    SHOW(futex(page, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    SHOW(futex(page, FUTEX_WAKE, 1, NULL, NULL, 0));
    REAP(child);
    put_text("file", "12345678");
    int fd = open("file", O_RDWR);
    ftruncate(fd, 4096);
    uint32_t *one = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint32_t *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    one[1] = 0;
    child = CHILD({ _exit(futex(&one[1], FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 23 : 24); });
    wait_state(child, "S");
    SHOW(futex(&other[1], FUTEX_WAKE, 1, NULL, NULL, 0));
    REAP(child);
}

static void robust(void)
{
    struct robust_list_head *head = NULL;
    size_t bytes = 0;
    SHOW(syscall(SYS_get_robust_list, 0, &head, &bytes));
    SHOW(bytes);
    TRUE(head != NULL);
    SHOW(syscall(SYS_set_robust_list, head, 5));
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_t *mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_init(mutex, &attributes);
    REAP(CHILD({ pthread_mutex_lock(mutex); _exit(1); }));
    CODE(pthread_mutex_lock(mutex));
    CODE(pthread_mutex_consistent(mutex));
    CODE(pthread_mutex_unlock(mutex));
    pid_t child = CHILD({ pthread_mutex_lock(mutex); for (;;) pause(); });
    wait_state(child, "S");
    while (pthread_mutex_trylock(mutex) == 0) {
        pthread_mutex_unlock(mutex);
        pause_ms(1);
    }
    CODE(pthread_mutex_trylock(mutex));
    pid_t waiter = CHILD({ int code = pthread_mutex_lock(mutex); _exit(code == EOWNERDEAD ? 31 : 32); });
    wait_state(waiter, "S");
    kill(child, SIGKILL);
    REAP(child);
    REAP(waiter);
    CODE(pthread_mutex_lock(mutex));
    CODE(pthread_mutex_unlock(mutex));
    CODE(pthread_mutex_lock(mutex));
}

int main(void)
{
    errors();
    wake_counts();
    private_wakes();
    operation();
    shared();
    robust();
    return 0;
}
