/* Locks that wait: fcntl, open file description locks and flock between processes; who sees what, signals, closing. */
#include "abi.h"
#include <sys/file.h>

static int file;

static struct flock lock_of(int type, off_t start, off_t length)
{
    struct flock lock = { .l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
    return lock;
}

static int set(int fd, int command, int type, off_t start, off_t length)
{
    struct flock lock = lock_of(type, start, length);
    return fcntl(fd, command, &lock);
}

static void get(int fd, int command, int type, off_t start, off_t length)
{
    struct flock lock = lock_of(type, start, length);
    if (fcntl(fd, command, &lock) < 0)
        printf("get: %s\n", ERRNO_NAME(errno));
    else if (lock.l_type == F_UNLCK)
        printf("get: free\n");
    else
        printf("get: %s %ld %ld %s\n", lock.l_type == F_RDLCK ? "read" : "write", (long)lock.l_start, (long)lock.l_len,
               lock.l_pid == -1 ? "description" : lock.l_pid == getppid() ? "parent" : lock.l_pid == getpid() ? "self" : "other");
}

static void splitting(void)
{
    SHOW(set(file, F_SETLK, F_WRLCK, 0, 100));
    SHOW(set(file, F_SETLK, F_UNLCK, 20, 10));
    SHOW(set(file, F_SETLK, F_RDLCK, 50, 10));
    REAP(CHILD({
        get(file, F_GETLK, F_WRLCK, 0, 0);
        get(file, F_GETLK, F_WRLCK, 20, 10);
        get(file, F_GETLK, F_WRLCK, 20, 11);
        get(file, F_GETLK, F_RDLCK, 50, 10);
        get(file, F_GETLK, F_WRLCK, 50, 10);
        get(file, F_GETLK, F_WRLCK, 60, 0);
        get(file, F_GETLK, F_WRLCK, 100, 0);
        SHOW(set(file, F_SETLK, F_RDLCK, 50, 10));
        SHOW(set(file, F_SETLK, F_WRLCK, 55, 1));
        SHOW(set(file, F_SETLK, F_WRLCK, 25, 5));
    }));
    SHOW(set(file, F_SETLK, F_WRLCK, 20, 10));
    SHOW(set(file, F_SETLK, F_UNLCK, 0, 0));
    SHOW(set(file, F_SETLK, F_WRLCK, -1, 1));
    SHOW(set(file, F_SETLK, F_WRLCK, 5, -3));
    SHOW(set(file, F_SETLK, F_WRLCK, 5, -6));
    REAP(CHILD(get(file, F_GETLK, F_WRLCK, 0, 0)));
    SHOW(set(file, F_SETLK, 9, 0, 0));
    int reader = open("locked", O_RDONLY);
    SHOW(set(reader, F_SETLK, F_WRLCK, 0, 1));
    /* Closing any descriptor of the file ends all of the process's locks. */
    close(reader);
    REAP(CHILD(get(file, F_GETLK, F_WRLCK, 0, 0)));
}

static void handler(int number)
{
    (void)number;
}

static void waiting(void)
{
    SHOW(set(file, F_SETLK, F_WRLCK, 0, 10));
    pid_t child = CHILD({
        SHOW(set(file, F_SETLKW, F_WRLCK, 5, 10));
        get(file, F_GETLK, F_RDLCK, 0, 5);
    });
    wait_state(child, "S");
    set(file, F_SETLK, F_UNLCK, 0, 10);
    REAP(child);
    SHOW(set(file, F_SETLK, F_WRLCK, 0, 10));
    child = CHILD({
        struct sigaction action = { .sa_handler = handler };
        sigaction(SIGUSR1, &action, NULL);
        SHOW(set(file, F_SETLKW, F_RDLCK, 0, 1));
    });
    wait_state(child, "S");
    pause_ms(20);
    kill(child, SIGUSR1);
    REAP(child);
    /* Two that wait for each other. */
    int ready[2];
    pipe(ready);
    child = CHILD({
        set(file, F_SETLK, F_WRLCK, 100, 1);
        tell(ready[1]);
        SHOW(set(file, F_SETLKW, F_WRLCK, 0, 1));
    });
    hear(ready[0]);
    wait_state(child, "S");
    pause_ms(20);
    SHOW(set(file, F_SETLKW, F_WRLCK, 100, 1));
    set(file, F_SETLK, F_UNLCK, 0, 0);
    REAP(child);
    /* The end of a process frees its locks. */
    child = CHILD({ set(file, F_SETLK, F_WRLCK, 0, 0); tell(ready[1]); pause_ms(30); });
    hear(ready[0]);
    SHOW(set(file, F_SETLKW, F_WRLCK, 0, 0));
    REAP(child);
    SHOW(set(file, F_SETLK, F_UNLCK, 0, 0));
}

static void descriptions(void)
{
    int first = open("locked", O_RDWR), second = open("locked", O_RDWR);
    SHOW(set(first, F_OFD_SETLK, F_WRLCK, 0, 10));
    SHOW(set(second, F_OFD_SETLK, F_WRLCK, 5, 10));
    SHOW(set(second, F_OFD_SETLK, F_WRLCK, 10, 10));
    get(second, F_OFD_GETLK, F_WRLCK, 0, 10);
    get(first, F_OFD_GETLK, F_WRLCK, 0, 20);
    get(file, F_GETLK, F_WRLCK, 0, 10);
    SHOW(set(file, F_SETLK, F_WRLCK, 0, 10));
    struct flock with_pid = lock_of(F_WRLCK, 0, 10);
    with_pid.l_pid = 1;
    SHOW(fcntl(first, F_OFD_SETLK, &with_pid));
    pid_t child = CHILD({ SHOW(set(first, F_OFD_SETLK, F_RDLCK, 0, 5)); });
    REAP(child);
    get(second, F_OFD_GETLK, F_WRLCK, 0, 10);
    child = CHILD({
        close(first);
        SHOW(set(second, F_OFD_SETLKW, F_WRLCK, 5, 5));
    });
    wait_state(child, "S");
    close(first);
    REAP(child);
    close(second);
    get(file, F_GETLK, F_WRLCK, 0, 0);
}

static void whole(void)
{
    int first = open("locked", O_RDWR), second = open("locked", O_RDONLY), copy = dup(first);
    SHOW(flock(first, LOCK_EX));
    SHOW(flock(second, LOCK_SH | LOCK_NB));
    SHOW(flock(copy, LOCK_SH));
    SHOW(flock(second, LOCK_SH | LOCK_NB));
    SHOW(flock(second, LOCK_EX | LOCK_NB));
    SHOW(flock(second, LOCK_SH | LOCK_NB));
    SHOW(set(file, F_SETLK, F_WRLCK, 0, 0));
    pid_t child = CHILD({ close(first); close(copy); SHOW(flock(second, LOCK_EX)); });
    wait_state(child, "S");
    flock(copy, LOCK_UN);
    REAP(child);
    SHOW(flock(first, LOCK_SH | LOCK_NB));
    SHOW(flock(second, LOCK_UN));
    SHOW(flock(first, LOCK_SH | LOCK_NB));
    SHOW(flock(first, 0));
    SHOW(flock(999, LOCK_SH));
    int ends[2];
    pipe(ends);
    SHOW(flock(ends[0], LOCK_EX | LOCK_NB));
    SHOW(set(ends[1], F_SETLK, F_WRLCK, 0, 0));
}

int main(void)
{
    file = open("locked", O_CREAT | O_RDWR, 0644);
    splitting();
    waiting();
    descriptions();
    whole();
    return 0;
}
