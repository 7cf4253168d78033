/* Resource limits: getting, setting, inheritance, and what each of them stops. */
#include "abi.h"

static volatile int caught;

static void handler(int number)
{
    caught = number;
}

static void show(int which, const char *name)
{
    struct rlimit limit;
    int result = getrlimit(which, &limit);
    printf("%s: %d soft <= hard %d\n", name, result, limit.rlim_cur <= limit.rlim_max);
}

static void *idle(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(void)
{
    show(RLIMIT_AS, "AS");
    show(RLIMIT_CORE, "CORE");
    show(RLIMIT_CPU, "CPU");
    show(RLIMIT_DATA, "DATA");
    show(RLIMIT_FSIZE, "FSIZE");
    show(RLIMIT_MEMLOCK, "MEMLOCK");
    show(RLIMIT_NICE, "NICE");
    show(RLIMIT_NOFILE, "NOFILE");
    show(RLIMIT_NPROC, "NPROC");
    show(RLIMIT_RTPRIO, "RTPRIO");
    show(RLIMIT_SIGPENDING, "SIGPENDING");
    show(RLIMIT_STACK, "STACK");
    struct rlimit limit = { 20, 10 };
    SHOW(setrlimit(RLIMIT_NOFILE, &limit));
    SHOW(setrlimit(99, &limit));
    SHOW(getrlimit(99, &limit));
    SHOW(getrlimit(RLIMIT_AS, (void *)8));
    SHOW(prlimit(0x3fffffff, RLIMIT_AS, NULL, &limit));
    SHOW(prlimit(0, RLIMIT_CORE, NULL, &limit));
    REAP(CHILD({
        struct rlimit new = { 100, 200 };
        setresuid(1, 1, 1);
        SHOW(setrlimit(RLIMIT_NOFILE, &new));
        new.rlim_max = 300;
        SHOW(setrlimit(RLIMIT_NOFILE, &new));
        new = (struct rlimit){ 150, 200 };
        SHOW(setrlimit(RLIMIT_NOFILE, &new));
        REAP(CHILD({ struct rlimit got; getrlimit(RLIMIT_NOFILE, &got); printf("inherited %ld %ld\n", (long)got.rlim_cur, (long)got.rlim_max); }));
        SHOW(prlimit(getppid(), RLIMIT_NOFILE, NULL, &new));
    }));
    pid_t child = CHILD({ for (;;) pause(); });
    struct rlimit other = { 11, 22 };
    SHOW(prlimit(child, RLIMIT_NOFILE, &other, NULL));
    SHOW(prlimit(child, RLIMIT_NOFILE, NULL, &limit));
    printf("%ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
    kill(child, SIGKILL);
    REAP(child);
    /* The number of processes of a user. */
    REAP(CHILD({
        struct rlimit few = { 5, 5 };
        setrlimit(RLIMIT_NPROC, &few);
        setresuid(12345, 12345, 12345);
        int made = 0;
        pid_t last = 0;
        while (made < 50 && (last = fork()) > 0)
            made++;
        if (last == 0) {
            for (;;)
                pause();
        }
        printf("forked %d then %s\n", made, ERRNO_NAME(errno));
        pthread_t thread;
        CODE(pthread_create(&thread, NULL, idle, NULL));
        signal(SIGTERM, SIG_IGN);
        kill(-1, SIGTERM);
        while (wait(NULL) > 0)
            ;
        pid_t again = fork();
        if (again == 0)
            _exit(9);
        REAP(again);
    }));
    /* Address space. */
    REAP(CHILD({
        struct rlimit space = { 64 << 20, 64 << 20 };
        setrlimit(RLIMIT_AS, &space);
        OK(mmap(NULL, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        void *some = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        OK((long)some);
        OK(mremap(some, 16 << 20, 100 << 20, MREMAP_MAYMOVE));
        OK(munmap(some, 16 << 20));
        TRUE(malloc(100 << 20) == NULL);
    }));
    /* Processor time: SIGXCPU at the soft limit, SIGKILL at the hard one. */
    REAP(CHILD({
        struct rlimit time = { 1, 1 };
        setrlimit(RLIMIT_CPU, &time);
        for (;;)
            ;
    }));
    REAP(CHILD({
        struct rlimit time = { 1, 2 };
        setrlimit(RLIMIT_CPU, &time);
        signal(SIGXCPU, handler);
        while (!caught)
            ;
        SHOW(caught);
    }));
    /* The stack of a new program. */
    REAP(CHILD({
        struct rlimit stack = { 512 << 10, 512 << 10 };
        setrlimit(RLIMIT_STACK, &stack);
        char *words[4] = { "exec", "count", NULL, NULL };
        static char huge[60000];
        memset(huge, 'x', sizeof huge - 1);
        words[2] = huge;
        execve("/abi/bin/exec", words, (char *[]){ NULL });
        printf("%s\n", ERRNO_NAME(errno));
    }));
    /* Pending signals. */
    REAP(CHILD({
        struct rlimit pending = { 4, 4 };
        setresuid(23456, 23456, 23456);
        setrlimit(RLIMIT_SIGPENDING, &pending);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN);
        sigprocmask(SIG_BLOCK, &set, NULL);
        int sent = 0;
        while (sent < 20 && sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 1 }) == 0)
            sent++;
        printf("queued %d then %s\n", sent, ERRNO_NAME(errno));
    }));
    REAP(CHILD({
        struct rlimit lock = { 8192, 8192 };
        setrlimit(RLIMIT_MEMLOCK, &lock);
        setresuid(1, 1, 1);
        void *area = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SHOW(mlock(area, 8192));
        SHOW(mlock(area, 16384));
    }));
    return 0;
}
