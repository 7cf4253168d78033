/* Every kind of descriptor and every call that takes one: which ones it refuses, and how. */
#include "abi.h"
#include <sys/file.h>
#include <sys/inotify.h>

static int make_file(void)
{
    put_text("plain", "some text");
    return open("plain", O_RDWR);
}

static int ends[2], fifo_ends[2], master;

static int make_slave(void)
{
    master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    return open(ptsname(master), O_RDWR | O_NOCTTY);
}

static int make_signalfd(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return signalfd(-1, &set, SFD_NONBLOCK);
}

static int make(const char *kind)
{
    if (!strcmp(kind, "file"))
        return make_file();
    if (!strcmp(kind, "folder"))
        return open(".", O_RDONLY);
    if (!strcmp(kind, "path"))
        return open("plain", O_PATH);
    if (!strcmp(kind, "pipe reader")) {
        pipe2(ends, O_NONBLOCK);
        return ends[0];
    }
    if (!strcmp(kind, "pipe writer")) {
        pipe2(ends, O_NONBLOCK);
        return ends[1];
    }
    if (!strcmp(kind, "fifo")) {
        mkfifo("fifo", 0600);
        return fifo_ends[0] = open("fifo", O_RDWR | O_NONBLOCK);
    }
    if (!strcmp(kind, "null"))
        return open("/dev/null", O_RDWR);
    if (!strcmp(kind, "zero"))
        return open("/dev/zero", O_RDWR);
    if (!strcmp(kind, "full"))
        return open("/dev/full", O_RDWR);
    if (!strcmp(kind, "terminal"))
        return make_slave();
    if (!strcmp(kind, "event"))
        return eventfd(0, EFD_NONBLOCK);
    if (!strcmp(kind, "epoll"))
        return epoll_create1(0);
    if (!strcmp(kind, "timer"))
        return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (!strcmp(kind, "signal"))
        return make_signalfd();
    if (!strcmp(kind, "inotify"))
        return inotify_init1(IN_NONBLOCK);
    if (!strcmp(kind, "memory"))
        return memfd_create("name", 0);
    if (!strcmp(kind, "proc"))
        return open("/proc/self/comm", O_RDWR);
    return -1;
}

static const char *const kinds[] = {
    "file", "folder", "path", "pipe reader", "pipe writer", "fifo", "null", "zero", "full", "terminal", "event", "epoll",
    "timer", "signal", "inotify", "memory", "proc",
};

#define TRY(...)                                                                                                       \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(__VA_ARGS__);                                                                            \
        printf("  %s: %s\n", #__VA_ARGS__, result_ == -1 ? ERRNO_NAME(errno) : "ok");                                  \
    } while (0)

static void about(int fd)
{
    struct stat st;
    char path[64], target[128] = "";
    fstat(fd, &st);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t count = readlink(path, target, sizeof target - 1);
    target[count < 0 ? 0 : count] = 0;
    char *number = strchr(target, '[');
    if (number && (!strncmp(target, "pipe", 4) || !strncmp(target, "socket", 6)))
        strcpy(number, "[N]");
    if (!strncmp(target, "/dev/pts/", 9))
        strcpy(target, "/dev/pts/N");
    if (!strncmp(target, "/proc/", 6))
        strcpy(target, "/proc/N");
    printf("  mode %o links %ld blksize %ld flags %#x %s\n", st.st_mode, (long)st.st_nlink, (long)st.st_blksize,
           fcntl(fd, F_GETFL), target);
    struct pollfd poller = { fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM, 0 };
    int ready = poll(&poller, 1, 0);
    printf("  poll %d %#x\n", ready, poller.revents);
}

/* What Linux has changed from version to version, or decides file by file below /proc and /dev. */
static int is_anonymous(const char *kind)
{
    return strchr("etsi", kind[0]) && strcmp(kind, "terminal");
}

static void calls(const char *kind, int fd)
{
    int is_proc = !strcmp(kind, "proc"), is_device = !strcmp(kind, "null") || !strcmp(kind, "full");
    char byte[8] = "";
    int number = 0;
    struct iovec vector = { byte, 0 };
    TRY(read(fd, byte, 0));
    TRY(readv(fd, &vector, 1));
    TRY(write(fd, byte, 0));
    TRY(pread(fd, byte, 1, 0));
    if (!is_proc)
        TRY(pwrite(fd, byte, 0, 0));
    TRY(lseek(fd, 0, SEEK_CUR));
    TRY(lseek(fd, 0, SEEK_END));
    TRY(lseek(fd, 0, SEEK_DATA));
    TRY(fsync(fd));
    TRY(fdatasync(fd));
    TRY(sync_file_range(fd, 0, 0, 0));
    TRY(syncfs(fd));
    TRY(ftruncate(fd, 0));
    TRY(fallocate(fd, 0, 0, 1));
    TRY(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL) ? (errno = posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL), -1) : 0);
    TRY(readahead(fd, 0, 1));
    TRY(flock(fd, LOCK_SH | LOCK_NB));
    TRY(flock(fd, LOCK_UN));
    struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
    TRY(fcntl(fd, F_SETLK, &lock));
    lock.l_type = F_UNLCK;
    TRY(fcntl(fd, F_SETLK, &lock));
    TRY(fcntl(fd, F_GETPIPE_SZ));
    TRY(fcntl(fd, F_GET_SEALS));
    TRY(fcntl(fd, F_GETLEASE));
    TRY(fcntl(fd, F_SETOWN, getpid()));
    TRY(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL)));
    if (strcmp(kind, "epoll")) {
        TRY(ioctl(fd, FIONREAD, &number));
        TRY(ioctl(fd, TCGETS, &(struct termios){ 0 }));
        TRY(ioctl(fd, 0x12345678, 0));
        TRY(isatty(fd) ? 0 : -1);
    }
    TRY(ioctl(fd, FIONBIO, &(int){ 1 }));
    TRY(ioctl(fd, FIOCLEX));
    TRY(fchdir(fd));
    TRY(openat(fd, "plain", O_RDONLY));
    TRY(getdents64(fd, byte, 0));
    TRY(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    TRY(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
    if (strcmp(kind, "terminal")) {
        if (!is_proc && !is_device)
            TRY(sendfile(open("/dev/null", O_WRONLY), fd, NULL, 1));
        TRY(copy_file_range(fd, NULL, open("plain", O_RDWR), NULL, 0, 0));
    }
    int other[2];
    pipe2(other, O_NONBLOCK);
    if (!is_proc && !is_device)
        TRY(splice(other[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK));
    TRY(tee(other[0], fd, 1, SPLICE_F_NONBLOCK));
    TRY(vmsplice(fd, &vector, 1, SPLICE_F_NONBLOCK));
    int poller = epoll_create1(0);
    if (!is_proc)
        TRY(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &(struct epoll_event){ .events = EPOLLIN }));
    TRY(epoll_ctl(fd, EPOLL_CTL_ADD, poller, &(struct epoll_event){ .events = 0 }));
    TRY(timerfd_gettime(fd, &(struct itimerspec){ 0 }));
    TRY(inotify_rm_watch(fd, 1));
    TRY(fgetxattr(fd, "user.x", byte, 8));
    TRY(flistxattr(fd, NULL, 0));
    TRY(fstatfs(fd, &(struct statfs){ 0 }));
    if (!is_anonymous(kind)) {
        TRY(futimens(fd, NULL));
        TRY(fchmod(fd, 0600));
    }
    TRY(faccessat(fd, "", F_OK, 0));
    TRY(linkat(fd, "", AT_FDCWD, "new-name", AT_EMPTY_PATH));
    unlink("new-name");
    close(poller);
    close(other[0]);
    close(other[1]);
}

/* A handle of a process is ready when the process has ended, and not before. */
static void process_handle(void)
{
    int wait_for[2];
    pipe(wait_for);
    pid_t child = CHILD({ close(wait_for[1]); hear(wait_for[0]); });
    close(wait_for[0]);
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    struct pollfd poller = { fd, POLLIN, 0 };
    SHOW(poll(&poller, 1, 0));
    int epoll = epoll_create1(0);
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){ .events = EPOLLIN }));
    SHOW(epoll_wait(epoll, &(struct epoll_event){ 0 }, 1, 0));
    close(wait_for[1]);
    SHOW(poll(&poller, 1, 5000));
    SHOW(poller.revents);
    SHOW(epoll_wait(epoll, &(struct epoll_event){ 0 }, 1, 5000));
    REAP(child);
}

int main(void)
{
    put_text("plain", "some text");
    process_handle();
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int fd = make(kinds[i]);
        printf("%s: %s\n", kinds[i], fd < 0 ? ERRNO_NAME(errno) : "made");
        if (fd < 0)
            continue;
        about(fd);
        calls(kinds[i], fd);
        close(fd);
    }
    return 0;
}
