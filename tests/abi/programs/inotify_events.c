/* inotify: what each call on files reports, names, cookies, one-shot and exclusive watches, ends, sizes of reads. */
#include "abi.h"
#include <sys/inotify.h>

static int notify;
static int watches[8];
static uint32_t cookies[8];

static int known(int *list, int count, int value)
{
    for (int i = 0; i < count; i++)
        if (list[i] == value)
            return i;
    return -1;
}

/* Prints what is queued: watches by the order in which they were made, cookies by the order of their appearance. */
static void show(const char *what)
{
    static const struct { uint32_t bit; const char *name; } bits[] = {
        { IN_ACCESS, "ACCESS" }, { IN_MODIFY, "MODIFY" }, { IN_ATTRIB, "ATTRIB" }, { IN_CLOSE_WRITE, "CLOSE_WRITE" },
        { IN_CLOSE_NOWRITE, "CLOSE_NOWRITE" }, { IN_OPEN, "OPEN" }, { IN_MOVED_FROM, "MOVED_FROM" },
        { IN_MOVED_TO, "MOVED_TO" }, { IN_CREATE, "CREATE" }, { IN_DELETE, "DELETE" }, { IN_DELETE_SELF, "DELETE_SELF" },
        { IN_MOVE_SELF, "MOVE_SELF" }, { IN_UNMOUNT, "UNMOUNT" }, { IN_Q_OVERFLOW, "Q_OVERFLOW" },
        { IN_IGNORED, "IGNORED" }, { IN_ISDIR, "ISDIR" },
    };
    char buffer[8192] __attribute__((aligned(8)));
    printf("%s:\n", what);
    ssize_t count = read(notify, buffer, sizeof buffer);
    if (count < 0) {
        printf("  %s\n", ERRNO_NAME(errno));
        return;
    }
    for (char *at = buffer; at < buffer + count;) {
        struct inotify_event *event = (struct inotify_event *)at;
        printf("  watch %d", known(watches, 8, event->wd));
        for (unsigned i = 0; i < sizeof bits / sizeof *bits; i++)
            if (event->mask & bits[i].bit)
                printf(" %s", bits[i].name);
        if (event->cookie) {
            int i = 0;
            while (i < 7 && cookies[i] && cookies[i] != event->cookie)
                i++;
            cookies[i] = event->cookie;
            printf(" cookie %d", i);
        }
        printf(" length %u %s\n", event->len, event->len ? event->name : "");
        at += sizeof *event + event->len;
    }
}

static void folder_events(void)
{
    mkdir("d", 0755);
    mkdir("e", 0755);
    SHOW((watches[0] = inotify_add_watch(notify, "d", IN_ALL_EVENTS)) > 0);
    SHOW((watches[1] = inotify_add_watch(notify, "e", IN_MOVED_TO | IN_CREATE | IN_DELETE)) > 0);
    int fd = open("d/file", O_CREAT | O_RDWR, 0644);
    show("create");
    write(fd, "text", 4);
    show("write");
    pread(fd, (char[4]){ 0 }, 4, 0);
    show("read");
    ftruncate(fd, 1);
    show("ftruncate");
    fchmod(fd, 0600);
    show("fchmod");
    close(fd);
    show("close");
    truncate("d/file", 2);
    show("truncate");
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
    utimensat(AT_FDCWD, "d/file", times, 0);
    show("utimensat");
    link("d/file", "d/second");
    show("link");
    symlink("file", "d/symbolic");
    show("symlink");
    rename("d/second", "d/third");
    show("rename inside");
    rename("d/third", "e/third");
    show("rename to the other");
    mkdir("d/sub", 0755);
    show("mkdir");
    rename("d/sub", "e/sub");
    show("rename of a folder");
    rmdir("e/sub");
    show("rmdir");
    close(open("d", O_RDONLY | O_DIRECTORY));
    show("open of the folder");
    close(open("d/file", O_WRONLY | O_TRUNC));
    show("open with truncation");
    put_text("d/other", "x");
    show("put");
    rename("d/other", "d/file");
    show("rename over");
    unlink("d/file");
    show("unlink");
    unlink("d/symbolic");
    show("unlink of a link");
    unlink("e/third");
    show("unlink in the other");
    rmdir("d");
    show("rmdir of the watched");
    SHOW(inotify_rm_watch(notify, watches[0]));
    SHOW(inotify_rm_watch(notify, watches[1]));
    show("removed");
    rmdir("e");
    show("nothing");
}

static void file_events(void)
{
    put_text("f", "x");
    watches[0] = inotify_add_watch(notify, "f", IN_ALL_EVENTS);
    SHOW(inotify_add_watch(notify, "f", IN_OPEN) == watches[0]);
    close(open("f", O_RDONLY));
    show("mask replaced");
    SHOW(inotify_add_watch(notify, "f", IN_CLOSE | IN_MASK_ADD) == watches[0]);
    close(open("f", O_RDONLY));
    show("mask added");
    SHOW(inotify_add_watch(notify, "f", IN_CLOSE | IN_MASK_CREATE));
    SHOW(inotify_add_watch(notify, "f", IN_ONESHOT | IN_OPEN) == watches[0]);
    close(open("f", O_RDONLY));
    close(open("f", O_RDONLY));
    show("one shot");
    watches[1] = inotify_add_watch(notify, "f", IN_ALL_EVENTS);
    rename("f", "g");
    show("rename of the watched");
    int fd = open("g", O_RDONLY);
    unlink("g");
    show("unlink while open");
    close(fd);
    show("close of the last");
    symlink("absent", "l");
    SHOW(inotify_add_watch(notify, "l", IN_OPEN));
    SHOW(inotify_add_watch(notify, "l", IN_OPEN | IN_DONT_FOLLOW) > 0);
    SHOW(inotify_add_watch(notify, "absent", IN_OPEN));
    SHOW(inotify_add_watch(notify, "l", IN_OPEN | IN_ONLYDIR | IN_DONT_FOLLOW));
    SHOW(inotify_add_watch(notify, "/", 0));
    SHOW(inotify_add_watch(0, "/", IN_OPEN));
    SHOW(inotify_add_watch(999, "/", IN_OPEN));
    SHOW(inotify_rm_watch(notify, 12345));
    SHOW(inotify_rm_watch(0, 1));
    SHOW(inotify_init1(1));
    unlink("l");
}

static void reads(void)
{
    int ready;
    int other = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    char buffer[256];
    mkdir("d", 0755);
    inotify_add_watch(other, "d", IN_CREATE);
    SHOW(read(other, buffer, sizeof buffer));
    struct pollfd poller = { other, POLLIN, 0 };
    SHOW(poll(&poller, 1, 0));
    put_text("d/a", "");
    put_text("d/b", "");
    SHOW(poll(&poller, 1, 0));
    SHOW(ioctl(other, FIONREAD, &ready));
    SHOW(ready);
    SHOW(read(other, buffer, 10));
    SHOW(read(other, buffer, 32));
    SHOW(read(other, buffer, 64));
    SHOW(read(other, buffer, 64));
    SHOW(write(other, buffer, 1));
    SHOW(lseek(other, 0, SEEK_SET));
    SHOW(fcntl(other, F_GETFD));
    printf("%#x\n", fcntl(other, F_GETFL));
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", other);
    readlink(path, target, 63);
    printf("%s\n", target);
    /* The same event twice in a row is one. */
    for (int i = 0; i < 5; i++)
        put_text("d/a", "");
    inotify_add_watch(other, "d/a", IN_ATTRIB);
    for (int i = 0; i < 5; i++)
        chmod("d/a", 0600);
    SHOW(read(other, buffer, 256));
    close(other);
    /* A reader that waits is woken; unlinking from another process. */
    int waiting = inotify_init();
    inotify_add_watch(waiting, "d", IN_DELETE);
    pid_t child = CHILD({ SHOW(read(waiting, buffer, sizeof buffer)); });
    wait_state(child, "S");
    unlink("d/b");
    REAP(child);
    unlink("d/a");
    rmdir("d");
    close(waiting);
}

int main(void)
{
    notify = inotify_init1(IN_NONBLOCK);
    folder_events();
    file_events();
    reads();
    return 0;
}
