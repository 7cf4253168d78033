/* Address spaces used by many threads at once: faults, mappings that come and go, protection changes, forks. */
#include "abi.h"
#include <setjmp.h>

enum { PAGE = 4096, THREADS = 6 };

static char *shared_area;
static volatile int stop, broken;

static void *maps(void *argument)
{
    unsigned state = (unsigned)(long)argument * 7919 + 1;
    for (int i = 0; i < 300; i++) {
        state = state * 1103515245 + 12345;
        size_t pages = 1 + (state >> 16) % 16;
        char *area = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED) {
            broken = 1;
            break;
        }
        for (size_t p = 0; p < pages; p++) {
            if (area[p * PAGE] != 0)
                broken = 2;
            area[p * PAGE] = (char)(state + p);
        }
        mprotect(area, PAGE, PROT_READ);
        for (size_t p = 0; p < pages; p++)
            if (area[p * PAGE] != (char)(state + p))
                broken = 3;
        munmap(area, pages * PAGE);
    }
    return NULL;
}

static void *touches(void *argument)
{
    long me = (long)argument;
    for (int round = 0; round < 40; round++)
        for (int p = 0; p < 64; p++) {
            int *cell = (int *)(shared_area + p * PAGE) + me;
            __atomic_add_fetch(cell, 1, __ATOMIC_SEQ_CST);
            __atomic_add_fetch((int *)(shared_area + p * PAGE) + 100, 1, __ATOMIC_SEQ_CST);
        }
    return NULL;
}

static void *forks(void *argument)
{
    (void)argument;
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (int p = 0; p < 64; p++)
                shared_area[p * PAGE + 2000] = 9;
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return NULL;
}

static __thread sigjmp_buf back;

static void fault(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static void *revoked(void *argument)
{
    /* After mprotect has returned, no thread on any processor may still write. */
    volatile char *page = argument;
    volatile int count = 0;
    for (;;) {
        if (sigsetjmp(back, 1))
            return (void *)(long)(count > 0);
        for (;;) {
            page[0]++;
            count++;
            if (count > 200000000)
                return (void *)-1;
        }
    }
}

static void run(void *(*one)(void *), void *(*other)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, i % 2 ? other : one, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    run(maps, maps);
    SHOW(broken);
    shared_area = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    run(touches, touches);
    int wrong = 0;
    for (int p = 0; p < 64; p++)
        wrong += ((int *)(shared_area + p * PAGE))[100] != 40 * THREADS;
    SHOW(wrong);
    run(touches, forks);
    wrong = 0;
    for (int p = 0; p < 64; p++)
        wrong += ((int *)(shared_area + p * PAGE))[100] != 40 * THREADS + 40 * THREADS / 2 || shared_area[p * PAGE + 2000];
    SHOW(wrong);
    run(maps, forks);
    SHOW(broken);
    signal(SIGSEGV, fault);
    for (int round = 0; round < 5; round++) {
        char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], NULL, revoked, page);
        while (((volatile char *)page)[0] == 0)
            sched_yield();
        pause_ms(3);
        mprotect(page, PAGE, PROT_READ);
        char before = ((volatile char *)page)[0];
        pause_ms(3);
        char after = ((volatile char *)page)[0];
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        if (before != after)
            printf("written after mprotect\n");
    }
    printf("done\n");
    return 0;
}
