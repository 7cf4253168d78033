/* overlayfs: merged directories, whiteouts, opaque directories, copying up, renames, open files, links, attributes, mounts that are refused. */
#include "abi.h"
#include <dirent.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static const char *const usual = "lowerdir=l1:l2,upperdir=u,workdir=w";

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in a directory, sorted, with their kinds. */
static void list(const char *path)
{
    char *names[64];
    int number = 0;
    DIR *directory = opendir(path);
    printf("%s:", path);
    if (!directory) {
        printf(" errno %d\n", errno);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) && number < 64;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char line[300];
        snprintf(line, sizeof line, "%s(%d)", entry->d_name, entry->d_type);
        names[number++] = strdup(line);
    }
    closedir(directory);
    qsort(names, number, sizeof *names, by_name);
    for (int i = 0; i < number; i++)
        printf(" %s", names[i]);
    printf("\n");
}

static void cat(const char *path)
{
    char text[200];
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);
    printf("%s: %.*s (%zd)\n", path, length > 0 ? (int)length : 0, text, length);
    if (fd >= 0)
        close(fd);
}

static void kind(const char *path)
{
    struct stat about;
    if (lstat(path, &about) < 0)
        printf("%s: errno %d\n", path, errno);
    else if (S_ISCHR(about.st_mode) && about.st_rdev == 0)
        printf("%s: a whiteout\n", path);
    else
        printf("%s: mode %o links %ju device %u:%u owner %d\n", path, about.st_mode,
               S_ISDIR(about.st_mode) ? (uintmax_t)0 : (uintmax_t)about.st_nlink, major(about.st_rdev), minor(about.st_rdev),
               (int)about.st_uid);
}

static void add(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_APPEND);
    printf("append to %s: %zd\n", path, fd < 0 ? -(ssize_t)errno : write(fd, text, strlen(text)));
    if (fd >= 0)
        close(fd);
}

static void make_layers(void)
{
    mkdir("l1", 0755);
    mkdir("l2", 0755);
    mkdir("u", 0755);
    mkdir("w", 0755);
    mkdir("m", 0755);
    put_text("l1/both", "above");
    put_text("l2/both", "below");
    put_text("l1/one", "1");
    put_text("l2/two", "2");
    mkdir("l1/d", 0750);
    mkdir("l2/d", 0777);
    put_text("l1/d/a", "a");
    put_text("l2/d/b", "b");
    mkdir("l2/d/deep", 0700);
    put_text("l2/d/deep/file", "deep");
    mkdir("l2/file-over", 0755);
    put_text("l2/file-over/x", "x");
    put_text("l1/file-over", "file");
    symlink("both", "l2/link");
    mknod("l2/null", S_IFCHR | 0666, makedev(1, 3));
    mkfifo("l2/fifo", 0600);
    put_text("l2/hidden", "hidden");
    mknod("l1/hidden", S_IFCHR, 0);
    mkdir("l1/opaque", 0755);
    mkdir("l2/opaque", 0755);
    put_text("l2/opaque/gone", "");
    setxattr("l1/opaque", "trusted.overlay.opaque", "y", 1, 0);
    setxattr("l2/two", "user.note", "kept", 4, 0);
}

static void names(void)
{
    list("m");
    list("m/d");
    list("m/opaque");
    kind("m/d");
    cat("m/both");
    cat("m/link");
    SHOW(unlink("m/both"));
    cat("m/both");
    kind("u/both");
    list("m");
    put_text("m/both", "again");
    kind("u/both");
    SHOW(unlink("m/one"));
    SHOW(mkdir("m/one", 0700));
    SHOW(rmdir("m/d"));
    SHOW(unlink("m/d/a"));
    SHOW(unlink("m/d/b"));
    list("m/d");
    SHOW(rmdir("m/d"));
    SHOW(unlink("m/d/deep/file"));
    SHOW(rmdir("m/d/deep"));
    SHOW(rmdir("m/d"));
    kind("u/d");
    SHOW(mkdir("m/d", 0711));
    list("m/d");
    char value[4];
    SHOW(getxattr("u/d", "trusted.overlay.opaque", value, sizeof value));
    SHOW(mknod("m/whiteout", S_IFCHR, 0));
    SHOW(symlink("x", "m/both"));
    list("m");
}

static void copies(void)
{
    struct stat before, after;
    stat("m/two", &before);
    SHOW(chmod("m/two", 0640));
    stat("m/two", &after);
    printf("same file %d, same time %d\n", before.st_ino == after.st_ino && before.st_dev == after.st_dev,
           before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    kind("u/two");
    kind("l2/two");
    char value[8] = "";
    SHOW(getxattr("m/two", "user.note", value, sizeof value));
    char attributes[200];
    SHOW(listxattr("m/two", attributes, sizeof attributes));
    SHOW(chown("m/null", 5, 6));
    kind("u/null");
    SHOW(lchown("m/link", 7, 8));
    kind("u/link");
    int reader = open("m/file-over", O_RDONLY);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 0);
    add("m/file-over", " and more");
    char text[20] = "";
    SHOW(read(reader, text, sizeof text));
    printf("%s|%s\n", text, map);
    int gone = open("m/fifo", O_RDONLY | O_NONBLOCK);
    SHOW(unlink("m/fifo"));
    close(gone);
    close(reader);
    munmap(map, 4096);
    SHOW(truncate("m/file-over", 2));
    cat("m/file-over");
    cat("l1/file-over");
}

static void renames(void)
{
    SHOW(rename("m/two", "m/three"));
    kind("u/two");
    cat("m/three");
    SHOW(rename("m/three", "m/file-over"));
    cat("m/file-over");
    SHOW(rename("m/file-over", "m/two"));
    kind("u/file-over");
    mkdir("m/own", 0755);
    put_text("m/own/x", "x");
    SHOW(rename("m/opaque", "m/moved"));
    SHOW(rename("m/own", "m/opaque"));
    list("m/opaque");
    SHOW(rename("m/opaque", "m/moved"));
    kind("u/opaque");
    SHOW(renameat2(AT_FDCWD, "m/moved", AT_FDCWD, "m/two", RENAME_EXCHANGE));
    SHOW(renameat2(AT_FDCWD, "m/moved", AT_FDCWD, "m/two", RENAME_NOREPLACE));
    list("m");
    SHOW(link("m/moved", "m/linked"));
    add("m/linked", "!");
    cat("m/moved");
    kind("m/moved");
    SHOW(unlink("m/moved"));
    SHOW(link("m/linked", "m/moved"));
    kind("m/linked");
    list("m");
}

static void refused(void)
{
    SHOW(mount("overlay", "m", "overlay", 0, NULL));
    SHOW(mount("overlay", "m", "overlay", 0, "upperdir=u,workdir=w"));
    SHOW(mount("overlay", "m", "overlay", 0, "lowerdir=l1,upperdir=u"));
    SHOW(mount("overlay", "m", "overlay", 0, "lowerdir=absent"));
    SHOW(mount("overlay", "m", "overlay", 0, "lowerdir=l1,nonsense=1"));
    SHOW(mount("overlay", "m", "overlay", 0, "lowerdir=l1:l2,upperdir=u,workdir=u"));
}

/* A whiteout that has the new name goes to the old one: that takes no inode. */
static void without_room(void)
{
    put_text("l1/p", "p");
    put_text("l1/q", "q");
    put_text("l1/r", "r");
    SHOW(mount("overlay", "m", "overlay", 0, usual));
    SHOW(unlink("m/p"));
    SHOW(chmod("m/q", 0600));
    SHOW(chmod("m/r", 0600));
    struct statfs about;
    statfs(".", &about);
    char options[40];
    snprintf(options, sizeof options, "nr_inodes=%ld", (long)(about.f_files - about.f_ffree));
    SHOW(mount(NULL, ".", NULL, MS_REMOUNT, options));
    SHOW(rename("m/q", "m/p"));
    kind("u/q");
    cat("m/p");
    SHOW(rename("m/r", "m/p"));
    cat("m/r");
    cat("m/p");
    SHOW(umount("m"));
}

int main(void)
{
    mkdir("t", 0755);
    SHOW(mount("none", "t", "tmpfs", 0, "mode=755"));
    chdir("t");
    make_layers();
    refused();
    SHOW(mount("overlay", "m", "overlay", 0, usual));
    struct statfs about;
    SHOW(statfs("m", &about));
    printf("magic %lx\n", (long)about.f_type);
    names();
    copies();
    renames();
    SHOW(umount("m"));
    SHOW(mount("overlay", "m", "overlay", 0, usual));
    list("m");
    cat("m/linked");
    SHOW(umount("m"));
    SHOW(mount("overlay", "m", "overlay", 0, "lowerdir=l1:l2"));
    list("m/d");
    cat("m/one");
    OK(open("m/one", O_WRONLY));
    SHOW(unlink("m/one"));
    SHOW(mkdir("m/new", 0700));
    SHOW(mount(NULL, "m", NULL, MS_REMOUNT, NULL));
    SHOW(unlink("m/one"));
    SHOW(umount("m"));
    without_room();
    chdir("..");
    SHOW(umount("t"));
    return 0;
}
