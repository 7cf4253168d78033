/* The file system `mqueue`: queues are files of it, for calls and for the file layer; permissions, and name spaces. */
#include "abi.h"
#include <mqueue.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path)
{
    char *names[32];
    int number = 0;
    DIR *directory = opendir(path);
    printf("%s:", path);
    for (struct dirent *entry; directory && (entry = readdir(directory)) && number < 32;)
        if (entry->d_name[0] != '.')
            names[number++] = strdup(entry->d_name);
    if (directory)
        closedir(directory);
    qsort(names, (size_t)number, sizeof *names, by_name);
    for (int index = 0; index < number; index++) {
        printf(" %s", names[index]);
        free(names[index]);
    }
    printf("\n");
}

static void show(const char *path)
{
    struct stat about;
    char text[200];
    if (stat(path, &about) < 0) {
        printf("%s: %s\n", path, strerrorname_np(errno));
        return;
    }
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text);
    printf("%s: mode %o links %ju size %jd owner %u: %.*s", path, about.st_mode, (uintmax_t)about.st_nlink, (intmax_t)about.st_size, about.st_uid, (int)length, text);
    if (length <= 0)
        printf("\n");
    if (fd >= 0)
        close(fd);
}

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        printf("%s: %s\n", path, strerrorname_np(errno));
    close(fd);
}

int main(void)
{
    struct statfs whole;
    struct stat about;
    umask(022);
    if (unshare(CLONE_NEWNS | CLONE_NEWIPC))
        return 1;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    mkdir("q", 0755);
    mkdir("other", 0755);
    mqd_t before = mq_open("/before", O_CREAT | O_RDWR, 0640, NULL);
    SHOW(mount("none", "q", "mqueue", 0, NULL));
    SHOW(statfs("q", &whole));
    printf("%lx %ld %ld\n", (long)whole.f_type, (long)whole.f_bsize, (long)whole.f_namelen);
    SHOW(stat("q", &about));
    printf("%o\n", about.st_mode);
    list("q");
    show("q/before");
    SHOW(mq_send(before, "text", 4, 1));
    show("q/before");
    /* What the file layer makes, calls find, and the other way round. */
    int made = open("q/made", O_CREAT | O_EXCL | O_RDWR, 0600);
    TRUE(made >= 0);
    SHOW(open("q/made", O_CREAT | O_EXCL | O_RDWR, 0600));
    struct mq_attr about_queue;
    SHOW(mq_getattr(made, &about_queue));
    printf("%ld %ld\n", about_queue.mq_maxmsg, about_queue.mq_msgsize);
    SHOW(mq_send(made, "ab", 2, 0));
    show("q/made");
    mqd_t again = mq_open("/made", O_RDONLY);
    TRUE(again >= 0);
    char text[8192];
    SHOW(mq_receive(again, text, sizeof text, NULL));
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    SHOW(mq_notify(again, &event));
    int status = open("q/made", O_RDONLY);
    char line[200] = "";
    SHOW(read(status, line, sizeof line) > 0);
    int pid = 0, size = -1, how = -1, signo = -1;
    sscanf(line, "QSIZE:%d NOTIFY:%d SIGNO:%d NOTIFY_PID:%d", &size, &how, &signo, &pid);
    printf("%d %d %d %s\n", size, how, signo, pid == getpid() ? "own" : "other");
    SHOW(mq_notify(again, NULL));
    SHOW(write(made, "x", 1));
    SHOW(lseek(status, 0, SEEK_SET));
    SHOW(chmod("q/made", 0644));
    SHOW(chown("q/made", 1000, 1000));
    show("q/made");
    SHOW(mkdir("q/directory", 0755));
    SHOW(link("q/made", "q/link"));
    SHOW(symlink("made", "q/symbolic"));
    SHOW(rename("q/made", "q/renamed"));
    SHOW(mknod("q/device", S_IFCHR | 0600, makedev(1, 3)));
    list("q");
    /* The same in every mount; names go by either way. */
    SHOW(mount("none", "other", "mqueue", 0, NULL));
    list("other");
    SHOW(unlink("other/before"));
    SHOW(mq_unlink("/before"));
    list("q");
    SHOW(mq_send(before, "on", 2, 0));
    SHOW(fstat(before, &about));
    printf("links %ju\n", (uintmax_t)about.st_nlink);
    SHOW(mq_unlink("/made"));
    show("other/made");
    SHOW(open("q/made", O_RDONLY));
    /* Others' queues. */
    mq_close(mq_open("/roots", O_CREAT | O_RDWR, 0600, NULL));
    pid_t child = CHILD({
        setgroups(0, NULL);
        if (setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
            _exit(1);
        SHOW(open("q/roots", O_RDONLY));
        SHOW(unlink("q/roots"));
        SHOW(mq_unlink("/roots"));
        TRUE(open("q/own", O_CREAT | O_RDWR, 0600) >= 0);
        show("q/own");
        SHOW(unlink("q/own"));
        SHOW(mount("none", "other", "mqueue", 0, NULL));
    });
    REAP(child);
    /* Another name space has queues of its own; what is mounted still shows the former one's. */
    child = CHILD({
        SHOW(unshare(CLONE_NEWIPC));
        list("q");
        SHOW(mq_open("/roots", O_RDONLY));
        mq_close(mq_open("/inner", O_CREAT | O_RDWR, 0600, NULL));
        SHOW(mount("none", "other", "mqueue", 0, NULL));
        list("other");
        SHOW(umount("other"));
        list("other");
    });
    REAP(child);
    child = CHILD({
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        SHOW(mount("none", "other", "mqueue", 0, NULL));
        SHOW(unshare(CLONE_NEWIPC));
        SHOW(mount("none", "other", "mqueue", 0, NULL));
        list("other");
    });
    REAP(child);
    /* The directory belongs to who made the name space. */
    child = CHILD({
        setgroups(0, NULL);
        if (setresgid(1001, 1001, 1001) || setresuid(1000, 1000, 1000))
            _exit(1);
        prctl(PR_SET_DUMPABLE, 1);
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC));
        SHOW(mount("none", "other", "mqueue", 0, NULL));
        write_text("/proc/self/setgroups", "deny");
        write_text("/proc/self/uid_map", "0 1000 1");
        write_text("/proc/self/gid_map", "0 1001 1");
        SHOW(stat("other", &about));
        printf("%u %u\n", about.st_uid, about.st_gid);
        SHOW(chmod("other", 0755));
    });
    REAP(child);
    SHOW(umount("other"));
    SHOW(unlink("q/roots"));
    list("q");
    return 0;
}
