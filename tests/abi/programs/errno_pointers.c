/* Bad pointers: every call that takes one answers EFAULT (or what Linux answers), and nothing else happens. */
#include "abi.h"
#include <sys/fsuid.h>

#define P ((void *)8)
#define K ((void *)0xffffffff81000000)
#define N ((void *)0x800000000000)

/* One call with a bad pointer of three kinds: unmapped, kernel's, not canonical. */
#define EACH(name, call)                                                                                               \
    do {                                                                                                               \
        void *bad[3] = { P, K, N };                                                                                    \
        printf("%s:", name);                                                                                           \
        for (int i_ = 0; i_ < 3; i_++) {                                                                               \
            void *p = bad[i_];                                                                                         \
            (void)p;                                                                                                   \
            errno = 0;                                                                                                 \
            long result_ = (long)(call);                                                                               \
            printf(" %s", result_ == -1 ? ERRNO_NAME(errno) : "ok");                                                   \
        }                                                                                                              \
        printf("\n");                                                                                                  \
    } while (0)

#define CALL(number, ...) EACH(#number, syscall(SYS_##number, ##__VA_ARGS__))

int main(void)
{
    put_text("file", "contents of the file");
    int fd = open("file", O_RDWR), ends[2], folder = open(".", O_RDONLY);
    pipe(ends);
    write(ends[1], "0123456789", 10);
    int epoll = epoll_create1(0), timer_fd = timerfd_create(CLOCK_MONOTONIC, 0);
    char text[64];
    struct timespec zero = { 0, 0 };
    timer_t timer;
    struct sigevent none = { .sigev_notify = SIGEV_NONE };
    timer_create(CLOCK_MONOTONIC, &none, &timer);
    struct iovec good = { text, 4 };

    CALL(read, fd, p, 4);
    CALL(write, fd, p, 4);
    CALL(pread64, fd, p, 4, 0);
    CALL(pwrite64, fd, p, 4, 0);
    CALL(readv, fd, p, 1);
    CALL(writev, fd, p, 1);
    CALL(preadv, fd, p, 1, 0, 0);
    CALL(pwritev, fd, p, 1, 0, 0);
    EACH("readv into", ({ struct iovec bad_ = { p, 4 }; readv(fd, &bad_, 1); }));
    EACH("writev from", ({ struct iovec bad_ = { p, 4 }; writev(fd, &bad_, 1); }));
    EACH("read from a pipe", read(ends[0], p, 4));
    EACH("write to a pipe", write(ends[1], p, 4));
    CALL(open, p, O_RDONLY);
    CALL(openat, AT_FDCWD, p, O_RDONLY);
    CALL(creat, p, 0600);
    CALL(stat, p, text);
    CALL(stat, "file", p);
    CALL(lstat, "file", p);
    CALL(fstat, fd, p);
    CALL(newfstatat, AT_FDCWD, p, text, 0);
    CALL(newfstatat, AT_FDCWD, "file", p, 0);
    CALL(statx, AT_FDCWD, p, 0, 0, text);
    CALL(statx, AT_FDCWD, "file", 0, 0, p);
    CALL(statfs, p, text);
    CALL(statfs, ".", p);
    CALL(fstatfs, fd, p);
    CALL(access, p, 0);
    CALL(faccessat, AT_FDCWD, p, 0);
    CALL(faccessat2, AT_FDCWD, p, 0, 0);
    CALL(truncate, p, 0);
    CALL(mkdir, p, 0);
    CALL(mkdirat, AT_FDCWD, p, 0);
    CALL(rmdir, p);
    CALL(mknod, p, 0, 0);
    CALL(mknodat, AT_FDCWD, p, 0, 0);
    CALL(unlink, p);
    CALL(unlinkat, AT_FDCWD, p, 0);
    CALL(rename, p, "x");
    CALL(rename, "file", p);
    CALL(renameat, AT_FDCWD, p, AT_FDCWD, "x");
    CALL(renameat2, AT_FDCWD, "file", AT_FDCWD, p, 0);
    CALL(link, p, "x");
    CALL(link, "file", p);
    CALL(linkat, AT_FDCWD, p, AT_FDCWD, "x", 0);
    CALL(symlink, p, "x");
    CALL(symlink, "x", p);
    CALL(symlinkat, p, AT_FDCWD, "x");
    CALL(readlink, p, text, 10);
    CALL(readlink, "/proc/self/cwd", p, 10);
    CALL(readlinkat, AT_FDCWD, p, text, 10);
    CALL(chmod, p, 0);
    CALL(fchmodat, AT_FDCWD, p, 0);
    CALL(chown, p, 0, 0);
    CALL(lchown, p, 0, 0);
    CALL(fchownat, AT_FDCWD, p, 0, 0, 0);
    CALL(utimensat, AT_FDCWD, p, NULL, 0);
    CALL(utimensat, AT_FDCWD, "file", p, 0);
    CALL(utimes, "file", p);
    CALL(utime, "file", p);
    CALL(futimesat, AT_FDCWD, p, NULL);
    CALL(chdir, p);
    CALL(chroot, p);
    CALL(getcwd, p, 100);
    CALL(getdents64, folder, p, 1000);
    CALL(getdents, folder, p, 1000);
    CALL(pipe, p);
    CALL(pipe2, p, 0);
    CALL(poll, p, 1, 0);
    CALL(ppoll, p, 1, &zero, NULL, 8);
    CALL(ppoll, NULL, 0, p, NULL, 8);
    CALL(ppoll, NULL, 0, &zero, p, 8);
    CALL(select, 4, p, NULL, NULL, NULL);
    CALL(select, 0, NULL, NULL, NULL, p);
    CALL(pselect6, 4, p, NULL, NULL, &zero, NULL);
    CALL(pselect6, 0, NULL, NULL, NULL, &zero, p);
    CALL(epoll_ctl, epoll, EPOLL_CTL_ADD, ends[0], p);
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){ .events = EPOLLIN });
    CALL(epoll_wait, epoll, p, 1, 0);
    CALL(epoll_pwait, epoll, text, 1, 0, p, 8);
    CALL(signalfd4, -1, p, 8, 0);
    CALL(timerfd_settime, timer_fd, 0, p, NULL);
    CALL(timerfd_gettime, timer_fd, p);
    CALL(timer_create, CLOCK_MONOTONIC, p, text);
    CALL(timer_create, CLOCK_MONOTONIC, &none, p);
    CALL(timer_settime, timer, 0, p, NULL);
    CALL(timer_gettime, timer, p);
    CALL(setitimer, ITIMER_REAL, p, NULL);
    CALL(getitimer, ITIMER_REAL, p);
    CALL(nanosleep, p, NULL);
    CALL(clock_nanosleep, CLOCK_MONOTONIC, 0, p, NULL);
    CALL(clock_gettime, CLOCK_MONOTONIC, p);
    CALL(clock_settime, CLOCK_REALTIME, p);
    CALL(clock_getres, CLOCK_MONOTONIC, p);
    CALL(gettimeofday, p, NULL);
    CALL(settimeofday, p, NULL);
    CALL(time, p);
    CALL(times, p);
    CALL(uname, p);
    CALL(sysinfo, p);
    CALL(getrusage, RUSAGE_SELF, p);
    CALL(getrlimit, RLIMIT_CPU, p);
    CALL(setrlimit, RLIMIT_CPU, p);
    CALL(prlimit64, 0, RLIMIT_CPU, NULL, p);
    CALL(getrandom, p, 10, 0);
    CALL(getcpu, p, NULL, NULL);
    CALL(getresuid, p, text, text);
    CALL(getresgid, text, p, text);
    CALL(getgroups, 10, p);
    CALL(setgroups, 1, p);
    CALL(capget, p, text);
    CALL(sethostname, p, 5);
    CALL(setdomainname, p, 5);
    CALL(rt_sigaction, SIGUSR1, p, NULL, 8);
    CALL(rt_sigaction, SIGUSR1, NULL, p, 8);
    CALL(rt_sigprocmask, SIG_BLOCK, p, NULL, 8);
    CALL(rt_sigprocmask, SIG_BLOCK, NULL, p, 8);
    CALL(rt_sigpending, p, 8);
    CALL(rt_sigsuspend, p, 8);
    CALL(rt_sigtimedwait, p, NULL, &zero, 8);
    CALL(rt_sigqueueinfo, getpid(), SIGUSR1, p);
    CALL(rt_tgsigqueueinfo, getpid(), getpid(), SIGUSR1, p);
    CALL(sigaltstack, p, NULL);
    CALL(sigaltstack, NULL, p);
    CALL(wait4, -1, p, WNOHANG, NULL);
    CALL(waitid, P_ALL, 0, p, WEXITED | WNOHANG, NULL);
    pid_t child = CHILD(_exit(0));
    wait_state(child, "Z");
    CALL(wait4, child, p, WNOHANG, NULL);
    CALL(execve, p, NULL, NULL);
    CALL(execve, "/abi/hello", p, NULL);
    CALL(execveat, AT_FDCWD, p, NULL, NULL, 0);
    CALL(clone3, p, 88);
    CALL(futex, p, 0, 0, &zero, NULL, 0);
    CALL(futex, p, 1, 1, NULL, NULL, 0);
    CALL(sched_setaffinity, 0, 8, p);
    CALL(sched_getaffinity, 0, 8, p);
    CALL(sched_setparam, 0, p);
    CALL(sched_getparam, 0, p);
    CALL(sched_setscheduler, 0, 0, p);
    CALL(sched_rr_get_interval, 0, p);
    CALL(sched_setattr, 0, p, 0);
    CALL(sched_getattr, 0, p, 48, 0);
    CALL(prctl, PR_SET_NAME, p);
    CALL(prctl, PR_GET_NAME, p);
    CALL(prctl, PR_GET_PDEATHSIG, p);
    CALL(arch_prctl, 0x1003, p);
    CALL(mincore, (char *)((uintptr_t)text & ~4095ul), 4096, p);
    CALL(ioctl, ends[0], FIONREAD, p);
    CALL(fcntl, fd, F_GETLK, p);
    CALL(fcntl, fd, F_SETLK, p);
    CALL(sendfile, ends[1], fd, p, 4);
    CALL(splice, fd, p, ends[1], NULL, 4, 0);
    CALL(copy_file_range, fd, p, fd, NULL, 4, 0);
    CALL(vmsplice, ends[1], p, 1, 0);
    CALL(mount, p, p, p, 0, NULL);
    CALL(umount2, p, 0);
    CALL(memfd_create, p, 0);
    CALL(get_robust_list, 0, p, text);
    /* A buffer whose end is not mapped: what fits is transferred, or nothing. */
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    memset(edge, 'e', 4096);
    SHOW(pread(fd, edge + 4090, 20, 0));
    SHOW(pwrite(fd, edge + 4090, 20, 0));
    SHOW(read(ends[0], edge + 4090, 10));
    SHOW(write(ends[1], edge + 4090, 20));
    SHOW(open(strcpy(edge + 4091, "file"), O_RDONLY) > 0);
    memcpy(edge + 4092, "file", 4);
    SHOW(open(edge + 4092, O_RDONLY));
    SHOW(getcwd(edge + 4090, 100) != NULL);
    SHOW(uname((struct utsname *)(edge + 4000)));
    /* Read-only memory is not written. */
    char *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(read(fd, constant, 4));
    SHOW(getrandom(constant, 8, 0));
    SHOW(pipe((int *)constant));
    SHOW(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, (struct timespec *)constant));
    mprotect(constant, 4096, PROT_NONE);
    SHOW(write(fd, constant, 4));
    SHOW(open(constant, O_RDONLY));
    return 0;
}
