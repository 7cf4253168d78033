/* Where mounts and unmounts propagate to: every kind of source and destination, between places and between name spaces. */
#include "abi.h"

enum { LINES = 200, NUMBERS = 200 };

struct line {
    char point[200], root[200], options[200];
};

static struct line lines[LINES];
static int count;

static int compare(const void *one, const void *other)
{
    const struct line *a = one, *b = other;
    int by_point = strcmp(a->point, b->point);
    return by_point ? by_point : strcmp(a->root, b->root);
}

/* Group numbers are given out anew, in the order in which they are shown. */
static int numbers[NUMBERS], numbered;

static int number_of(int group)
{
    for (int index = 0; index < numbered; index++)
        if (numbers[index] == group)
            return index + 1;
    numbers[numbered++] = group;
    return numbered;
}

static void layout(const char *title)
{
    static char here[4096], text[65536];
    if (!getcwd(here, sizeof here))
        strcpy(here, "?");
    size_t prefix = strlen(here);
    FILE *file = fopen("/proc/self/mountinfo", "r");
    count = 0;
    while (fgets(text, sizeof text, file) && count < LINES) {
        char *words[40], *next = text;
        int found = 0;
        while (found < 40 && (words[found] = strsep(&next, " \n")))
            found++;
        if (strncmp(words[4], here, prefix) || (words[4][prefix] && words[4][prefix] != '/'))
            continue;
        struct line *line = &lines[count++];
        snprintf(line->point, sizeof line->point, ".%s", words[4] + prefix);
        snprintf(line->root, sizeof line->root, "%s", words[3]);
        line->options[0] = 0;
        for (int word = 6; word < found && strcmp(words[word], "-"); word++) {
            strcat(line->options, " ");
            strcat(line->options, words[word]);
        }
    }
    fclose(file);
    qsort(lines, (size_t)count, sizeof *lines, compare);
    numbered = 0;
    printf("-- %s\n", title);
    for (int index = 0; index < count; index++) {
        printf("   %s [%s]", lines[index].point, lines[index].root);
        char *next = lines[index].options + (lines[index].options[0] == ' '), *word;
        while ((word = strsep(&next, " ")) && *word) {
            char *colon = strchr(word, ':');
            if (colon)
                printf(" %.*s:%d", (int)(colon - word), word, number_of(atoi(colon + 1)));
            else
                printf(" %s", word);
        }
        printf("\n");
    }
}

enum kind { SHARED, PRIVATE, SLAVE, UNBINDABLE, SLAVE_SHARED, KINDS };
static const char *const kinds[] = { "shared", "private", "slave", "unbindable", "slave and shared" };

static void make_directory(const char *format, ...)
{
    char path[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    mkdir(path, 0755);
}

/* A mount of this kind at NAME; one that is a slave has its master at NAME-master. */
static void make(const char *name, enum kind kind)
{
    char master[100];
    snprintf(master, sizeof master, "%s-master", name);
    make_directory("%s", name);
    if (kind == SLAVE || kind == SLAVE_SHARED) {
        make_directory("%s", master);
        mount(name, master, "tmpfs", 0, NULL);
        mount(NULL, master, NULL, MS_SHARED, NULL);
        mount(master, name, NULL, MS_BIND, NULL);
        mount(NULL, name, NULL, MS_SLAVE, NULL);
        if (kind == SLAVE_SHARED)
            mount(NULL, name, NULL, MS_SHARED, NULL);
    } else {
        mount(name, name, "tmpfs", 0, NULL);
        mount(NULL, name, NULL, kind == SHARED ? MS_SHARED : kind == PRIVATE ? MS_PRIVATE : MS_UNBINDABLE, NULL);
    }
    make_directory("%s/at", name);
    make_directory("%s/inner", name);
}

static void begin(void)
{
    mkdir("w", 0755);
    mount("w", "w", "tmpfs", 0, NULL);
    mount(NULL, "w", NULL, MS_PRIVATE, NULL);
    chdir("w");
}

static void end(void)
{
    chdir("..");
    SHOW(umount2("w", MNT_DETACH));
    rmdir("w");
}

/* A source of one kind comes to a destination of another, which has a peer. */
static void table(unsigned long how)
{
    for (enum kind source = 0; source < KINDS; source++)
        for (enum kind destination = 0; destination < KINDS; destination++) {
            if (destination == UNBINDABLE)
                continue;
            begin();
            make("source", source);
            mount("in", "source/inner", "tmpfs", 0, NULL);
            make("to", destination);
            mkdir("peer", 0755);
            mount("to", "peer", NULL, MS_BIND, NULL);
            printf("== %s to %s: ", kinds[source], kinds[destination]);
            SHOW(mount("source", "to/at", NULL, how, NULL));
            layout("then");
            end();
        }
}

/* What a mount of each kind becomes. */
static void changes(void)
{
    static const unsigned long to[] = { MS_SHARED, MS_PRIVATE, MS_SLAVE, MS_UNBINDABLE };
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (int with_peer = 0; with_peer < 2; with_peer++)
            for (int change = 0; change < 4; change++) {
                begin();
                make("m", kind);
                mkdir("peer", 0755);
                if (with_peer)
                    mount("m", "peer", NULL, MS_BIND, NULL);
                printf("== %s %s: ", kinds[kind], with_peer ? "with a peer" : "alone");
                SHOW(mount(NULL, "m", NULL, to[change], NULL));
                layout("then");
                end();
            }
    begin();
    make("m", SHARED);
    SHOW(mount(NULL, "m", NULL, MS_SHARED | MS_PRIVATE, NULL));
    SHOW(mount(NULL, "m/at", NULL, MS_SHARED, NULL));
    mount("n", "m/inner", "tmpfs", 0, NULL);
    SHOW(mount(NULL, "m", NULL, MS_PRIVATE | MS_REC, NULL));
    layout("all private");
    SHOW(mount(NULL, "m", NULL, MS_SHARED | MS_REC, NULL));
    layout("all shared");
    end();
}

/* A chain of masters; the one in the middle goes. */
static void chain(void)
{
    begin();
    make("a", SHARED);
    static const char *const names[] = { "a", "b", "c", "d" };
    for (int index = 1; index < 4; index++) {
        mkdir(names[index], 0755);
        mount(names[index - 1], names[index], NULL, MS_BIND, NULL);
        mount(NULL, names[index], NULL, MS_SLAVE, NULL);
        mount(NULL, names[index], NULL, MS_SHARED, NULL);
    }
    layout("a chain");
    SHOW(mount("x", "a/at", "tmpfs", 0, NULL));
    layout("at its head");
    SHOW(umount("a/at"));
    SHOW(mount("x", "c/at", "tmpfs", 0, NULL));
    layout("in its middle");
    SHOW(umount("d/at"));
    layout("gone at its end");
    SHOW(umount("c/at"));
    SHOW(umount2("b", MNT_DETACH));
    layout("without b");
    SHOW(mount(NULL, "c", NULL, MS_PRIVATE, NULL));
    layout("c for itself");
    end();
}

/* Only what a peer shows receives, and it shows a part. */
static void parts(void)
{
    begin();
    make("a", SHARED);
    make_directory("a/sub");
    make_directory("a/sub/deep");
    mkdir("part", 0755);
    mount("a/sub", "part", NULL, MS_BIND, NULL);
    SHOW(mount("x", "a/at", "tmpfs", 0, NULL));
    SHOW(mount("y", "a/sub/deep", "tmpfs", 0, NULL));
    layout("outside and inside of the part");
    SHOW(umount("part/deep"));
    layout("unmounted");
    /* Something is there already. */
    mount(NULL, "part", NULL, MS_SLAVE, NULL);
    SHOW(mount("own", "part/deep", "tmpfs", 0, NULL));
    make_directory("part/deep/mine");
    SHOW(mount("theirs", "a/sub/deep", "tmpfs", 0, NULL));
    SHOW(access("part/deep/mine", F_OK));
    layout("one upon the other");
    SHOW(umount("a/sub/deep"));
    SHOW(access("part/deep/mine", F_OK));
    layout("the lower one gone");
    SHOW(umount("part/deep"));
    /* Something else is on it: that stays. */
    SHOW(mount("theirs", "a/sub/deep", "tmpfs", 0, NULL));
    make_directory("a/sub/deep/er");
    SHOW(mount("more", "part/deep/er", "tmpfs", 0, NULL));
    SHOW(umount("a/sub/deep"));
    layout("what is used stays");
    end();
}

/* Trees that are bound into themselves, and those that are busy elsewhere. */
static void knots(void)
{
    begin();
    make("a", SHARED);
    SHOW(mount("a", "a/at", NULL, MS_BIND | MS_REC, NULL));
    layout("in itself");
    SHOW(mount("x", "a/inner", "tmpfs", 0, NULL));
    layout("and on both");
    SHOW(mount("a", "a/at", NULL, MS_MOVE, NULL));
    SHOW(umount2("a/at", MNT_DETACH));
    layout("again");
    mkdir("peer", 0755);
    mount("a", "peer", NULL, MS_BIND, NULL);
    int fd = open("peer/inner", O_RDONLY);
    SHOW(umount("a/inner"));
    close(fd);
    SHOW(umount("a/inner"));
    mount("x", "a/inner", "tmpfs", 0, NULL);
    /* Not out of a shared mount. */
    mkdir("out", 0755);
    SHOW(mount("a/inner", "out", NULL, MS_MOVE, NULL));
    SHOW(umount2("peer/inner", MNT_DETACH));
    layout("lazily");
    SHOW(syscall(SYS_pivot_root, "a", "a/at"));
    end();
}

static void spaces(void)
{
    begin();
    make("a", SHARED);
    make("b", SHARED);
    make("c", PRIVATE);
    make("u", UNBINDABLE);
    int ends[2], back[2];
    pipe(ends);
    pipe(back);
    pid_t child = CHILD({
        SHOW(unshare(CLONE_NEWNS));
        layout("a copy");
        SHOW(mount(NULL, "b", NULL, MS_SLAVE, NULL));
        tell(ends[1]);
        hear(back[0]);
        layout("in the copy");
        SHOW(mount("fromcopy", "a/inner", "tmpfs", 0, NULL));
        SHOW(mount("fromcopy", "b/inner", "tmpfs", 0, NULL));
        SHOW(umount("a/at"));
        layout("in the copy");
        tell(ends[1]);
        hear(back[0]);
    });
    hear(ends[0]);
    SHOW(mount("x", "a/at", "tmpfs", 0, NULL));
    SHOW(mount("x", "b/at", "tmpfs", 0, NULL));
    SHOW(mount("x", "c/at", "tmpfs", 0, NULL));
    tell(back[1]);
    hear(ends[0]);
    layout("outside");
    tell(back[1]);
    REAP(child);
    layout("alone again");
    end();
}

/* A name space that has a place. */
static void kept(void)
{
    begin();
    put_text("ns", "");
    SHOW(mount("/proc/self/ns/mnt", "ns", NULL, MS_BIND, NULL));
    SHOW(mount("/proc/self/ns/uts", "ns", NULL, MS_BIND, NULL));
    struct statfs about;
    statfs("ns", &about);
    printf("%lx\n", (long)about.f_type);
    SHOW(umount("ns"));
    SHOW(umount("ns"));
    int ends[2], back[2];
    pipe(ends);
    pipe(back);
    pid_t child = CHILD({
        SHOW(unshare(CLONE_NEWNS));
        mkdir("inside", 0755);
        SHOW(mount("inside", "inside", "tmpfs", 0, NULL));
        make_directory("inside/here");
        tell(ends[1]);
        hear(back[0]);
    });
    hear(ends[0]);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
    SHOW(mount(path, "ns", NULL, MS_BIND, NULL));
    tell(back[1]);
    REAP(child);
    char here[4096];
    getcwd(here, sizeof here);
    int root = open("/", O_PATH | O_DIRECTORY), own = open("/proc/self/ns/mnt", O_RDONLY);
    int its = open("ns", O_RDONLY);
    SHOW(access("inside/here", F_OK));
    SHOW(setns(its, CLONE_NEWNS));
    /* A root that was changed is not the name space's. */
    layout("entered");
    SHOW(setns(own, CLONE_NEWNS));
    fchdir(root);
    chroot(".");
    chdir(here);
    SHOW(umount("ns"));
    close(its);
    SHOW(umount("ns"));
    /* It is not copied, and comes to nobody else. */
    SHOW(mount("/proc/self/ns/uts", "ns", NULL, MS_BIND, NULL));
    SHOW(umount("ns"));
    make("a", SHARED);
    put_text("a/ns", "");
    mkdir("peer", 0755);
    mount("a", "peer", NULL, MS_BIND, NULL);
    child = CHILD({
        SHOW(unshare(CLONE_NEWNS));
        tell(ends[1]);
        hear(back[0]);
    });
    hear(ends[0]);
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
    SHOW(mount(path, "a/ns", NULL, MS_BIND, NULL));
    tell(back[1]);
    REAP(child);
    end();
}

/* What is mounted on the directory that somebody stands in. */
static void underfoot(void)
{
    begin();
    make("a", PRIVATE);
    SHOW(chdir("a"));
    SHOW(mount("upon", ".", "tmpfs", 0, NULL));
    SHOW(access("at", F_OK));
    SHOW(umount2(".", 0));
    SHOW(access("../a/at", F_OK));
    REAP(CHILD({
        SHOW(unshare(CLONE_NEWNS));
        SHOW(syscall(SYS_pivot_root, ".", "."));
        SHOW(umount2(".", MNT_DETACH));
        SHOW(chdir("/"));
        SHOW(access("at", F_OK));
        SHOW(access("../../w", F_OK));
    }));
    SHOW(chdir(".."));
    end();
}

int main(void)
{
    /* Which of two name spaces is older, Linux knows for those made on one processor only. */
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &allowed))
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    SHOW(unshare(CLONE_NEWNS));
    SHOW(mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL));
    changes();
    table(MS_BIND);
    table(MS_BIND | MS_REC);
    table(MS_MOVE);
    chain();
    parts();
    knots();
    spaces();
    kept();
    underfoot();
    return 0;
}
