/* Descriptors: dup, dup2, dup3, fcntl, close, close_range, limits, record locks, flock. */
#include "abi.h"
#include <sys/file.h>
#include <linux/close_range.h>

static void duplicates(void)
{
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    SHOW(fd);
    SHOW(dup(fd));
    SHOW(dup2(fd, 20));
    SHOW(dup2(fd, fd));
    SHOW(dup2(99, 20));
    SHOW(dup2(99, 99));
    SHOW(dup2(fd, -1));
    SHOW(dup2(fd, 100000));
    SHOW(dup3(fd, fd, 0));
    SHOW(dup3(fd, 21, O_CLOEXEC));
    SHOW(dup3(fd, 22, O_NONBLOCK));
    SHOW(fcntl(21, F_GETFD));
    SHOW(fcntl(20, F_GETFD));
    SHOW(fcntl(fd, F_DUPFD, 20));
    SHOW(fcntl(fd, F_DUPFD_CLOEXEC, 30));
    SHOW(fcntl(30, F_GETFD));
    SHOW(fcntl(fd, F_DUPFD, -1));
    SHOW(fcntl(fd, F_DUPFD, 100000));
    SHOW(fcntl(fd, F_SETFD, 0xffffffff));
    SHOW(fcntl(fd, F_GETFD));
    SHOW(fcntl(fd, 9999));
    SHOW(fcntl(99, F_GETFD));
    SHOW(fcntl(20, F_SETFL, O_APPEND));
    printf("%#x %#x\n", fcntl(fd, F_GETFL), fcntl(20, F_GETFL));
    SHOW(close(20));
    SHOW(close(20));
    SHOW(close(-1));
    SHOW(ioctl(fd, FIOCLEX));
    SHOW(fcntl(fd, F_GETFD));
    SHOW(ioctl(fd, FIONCLEX));
    SHOW(fcntl(fd, F_GETFD));
    int on = 1;
    SHOW(ioctl(fd, FIONBIO, &on));
    printf("%#x\n", fcntl(fd, F_GETFL));
    SHOW(ioctl(fd, 0x12345678));
    SHOW(ioctl(99, FIOCLEX));
    for (int i = 40; i < 50; i++)
        dup2(fd, i);
    SHOW(close_range(42, 45, 0));
    for (int i = 40; i < 50; i++)
        printf("%d", fcntl(i, F_GETFD) >= 0);
    printf("\n");
    SHOW(close_range(46, ~0u, CLOSE_RANGE_CLOEXEC));
    SHOW(fcntl(47, F_GETFD));
    SHOW(close_range(50, 40, 0));
    SHOW(close_range(40, 50, 0x80));
    SHOW(close_range(40, ~0u, CLOSE_RANGE_UNSHARE));
    struct rlimit limit = { 32, 32 };
    REAP(CHILD({
        setrlimit(RLIMIT_NOFILE, &limit);
        int last = 0, next;
        while ((next = dup(0)) >= 0)
            last = next;
        SHOW(last);
        SHOW(errno);
        OK(open("file", O_RDONLY));
        OK(pipe((int[2]){ 0 }));
        OK(eventfd(0, 0));
        OK(epoll_create1(0));
        SHOW(dup2(0, 31));
        SHOW(dup2(0, 32));
        SHOW(fcntl(0, F_DUPFD, 32));
    }));
}

static int lock(int fd, int command, int type, off_t start, off_t length)
{
    struct flock what = { .l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
    int result = fcntl(fd, command, &what);
    if (command == F_GETLK)
        printf("get: type %d start %ld length %ld whence %d\n", what.l_type, (long)what.l_start, (long)what.l_len, what.l_whence);
    return result;
}

static void record_locks(void)
{
    int fd = open("locked", O_CREAT | O_RDWR, 0600), up[2], down[2];
    pipe(up);
    pipe(down);
    SHOW(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    SHOW(lock(fd, F_GETLK, F_WRLCK, 0, 0));
    pid_t child = CHILD({
        SHOW(lock(fd, F_GETLK, F_RDLCK, 5, 1));
        SHOW(lock(fd, F_SETLK, F_RDLCK, 5, 1));
        SHOW(lock(fd, F_SETLK, F_WRLCK, 10, 10));
        tell(up[1]);
        hear(down[0]);
        SHOW(lock(fd, F_SETLKW, F_WRLCK, 0, 10));
        tell(up[1]);
        hear(down[0]);
    });
    hear(up[0]);
    SHOW(lock(fd, F_GETLK, F_RDLCK, 0, 0));
    tell(down[1]);
    wait_state(child, "S");
    pause_ms(10);
    /* The child waits for bytes 0-9 while it holds 10-19: waiting for those would be a deadlock. */
    SHOW(lock(fd, F_SETLKW, F_WRLCK, 12, 1));
    SHOW(lock(fd, F_SETLK, F_UNLCK, 3, 2));
    lock(fd, F_SETLK, F_UNLCK, 0, 0);
    hear(up[0]);
    SHOW(lock(fd, F_SETLK, F_RDLCK, 0, 1));
    tell(down[1]);
    REAP(child);
    SHOW(lock(fd, F_SETLK, F_RDLCK, 0, 1));
    /* Any close of the file by the process drops its locks. */
    int other = open("locked", O_RDWR);
    close(other);
    REAP(CHILD(SHOW(lock(fd, F_SETLK, F_WRLCK, 0, 1))));
    SHOW(lock(fd, F_SETLK, 9, 0, 1));
    SHOW(lock(fd, F_SETLK, F_WRLCK, -5, 1));
    int reader = open("locked", O_RDONLY);
    SHOW(lock(reader, F_SETLK, F_WRLCK, 0, 1));
    SHOW(lock(99, F_SETLK, F_WRLCK, 0, 1));
    struct flock own = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    SHOW(fcntl(fd, F_OFD_SETLK, &own));
    int twin = open("locked", O_RDWR);
    SHOW(fcntl(twin, F_OFD_SETLK, &own));
    close(twin);
}

static void whole_locks(void)
{
    int one = open("flocked", O_CREAT | O_RDWR, 0600), two = open("flocked", O_RDWR);
    SHOW(flock(one, LOCK_EX));
    SHOW(flock(two, LOCK_EX | LOCK_NB));
    SHOW(flock(two, LOCK_SH | LOCK_NB));
    SHOW(flock(one, LOCK_SH));
    SHOW(flock(two, LOCK_SH | LOCK_NB));
    SHOW(flock(two, LOCK_EX | LOCK_NB));
    int copy = dup(one);
    close(one);
    SHOW(flock(two, LOCK_EX | LOCK_NB));
    close(copy);
    SHOW(flock(two, LOCK_EX | LOCK_NB));
    pid_t child = CHILD({ int own = open("flocked", O_RDWR); printf("waits: %d\n", flock(own, LOCK_EX)); });
    wait_state(child, "S");
    flock(two, LOCK_UN);
    REAP(child);
    SHOW(flock(99, LOCK_EX));
}

int main(void)
{
    duplicates();
    record_locks();
    whole_locks();
    return 0;
}
