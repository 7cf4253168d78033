/* poll, ppoll, select, pselect: which events, which descriptors, time-outs, masks. */
#include "abi.h"

static volatile int caught;

static void handler(int number)
{
    caught = number;
}

static void show(const char *what, int fd, short events)
{
    struct pollfd one = { .fd = fd, .events = events };
    int result = poll(&one, 1, 0);
    printf("%s: %d %#x\n", what, result, one.revents);
}

static const short everything = POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM;

static void kinds(void)
{
    int ends[2], file = open("file", O_CREAT | O_RDWR, 0600), null = open("/dev/null", O_RDWR);
    int folder = open(".", O_RDONLY), path = open("file", O_PATH);
    pipe(ends);
    show("empty pipe reader", ends[0], everything);
    show("empty pipe writer", ends[1], everything);
    write(ends[1], "x", 1);
    show("pipe reader with data", ends[0], everything);
    static char block[70000];
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    write(ends[1], block, sizeof block);
    show("full pipe writer", ends[1], everything);
    show("nothing asked", ends[0], 0);
    show("file", file, everything);
    show("null", null, everything);
    show("folder", folder, everything);
    show("path", path, everything);
    show("bad", 99, everything);
    show("negative", -1, everything);
    close(ends[1]);
    show("reader without writer", ends[0], everything);
    while (read(ends[0], block, sizeof block) > 0)
        ;
    show("drained", ends[0], everything);
    show("drained, nothing asked", ends[0], 0);
    int event = eventfd(0, 0);
    show("eventfd 0", event, everything);
    eventfd_write(event, 5);
    show("eventfd 5", event, everything);
}

static void waits(void)
{
    int ends[2];
    pipe(ends);
    struct pollfd two[2] = { { .fd = ends[0], .events = POLLIN }, { .fd = -5, .events = POLLIN } };
    long long start = now_ms();
    SHOW(poll(two, 2, 30));
    TRUE(now_ms() - start >= 29);
    SHOW(poll(NULL, 0, 5));
    struct timespec bad = { 0, -1 }, ok = { 0, 1000000 };
    SHOW(ppoll(two, 2, &bad, NULL));
    SHOW(ppoll(two, 2, &ok, NULL));
    SHOW(poll((void *)8, 1, 0));
    SHOW(poll(two, 100000, 0));
    pid_t child = CHILD({ pause_ms(20); tell(ends[1]); });
    SHOW(poll(two, 2, -1));
    SHOW(two[0].revents);
    REAP(child);
    signal(SIGUSR1, handler);
    sigset_t blocked, none;
    sigemptyset(&blocked);
    sigemptyset(&none);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR1);
    hear(ends[0]);
    struct timespec long_time = { 5, 0 };
    SHOW(caught);
    SHOW(ppoll(two, 1, &long_time, &none));
    SHOW(caught);
    caught = 0;
    raise(SIGUSR1);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    SHOW(pselect(ends[0] + 1, &set, NULL, NULL, &long_time, &none));
    SHOW(caught);
    sigprocmask(SIG_SETMASK, NULL, &none);
    SHOW(sigismember(&none, SIGUSR1));
    caught = 0;
    raise(SIGUSR1);
    tell(ends[1]);
    sigemptyset(&none);
    /* Ready and a signal: readiness wins, the signal stays pending. */
    SHOW(ppoll(two, 1, &long_time, &none));
    SHOW(caught);
}

static void selects(void)
{
    int ends[2];
    pipe(ends);
    fd_set readers, writers, others;
    FD_ZERO(&readers);
    FD_ZERO(&writers);
    FD_ZERO(&others);
    FD_SET(ends[0], &readers);
    FD_SET(ends[1], &writers);
    FD_SET(ends[0], &others);
    struct timeval time = { 0, 20000 };
    SHOW(select(ends[1] + 1, &readers, &writers, &others, &time));
    printf("%d %d %d\n", FD_ISSET(ends[0], &readers), FD_ISSET(ends[1], &writers), FD_ISSET(ends[0], &others));
    FD_SET(ends[0], &readers);
    time = (struct timeval){ 0, 20000 };
    SHOW(select(ends[0] + 1, &readers, NULL, NULL, &time));
    printf("left %ld.%ld\n", time.tv_sec, time.tv_usec);
    SHOW(FD_ISSET(ends[0], &readers));
    SHOW(select(-1, NULL, NULL, NULL, &time));
    time.tv_sec = -1;
    SHOW(select(0, NULL, NULL, NULL, &time));
    time = (struct timeval){ 0, 0 };
    SHOW(select(0, NULL, NULL, NULL, &time));
    SHOW(select(5, (void *)8, NULL, NULL, &time));
    int far = fcntl(ends[0], F_DUPFD, 900);
    SHOW(far);
    tell(ends[1]);
    FD_ZERO(&readers);
    FD_SET(far, &readers);
    FD_SET(ends[0], &readers);
    SHOW(select(far + 1, &readers, NULL, NULL, NULL));
    time = (struct timeval){ 1000, 0 };
    SHOW(select(far + 1, &readers, NULL, NULL, &time));
    TRUE(time.tv_sec >= 990);
}

static void show_size(void)
{
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "FDSize:", 7) == 0)
            fputs(line, stdout);
    fclose(status);
}

/* Descriptors beyond the table are ignored. How large it is depends on what was ever open: a child's begins as small as may be. */
static void beyond_the_table(void)
{
    fflush(stdout);
    close_range(3, ~0u, 0);
    if (fork() == 0) {
        struct timeval time = { 0, 0 };
        fd_set readers;
        FD_ZERO(&readers);
        FD_SET(60, &readers);
        SHOW(select(61, &readers, NULL, NULL, &time));
        FD_ZERO(&readers);
        FD_SET(200, &readers);
        SHOW(select(201, &readers, NULL, NULL, &time));
        SHOW(FD_ISSET(200, &readers));
        show_size();
        dup2(1, 70);
        FD_SET(100, &readers);
        SHOW(select(101, &readers, NULL, NULL, &time));
        SHOW(select(201, &readers, NULL, NULL, &time));
        show_size();
        FD_CLR(100, &readers);
        SHOW(select(201, &readers, NULL, NULL, &time));
        SHOW(dup2(1, 130));
        SHOW(select(201, &readers, NULL, NULL, &time));
        show_size();
        close(70);
        close(130);
        show_size();
        fflush(stdout);
        if (fork() == 0) {
            show_size();
            SHOW(select(201, &readers, NULL, NULL, &time));
            exit(0);
        }
        wait(NULL);
        exit(0);
    }
    wait(NULL);
}

static void *closer(void *argument)
{
    int *ends = argument;
    pause_ms(30);
    tell(ends[1]);
    return NULL;
}

static void many(void)
{
    enum { COUNT = 100 };
    static int pipes[COUNT][2];
    struct pollfd all[COUNT];
    for (int i = 0; i < COUNT; i++) {
        pipe(pipes[i]);
        all[i] = (struct pollfd){ .fd = pipes[i][0], .events = POLLIN };
    }
    for (int i = 0; i < COUNT; i += 7)
        tell(pipes[i][1]);
    SHOW(poll(all, COUNT, -1));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += (all[i].revents == POLLIN) != (i % 7 == 0);
    SHOW(wrong);
    for (int i = 0; i < COUNT; i += 7)
        hear(pipes[i][0]);
    pthread_t thread;
    pthread_create(&thread, NULL, closer, pipes[42]);
    SHOW(poll(all, COUNT, LOOKS));
    SHOW(all[42].revents);
    pthread_join(thread, NULL);
}

int main(void)
{
    kinds();
    waits();
    selects();
    beyond_the_table();
    many();
    return 0;
}
