/* Leases: who may have one, what others' opens find, the signals and what they say, downgrades, what time breaks; /proc/locks. */
#include "abi.h"
#include <sys/file.h>

static volatile sig_atomic_t caught;
static siginfo_t facts;

static void on_signal(int number, siginfo_t *information, void *context)
{
    (void)context;
    caught = number;
    facts = *information;
}

static void show_signal(void)
{
    if (!caught) {
        printf("  no signal\n");
        return;
    }
    printf("  %s code %d", signal_name(caught), facts.si_code);
    if (facts.si_code != SI_KERNEL)
        printf(" descriptor %d band %#lx", facts.si_fd, facts.si_band);
    printf("\n");
    caught = 0;
}

static const char *kind(int lease)
{
    return lease == F_RDLCK ? "read" : lease == F_WRLCK ? "write" : lease == F_UNLCK ? "none" : "?";
}

#define LEASE(fd) printf("lease of %s: %s\n", #fd, kind(fcntl(fd, F_GETLEASE)))

/* The lines of /proc/locks about a file, without their numbers, process ids by who is who. */
static void show_locks(const char *path, pid_t self, pid_t other)
{
    struct stat status;
    stat(path, &status);
    char place[64];
    snprintf(place, sizeof place, "%02x:%02x:%lu ", major(status.st_dev), minor(status.st_dev), status.st_ino);
    FILE *locks = fopen("/proc/locks", "r");
    char line[256];
    int is_ours = 0;
    while (fgets(line, sizeof line, locks)) {
        char *at = strstr(line, place);
        char *text = strchr(line, ':') + 1;
        is_ours = at != NULL;
        if (!is_ours)
            continue;
        char *pid = at - 1;
        while (pid > line && pid[-1] != ' ')
            pid--;
        long number = atol(pid);
        *pid = 0;
        printf("  locks:%s%s %s", text, number == self ? "self" : number == other ? "other" : number == -1 ? "-1" : "?",
               at + strlen(place));
    }
    fclose(locks);
}

static void who_may(void)
{
    int writer = open("file", O_RDWR | O_CREAT, 0666);
    SHOW(fcntl(writer, F_GETLEASE));
    SHOW(fcntl(writer, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(writer, F_SETLEASE, F_UNLCK));
    SHOW(fcntl(writer, F_SETLEASE, 7));
    SHOW(fcntl(-1, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(writer, F_SETLEASE, F_WRLCK));
    LEASE(writer);
    SHOW(fcntl(writer, F_SETLEASE, F_WRLCK));
    SHOW(fcntl(writer, F_SETLEASE, F_RDLCK));
    LEASE(writer);
    TRUE(fcntl(writer, F_GETOWN) == getpid());
    SHOW(fcntl(writer, F_SETSIG, SIGRTMIN));
    SHOW(fcntl(writer, F_SETLEASE, F_UNLCK));
    SHOW(fcntl(writer, F_GETOWN));
    SHOW(fcntl(writer, F_GETSIG));
    LEASE(writer);
    close(writer);

    int reader = open("file", O_RDONLY), second = open("file", O_RDONLY);
    SHOW(fcntl(reader, F_SETLEASE, F_WRLCK));
    SHOW(fcntl(reader, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(second, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(second, F_SETLEASE, F_WRLCK));
    LEASE(reader);
    LEASE(second);
    show_locks("file", getpid(), 0);
    int copy = dup(second);
    LEASE(copy);
    close(second);
    LEASE(copy);
    close(copy);
    show_locks("file", getpid(), 0);
    SHOW(fcntl(reader, F_SETLEASE, F_WRLCK));
    LEASE(reader);
    close(reader);

    int folder = open(".", O_RDONLY), null = open("/dev/null", O_RDONLY), handle = open("file", O_PATH);
    SHOW(fcntl(folder, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(null, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(handle, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(handle, F_GETLEASE));
    int ends[2];
    SHOW(pipe(ends));
    SHOW(fcntl(ends[0], F_SETLEASE, F_RDLCK));
    REAP(CHILD({
        chmod("file", 0666);
        SHOW(setresuid(1000, 1000, 1000));
        int fd = open("file", O_RDONLY);
        SHOW(fcntl(fd, F_SETLEASE, F_RDLCK));
        SHOW(fcntl(fd, F_SETLEASE, F_UNLCK));
        SHOW(fcntl(fd, F_SETLEASE, 9));
    }));
    close(folder), close(null), close(handle), close(ends[0]), close(ends[1]);
}

static void without_waiting(void)
{
    printf("-- an opener that does not wait\n");
    int fd = open("file", O_RDONLY);
    SHOW(fcntl(fd, F_SETLEASE, F_RDLCK));
    OK(open("file", O_RDONLY | O_NONBLOCK));
    show_signal();
    OK(open("file", O_RDWR | O_NONBLOCK));
    show_signal();
    LEASE(fd);
    show_locks("file", getpid(), 0);
    OK(open("file", O_WRONLY | O_NONBLOCK));
    show_signal();
    int again = open("file", O_RDONLY);
    SHOW(fcntl(again, F_SETLEASE, F_RDLCK));
    SHOW(fcntl(fd, F_SETLEASE, F_RDLCK));
    LEASE(fd);
    SHOW(fcntl(fd, F_SETLEASE, F_UNLCK));
    OK(open("file", O_RDWR | O_NONBLOCK));
    close(fd);

    int alone = open("other", O_RDWR | O_CREAT, 0644);
    SHOW(fcntl(alone, F_SETLEASE, F_WRLCK));
    SHOW(fcntl(alone, F_SETSIG, SIGRTMIN + 1));
    OK(open("other", O_RDONLY | O_NONBLOCK));
    TRUE(facts.si_fd == alone);
    facts.si_fd = 0;
    show_signal();
    LEASE(alone);
    show_locks("other", getpid(), 0);
    OK(open("other", O_RDONLY | O_NONBLOCK));
    show_signal();
    OK(open("other", O_RDWR | O_NONBLOCK));
    facts.si_fd = 0;
    show_signal();
    LEASE(alone);
    SHOW(fcntl(alone, F_SETLEASE, F_UNLCK));
    TRUE(stat("other", &(struct stat){ 0 }) == 0);
    show_signal();
    OK(open("other", O_PATH));
    close(alone);
}

/* What does not break a lease, and what does. */
static void what_breaks(void)
{
    printf("-- what breaks a lease\n");
    put_text("third", "text");
    int fd = open("third", O_RDONLY);
    SHOW(fcntl(fd, F_SETLEASE, F_RDLCK));
    SHOW(chmod("third", 0600));
    SHOW(rename("third", "fourth"));
    SHOW(link("fourth", "third"));
    SHOW(unlink("fourth"));
    show_signal();
    LEASE(fd);
    pid_t child = CHILD({
        signal(SIGIO, SIG_IGN);
        _exit(truncate("third", 1) == 0 ? 0 : errno);
    });
    while (!caught)
        pause();
    show_signal();
    LEASE(fd);
    fflush(stdout);
    SHOW(fcntl(fd, F_SETLEASE, F_UNLCK));
    fflush(stdout);
    REAP(child);
    close(fd);
}

/* Openers that wait, released by the holder in each way. */
static void waiting(int with_close)
{
    printf("-- an opener that waits; %s\n", with_close ? "closed" : "downgraded");
    put_text("fifth", "text");
    int fd = open("fifth", O_RDWR);
    SHOW(fcntl(fd, F_SETLEASE, F_WRLCK));
    fflush(stdout);
    pid_t child = CHILD(_exit(open("fifth", O_RDONLY) >= 0 ? 0 : errno));
    while (!caught)
        pause();
    show_signal();
    wait_state(child, "S");
    show_locks("fifth", getpid(), child);
    LEASE(fd);
    fflush(stdout);
    if (with_close)
        close(fd);
    else {
        int result = fcntl(fd, F_SETLEASE, F_RDLCK);
        /* The file is open for writing, so none for reading can follow. */
        if (result < 0) {
            printf("downgrade: %s\n", ERRNO_NAME(errno));
            fflush(stdout);
            SHOW(fcntl(fd, F_SETLEASE, F_UNLCK));
            fflush(stdout);
        }
    }
    REAP(child);
    if (!with_close)
        close(fd);
}

static void interrupted(void)
{
    printf("-- an opener that is killed, and one that is interrupted\n");
    int fd = open("fifth", O_RDONLY);
    SHOW(fcntl(fd, F_SETLEASE, F_RDLCK));
    pid_t child = CHILD(open("fifth", O_WRONLY));
    while (!caught)
        pause();
    show_signal();
    wait_state(child, "S");
    kill(child, SIGKILL);
    REAP(child);
    child = CHILD({
        struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
        sigaction(SIGUSR1, &action, NULL);
        OK(open("fifth", O_WRONLY));
    });
    wait_state(child, "S");
    kill(child, SIGUSR1);
    REAP(child);
    show_signal();
    LEASE(fd);
    close(fd);
}

static void timed_out(void)
{
    printf("-- time breaks it\n");
    char before[32];
    snprintf(before, sizeof before, "%s", get_text("/proc/sys/fs/lease-break-time"));
    put_text("/proc/sys/fs/lease-break-time", "1");
    put_text("sixth", "text");
    int fd = open("sixth", O_RDWR);
    SHOW(fcntl(fd, F_SETLEASE, F_WRLCK));
    REAP(CHILD({
        signal(SIGIO, SIG_IGN);
        TRUE(open("sixth", O_RDONLY) >= 0);
    }));
    show_signal();
    LEASE(fd);
    show_locks("sixth", getpid(), 0);
    REAP(CHILD({
        signal(SIGIO, SIG_IGN);
        TRUE(open("sixth", O_WRONLY) >= 0);
    }));
    show_signal();
    LEASE(fd);
    show_locks("sixth", getpid(), 0);
    put_text("/proc/sys/fs/lease-break-time", before);
    put_text("/proc/sys/fs/leases-enable", "0");
    close(fd);
    fd = open("sixth", O_RDONLY);
    SHOW(fcntl(fd, F_SETLEASE, F_RDLCK));
    put_text("/proc/sys/fs/leases-enable", "1");
    SHOW(fcntl(fd, F_SETLEASE, F_RDLCK));
    close(fd);
}

/* Other locks in /proc/locks and in fdinfo, and who waits for them. */
static void other_locks(void)
{
    printf("-- other locks\n");
    int fd = open("locked", O_RDWR | O_CREAT, 0644), own = open("locked", O_RDWR);
    struct flock lock = { .l_type = F_WRLCK, .l_start = 10, .l_len = 5 };
    SHOW(fcntl(fd, F_SETLK, &lock));
    show_locks("locked", getpid(), 0);
    pid_t child = CHILD({
        struct flock wanted = { .l_type = F_RDLCK, .l_start = 12 };
        _exit(fcntl(fd, F_SETLKW, &wanted) == 0 ? 0 : errno);
    });
    wait_state(child, "S");
    show_locks("locked", getpid(), child);
    lock.l_type = F_UNLCK;
    SHOW(fcntl(fd, F_SETLK, &lock));
    fflush(stdout);
    REAP(child);
    show_locks("locked", getpid(), 0);
    lock = (struct flock){ .l_type = F_RDLCK, .l_start = 0, .l_len = 0 };
    SHOW(fcntl(fd, F_OFD_SETLK, &lock));
    show_locks("locked", getpid(), 0);
    lock.l_type = F_UNLCK;
    SHOW(fcntl(fd, F_OFD_SETLK, &lock));
    SHOW(flock(fd, LOCK_EX));
    show_locks("locked", getpid(), 0);
    child = CHILD(_exit(flock(own, LOCK_SH) == 0 ? 0 : errno));
    wait_state(child, "S");
    show_locks("locked", getpid(), child);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    const char *line = strstr(get_text(path), "lock:");
    printf("%.30s\n", line ? line : "no line");
    SHOW(flock(fd, LOCK_UN));
    fflush(stdout);
    REAP(child);
    close(own);
    show_locks("locked", getpid(), 0);
    close(fd);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
    sigaction(SIGIO, &action, NULL);
    sigaction(SIGRTMIN + 1, &action, NULL);
    who_may();
    without_waiting();
    what_breaks();
    waiting(0);
    waiting(1);
    interrupted();
    timed_out();
    other_locks();
    return 0;
}
