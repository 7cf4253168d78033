/* Name spaces of times: offsets and who may write them, who is in which, and every way to read or wait for a clock. */
#include "abi.h"
#include <linux/futex.h>
#include <linux/nsfs.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

struct clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

static struct timespec begin[16];

static void offsets(const char *text)
{
    int fd = open("/proc/self/timens_offsets", O_WRONLY);
    errno = 0;
    long result = write(fd, text, strlen(text));
    int error = errno;
    printf("write '");
    for (const char *at = text; *at; at++)
        *at == '\n' ? printf("\\n") : putchar(*at);
    printf("': %ld%s%s\n", result, result < 0 ? " " : "", result < 0 ? ERRNO_NAME(error) : "");
    close(fd);
}

/* What has been added to a clock since the test began, in tens of seconds. */
static long added(clockid_t clock)
{
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return (now.tv_sec - begin[clock].tv_sec + (now.tv_sec > begin[clock].tv_sec ? 3 : -3)) / 10 * 10;
}

static long added_without_call(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (now.tv_sec - begin[clock].tv_sec + (now.tv_sec > begin[clock].tv_sec ? 3 : -3)) / 10 * 10;
}

static void clocks(const char *who)
{
    static const clockid_t all[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
                                     CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME };
    printf("%s:", who);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        printf(" %ld/%ld", added(all[i]), added_without_call(all[i]));
    printf("\n");
}

static int same(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) || stat(other, &b) ? -1 : a.st_ino == b.st_ino;
}

#define OWN same("/proc/self/ns/time", "/proc/self/ns/time_for_children")

static void texts(void)
{
    offsets("monotonic 1 0\n");
    SHOW(unshare(CLONE_NEWTIME));
    SHOW(OWN);
    printf("%s", get_text("/proc/self/timens_offsets"));
    static const char *const all[] = {
        "monotonic 5 0\n", "monotonic 6 0", "1 7 5\n7 8 6\n", "boottime 1 1\nmonotonic 2 2\nmonotonic 3 3\n",
        "monotonic 1 1000000000\n", "monotonic 1 999999999\n", "monotonic 1 -1\n", "monotonic -1000000000 0\n",
        "monotonic 4611686019 0\n", "monotonic 4500000000 0\n", "monotonic 9223372036854775807 0\n",
        "monotonic 9223372036854775808 0\n", "realtime 1 0\n", "monotonic 1\n", "monotonic 1 0 x\n", "monotonic 1 0x\n",
        "", "\n", " ", "monotonic 1 0\n\n", "\nmonotonic 1 0", "  monotonic   12   13  \n", "4 1 0\n",
        "monotonic_raw 1 1\n", "monotonic 0x3 4\n", "01 3 4\n", "monotonic\t3\t4", "monotonic 5 5\nxyz\n",
        "boottime 1 0\nmonotonic -1000000000 0\n", "monotonic -0 7\n",
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        offsets(all[i]);
    printf("%s", get_text("/proc/self/timens_offsets"));
    char large[5000];
    memset(large, ' ', sizeof large);
    int fd = open("/proc/self/timens_offsets", O_RDWR);
    SHOW(write(fd, large, 5000));
    SHOW(write(fd, large, 4095));
    SHOW(write(fd, "monotonic 1 1", 13));
    SHOW(write(fd, "monotonic 1 2", 13));
    SHOW(write(fd, NULL, 13));
    char text[200] = "";
    SHOW(read(fd, text, sizeof text));
    printf("%s", text);
    SHOW(lseek(fd, 0, SEEK_CUR) > 0);
    close(fd);
}

static int executed(char *self, const char *what)
{
    char *words[] = { self, (char *)what, NULL };
    execv("/proc/self/exe", words);
    return 1;
}

static int idle(void *unused)
{
    (void)unused;
    return 0;
}

static void inheritance(char *self)
{
    static char stack[65536];
    SHOW(unshare(CLONE_NEWTIME));
    offsets("monotonic 1000 0\nboottime 2000 0\n");
    clocks("the maker");
    /* Who shares the memory stays where it is. */
    OK(clone(idle, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
    pthread_t thread;
    CODE(pthread_create(&thread, NULL, (void *(*)(void *))idle, NULL));
    pthread_join(thread, NULL);
    offsets("monotonic 1000 0\n");
    REAP(CHILD({
        clocks("a child");
        SHOW(OWN);
        offsets("monotonic 1 0\n");
        SHOW(unshare(CLONE_NEWTIME));
        printf("%s", get_text("/proc/self/timens_offsets"));
        offsets("monotonic 3000 0\n");
        REAP(CHILD(clocks("its child")));
        clocks("the child");
        REAP(CHILD(executed(self, "clocks")));
        fflush(stdout);
        executed(self, "clocks");
    }));
    offsets("monotonic 1000 0\n");
    struct clone_args arguments = { .flags = CLONE_NEWTIME, .exit_signal = SIGCHLD };
    fflush(stdout);
    pid_t child = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) {
        clocks("made by clone3");
        SHOW(OWN);
        offsets("monotonic 1 0\n");
        fflush(stdout);
        _exit(0);
    }
    REAP(child);
    clocks("the maker");
    SHOW(OWN);
    /* A program is in the name space that its maker had for children, also without a fork. */
    REAP(CHILD({
        unshare(CLONE_NEWTIME);
        offsets("monotonic 5000 0\n");
        fflush(stdout);
        executed(self, "clocks");
    }));
    fflush(stdout);
    pid_t borrower = vfork();
    if (borrower == 0) {
        executed(self, "clocks");
        _exit(1);
    }
    REAP(borrower);
}

static void entered(void)
{
    int own = open("/proc/self/ns/time", O_RDONLY);
    SHOW(unshare(CLONE_NEWTIME));
    offsets("monotonic 700 0\nboottime 900 0\n");
    int made = open("/proc/self/ns/time_for_children", O_RDONLY);
    SHOW(ioctl(made, NS_GET_NSTYPE) == CLONE_NEWTIME);
    SHOW(ioctl(made, NS_GET_PARENT));
    char name[64] = "";
    readlink("/proc/self/ns/time_for_children", name, sizeof name - 1);
    printf("%.6s\n", name);
    SHOW(setns(made, CLONE_NEWUTS));
    SHOW(setns(made, CLONE_NEWTIME));
    SHOW(OWN);
    clocks("entered");
    offsets("monotonic 1 0\n");
    SHOW(setns(own, 0));
    clocks("back");
    SHOW(OWN);
    int go[2], word[2];
    pipe(go);
    pipe(word);
    setns(made, 0);
    pid_t child = CHILD({
        tell(word[1]);
        hear(go[0]);
    });
    hear(word[0]);
    setns(own, 0);
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    SHOW(setns(process, CLONE_NEWTIME));
    clocks("with a process");
    setns(own, 0);
    tell(go[1]);
    REAP(child);
    fflush(stdout);
    pid_t borrower = vfork();
    if (borrower == 0)
        _exit(setns(made, 0) ? errno : 0);
    int status;
    waitpid(borrower, &status, 0);
    printf("with borrowed memory: %s\n", ERRNO_NAME(WEXITSTATUS(status)));
    close(made);
    close(own);
}

static void *enter(void *name)
{
    SHOW(setns((int)(long)name, CLONE_NEWTIME));
    return NULL;
}

static void rights(void)
{
    int own = open("/proc/self/ns/time", O_RDONLY);
    pthread_t thread;
    pthread_create(&thread, NULL, enter, (void *)(long)own);
    pthread_join(thread, NULL);
    REAP(CHILD({
        setresuid(1000, 1000, 1000);
        SHOW(unshare(CLONE_NEWTIME));
        SHOW(setns(own, 0));
        offsets("monotonic 1 0\n");
        struct clone_args arguments = { .flags = CLONE_NEWTIME, .exit_signal = SIGCHLD };
        SHOW(syscall(SYS_clone3, &arguments, sizeof arguments));
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWTIME));
        offsets("monotonic 400 0\n");
        REAP(CHILD(clocks("in a name space of users")));
        SHOW(setns(own, 0));
    }));
    /* Who has opened the file is asked, not who writes. */
    REAP(CHILD({
        unshare(CLONE_NEWTIME);
        int fd = open("/proc/self/timens_offsets", O_WRONLY);
        setresuid(1000, 1000, 1000);
        SHOW(write(fd, "monotonic 1 0", 13));
        SHOW(open("/proc/self/timens_offsets", O_WRONLY));
        SHOW(open("/proc/1/timens_offsets", O_WRONLY));
    }));
}

static struct timespec in_ms(clockid_t clock, long milliseconds)
{
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += milliseconds * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static int has_come(clockid_t clock, struct timespec wanted)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec > wanted.tv_sec || (now.tv_sec == wanted.tv_sec && now.tv_nsec >= wanted.tv_nsec);
}

/* Each wait for a time of a clock ends, and not before. */
static void waits(clockid_t clock)
{
    struct timespec wanted = in_ms(clock, 20);
    CODE(clock_nanosleep(clock, TIMER_ABSTIME, &wanted, NULL));
    TRUE(has_come(clock, wanted));
    wanted = (struct timespec){ 0, 1 };
    CODE(clock_nanosleep(clock, TIMER_ABSTIME, &wanted, NULL));
    wanted = (struct timespec){ 0, 1000000 };
    CODE(clock_nanosleep(clock, 0, &wanted, NULL));

    struct itimerspec setting = { .it_value = in_ms(clock, 20) };
    int fd = timerfd_create(clock, 0);
    SHOW(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL));
    struct itimerspec left;
    timerfd_gettime(fd, &left);
    TRUE(left.it_value.tv_sec == 0);
    uint64_t count = 0;
    SHOW(read(fd, &count, sizeof count));
    TRUE(has_come(clock, setting.it_value));
    setting.it_value = (struct timespec){ 0, 1 };
    SHOW(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL));
    SHOW(read(fd, &count, sizeof count));
    close(fd);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
    timer_t timer;
    SHOW(timer_create(clock, &event, &timer));
    setting.it_value = in_ms(clock, 20);
    SHOW(timer_settime(timer, TIMER_ABSTIME, &setting, NULL));
    SHOW(sigwaitinfo(&set, NULL) == SIGRTMIN);
    TRUE(has_come(clock, setting.it_value));
    setting.it_value = (struct timespec){ 0, 1 };
    SHOW(timer_settime(timer, TIMER_ABSTIME, &setting, NULL));
    SHOW(sigwaitinfo(&set, NULL) == SIGRTMIN);
    timer_delete(timer);
}

static void futexes(void)
{
    uint32_t word = 7;
    struct timespec wanted = in_ms(CLOCK_MONOTONIC, 20);
    SHOW(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 7, &wanted, NULL, ~0));
    TRUE(has_come(CLOCK_MONOTONIC, wanted));
    wanted = in_ms(CLOCK_REALTIME, 20);
    SHOW(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 7, &wanted, NULL, ~0));
    TRUE(has_come(CLOCK_REALTIME, wanted));
    wanted = (struct timespec){ 0, 1000000 };
    SHOW(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, &wanted, NULL, 0));
    struct {
        uint64_t value, address;
        uint32_t flags, reserved;
    } waiter = { 7, (uintptr_t)&word, 2 | 128, 0 };
    wanted = in_ms(CLOCK_MONOTONIC, 20);
    SHOW(syscall(449, &waiter, 1, 0, &wanted, CLOCK_MONOTONIC));
    TRUE(has_come(CLOCK_MONOTONIC, wanted));
}

static void shifted(const char *text)
{
    REAP(CHILD({
        unshare(CLONE_NEWTIME);
        offsets(text);
        REAP(CHILD({
            waits(CLOCK_MONOTONIC);
            waits(CLOCK_BOOTTIME);
            waits(CLOCK_REALTIME);
            futexes();
        }));
    }));
}

static long long number_after(const char *path, const char *word)
{
    const char *text = get_text(path);
    const char *at = strstr(text, word);
    return at ? atoll(at + strlen(word)) : -1;
}

static long started_s(void)
{
    const char *text = get_text("/proc/self/stat");
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? atol(at + 1) / sysconf(_SC_CLK_TCK) : -1;
}

static void shown(void)
{
    struct sysinfo before;
    sysinfo(&before);
    long up = atol(get_text("/proc/uptime"));
    long began = number_after("/proc/stat", "btime ");
    long started = started_s();
    unshare(CLONE_NEWTIME);
    offsets("boottime 100000 0\n");
    REAP(CHILD({
        struct sysinfo now;
        sysinfo(&now);
        printf("sysinfo %ld\n", (now.uptime - before.uptime) / 1000);
        printf("uptime %ld\n", (atol(get_text("/proc/uptime")) - up) / 1000);
        printf("btime %ld\n", (began - (long)number_after("/proc/stat", "btime ") + 10) / 1000);
        printf("starttime %ld\n", (started_s() - started) / 1000);
    }));
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    if (count > 1) {
        /* Of another program: the time when the test began is that of its maker. */
        for (unsigned clock = 0; clock < 10; clock++)
            begin[clock].tv_sec = atol(getenv("BEGIN") + 21 * clock);
        clocks(words[1]);
        return 0;
    }
    static char text[21 * 10 + 1];
    for (unsigned clock = 0; clock < 10; clock++) {
        syscall(SYS_clock_gettime, clock, &begin[clock]);
        snprintf(text + 21 * clock, 22, "%20ld ", (long)begin[clock].tv_sec);
    }
    setenv("BEGIN", text, 1);
    REAP(CHILD(texts()));
    REAP(CHILD(inheritance(words[0])));
    REAP(CHILD(entered()));
    REAP(CHILD(rights()));
    shifted("monotonic 10000 0\nboottime 20000 500\n");
    shifted("monotonic 0 1\n");
    REAP(CHILD(shown()));
    return 0;
}
