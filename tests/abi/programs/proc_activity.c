/* What /proc tells of what a thread does and has done: io, wchan, stack, syscall; and to whom. */
#include "abi.h"

typedef struct {
    long long rchar, wchar, syscr, syscw, length;
} io_t;

static int slurp(const char *path, char *out, int size)
{
    int file = open(path, O_RDONLY);
    if (file < 0)
        return -1;
    int length = read(file, out, size - 1);
    int error = errno;
    close(file);
    errno = error;
    out[length < 0 ? 0 : length] = 0;
    return length;
}

static const char *file_of(pid_t pid, const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return path;
}

static io_t io_at(const char *path)
{
    char text[512];
    io_t io = {0};
    io.length = slurp(path, text, sizeof text);
    int found = sscanf(text, "rchar: %lld\nwchar: %lld\nsyscr: %lld\nsyscw: %lld\nread_bytes: ", &io.rchar, &io.wchar,
                       &io.syscr, &io.syscw);
    if (found != 4)
        printf("unreadable: %s\n", text);
    return io;
}

/* What happened between two looks, without the first look itself. */
static void show_io(const char *what, io_t before, io_t after)
{
    printf("%s: %lld read in %lld calls, %lld written in %lld\n", what, after.rchar - before.rchar - before.length,
           after.syscr - before.syscr - 1, after.wchar - before.wchar, after.syscw - before.syscw);
}

#define IO(...)                                                                                                        \
    do {                                                                                                               \
        fflush(stdout);                                                                                                       \
        io_t before_ = io_at("/proc/self/io");                                                                                \
        __VA_ARGS__;                                                                                                          \
        io_t after_ = io_at("/proc/self/io");                                                                                 \
        show_io(#__VA_ARGS__, before_, after_);                                                                               \
    } while (0)

static int ends[2], zero, null_file, thread_may_end;
static char bytes[8192];

static void *reader(void *unused)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/io", gettid());
    io_t before = io_at(path);
    for (int count = 0; count < 3; count++)
        read(zero, bytes, 1000);
    io_t after = io_at(path);
    show_io("a thread alone", before, after);
    return unused;
}

static void transfers(void)
{
    struct iovec two[2] = {{bytes, 100}, {bytes + 1000, 23}};
    pipe2(ends, O_NONBLOCK);
    zero = open("/dev/zero", O_RDWR);
    null_file = open("/dev/null", O_WRONLY);
    int directory = open("/", O_RDONLY);
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    IO();
    IO(read(zero, bytes, 5000));
    IO(read(ends[0], bytes, 5));
    IO(read(77, bytes, 5));
    IO(read(null_file, bytes, 5));
    IO(read(directory, bytes, 5));
    IO(read(zero, bytes, 0));
    IO(read(zero, (void *)-4096UL, 5));
    IO(pread(zero, bytes, 10, 3));
    IO(pread(ends[0], bytes, 10, 3));
    IO(readv(zero, two, 2));
    IO(readv(77, two, 2));
    IO(preadv(zero, two, 2, 5));
    IO(write(ends[1], bytes, 300));
    IO(write(ends[0], bytes, 300));
    IO(write(zero, bytes, 0));
    IO(write(file, bytes, 4000));
    IO(pwrite(file, bytes, 40, 100000));
    IO(writev(ends[1], two, 2));
    IO(writev(77, two, 2));
    IO(pwritev(file, two, 2, 9));
    IO(read(ends[0], bytes, 8000));
    off_t from = 0;
    IO(sendfile(ends[1], file, &from, 2000));
    IO(splice(ends[0], NULL, null_file, NULL, 500, 0));
    IO(pid_t child = CHILD(read(zero, bytes, 8000)); waitpid(child, NULL, 0));
    IO(pid_t child = CHILD(read(zero, bytes, 8000); waitpid(CHILD(write(null_file, bytes, 7000)), NULL, 0));
       waitpid(child, NULL, 0));
    io_t before = io_at("/proc/self/io");
    pthread_t thread;
    pthread_create(&thread, NULL, reader, NULL);
    pthread_join(thread, NULL);
    io_t after = io_at("/proc/self/io");
    TRUE(after.syscr - before.syscr == 1 + 5 && after.rchar - before.rchar > 3000 + before.length);
    char text[512];
    slurp("/proc/self/io", text, sizeof text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        printf("%.*s\n", (int)strcspn(line, ":"), line);
}

static void modes(void)
{
    const char *names[] = {"io", "wchan", "stack", "syscall"};
    for (int index = 0; index < 4; index++) {
        struct stat process, thread;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/%s", getpid(), names[index]);
        stat(file_of(getpid(), names[index]), &process);
        stat(path, &thread);
        printf("%s: %o %o\n", names[index], process.st_mode, thread.st_mode);
    }
}

/* Waits until the process sleeps, stops or ends. */
static void await_state(pid_t pid, char state)
{
    char text[512];
    do
        slurp(file_of(pid, "stat"), text, sizeof text);
    while (strrchr(text, ')')[2] != state);
}

/* Waits until a process that has ended is off its stack for good: it is told to be a zombie a little before that. */
static void await_no_stack(pid_t pid)
{
    char text[512];
    long number, stack = 1;
    do
        slurp(file_of(pid, "syscall"), text, sizeof text);
    while (sscanf(text, "%ld %lx", &number, &stack) == 2 && stack != 0);
}

static void show_call(const char *what, pid_t pid, const char *name)
{
    char text[512];
    if (slurp(file_of(pid, name), text, sizeof text) < 0) {
        printf("%s: %s\n", what, ERRNO_NAME(errno));
        return;
    }
    long long number = -2;
    unsigned long long first, second, third, stack, place;
    int found = sscanf(text, "%lld %llx %llx %llx %*x %*x %*x %llx %llx", &number, &first, &second, &third, &stack, &place);
    if (found == 6)
        printf("%s: call %lld (%llx, .., %llx), a stack %s, a place %s\n", what, number, first, third,
               stack ? "yes" : "no", place ? "yes" : "no");
    else if (found == 3)
        printf("%s: %lld, %s, %s\n", what, number, first ? "a stack" : "no stack", second ? "a place" : "no place");
    else
        printf("%s: %s", what, text);
}

static void show_wchan(const char *what, pid_t pid)
{
    char text[512];
    int length = slurp(file_of(pid, "wchan"), text, sizeof text);
    printf("%s: wchan %s\n", what, length < 0 ? ERRNO_NAME(errno) : !strcmp(text, "0") ? "0" : length > 3 ? "a name" : "?");
}

static void show_stack(const char *what, pid_t pid)
{
    char text[4096];
    int length = slurp(file_of(pid, "stack"), text, sizeof text), good = 0, lines = 0;
    if (length < 0) {
        printf("%s: stack %s\n", what, ERRNO_NAME(errno));
        return;
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long offset, size;
        char *rest = strrchr(line, '+');
        lines++;
        good += !strncmp(line, "[<0>] ", 6) && rest && sscanf(rest, "+%lx/%lx", &offset, &size) == 2 && offset <= size;
    }
    printf("%s: stack of %s, %s\n", what, lines > 1 ? "several lines" : "a line or none", good == lines ? "all good" : "bad");
}

static void show_all(const char *what, pid_t pid)
{
    show_call(what, pid, "syscall");
    show_wchan(what, pid);
    show_stack(what, pid);
    char text[512];
    int length = slurp(file_of(pid, "io"), text, sizeof text);
    printf("%s: io %s\n", what, length < 0 ? ERRNO_NAME(errno) : "readable");
}

static void activities(void)
{
    int blocking[2];
    pipe(blocking);
    pid_t waits = CHILD(read(blocking[0], bytes, 77));
    await_state(waits, 'S');
    show_all("waits in read", waits);
    kill(waits, SIGSTOP);
    await_state(waits, 'T');
    show_call("stopped in read", waits, "syscall");
    kill(waits, SIGCONT);
    kill(waits, SIGKILL);
    waitpid(waits, NULL, 0);
    volatile long *turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t spins = CHILD(for (;;) ++*turns);
    while (*turns < 100)
        usleep(1000);
    show_call("spins", spins, "syscall");
    show_wchan("spins", spins);
    kill(spins, SIGSTOP);
    await_state(spins, 'T');
    show_call("stopped in the program", spins, "syscall");
    kill(spins, SIGKILL);
    await_state(spins, 'Z');
    await_no_stack(spins);
    show_call("ended", spins, "syscall");
    show_wchan("ended", spins);
    waitpid(spins, NULL, 0);
    show_call("looks at itself", getpid(), "syscall");
    show_wchan("looks at itself", getpid());
    close(blocking[0]);
    close(blocking[1]);
}

static void *sleeping_thread(void *tid)
{
    *(int *)tid = gettid();
    while (!__atomic_load_n(&thread_may_end, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &thread_may_end, 128, 0, NULL, NULL, 0);
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    volatile int tid = 0;
    char name[64];
    pthread_create(&thread, NULL, sleeping_thread, (void *)&tid);
    while (!tid)
        usleep(100);
    snprintf(name, sizeof name, "task/%d/stat", tid);
    char text[512];
    do
        slurp(file_of(getpid(), name), text, sizeof text);
    while (strrchr(text, ')')[2] != 'S');
    snprintf(name, sizeof name, "task/%d/syscall", tid);
    slurp(file_of(getpid(), name), text, sizeof text);
    unsigned long long address;
    TRUE(sscanf(text, "202 %llx 0x80 0x0 ", &address) == 1 && address == (uintptr_t)&thread_may_end);
    thread_may_end = 1;
    syscall(SYS_futex, &thread_may_end, 129, 1, NULL, NULL, 0);
    pthread_join(thread, NULL);
}

static void strangers(void)
{
    int ready[2], quiet[2];
    char byte;
    pipe(ready);
    pipe(quiet);
    pid_t root = CHILD(read(quiet[0], bytes, 9));
    await_state(root, 'S');
    /* Its files belong to user 1000, but it is not quite that user's. */
    pid_t mixed = CHILD({
        setresgid(1000, 1000, 1000);
        setresuid(1001, 1000, 1000);
        prctl(PR_SET_DUMPABLE, 1);
        write(ready[1], "x", 1);
        read(quiet[0], bytes, 9);
    });
    read(ready[0], &byte, 1);
    await_state(mixed, 'S');
    pid_t peer = CHILD({
        setresgid(1000, 1000, 1000);
        setresuid(1000, 1000, 1000);
        prctl(PR_SET_DUMPABLE, 1);
        write(ready[1], "x", 1);
        read(quiet[0], bytes, 9);
    });
    read(ready[0], &byte, 1);
    await_state(peer, 'S');
    REAP(CHILD({
        setresgid(1000, 1000, 1000);
        setresuid(1000, 1000, 1000);
        prctl(PR_SET_DUMPABLE, 1);
        show_all("root's", root);
        show_all("somebody's", mixed);
        show_all("a peer's", peer);
        show_stack("own", getpid());
    }));
    pid_t all[] = {root, mixed, peer};
    for (int index = 0; index < 3; index++) {
        kill(all[index], SIGKILL);
        waitpid(all[index], NULL, 0);
    }
}

int main(void)
{
    modes();
    transfers();
    activities();
    threads();
    strangers();
    return 0;
}
