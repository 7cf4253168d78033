/* fanotify: what each call on files tells marks of files, directories, mounts and file systems; handles and names; what is ignored; questions and their answers;
 * limits, and who may what. */
#include "abi.h"
#include <sys/fanotify.h>

static int group;
static pid_t self;

static void print_mask(uint64_t mask)
{
    static const struct { uint64_t bit; const char *name; } bits[] = {
        { FAN_ACCESS, "ACCESS" }, { FAN_MODIFY, "MODIFY" }, { FAN_ATTRIB, "ATTRIB" }, { FAN_CLOSE_WRITE, "CLOSE_WRITE" },
        { FAN_CLOSE_NOWRITE, "CLOSE_NOWRITE" }, { FAN_OPEN, "OPEN" }, { FAN_MOVED_FROM, "MOVED_FROM" },
        { FAN_MOVED_TO, "MOVED_TO" }, { FAN_CREATE, "CREATE" }, { FAN_DELETE, "DELETE" }, { FAN_DELETE_SELF, "DELETE_SELF" },
        { FAN_MOVE_SELF, "MOVE_SELF" }, { FAN_OPEN_EXEC, "OPEN_EXEC" }, { FAN_Q_OVERFLOW, "Q_OVERFLOW" },
        { FAN_OPEN_PERM, "OPEN_PERM" }, { FAN_ACCESS_PERM, "ACCESS_PERM" }, { FAN_OPEN_EXEC_PERM, "OPEN_EXEC_PERM" },
        { FAN_RENAME, "RENAME" }, { FAN_ONDIR, "ONDIR" },
    };
    for (unsigned i = 0; i < sizeof bits / sizeof *bits; i++)
        if (mask & bits[i].bit)
            printf(" %s", bits[i].name);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A record with a handle: whose it is, found by opening it. */
static void print_record(struct fanotify_event_info_fid *record)
{
    struct file_handle *handle = (struct file_handle *)record->handle;
    printf(" type %d", record->hdr.info_type);
    struct stat status;
    const char *known[] = { "d", "e", "d/file", "d/sub", "e/moved", ".", "d/second" };
    union { struct file_handle head; char bytes[sizeof(struct file_handle) + 128]; } own;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        int mount;
        own.head.handle_bytes = 128;
        if (!stat(known[i], &status) && !name_to_handle_at(AT_FDCWD, known[i], &own.head, &mount, 0) &&
            own.head.handle_bytes == handle->handle_bytes && own.head.handle_type == handle->handle_type &&
            !memcmp(own.head.f_handle, handle->f_handle, handle->handle_bytes))
            printf(" of %s", known[i]);
    }
    if (record->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME || record->hdr.info_type == FAN_EVENT_INFO_TYPE_OLD_DFID_NAME ||
        record->hdr.info_type == FAN_EVENT_INFO_TYPE_NEW_DFID_NAME)
        printf(" name %s", (char *)handle->f_handle + handle->handle_bytes);
}

/* Prints what is queued, and answers questions. */
static void show(const char *what, uint32_t answer)
{
    char buffer[8192] __attribute__((aligned(8)));
    printf("%s:\n", what);
    for (;;) {
        ssize_t count = read(group, buffer, sizeof buffer);
        if (count < 0) {
            if (errno != EAGAIN)
                printf("  %s\n", ERRNO_NAME(errno));
            return;
        }
        struct fanotify_event_metadata *event = (void *)buffer;
        for (; FAN_EVENT_OK(event, count); event = FAN_EVENT_NEXT(event, count)) {
            printf(" ");
            print_mask(event->mask);
            printf(" by %s", event->pid == self ? "self" : event->pid == 0 ? "nobody" : "other");
            if (event->fd >= 0) {
                char link[64], path[256] = "";
                snprintf(link, sizeof link, "/proc/self/fd/%d", event->fd);
                if (readlink(link, path, sizeof path - 1) < 0)
                    printf(" no link");
                printf(" file %s", last_part(path));
                if (answer) {
                    struct fanotify_response response = { event->fd, answer };
                    printf(" answered %zd", write(group, &response, sizeof response));
                }
                close(event->fd);
            }
            for (char *at = (char *)event + event->metadata_len; at < (char *)event + event->event_len;
                 at += ((struct fanotify_event_info_header *)at)->len)
                if (((struct fanotify_event_info_header *)at)->info_type == FAN_EVENT_INFO_TYPE_PIDFD)
                    printf(" pidfd %s", ((struct fanotify_event_info_pidfd *)at)->pidfd >= 0 ? "there" : "not there"),
                        close(((struct fanotify_event_info_pidfd *)at)->pidfd);
                else
                    print_record((void *)at);
            printf("\n");
        }
    }
}

static void fresh(void)
{
    mkdir("d", 0755);
    mkdir("e", 0755);
    put_text("d/file", "text");
}

/* One call of each kind. */
static void calls(void)
{
    int fd = open("d/file", O_RDWR);
    show("open", 0);
    write(fd, "more", 4);
    show("write", 0);
    pread(fd, (char[4]){ 0 }, 4, 0);
    show("read", 0);
    ftruncate(fd, 2);
    show("ftruncate", 0);
    fchmod(fd, 0600);
    show("fchmod", 0);
    close(fd);
    show("close", 0);
    close(open("d/file", O_RDONLY));
    show("open and close", 0);
    close(open("d", O_RDONLY | O_DIRECTORY));
    show("open and close of the directory", 0);
    DIR *folder = opendir("d");
    while (readdir(folder))
        ;
    closedir(folder);
    show("readdir", 0);
    put_text("d/second", "x");
    show("create", 0);
    mkdir("d/sub", 0755);
    show("mkdir", 0);
    link("d/file", "d/third");
    show("link", 0);
    rename("d/third", "d/fourth");
    show("rename inside", 0);
    rename("d/fourth", "e/moved");
    show("rename out", 0);
    unlink("e/moved");
    show("unlink elsewhere", 0);
    rmdir("d/sub");
    show("rmdir", 0);
    unlink("d/second");
    show("unlink", 0);
    close(open("d/file", O_PATH));
    show("O_PATH", 0);
    int from = open("d/second", O_RDWR | O_CREAT | O_TRUNC, 0644), to = open("e/copy", O_RDWR | O_CREAT, 0644), ends[2];
    write(from, "contents", 8);
    show("what is copied from", 0);
    pipe(ends);
    lseek(from, 0, SEEK_SET);
    SHOW(sendfile(to, from, NULL, 8));
    show("sendfile", 0);
    SHOW(splice(from, &(loff_t){ 0 }, ends[1], NULL, 4, 0));
    show("splice from a file", 0);
    SHOW(splice(ends[0], NULL, from, &(loff_t){ 0 }, 4, 0));
    show("splice to a file", 0);
    SHOW(copy_file_range(from, &(loff_t){ 0 }, to, &(loff_t){ 0 }, 4, 0));
    show("copy_file_range", 0);
    SHOW(copy_file_range(to, &(loff_t){ 0 }, from, &(loff_t){ 0 }, 4, 0));
    show("copy_file_range back", 0);
    close(from);
    close(to);
    close(ends[0]);
    close(ends[1]);
    unlink("e/copy");
    unlink("d/second");
    show("the end of copies", 0);
}

#define EVERYTHING (FAN_ACCESS | FAN_MODIFY | FAN_CLOSE | FAN_OPEN)
#define NAMES (FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO | FAN_ATTRIB)

static void with_descriptors(void)
{
    printf("-- marks with descriptors\n");
    fresh();
    SHOW((group = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY)) >= 0);
    SHOW(fanotify_mark(group, FAN_MARK_ADD, EVERYTHING, AT_FDCWD, "d/file"));
    calls();
    SHOW(fanotify_mark(group, FAN_MARK_REMOVE, EVERYTHING, AT_FDCWD, "d/file"));
    SHOW(fanotify_mark(group, FAN_MARK_REMOVE, EVERYTHING, AT_FDCWD, "d/file"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_ONLYDIR, EVERYTHING | FAN_EVENT_ON_CHILD, AT_FDCWD, "d"));
    calls();
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_ONDIR, AT_FDCWD, "d"));
    calls();
    printf("-- ignored\n");
    SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_OPEN | FAN_CLOSE, AT_FDCWD, "d/file"));
    close(open("d/file", O_RDONLY));
    show("ignored", 0);
    int fd = open("d/file", O_WRONLY);
    write(fd, "x", 1);
    close(fd);
    show("written", 0);
    close(open("d/file", O_RDONLY));
    show("no longer ignored", 0);
    SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN | FAN_CLOSE | FAN_MODIFY,
                       AT_FDCWD, "d/file"));
    fd = open("d/file", O_WRONLY);
    write(fd, "x", 1);
    close(fd);
    show("ignored though written", 0);
    SHOW(fanotify_mark(group, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL));
    close(open("d/file", O_RDONLY));
    show("flushed", 0);
    printf("-- another process, and a program\n");
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN | FAN_OPEN_EXEC, AT_FDCWD, "/proc/self/exe"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, "d/file"));
    REAP(CHILD({
        int own = open("d/file", O_WRONLY);
        write(own, "x", 1);
        close(own);
    }));
    show("a child wrote", 0);
    REAP(CHILD(execl("/proc/self/exe", "fanotify", "leave", NULL)));
    show("a child executed", 0);
    SHOW(fanotify_mark(group, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL));
    int bytes;
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "d/file"));
    close(open("d/file", O_RDONLY));
    SHOW(ioctl(group, FIONREAD, &bytes));
    SHOW(bytes);
    SHOW(read(group, (char[8]){ 0 }, 8));
    struct pollfd ready = { .fd = group, .events = POLLIN };
    SHOW(poll(&ready, 1, 0));
    show("merged", 0);
    SHOW(poll(&ready, 1, 0));
    close(group);
}

static void with_handles(const char *what, int flags)
{
    printf("-- %s\n", what);
    fresh();
    SHOW((group = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | flags, 0)) >= 0);
    uint64_t mask = EVERYTHING | NAMES | FAN_ONDIR | FAN_EVENT_ON_CHILD | FAN_DELETE_SELF | FAN_MOVE_SELF;
    SHOW(fanotify_mark(group, FAN_MARK_ADD, mask, AT_FDCWD, "d"));
    if (flags & FAN_REPORT_NAME)
        SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_RENAME, AT_FDCWD, "d"));
    calls();
    SHOW(fanotify_mark(group, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, EVERYTHING | FAN_DELETE_SELF, AT_FDCWD, "d/file"));
    close(open("d/file", O_RDONLY));
    show("a mark of the file itself", 0);
    unlink("d/file");
    show("it is gone", 0);
    close(group);
}

static void errors(void)
{
    printf("-- what can't be\n");
    fresh();
    SHOW(fanotify_init(0x40000000, O_RDONLY));
    SHOW(fanotify_init(FAN_CLASS_CONTENT | FAN_CLASS_PRE_CONTENT, O_RDONLY));
    SHOW(fanotify_init(FAN_REPORT_PIDFD | FAN_REPORT_TID, O_RDONLY));
    SHOW(fanotify_init(FAN_REPORT_NAME, O_RDONLY));
    SHOW(fanotify_init(FAN_REPORT_FID | FAN_CLASS_CONTENT, O_RDONLY));
    SHOW(fanotify_init(FAN_CLASS_NOTIF, 3));
    SHOW(fanotify_init(FAN_CLASS_NOTIF, O_CREAT));
    SHOW((group = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY)) >= 0);
    int handles = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_REPORT_FID, O_RDONLY);
    SHOW(fanotify_mark(group, FAN_MARK_ADD, 0, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, 0, FAN_OPEN, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_REMOVE, FAN_OPEN, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD | 0x8000, FAN_OPEN, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, 1ull << 40, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_Q_OVERFLOW, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_CREATE, AT_FDCWD, "d"));
    SHOW(fanotify_mark(handles, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_CREATE, AT_FDCWD, "d"));
    SHOW(fanotify_mark(handles, FAN_MARK_ADD, FAN_RENAME, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_MOUNT | FAN_MARK_FILESYSTEM, FAN_OPEN, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_ONLYDIR, FAN_OPEN, AT_FDCWD, "d/file"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "missing"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, 99, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, -7, NULL));
    SHOW(fanotify_mark(-1, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "d"));
    SHOW(fanotify_mark(0, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "d"));
    SHOW(fanotify_mark(group, FAN_MARK_REMOVE, FAN_OPEN, AT_FDCWD, "d"));
    SHOW(syscall(SYS_fanotify_mark, group, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, 8));
    SHOW(write(group, "12345678", 4));
    struct fanotify_response response = { 5000, FAN_ALLOW };
    SHOW(write(group, &response, sizeof response));
    response = (struct fanotify_response){ -1, FAN_ALLOW };
    SHOW(write(group, &response, sizeof response));
    response = (struct fanotify_response){ 5, 7 };
    SHOW(write(group, &response, sizeof response));
    SHOW(lseek(group, 0, SEEK_SET));
    close(group);
    close(handles);
    printf("-- without privileges\n");
    chmod("d", 0711);
    REAP(CHILD({
        SHOW(setresuid(1000, 1000, 1000));
        SHOW(fanotify_init(FAN_CLASS_NOTIF, O_RDONLY));
        SHOW(fanotify_init(FAN_REPORT_FID | FAN_UNLIMITED_QUEUE, O_RDONLY));
        SHOW(fanotify_init(FAN_REPORT_FID | FAN_REPORT_PIDFD, O_RDONLY));
        SHOW((group = fanotify_init(FAN_REPORT_FID | FAN_NONBLOCK, O_RDONLY)) >= 0);
        SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, AT_FDCWD, "/"));
        SHOW(fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN, AT_FDCWD, "/"));
        SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "d"));
        SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "d/file"));
        int made = 0;
        while (made < 1000 && fanotify_init(FAN_REPORT_FID, O_RDONLY) >= 0)
            made++;
        printf("%s %d\n", ERRNO_NAME(errno), made);
    }));
    chmod("d", 0755);
}

/* Who asks waits for the answer; the other process is the one that reads. */
static void questions(void)
{
    printf("-- questions\n");
    fresh();
    SHOW((group = fanotify_init(FAN_CLASS_CONTENT, O_RDONLY)) >= 0);
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN_PERM | FAN_ACCESS_PERM, AT_FDCWD, "d/file"));
    char buffer[4096] __attribute__((aligned(8)));
    /* Also who reads without a buffer is asked: opening is allowed, reading is not. */
    for (int way = 0; way < 3; way++) {
        pid_t reader = CHILD({
            int fd = open("d/file", O_RDONLY);
            int out = open("d/copy", O_RDWR | O_CREAT, 0600);
            int ends[2];
            pipe(ends);
            ssize_t moved = way == 0 ? sendfile(out, fd, NULL, 4)
                            : way == 1 ? splice(fd, NULL, ends[1], NULL, 4, 0)
                                       : copy_file_range(fd, NULL, out, NULL, 4, 0);
            _exit(moved < 0 ? 100 + errno : moved);
        });
        for (int question = 0; question < 2; question++) {
            SHOW(read(group, buffer, sizeof buffer));
            struct fanotify_event_metadata *event = (void *)buffer;
            print_mask(event->mask);
            printf("\n");
            struct fanotify_response response = { event->fd, question ? FAN_DENY : FAN_ALLOW };
            SHOW(write(group, &response, sizeof response));
            close(event->fd);
        }
        REAP(reader);
    }
    unlink("d/copy");
    for (int round = 0; round < 4; round++) {
        pid_t child = CHILD({
            int fd = open("d/file", O_RDONLY);
            if (fd < 0)
                _exit(errno);
            ssize_t count = read(fd, buffer, 4);
            _exit(count < 0 ? 100 + errno : count);
        });
        /* Allowed and allowed; denied; allowed and denied; killed while it waits. */
        for (int question = 0; question < (round == 1 || round == 3 ? 1 : 2); question++) {
            ssize_t count = read(group, buffer, sizeof buffer);
            struct fanotify_event_metadata *event = (void *)buffer;
            printf("  read %zd", count);
            print_mask(event->mask);
            printf(" by %s\n", event->pid == child ? "the child" : "somebody else");
            TRUE(wait_state(child, "SD"));
            if (round == 3)
                kill(child, SIGKILL);
            struct fanotify_response response = { event->fd, round == 1 || (question == 1 && round == 2) ? FAN_DENY : FAN_ALLOW };
            if (round != 3)
                SHOW(write(group, &response, sizeof response));
            else
                REAP(child);
            close(event->fd);
        }
        if (round != 3)
            REAP(child);
    }
    pid_t child = CHILD({
        close(group);
        int fd = open("d/file", O_RDONLY);
        _exit(fd < 0 ? errno : 0);
    });
    struct pollfd ready = { .fd = group, .events = POLLIN };
    SHOW(poll(&ready, 1, -1));
    TRUE(wait_state(child, "SD"));
    SHOW(close(group));
    REAP(child);
    SHOW((group = fanotify_init(FAN_CLASS_PRE_CONTENT, O_RDONLY)) >= 0);
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD, "/proc/self/exe"));
    child = CHILD({
        execl("/proc/self/exe", "fanotify", "leave", NULL);
        _exit(errno);
    });
    ssize_t count = read(group, buffer, sizeof buffer);
    struct fanotify_event_metadata *event = (void *)buffer;
    printf("  read %zd", count);
    print_mask(event->mask);
    printf("\n");
    struct fanotify_response response = { event->fd, FAN_DENY };
    SHOW(write(group, &response, sizeof response));
    close(event->fd);
    REAP(child);
    close(group);
}

static void many(void)
{
    printf("-- too many\n");
    fresh();
    SHOW((group = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_REPORT_DFID_NAME, O_RDONLY)) >= 0);
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_CREATE | FAN_DELETE, AT_FDCWD, "d"));
    char path[32];
    for (int i = 0; i < 17000; i++) {
        snprintf(path, sizeof path, "d/%d", i);
        close(open(path, O_CREAT | O_WRONLY, 0600));
        unlink(path);
    }
    char buffer[4096] __attribute__((aligned(8)));
    long events = 0, overflows = 0;
    ssize_t count;
    while ((count = read(group, buffer, sizeof buffer)) > 0) {
        struct fanotify_event_metadata *event = (void *)buffer;
        for (; FAN_EVENT_OK(event, count); event = FAN_EVENT_NEXT(event, count)) {
            events++;
            overflows += event->mask == FAN_Q_OVERFLOW && event->fd == FAN_NOFD;
        }
    }
    SHOW(events);
    SHOW(overflows);
    put_text("d/again", "");
    show("again", 0);
    close(group);
}

/* Memory that ends in the midst of an event: what is asked in it is denied, and its descriptor is nobody's. */
static void memory_ends(void)
{
    puts("-- memory that ends");
    group = fanotify_init(FAN_CLASS_CONTENT | FAN_NONBLOCK, O_RDONLY);
    put_text("d/asked", "");
    SHOW(fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, "d/asked"));
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    pid_t asks = CHILD({
        _exit(open("d/asked", O_RDONLY) < 0 ? errno : 0);
    });
    struct pollfd there = { group, POLLIN, 0 };
    SHOW(poll(&there, 1, 30000));
    int free_before = dup(0);
    close(free_before);
    SHOW(read(group, pages + 4096 - 10, 4096));
    int free_after = dup(0);
    close(free_after);
    TRUE(free_before == free_after);
    REAP(asks);
    show("after it", FAN_ALLOW);
    close(group);
    unlink("d/asked");
}

int main(int count, char **words)
{
    (void)words;
    if (count > 1)
        return 0;
    self = getpid();
    with_descriptors();
    with_handles("handles of files", FAN_REPORT_FID);
    with_handles("handles of directories", FAN_REPORT_DIR_FID);
    with_handles("handles of both", FAN_REPORT_FID | FAN_REPORT_DIR_FID);
    with_handles("handles and names", FAN_REPORT_DFID_NAME);
    with_handles("handles, names and targets", FAN_REPORT_DFID_NAME_TARGET);
    with_handles("pidfds", FAN_REPORT_DFID_NAME | FAN_REPORT_PIDFD);
    errors();
    questions();
    memory_ends();
    many();
    return 0;
}
