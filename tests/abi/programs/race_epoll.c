/* One epoll set that several threads wait on: what is ready all the time is found by each look, one-shots that are armed again are
 * reported again, and changes of other files mix nothing up.
 * abi: limit 100
 * abi: long
 */
#include "abi.h"

enum { TIMES = 3000, THREADS = 3, ROUNDS = 2000 };

static int set, outer;
static atomic_int missed, twice, stop;

static void *look(void *unused)
{
    struct epoll_event events[4];
    for (int i = 0; i < TIMES; i++) {
        int found = epoll_wait(set, events, 4, 0);
        if (found < 1)
            atomic_fetch_add(&missed, 1);
        for (int a = 0; a < found; a++)
            for (int b = 0; b < a; b++)
                if (events[a].data.u64 == events[b].data.u64)
                    atomic_fetch_add(&twice, 1);
        struct pollfd nested = { set, POLLIN, 0 };
        if (poll(&nested, 1, 0) != 1)
            atomic_fetch_add(&missed, 1);
        if (epoll_wait(outer, events, 4, 0) != 1)
            atomic_fetch_add(&missed, 1);
    }
    return unused;
}

/* Other interests come and go meanwhile, each in the place of the one before. */
static void *come_and_go(void *unused)
{
    int counter = eventfd(1, EFD_NONBLOCK);
    struct epoll_event event = { EPOLLIN, { .u64 = 7 } };
    while (!atomic_load(&stop)) {
        if (epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) != 0)
            atomic_fetch_add(&missed, 100000);
        if (epoll_ctl(set, EPOLL_CTL_DEL, counter, NULL) != 0)
            atomic_fetch_add(&missed, 100000);
    }
    close(counter);
    return unused;
}

static void watch(int epoll, int file, unsigned flags)
{
    struct epoll_event event = { EPOLLIN | flags, { .u64 = (unsigned)file } };
    OK(epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event));
}

static void ready_all_the_time(void)
{
    pthread_t threads[THREADS + 1];
    set = epoll_create1(0);
    outer = epoll_create1(0);
    watch(set, eventfd(1, 0), 0);
    watch(outer, set, 0);
    pthread_create(&threads[THREADS], NULL, come_and_go, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, look, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, 1);
    pthread_join(threads[THREADS], NULL);
    printf("missed %d, twice %d\n", atomic_load(&missed), atomic_load(&twice));
    close(outer);
    close(set);
}

static atomic_int reports;

static void *collect(void *unused)
{
    struct epoll_event event;
    while (!atomic_load(&stop))
        if (epoll_wait(set, &event, 1, 1) == 1)
            atomic_fetch_add(&reports, 1);
    return unused;
}

/* Arming a one-shot again, at whatever moment: a report follows. */
static int armed_again(void)
{
    int lost = 0, counter = eventfd(1, 0);
    set = epoll_create1(0);
    watch(set, counter, EPOLLONESHOT);
    atomic_store(&stop, 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, collect, NULL);
    struct epoll_event event = { EPOLLIN | EPOLLONESHOT, { .u64 = 1 } };
    for (int round = 0; round < ROUNDS; round++) {
        epoll_ctl(set, EPOLL_CTL_MOD, counter, &event);
        for (volatile int i = 0; i < round * 7 % 500; i++)
            ;
        /* Of what was reported before this, and before its report was counted, there can be one for each thread. */
        int before = atomic_load(&reports);
        epoll_ctl(set, EPOLL_CTL_MOD, counter, &event);
        long long since = now_ms();
        struct epoll_event mine;
        while (atomic_load(&reports) == before && now_ms() - since < 10000)
            if (epoll_wait(set, &mine, 1, 0) == 1)
                break;
        lost += now_ms() - since >= 10000;
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return lost;
}

int main(void)
{
    ready_all_the_time();
    SHOW(armed_again());
    return 0;
}
