/* Bad descriptors, flags and numbers: EBADF, EINVAL and their relatives for every group of calls. */
#include "abi.h"

#define B(...) /* one bad descriptor of each kind */                                                                   \
    do {                                                                                                               \
        static const int bad_[3] = { -1, 999, INT_MAX };                                                               \
        printf("%s:", #__VA_ARGS__);                                                                                   \
        for (int i_ = 0; i_ < 3; i_++) {                                                                               \
            int fd = bad_[i_];                                                                                         \
            errno = 0;                                                                                                 \
            long result_ = (long)(__VA_ARGS__);                                                                        \
            printf(" %s", result_ == -1 ? ERRNO_NAME(errno) : "ok");                                                   \
        }                                                                                                              \
        printf("\n");                                                                                                  \
    } while (0)

int main(void)
{
    char text[256];
    struct stat about;
    struct statfs system;
    struct iovec part = { text, 4 };
    struct epoll_event event = { 0 };
    struct itimerspec when = { 0 };
    int ends[2], epoll = epoll_create1(0), file = open("file", O_CREAT | O_RDWR, 0600);
    pipe(ends);
    B(read(fd, text, 4));
    B(write(fd, text, 4));
    B(pread(fd, text, 4, 0));
    B(pwrite(fd, text, 4, 0));
    B(readv(fd, &part, 1));
    B(writev(fd, &part, 1));
    B(preadv(fd, &part, 1, 0));
    B(pwritev(fd, &part, 1, 0));
    B(lseek(fd, 0, SEEK_SET));
    B(close(fd));
    B(fstat(fd, &about));
    B(fstatfs(fd, &system));
    B(ftruncate(fd, 0));
    B(fallocate(fd, 0, 0, 1));
    B(fsync(fd));
    B(fdatasync(fd));
    B(syncfs(fd));
    B(fchmod(fd, 0600));
    B(fchown(fd, 0, 0));
    B(fchdir(fd));
    B(futimens(fd, NULL));
    B(dup(fd));
    B(dup2(fd, 50));
    B(dup3(fd, 50, 0));
    B(fcntl(fd, F_GETFL));
    B(fcntl(fd, F_SETFL, 0));
    B(fcntl(fd, F_GETFD));
    B(ioctl(fd, FIONREAD, text));
    B(syscall(SYS_getdents64, fd, text, 200));
    B(openat(fd, "file", O_RDONLY));
    B(mkdirat(fd, "x", 0));
    B(unlinkat(fd, "x", 0));
    B(renameat(fd, "x", fd, "y"));
    B(linkat(fd, "x", fd, "y", 0));
    B(symlinkat("x", fd, "y"));
    B(readlinkat(fd, "x", text, 10));
    B(fchmodat(fd, "x", 0, 0));
    B(fchownat(fd, "x", 0, 0, 0));
    B(faccessat(fd, "x", 0, 0));
    B(fstatat(fd, "x", &about, 0));
    B(utimensat(fd, "x", NULL, 0));
    B(mknodat(fd, "x", 0, 0));
    B(syscall(SYS_execveat, fd, "x", NULL, NULL, 0));
    B(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    B(epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], &event));
    B(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    B(epoll_wait(fd, &event, 1, 0));
    B(timerfd_settime(fd, 0, &when, NULL));
    B(timerfd_gettime(fd, &when));
    B(sendfile(fd, file, NULL, 1));
    B(sendfile(file, fd, NULL, 1));
    B(splice(fd, NULL, ends[1], NULL, 1, 0));
    B(splice(ends[0], NULL, fd, NULL, 1, 0));
    B(tee(fd, ends[1], 1, 0));
    B(vmsplice(fd, &part, 1, 0));
    B(copy_file_range(fd, NULL, file, NULL, 1, 0));
    B(copy_file_range(file, NULL, fd, NULL, 1, 0));
    B(posix_fadvise(fd, 0, 0, 0) ? (errno = EBADF, -1) : 0);
    B(readahead(fd, 0, 1));
    B(sync_file_range(fd, 0, 0, 0));
    B(syscall(SYS_flock, fd, 2));
    B(tcgetpgrp(fd));
    B(isatty(fd) - 1);
    B(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));

    SHOW(lseek(file, 0, 99));
    SHOW(lseek(file, -1, SEEK_SET));
    SHOW(read(file, text, (size_t)-1));
    SHOW(fcntl(file, 12345, 0));
    SHOW(ioctl(file, 0x7777, 0));
    SHOW(dup3(file, 60, O_RDWR));
    SHOW(pipe2(ends, 0x40000000));
    SHOW(open("file", O_RDONLY | 0x40000000));
    SHOW(access("file", 77));
    SHOW(umask(0777777) == 022);
    umask(022);
    SHOW(mmap(NULL, 4096, 0x77, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    OK(mmap(NULL, 4096, PROT_READ, 0, file, 0));
    OK(mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | 0x4000, file, 0));
    SHOW(wait4(-1, NULL, 0x8000, NULL));
    SHOW(waitid(P_ALL, 0, NULL, 0));
    SHOW(kill(0, 999));
    SHOW(syscall(SYS_rt_sigprocmask, 0, &text, NULL, 7));
    SHOW(syscall(SYS_rt_sigsuspend, &text, 7));
    SHOW(syscall(SYS_rt_sigpending, &text, 9));
    SHOW(syscall(SYS_rt_sigtimedwait, &text, NULL, NULL, 7));
    SHOW(syscall(SYS_ppoll, NULL, 0, NULL, &text, 7));
    SHOW(syscall(SYS_epoll_pwait, epoll, &event, 1, 0, &text, 7));
    SHOW(syscall(SYS_clone, 0x10000 /* CLONE_THREAD */, 0, 0, 0, 0));
    SHOW(syscall(SYS_unshare, 1));
    SHOW(syscall(SYS_prlimit64, 0, 99, NULL, NULL));
    SHOW(syscall(SYS_getrandom, text, 1, 99));
    SHOW(syscall(SYS_memfd_create, "x", 99));
    SHOW(syscall(SYS_statx, AT_FDCWD, "file", 99999, 0, text));
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 99));
    SHOW(syscall(SYS_sched_setscheduler, 0, 99, text));
    SHOW(syscall(SYS_sched_getattr, 0, text, 47, 0));
    SHOW(syscall(SYS_mlockall, 99));
    SHOW(syscall(SYS_msync, 4096 + 1, 1, 0));
    SHOW(syscall(SYS_madvise, 4096 + 1, 1, 0));
    SHOW(syscall(SYS_fadvise64, file, 0, 0, 99));
    SHOW(syscall(SYS_personality, 0));
    SHOW(syscall(SYS_setpriority, 99, 0, 0));
    SHOW(syscall(SYS_mount, "none", "file", "tmpfs", 0, NULL));
    SHOW(syscall(SYS_umount2, "file", 0x1000));
    SHOW(syscall(SYS_pidfd_open, -1, 0));
    SHOW(syscall(SYS_pidfd_open, getpid(), 99));
    SHOW(syscall(SYS_restart_syscall));
    SHOW(syscall(SYS_close_range, 5, 4, 0));
    SHOW(syscall(SYS_set_tid_address, 0) == gettid());
    SHOW(syscall(SYS_rseq, NULL, 0, 99, 0));
    return 0;
}
