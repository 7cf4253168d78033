/* epoll: level, edge, one-shot, exclusive, nested, closed and duplicated descriptors, errors. */
#include "abi.h"

static int set;

static void show(const char *what)
{
    struct epoll_event found[8];
    int count = epoll_wait(set, found, 8, 0);
    printf("%s: %d", what, count);
    for (int i = 0; i < count; i++)
        printf(" [%u %#x]", found[i].data.u32, found[i].events);
    printf("\n");
}

static int control(int operation, int fd, uint32_t events, uint32_t data)
{
    struct epoll_event event = { .events = events, .data.u32 = data };
    return epoll_ctl(set, operation, fd, &event);
}

static void modes(void)
{
    int ends[2];
    char byte;
    set = epoll_create1(EPOLL_CLOEXEC);
    SHOW(fcntl(set, F_GETFD));
    pipe2(ends, O_NONBLOCK);
    SHOW(control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
    SHOW(control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
    show("level, empty");
    tell(ends[1]);
    show("level");
    show("level again");
    SHOW(control(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 2));
    show("edge after modify");
    show("edge again");
    tell(ends[1]);
    show("edge after more data");
    show("edge again");
    hear(ends[0]);
    show("edge after reading one");
    SHOW(control(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 3));
    show("one-shot");
    show("one-shot again");
    tell(ends[1]);
    show("one-shot, more data");
    SHOW(control(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 4));
    show("one-shot, armed again");
    SHOW(control(EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLET, 5));
    show("writer edge");
    show("writer edge again");
    while (read(ends[0], &byte, 1) == 1)
        ;
    SHOW(control(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLRDHUP, 6));
    close(ends[1]);
    show("writer closed");
    SHOW(control(EPOLL_CTL_MOD, ends[0], 0, 7));
    show("no events asked");
    SHOW(control(EPOLL_CTL_DEL, ends[0], 0, 0));
    show("deleted");
    SHOW(control(EPOLL_CTL_DEL, ends[0], 0, 0));
    SHOW(control(EPOLL_CTL_MOD, ends[0], 0, 0));
    close(ends[0]);
    close(set);
}

static void closed(void)
{
    int ends[2];
    set = epoll_create(1);
    pipe(ends);
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    tell(ends[1]);
    int copy = dup(ends[0]);
    close(ends[0]);
    show("closed, a duplicate keeps it");
    SHOW(control(EPOLL_CTL_DEL, ends[0], 0, 0));
    close(copy);
    show("the last one closed");
    pipe(ends);
    SHOW(control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 2));
    copy = fcntl(ends[0], F_DUPFD, 100);
    SHOW(control(EPOLL_CTL_ADD, copy, EPOLLIN, 3));
    tell(ends[1]);
    struct epoll_event found[8];
    SHOW(epoll_wait(set, found, 8, 0));
    SHOW(epoll_wait(set, found, 1, 0));
    close(set);
}

static void nested(void)
{
    int ends[2], inner = epoll_create1(0);
    set = epoll_create1(0);
    pipe(ends);
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = 9 };
    SHOW(epoll_ctl(inner, EPOLL_CTL_ADD, ends[0], &event));
    SHOW(control(EPOLL_CTL_ADD, inner, EPOLLIN, 10));
    show("nested, nothing");
    tell(ends[1]);
    show("nested, ready");
    SHOW(poll(&(struct pollfd){ .fd = set, .events = POLLIN }, 1, 0));
    SHOW(epoll_wait(inner, &event, 1, 0));
    SHOW(event.data.u32);
    hear(ends[0]);
    show("nested, read");
    SHOW(control(EPOLL_CTL_ADD, set, EPOLLIN, 1));
    event.events = EPOLLIN;
    SHOW(epoll_ctl(inner, EPOLL_CTL_ADD, set, &event));
    int chain[8];
    for (int i = 0; i < 8; i++) {
        chain[i] = epoll_create1(0);
        if (i > 0)
            OK(epoll_ctl(chain[i], EPOLL_CTL_ADD, chain[i - 1], &event));
    }
    close(inner);
    show("inner closed");
    close(set);
}

static void errors(void)
{
    set = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    int file = open("file", O_CREAT | O_RDWR, 0600), ends[2];
    pipe(ends);
    SHOW(epoll_create(0));
    SHOW(epoll_create(-1));
    SHOW(epoll_create1(1));
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, file, &event));
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, 99, &event));
    SHOW(epoll_ctl(99, EPOLL_CTL_ADD, ends[0], &event));
    SHOW(epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event));
    SHOW(epoll_ctl(set, 9, ends[0], &event));
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], NULL));
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    SHOW(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event));
    event.events = EPOLLIN;
    SHOW(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event));
    event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event));
    SHOW(epoll_wait(set, &event, 0, 0));
    SHOW(epoll_wait(set, &event, -1, 0));
    SHOW(epoll_wait(set, (void *)8, 1, 0));
    SHOW(epoll_wait(ends[0], &event, 1, 0));
    SHOW(epoll_wait(99, &event, 1, 0));
    tell(ends[1]);
    SHOW(epoll_wait(set, (void *)8, 1, 0));
    SHOW(epoll_pwait(set, &event, 1, 0, NULL));
    struct timespec time = { 0, 1000 };
    SHOW(epoll_pwait2(set, &event, 1, &time, NULL));
    char text[8];
    SHOW(read(set, text, 8));
    SHOW(write(set, text, 8));
}

static void *waiter(void *argument)
{
    struct epoll_event event;
    int count = epoll_wait((int)(long)argument, &event, 1, LOOKS);
    return (void *)(long)(count == 1 ? event.data.u32 : 0);
}

static void wakes(void)
{
    int ends[2];
    set = epoll_create1(0);
    pipe(ends);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, waiter, (void *)(long)set);
    pause_ms(20);
    /* A descriptor that is added while others wait wakes them. */
    tell(ends[1]);
    SHOW(control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 11));
    long sum = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    SHOW(sum);
    hear(ends[0]);
    long long start = now_ms();
    struct epoll_event event;
    SHOW(epoll_wait(set, &event, 1, 25));
    TRUE(now_ms() - start >= 24);
    /* Many descriptors, all ready: every one is reported in turn. */
    static int seen[64];
    for (int i = 0; i < 64; i++) {
        int fd = eventfd(1, 0);
        control(EPOLL_CTL_ADD, fd, EPOLLIN, 1000 + i);
    }
    int total = 0;
    for (int round = 0; round < 8; round++) {
        struct epoll_event found[8];
        int count = epoll_wait(set, found, 8, 0);
        for (int i = 0; i < count; i++)
            total += !seen[found[i].data.u32 - 1000]++;
    }
    SHOW(total);
}

/* How many interests a user may have follows from the memory. The limit is everybody's, so it is set to what it is. */
static void limit(void)
{
    const char *knob = "/proc/sys/fs/epoll/max_user_watches";
    struct sysinfo machine;
    sysinfo(&machine);
    long limit = strtol(get_text(knob), NULL, 10);
    long part = machine.totalram / 25 * machine.mem_unit;
    TRUE(limit >= part / 1000 && limit <= part / 50);
    char text[24];
    snprintf(text, sizeof text, "%ld\n", limit);
    int file = open(knob, O_WRONLY);
    TRUE(write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    TRUE(strtol(get_text(knob), NULL, 10) == limit);
}

int main(void)
{
    modes();
    closed();
    nested();
    errors();
    wakes();
    limit();
    return 0;
}
