/* POSIX access control lists: their attributes and what is refused, what they permit, how they and the mode change each other, default
 * lists and what is made below them, and all of it through an overlay. */
#include "abi.h"

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

#define AS(uid_, gid_, ...)                                                                                            \
    REAP(CHILD({                                                                                                       \
        setgroups(0, NULL);                                                                                            \
        setresgid(gid_, gid_, gid_);                                                                                   \
        setresuid(uid_, uid_, uid_);                                                                                   \
        __VA_ARGS__;                                                                                                   \
    }))

struct list {
    uint32_t version;
    struct entry {
        uint16_t who, access;
        uint32_t id;
    } entries[100];
};

/* A list as text, and its length: "u::7 u:1000:6 g::5 g:50:4 m::4 o::1". */
static size_t parse(const char *text, struct list *list)
{
    size_t count = 0;
    list->version = 2;
    for (; *text; text++) {
        struct entry *entry = &list->entries[count++];
        char kind = *text;
        int access = 0;
        entry->id = (uint32_t)-1;
        text += 2;
        if (*text != ':')
            entry->id = (uint32_t)strtoul(text, (char **)&text, 10);
        access = (int)strtoul(text + 1, (char **)&text, 8);
        entry->access = (uint16_t)access;
        entry->who = kind == 'u' ? (entry->id == (uint32_t)-1 ? 1 : 2)
                     : kind == 'g' ? (entry->id == (uint32_t)-1 ? 4 : 8)
                     : kind == 'm' ? 16 : kind == 'o' ? 32 : 64;
        if (!*text)
            break;
    }
    return 4 + count * 8;
}

static int set(const char *path, const char *name, const char *text)
{
    struct list list;
    size_t length = parse(text, &list);
    return setxattr(path, name, &list, length, 0);
}

static void show_one(const char *path, const char *name)
{
    struct list list;
    ssize_t length = lgetxattr(path, name, &list, sizeof list);
    if (length < 0) {
        printf(" %s", ERRNO_NAME(errno));
        return;
    }
    printf(" [%zd v%u", length, list.version);
    for (ssize_t i = 0; 4 + i * 8 < length; i++) {
        struct entry *entry = &list.entries[i];
        printf(" %x:%d:%o", entry->who, (int)entry->id, entry->access);
    }
    printf("]");
}

static void show(const char *path)
{
    struct stat about;
    if (lstat(path, &about) < 0) {
        printf("%s: %s\n", path, ERRNO_NAME(errno));
        return;
    }
    printf("%s: %o %d:%d", path, about.st_mode, about.st_uid, about.st_gid);
    show_one(path, ACCESS);
    show_one(path, DEFAULT);
    printf("\n");
}

static int by_name(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

static void names(const char *path)
{
    char buffer[1000], *found[20];
    ssize_t length = listxattr(path, buffer, sizeof buffer), count = 0;
    for (char *name = buffer; name < buffer + length; name += strlen(name) + 1)
        found[count++] = name;
    qsort(found, (size_t)count, sizeof *found, by_name);
    printf("%s has", path);
    for (ssize_t i = 0; i < count; i++)
        printf(" %s", found[i]);
    printf("\n");
}

static int may(const char *path, int access)
{
    if (access & 1)
        return faccessat(AT_FDCWD, path, access, AT_EACCESS);
    int fd = open(path, access == R_OK ? O_RDONLY : access == W_OK ? O_WRONLY : O_RDWR);
    return fd < 0 ? -1 : close(fd);
}

static void matrix(const char *path)
{
    static const unsigned who[][2] = {{1000, 1}, {1001, 1}, {1002, 1}, {1, 2000}, {1, 2001}, {1, 2002}, {1001, 2001}, {1, 1}};
    for (size_t i = 0; i < sizeof who / sizeof *who; i++)
        AS(who[i][0], who[i][1],
           printf("%s %u:%u r%d w%d rw%d x%d\n", path, who[i][0], who[i][1], may(path, R_OK), may(path, W_OK),
                  may(path, R_OK | W_OK), may(path, X_OK)));
}

static void values(void)
{
    static const char *const texts[] = {
        "u::6 g::4 o::0", "u::6 u:1000:4 g::4 m::6 o::0", "u::6 u:1000:4 g::4 o::0", "g::4 u::6 o::0", "u::6 g::4", "u::6 o::4",
        "g::4 o::4", "u::6 u::6 g::4 o::0", "u::6 g::4 g::4 o::0", "u::6 g::4 o::0 o::0", "u::6 g::4 m::4 m::4 o::0",
        "u::6 g::4 o::0 m::4", "u::6 g::4 m::4 o::0", "u::17 g::4 o::0", "u::6 u:1000:4 u:1000:7 g::4 m::6 o::0",
        "u::6 u:7:4 u:5:7 g::4 g:9:1 g:8:1 m::6 o::0", "u::6 g:9:1 g::4 m::6 o::0", "x::6", "u::6 u:4294967295:4 g::4 m::6 o::0",
    };
    put_text("f", "x");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf("%s: %d", texts[i], set("f", ACCESS, texts[i]));
        printf(" %s\n", ERRNO_NAME(errno));
        errno = 0;
        show("f");
    }
    struct list list;
    size_t length = parse("u::7 u:1000:6 g::5 m::7 o::1", &list);
    SHOW(setxattr("f", ACCESS, &list, length - 1, 0));
    SHOW(setxattr("f", ACCESS, &list, 3, 0));
    SHOW(setxattr("f", ACCESS, &list, 5, 0));
    SHOW(setxattr("f", ACCESS, NULL, length, 0));
    list.version = 1;
    SHOW(setxattr("f", ACCESS, &list, length, 0));
    list.version = 2;
    SHOW(setxattr("f", ACCESS, &list, length, XATTR_CREATE));
    SHOW(setxattr("f", ACCESS, &list, length, XATTR_CREATE));
    SHOW(setxattr("f", ACCESS, &list, length, XATTR_REPLACE));
    SHOW(setxattr("f", ACCESS, &list, length, 4));
    show("f");
    char small[8];
    SHOW(getxattr("f", ACCESS, small, sizeof small));
    SHOW(getxattr("f", ACCESS, NULL, 0));
    SHOW(getxattr("f", "system.posix_acl_acces", small, sizeof small));
    SHOW(setxattr("f", "system.posix_acl_accessx", "x", 1, 0));
    names("f");
    SHOW(setxattr("f", ACCESS, &list, 4, 0));
    show("f");
    SHOW(setxattr("f", ACCESS, &list, length, 0));
    SHOW(removexattr("f", ACCESS));
    SHOW(removexattr("f", ACCESS));
    SHOW(removexattr("f", DEFAULT));
    show("f");
    SHOW(set("f", DEFAULT, "u::6 g::4 o::0"));
    SHOW(set("f", DEFAULT, "g::4 u::6 o::0"));
    symlink("f", "link");
    length = parse("u::7 u:1000:6 g::5 m::7 o::1", &list);
    SHOW(lsetxattr("link", ACCESS, &list, length, 0));
    SHOW(lgetxattr("link", ACCESS, small, sizeof small));
    SHOW(lremovexattr("link", ACCESS));
    SHOW(set("link", ACCESS, "u::7 u:1000:6 g::5 m::7 o::1"));
    show("f");
    mkfifo("fifo", 0600);
    SHOW(set("fifo", ACCESS, "u::7 u:1000:6 g::5 m::7 o::1"));
    show("fifo");
    int fd = open("f", O_RDONLY);
    SHOW(fsetxattr(fd, ACCESS, &list, length, 0));
    SHOW(fgetxattr(fd, ACCESS, NULL, 0));
    close(fd);
    SHOW(getxattr("/proc/self/status", ACCESS, small, sizeof small));
    SHOW(set("/proc/self/status", ACCESS, "u::7 g::5 o::1"));
    int ends[2];
    pipe(ends);
    SHOW(fgetxattr(ends[0], ACCESS, small, sizeof small));
    SHOW(fsetxattr(ends[0], ACCESS, &list, length, 0));
    unlink("link");
    unlink("fifo");
    unlink("f");
}

static void owners(void)
{
    put_text("f", "x");
    mkdir("d", 0755);
    chown("f", 1000, 2000);
    AS(1001, 1, {
        SHOW(set("f", ACCESS, "u::6 u:1001:6 g::4 m::6 o::0"));
        SHOW(set("f", ACCESS, "u::6 g::4"));
        SHOW(set("f", DEFAULT, "u::6 g::4 o::0"));
        SHOW(set("d", DEFAULT, "u::6 g::4 o::0"));
        SHOW(removexattr("f", ACCESS));
        SHOW(removexattr("f", DEFAULT));
        SHOW(removexattr("d", DEFAULT));
        SHOW(getxattr("f", ACCESS, NULL, 0));
    });
    AS(1000, 1, { SHOW(set("f", ACCESS, "u::6 u:1001:6 g::4 m::6 o::0")); SHOW(getxattr("f", ACCESS, NULL, 0)); });
    show("f");
    chmod("f", 02770);
    AS(1000, 1, SHOW(set("f", ACCESS, "u::7 u:1001:6 g::7 m::7 o::0")));
    show("f");
    chmod("f", 06770);
    AS(1000, 2000, SHOW(set("f", ACCESS, "u::7 u:1001:6 g::7 m::6 o::0")));
    show("f");
    chmod("f", 06770);
    AS(1000, 1, SHOW(removexattr("f", ACCESS)));
    show("f");
    unlink("f");
    rmdir("d");
}

static void permissions(void)
{
    static const char *const texts[] = {
        "u::0 u:1001:7 u:1002:4 g::4 g:2001:6 m::7 o::1", "u::7 u:1001:7 u:1002:4 g::4 g:2001:6 m::4 o::7",
        "u::7 u:1001:7 u:1002:4 g::4 g:2001:6 m::0 o::7", "u::7 u:1001:0 g::0 g:2001:2 g:2002:4 m::7 o::7",
        "u::7 u:1001:0 g::7 m::7 o::7", "u::7 g::1 m::7 o::6", "u::4 g::4 o::4",
    };
    put_text("f", "x");
    mkdir("d", 0755);
    put_text("d/below", "x");
    chmod("d/below", 0777);
    chown("f", 1000, 2000);
    chown("d", 1000, 2000);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        SHOW(set("f", ACCESS, texts[i]));
        SHOW(set("d", ACCESS, texts[i]));
        show("f");
        matrix("f");
        matrix("d/below");
        printf("root r%d w%d x%d\n", may("f", R_OK), may("f", W_OK), may("f", X_OK));
    }
    SHOW(set("d", ACCESS, "u::7 u:1001:7 u:1002:5 g::5 m::7 o::5"));
    AS(1001, 1, { SHOW(mkdir("d/made", 0700)); SHOW(unlink("d/below")); SHOW(rename("d/made", "d/moved")); });
    AS(1002, 1, { SHOW(mkdir("d/other", 0700)); SHOW(rmdir("d/moved")); });
    gid_t both[] = {2001, 2002};
    SHOW(set("f", ACCESS, "u::7 g::0 g:2001:4 g:2002:2 m::7 o::7"));
    REAP(CHILD({
        setgroups(2, both);
        setresgid(1, 1, 1);
        setresuid(1, 1, 1);
        printf("two groups r%d w%d rw%d\n", may("f", R_OK), may("f", W_OK), may("f", R_OK | W_OK));
    }));
    rmdir("d/moved");
    rmdir("d");
    unlink("f");
}

static void modes(void)
{
    put_text("f", "x");
    chmod("f", 0640);
    SHOW(set("f", ACCESS, "u::6 u:1000:7 g::4 m::5 o::0"));
    for (int mode = 0; mode <= 0777; mode += 0111) {
        chmod("f", (mode_t)(mode ^ 0421));
        show("f");
    }
    SHOW(chmod("f", 04755));
    show("f");
    SHOW(chown("f", 1000, 1000));
    show("f");
    AS(1000, 1, SHOW(chmod("f", 0611)));
    show("f");
    struct timespec times[2] = {{1, 0}, {2, 0}};
    SHOW(utimensat(AT_FDCWD, "f", times, 0));
    SHOW(set("f", ACCESS, "u::6 g::4 m::2 o::0"));
    show("f");
    chmod("f", 0777);
    show("f");
    SHOW(set("f", ACCESS, "u::6 g::4 o::0"));
    show("f");
    SHOW(set("f", ACCESS, "u::6 u:1000:7 g::4 m::7 o::0"));
    SHOW(removexattr("f", ACCESS));
    show("f");
    unlink("f");
}

static void made(const char *directory)
{
    char name[100];
    static const mode_t asked[] = {0777, 0666, 0600, 0111};
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/file%zu", directory, i);
        close(open(name, O_CREAT | O_WRONLY, asked[i]));
        show(name);
        unlink(name);
        snprintf(name, sizeof name, "%s/dir%zu", directory, i);
        mkdir(name, asked[i] | 01000);
        show(name);
        rmdir(name);
    }
    snprintf(name, sizeof name, "%s/node", directory);
    mknod(name, S_IFIFO | 0666, 0);
    show(name);
    unlink(name);
    symlink("x", name);
    struct stat about;
    lstat(name, &about);
    printf("link %o\n", about.st_mode);
    unlink(name);
    int fd = open(directory, O_TMPFILE | O_RDWR, 0666);
    fstat(fd, &about);
    printf("nameless %o %d\n", about.st_mode, (int)fgetxattr(fd, ACCESS, NULL, 0));
    close(fd);
}

static void defaults(void)
{
    mkdir("d", 0755);
    umask(027);
    made("d");
    SHOW(set("d", DEFAULT, "u::7 u:1000:6 g::5 m::7 o::5"));
    show("d");
    names("d");
    made("d");
    SHOW(set("d", DEFAULT, "u::7 g::5 o::1"));
    show("d");
    made("d");
    SHOW(set("d", DEFAULT, "u::6 g::7 m::1 o::0"));
    made("d");
    mkdir("d/one", 0777);
    mkdir("d/one/two", 0777);
    show("d/one/two");
    chmod("d", 02775);
    chown("d", 0, 5);
    chmod("d", 02775);
    made("d");
    SHOW(set("d", DEFAULT, ""));
    SHOW(removexattr("d", DEFAULT));
    SHOW(removexattr("d", DEFAULT));
    made("d");
    umask(022);
    rmdir("d/one/two");
    rmdir("d/one");
    rmdir("d");
}

static void layers(void)
{
    mkdir("l", 0755);
    mkdir("u", 0755);
    mkdir("w", 0755);
    mkdir("m", 0755);
    put_text("l/f", "below");
    mkdir("l/d", 0755);
    chown("l/f", 1000, 2000);
    SHOW(set("l/f", ACCESS, "u::6 u:1001:4 g::0 m::4 o::0"));
    SHOW(set("l/d", DEFAULT, "u::7 u:1001:6 g::5 m::7 o::0"));
    SHOW(mount("o", "m", "overlay", 0, "lowerdir=l,upperdir=u,workdir=w"));
    show("m/f");
    matrix("m/f");
    names("m/f");
    made("m/d");
    SHOW(chmod("m/f", 0660));
    show("m/f");
    show("u/f");
    show("l/f");
    show("u/d");
    matrix("m/f");
    SHOW(set("m/f", ACCESS, "u::6 u:1002:6 g::0 m::6 o::4"));
    show("u/f");
    matrix("m/f");
    SHOW(set("m/f", DEFAULT, "u::6 g::4 o::0"));
    SHOW(removexattr("m/f", ACCESS));
    show("m/f");
    SHOW(set("m/d", DEFAULT, "u::7 g::0 o::0"));
    made("m/d");
    SHOW(umount("m"));
}

int main(void)
{
    umask(022);
    printf("values\n");
    values();
    printf("owners\n");
    owners();
    printf("permissions\n");
    permissions();
    printf("modes\n");
    modes();
    printf("defaults\n");
    defaults();
    printf("layers\n");
    layers();
    return 0;
}
