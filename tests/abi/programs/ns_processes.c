/* Name spaces of process numbers: numbers seen from inside and outside, init and its end, /proc, signals. */
#include "abi.h"
#include <linux/nsfs.h>
#include <linux/reboot.h>
#include <linux/sched.h>
#include <sys/reboot.h>
#include <sys/socket.h>

static pid_t clone_with(unsigned long flags)
{
    fflush(stdout);
    return syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0);
}

#define INIT(flags, ...)                                                                                               \
    ({                                                                                                                 \
        pid_t init_ = clone_with(CLONE_NEWPID | (flags));                                                              \
        if (init_ == 0) {                                                                                              \
            __VA_ARGS__;                                                                                               \
            fflush(stdout);                                                                                            \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        init_;                                                                                                         \
    })

static void lines(const char *path, const char *const *names)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file) {
        printf("%s: %s\n", path, ERRNO_NAME(errno));
        return;
    }
    while (fgets(line, sizeof line, file))
        for (const char *const *name = names; *name; name++)
            if (!strncmp(line, *name, strlen(*name)))
                printf("%s", line);
    fclose(file);
}

static int words(const char *path, const char *name)
{
    char line[256];
    int count = -1;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) {
            count = 0;
            for (char *tab = line; (tab = strchr(tab, '\t')); tab++)
                count++;
        }
    if (file)
        fclose(file);
    return count;
}

static void list(const char *path)
{
    int found[64], count = 0;
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory && (entry = readdir(directory)))
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && count < 64)
            found[count++] = atoi(entry->d_name);
    if (directory)
        closedir(directory);
    printf("%s:", path);
    for (int index = 0; index < count; index++)
        printf(" %d", found[index]);
    printf("\n");
}

static void numbers(void)
{
    pid_t child = INIT(0, {
        SHOW(getpid());
        SHOW(gettid());
        SHOW(getppid());
        SHOW(getpgrp());
        SHOW(getsid(0));
        SHOW(getpgid(1));
        SHOW(setsid());
        SHOW(getpgrp());
        pid_t inner = CHILD({
            SHOW(getpid());
            SHOW(getppid());
            SHOW(setpgid(0, 0));
            SHOW(getpgrp());
            SHOW(kill(1, 0));
            SHOW(kill(3, 0));
        });
        REAP(inner);
        SHOW(inner);
        SHOW(kill(2, 0));
        SHOW(waitpid(-1, NULL, 0));
        SHOW(kill(-1, SIGTERM));
        SHOW(syscall(SYS_set_tid_address, NULL));
        SHOW(sched_getscheduler(1));
        SHOW(sched_getscheduler(4));
        siginfo_t information;
        inner = CHILD(_exit(7));
        SHOW(waitid(P_PID, inner, &information, WEXITED));
        SHOW(information.si_pid);
        SHOW(unshare(CLONE_NEWPID));
        SHOW(unshare(CLONE_NEWPID));
        inner = CHILD({
            SHOW(getpid());
            SHOW(getppid());
        });
        REAP(inner);
        SHOW(inner);
        OK(fork());
    });
    REAP(child);
    TRUE(child > 1);
}

static void levels(int deep)
{
    pid_t child = clone_with(CLONE_NEWPID);
    if (child < 0) {
        printf("too deep: %d %s\n", deep >= 32, ERRNO_NAME(errno));
        return;
    }
    if (child == 0) {
        if (getpid() != 1 || getppid() != 0)
            printf("level %d: %d %d\n", deep, getpid(), getppid());
        if (deep == 4) {
            printf("words: %d\n", words("/proc/self/status", "NSpid"));
        }
        levels(deep + 1);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void messages(void)
{
    int ends[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    int one = 1;
    setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    pid_t child = INIT(0, {
        write(ends[1], "x", 1);
        char byte;
        char control[CMSG_SPACE(sizeof(struct ucred))];
        struct iovec part = { &byte, 1 };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        recvmsg(ends[1], &message, 0);
        printf("from outside: %d\n", ((struct ucred *)CMSG_DATA(CMSG_FIRSTHDR(&message)))->pid);
        struct ucred peer;
        socklen_t length = sizeof peer;
        getsockopt(ends[1], SOL_SOCKET, SO_PEERCRED, &peer, &length);
        printf("peer: %d\n", peer.pid);
    });
    char byte;
    char control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    recvmsg(ends[0], &message, 0);
    TRUE(((struct ucred *)CMSG_DATA(CMSG_FIRSTHDR(&message)))->pid == child);
    write(ends[0], "x", 1);
    REAP(child);
}

static volatile pid_t sender = -1;

static void note(int number, siginfo_t *information, void *context)
{
    (void)number;
    (void)context;
    sender = information->si_pid;
}

static void signals(void)
{
    int ready[2];
    int done[2];
    pipe(ready);
    pipe(done);
    pid_t child = INIT(0, {
        struct sigaction action = { .sa_sigaction = note, .sa_flags = SA_SIGINFO };
        sigaction(SIGUSR1, &action, NULL);
        SHOW(kill(1, SIGTERM));
        SHOW(kill(1, SIGKILL));
        SHOW(kill(1, SIGSTOP));
        SHOW(raise(SIGINT));
        pid_t inner = CHILD({
            SHOW(kill(1, SIGKILL));
            SHOW(kill(1, SIGUSR1));
        });
        REAP(inner);
        SHOW(sender == inner);
        sender = -1;
        fflush(stdout);
        tell(ready[1]);
        while (sender == -1)
            pause_ms(1);
        printf("from outside: %d\n", sender);
        fflush(stdout);
        tell(ready[1]);
        hear(done[0]);
        pause();
    });
    hear(ready[0]);
    SHOW(kill(child, SIGUSR2));
    SHOW(kill(child, SIGUSR1));
    hear(ready[0]);
    SHOW(kill(child, SIGSTOP));
    int status;
    SHOW(waitpid(child, &status, WUNTRACED) == child);
    printf("%s\n", how_ended(status));
    SHOW(kill(child, SIGCONT));
    tell(done[1]);
    SHOW(kill(child, SIGKILL));
    REAP(child);
    child = INIT(0, *(volatile int *)8 = 1);
    REAP(child);
    child = INIT(0, {
        reboot(LINUX_REBOOT_CMD_RESTART);
        pause();
    });
    REAP(child);
    child = INIT(0, {
        SHOW(reboot(LINUX_REBOOT_CMD_CAD_ON));
        CHILD({
            reboot(LINUX_REBOOT_CMD_POWER_OFF);
            pause();
        });
        pause();
    });
    REAP(child);
}

static void orphans(void)
{
    int ends[2];
    pipe(ends);
    pid_t child = INIT(0, {
        waitpid(CHILD({
            CHILD({
                while (getppid() != 1)
                    pause_ms(1);
                printf("its parent is %d\n", getppid());
            });
        }), NULL, 0);
        REAP(3);
        int reaper = CHILD({
            prctl(PR_SET_CHILD_SUBREAPER, 1);
            pid_t mine = getpid();
            REAP(CHILD({
                CHILD({
                    while (getppid() != mine)
                        pause_ms(1);
                });
            }));
            SHOW(waitpid(-1, NULL, 0) > 1);
        });
        REAP(reaper);
        /* Those who are left when init ends. */
        for (int index = 0; index < 5; index++)
            CHILD({
                signal(SIGTERM, SIG_IGN);
                CHILD(pause());
                pause();
            });
        close(ends[0]);
    });
    close(ends[1]);
    REAP(child);
    char byte;
    SHOW(read(ends[0], &byte, 1));
    close(ends[0]);
}

static void of_proc(void)
{
    pid_t child = INIT(CLONE_NEWNS, {
        char link[64] = "";
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
        SHOW(mount("proc", "/proc", "proc", 0, NULL));
        list("/proc");
        readlink("/proc/self", link, sizeof link - 1);
        printf("self: %s\n", link);
        memset(link, 0, sizeof link);
        readlink("/proc/thread-self", link, sizeof link - 1);
        printf("thread-self: %s\n", link);
        list("/proc/self/task");
        const char *const names[] = { "Tgid", "Pid", "PPid", "NS", NULL };
        lines("/proc/self/status", names);
        pid_t inner = CHILD({
            lines("/proc/self/status", names);
            list("/proc");
            int stat = open("/proc/self/stat", O_RDONLY);
            char text[64] = "";
            read(stat, text, sizeof text - 1);
            int pid;
            int parent;
            char state;
            sscanf(text, "%d %*[^)]) %c %d", &pid, &state, &parent);
            printf("stat: %d %d\n", pid, parent);
        });
        REAP(inner);
        SHOW(access("/proc/2", F_OK));
        char text[64] = "";
        int setting = open("/proc/sys/kernel/ns_last_pid", O_RDWR);
        SHOW(write(setting, "99", 2));
        inner = CHILD(_exit(0));
        SHOW(inner);
        REAP(inner);
        pread(setting, text, sizeof text - 1, 0);
        printf("last: %s", text);
        close(setting);
        struct clone_args arguments = { .exit_signal = SIGCHLD };
        pid_t wanted[] = { 50, 20000 };
        arguments.set_tid = (uintptr_t)wanted;
        arguments.set_tid_size = 1;
        inner = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (inner == 0)
            _exit(getpid() == 50 ? 3 : 4);
        SHOW(inner);
        REAP(inner);
        arguments.set_tid_size = 4;
        SHOW(syscall(SYS_clone3, &arguments, sizeof arguments));
        wanted[0] = 1;
        arguments.set_tid_size = 1;
        SHOW(syscall(SYS_clone3, &arguments, sizeof arguments));
    });
    REAP(child);
}

static void enters(void)
{
    int ready[2];
    int done[2];
    pipe(ready);
    pipe(done);
    pid_t child = INIT(0, {
        tell(ready[1]);
        hear(done[0]);
        while (waitpid(-1, NULL, 0) > 0)
            ;
    });
    hear(ready[0]);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/pid", child);
    int space = open(path, O_RDONLY);
    int own = open("/proc/self/ns/pid", O_RDONLY);
    SHOW(ioctl(space, NS_GET_NSTYPE) == CLONE_NEWPID);
    int parent = ioctl(space, NS_GET_PARENT);
    struct stat a;
    struct stat b;
    fstat(parent, &a);
    fstat(own, &b);
    TRUE(a.st_ino == b.st_ino);
    OK(ioctl(space, NS_GET_USERNS));
    REAP(CHILD({
        SHOW(setns(space, CLONE_NEWPID));
        struct stat one;
        struct stat two;
        stat("/proc/self/ns/pid", &one);
        stat("/proc/self/ns/pid_for_children", &two);
        TRUE(one.st_ino == b.st_ino);
        fstat(space, &one);
        TRUE(one.st_ino == two.st_ino);
        pthread_t thread;
        CODE(pthread_create(&thread, NULL, (void *(*)(void *))pause, NULL));
        pid_t entered = CHILD({
            SHOW(getpid());
            SHOW(getppid());
            SHOW(setns(own, CLONE_NEWPID));
            SHOW(ioctl(own, NS_GET_PARENT));
            SHOW(ioctl(space, NS_GET_PARENT));
        });
        REAP(entered);
        TRUE(entered > 2);
        SHOW(setns(own, CLONE_NEWPID));
        entered = CHILD(_exit(0));
        REAP(entered);
    }));
    tell(done[1]);
    REAP(child);
    REAP(CHILD({
        OK(setns(space, CLONE_NEWPID));
        OK(fork());
    }));
}

static void *nobody(void *nothing)
{
    return nothing;
}

static void refused(void)
{
    SHOW(syscall(SYS_clone, CLONE_NEWPID | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, NULL, NULL, NULL, 0));
    REAP(CHILD({
        setresuid(1000, 1000, 1000);
        SHOW(unshare(CLONE_NEWPID));
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWPID));
        REAP(CHILD(SHOW(getpid())));
    }));
    REAP(CHILD({
        SHOW(unshare(CLONE_NEWPID));
        pthread_t thread;
        CODE(pthread_create(&thread, NULL, nobody, NULL));
    }));
}

int main(void)
{
    /* The session's leader and group are the runner's, and are not named inside. */
    numbers();
    levels(1);
    messages();
    signals();
    orphans();
    of_proc();
    enters();
    refused();
    return 0;
}
