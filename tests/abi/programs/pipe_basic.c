/* Pipes and FIFOs: end of file, SIGPIPE, sizes, atomic writes, non-blocking, opening order. */
#include "abi.h"

static volatile int broken;

static void handler(int number)
{
    broken = number;
}

static void ends(void)
{
    int ends[2];
    char text[16];
    SHOW(pipe2(ends, 0x1));
    SHOW(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
    SHOW(fcntl(ends[0], F_GETFD));
    printf("%#x %#x\n", fcntl(ends[0], F_GETFL), fcntl(ends[1], F_GETFL));
    SHOW(read(ends[0], text, 1));
    SHOW(write(ends[0], text, 1));
    SHOW(read(ends[1], text, 1));
    SHOW(lseek(ends[0], 0, SEEK_SET));
    SHOW(pread(ends[0], text, 1, 0));
    SHOW(pwrite(ends[1], text, 1, 0));
    SHOW(ftruncate(ends[1], 0));
    SHOW(write(ends[1], "hello", 5));
    int count = 0;
    SHOW(ioctl(ends[0], FIONREAD, &count));
    SHOW(count);
    struct stat about;
    fstat(ends[0], &about);
    printf("mode %o size %ld\n", about.st_mode, (long)about.st_size);
    close(ends[1]);
    SHOW(read(ends[0], text, 16));
    SHOW(read(ends[0], text, 16));
    SHOW(poll(&(struct pollfd){ .fd = ends[0], .events = POLLIN }, 1, 0));
    close(ends[0]);
    pipe(ends);
    close(ends[0]);
    signal(SIGPIPE, handler);
    SHOW(write(ends[1], "x", 1));
    SHOW(broken);
    signal(SIGPIPE, SIG_IGN);
    broken = 0;
    SHOW(write(ends[1], "x", 1));
    SHOW(broken);
    SHOW(write(ends[1], "x", 0));
    signal(SIGPIPE, SIG_DFL);
    REAP(CHILD(write(ends[1], "x", 1)));
    struct pollfd wait = { .fd = ends[1], .events = POLLOUT };
    SHOW(poll(&wait, 1, 0));
    printf("%#x\n", wait.revents);
    close(ends[1]);
}

static void sizes(void)
{
    int ends[2];
    pipe2(ends, O_NONBLOCK);
    SHOW(fcntl(ends[0], F_GETPIPE_SZ));
    static char block[1 << 17];
    SHOW(write(ends[1], block, sizeof block));
    SHOW(write(ends[1], block, 1));
    SHOW(read(ends[0], block, 100));
    SHOW(write(ends[1], block, 1));
    SHOW(write(ends[1], block, 4096));
    SHOW(read(ends[0], block, 4096));
    SHOW(write(ends[1], block, 4096));
    SHOW(write(ends[1], block, 4097));
    while (read(ends[0], block, sizeof block) > 0)
        ;
    SHOW(fcntl(ends[0], F_SETPIPE_SZ, 1));
    SHOW(fcntl(ends[0], F_SETPIPE_SZ, 5000));
    SHOW(fcntl(ends[0], F_SETPIPE_SZ, 1 << 20));
    SHOW(fcntl(ends[0], F_SETPIPE_SZ, -1));
    SHOW(fcntl(ends[0], F_SETPIPE_SZ, 4096));
    SHOW(write(ends[1], block, 8192));
    SHOW(fcntl(ends[0], F_SETPIPE_SZ, 8192));
    SHOW(write(ends[1], block, 8192));
    SHOW(fcntl(ends[0], F_SETPIPE_SZ, 4096));
    int file = open("file", O_CREAT | O_RDWR, 0600);
    SHOW(fcntl(file, F_GETPIPE_SZ));
}

/* Writers of up to PIPE_BUF bytes never interleave. */
static void atomic_writes(void)
{
    enum { WRITERS = 4, RECORDS = 60, BYTES = 4096 };
    int ends[2];
    pipe(ends);
    for (int w = 0; w < WRITERS; w++)
        CHILD({
            close(ends[0]);
            static char record[BYTES];
            for (int i = 0; i < RECORDS; i++) {
                memset(record, 'a' + w, BYTES);
                record[0] = (char)i;
                if (write(ends[1], record, BYTES) != BYTES)
                    printf("short write\n");
            }
        });
    close(ends[1]);
    static char record[BYTES];
    int torn = 0, count = 0, next[WRITERS] = { 0 }, order = 0;
    for (;;) {
        size_t got = 0;
        ssize_t now;
        while (got < BYTES && (now = read(ends[0], record + got, BYTES - got)) > 0)
            got += now;
        if (got < BYTES)
            break;
        count++;
        int w = record[1] - 'a';
        for (int i = 2; i < BYTES; i++)
            torn += record[i] != record[1];
        if (w >= 0 && w < WRITERS)
            order += record[0] == next[w]++;
    }
    printf("records %d torn %d in order %d\n", count, torn, order);
    while (wait(NULL) > 0)
        ;
    close(ends[0]);
}

static void blocking(void)
{
    int ends[2];
    pipe(ends);
    static char big[300000], back[300000];
    for (unsigned i = 0; i < sizeof big; i++)
        big[i] = (char)(i % 251);
    pid_t child = CHILD({ close(ends[0]); printf("written %ld\n", (long)write(ends[1], big, sizeof big)); });
    close(ends[1]);
    size_t got = 0;
    ssize_t now;
    while ((now = read(ends[0], back + got, 777)) > 0)
        got += now;
    REAP(child);
    SHOW(got);
    TRUE(memcmp(big, back, sizeof big) == 0);
    close(ends[0]);
}

static void fifos(void)
{
    SHOW(mkfifo("fifo", 0600));
    SHOW(mkfifo("fifo", 0600));
    SHOW(open("fifo", O_WRONLY | O_NONBLOCK));
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    TRUE(reader >= 0);
    char text[8];
    SHOW(read(reader, text, 8));
    int writer = open("fifo", O_WRONLY | O_NONBLOCK);
    TRUE(writer >= 0);
    SHOW(read(reader, text, 8));
    SHOW(write(writer, "abc", 3));
    SHOW(read(reader, text, 8));
    close(writer);
    SHOW(read(reader, text, 8));
    struct pollfd wait = { .fd = reader, .events = POLLIN };
    SHOW(poll(&wait, 1, 0));
    printf("%#x\n", wait.revents);
    close(reader);
    pid_t child = CHILD({ int fd = open("fifo", O_WRONLY); write(fd, "from child", 10); });
    wait_state(child, "S");
    reader = open("fifo", O_RDONLY);
    char line[16] = "";
    SHOW(read(reader, line, 16));
    printf("%s\n", line);
    REAP(child);
    close(reader);
    int both = open("fifo", O_RDWR);
    SHOW(write(both, "self", 4));
    SHOW(read(both, line, 4));
    close(both);
    SHOW(unlink("fifo"));
}

/* An end of a pipe without a name that is opened once more waits for nobody. */
static void opened_again(void)
{
    int fds[2];
    char path[32], text[8] = "";
    SHOW(pipe(fds));
    SHOW(write(fds[1], "left", 4));
    close(fds[1]);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fds[0]);
    int again = open(path, O_RDONLY);
    TRUE(again >= 0);
    SHOW(read(again, text, 8));
    SHOW(read(again, text, 8));
    printf("%s\n", text);
    close(fds[0]);
    snprintf(path, sizeof path, "/proc/self/fd/%d", again);
    int writer = open(path, O_WRONLY | O_NONBLOCK);
    TRUE(writer >= 0);
    SHOW(write(writer, "more", 4));
    SHOW(read(again, text, 8));
    close(writer);
    close(again);
}

int main(void)
{
    opened_again();
    ends();
    sizes();
    atomic_writes();
    blocking();
    fifos();
    return 0;
}
