/* open: the matrix of flags and kinds of files; O_TMPFILE, O_PATH, openat, ENAMETOOLONG, ELOOP. */
#include "abi.h"

static const struct { const char *name; int flags; } flags[] = {
    { "RDONLY", O_RDONLY }, { "WRONLY", O_WRONLY }, { "RDWR", O_RDWR }, { "CREAT", O_RDWR | O_CREAT },
    { "CREAT|EXCL", O_RDWR | O_CREAT | O_EXCL }, { "TRUNC", O_RDWR | O_TRUNC }, { "DIRECTORY", O_RDONLY | O_DIRECTORY },
    { "NOFOLLOW", O_RDONLY | O_NOFOLLOW }, { "PATH", O_PATH }, { "PATH|NOFOLLOW", O_PATH | O_NOFOLLOW },
    { "CREAT|DIRECTORY", O_RDONLY | O_CREAT | O_DIRECTORY }, { "3", 3 }, { "APPEND", O_WRONLY | O_APPEND },
    { "DIRECTORY|WRONLY", O_WRONLY | O_DIRECTORY }, { "TMPFILE", O_TMPFILE | O_RDWR }, { "TMPFILE|RDONLY", O_TMPFILE },
};
static const char *const kinds[] = { "absent", "file", "folder", "folder/", "file/", "to_file", "to_folder", "to_folder/",
                                     "dangling", "loop", "fifo_absent/x", "file/x", "", ".", "..", "/", "folder/absent" };

static void fresh(void)
{
    unlink("absent");
    unlink("target");
    unlink("folder/absent");
    mkdir("folder", 0755);
    put_text("file", "content");
    symlink("file", "to_file");
    symlink("folder", "to_folder");
    symlink("target", "dangling");
    symlink("loop", "loop");
}

static void matrix(void)
{
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (unsigned f = 0; f < sizeof flags / sizeof *flags; f++) {
            fresh();
            int fd = open(kinds[k], flags[f].flags, 0644);
            if (fd < 0) {
                printf("%s %s: %s\n", kinds[k], flags[f].name, ERRNO_NAME(errno));
                continue;
            }
            struct stat about;
            fstat(fd, &about);
            printf("%s %s: ok mode %o", kinds[k], flags[f].name, about.st_mode);
            if (S_ISREG(about.st_mode))
                printf(" size %ld", (long)about.st_size);
            printf(" flags %#x\n", fcntl(fd, F_GETFL));
            close(fd);
        }
}

static void access_modes(void)
{
    fresh();
    char text[8];
    int reader = open("file", O_RDONLY), writer = open("file", O_WRONLY), path = open("file", O_PATH);
    int folder = open("folder", O_RDONLY);
    SHOW(write(reader, "x", 1));
    SHOW(read(writer, text, 1));
    SHOW(read(path, text, 1));
    SHOW(write(path, text, 1));
    SHOW(fchmod(path, 0600));
    SHOW(ftruncate(path, 0));
    SHOW(lseek(path, 0, SEEK_SET));
    SHOW(ioctl(path, FIONREAD, text));
    OK(dup(path));
    SHOW(read(folder, text, 1));
    SHOW(write(folder, text, 1));
    SHOW(ftruncate(folder, 0));
    SHOW(ftruncate(reader, 0));
    SHOW(fcntl(writer, F_SETFL, O_APPEND | O_NONBLOCK | O_RDWR));
    printf("%#x\n", fcntl(writer, F_GETFL));
    SHOW(write(writer, "+", 1));
    SHOW(lseek(writer, 0, SEEK_CUR));
    int at = open("folder", O_PATH | O_DIRECTORY);
    SHOW(faccessat(at, "../file", R_OK, 0));
    int made = openat(at, "made", O_CREAT | O_WRONLY, 0600);
    TRUE(made >= 0);
    SHOW(fstatat(at, "made", &(struct stat){ 0 }, 0));
    SHOW(unlinkat(at, "made", 0));
    SHOW(openat(reader, "x", O_RDONLY));
    SHOW(openat(999, "x", O_RDONLY));
    OK(openat(999, "/abi/cases", O_RDONLY));
    struct stat about;
    SHOW(fstatat(at, "", &about, AT_EMPTY_PATH));
    SHOW(fstatat(at, "", &about, 0));
}

static void temporary(void)
{
    int fd = open(".", O_TMPFILE | O_RDWR, 0640);
    TRUE(fd >= 0);
    struct stat about;
    fstat(fd, &about);
    printf("mode %o links %ld\n", about.st_mode, (long)about.st_nlink);
    write(fd, "secret", 6);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    SHOW(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    fstat(fd, &about);
    SHOW(about.st_nlink);
    printf("%s\n", get_text("named"));
    close(fd);
    fd = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    SHOW(linkat(AT_FDCWD, path, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
}

static void names(void)
{
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = 0;
    OK(open(name, O_CREAT | O_RDWR, 0600));
    SHOW(unlink(name));
    name[255] = 'n';
    name[256] = 0;
    OK(open(name, O_CREAT | O_RDWR, 0600));
    SHOW(mkdir(name, 0700));
    static char path[PATH_MAX + 10];
    memset(path, '/', sizeof path);
    strcpy(path + PATH_MAX - 1 - 4, "file");
    memcpy(path, "./", 2);
    path[2] = '/';
    SHOW(strlen(path));
    OK(open(path, O_RDONLY));
    memset(path, '/', sizeof path);
    memcpy(path, "./", 2);
    strcpy(path + PATH_MAX - 4, "file");
    OK(open(path, O_RDONLY));
    symlink("file", "l0");
    for (int i = 1; i < 42; i++) {
        char from[8], to[8];
        snprintf(to, sizeof to, "l%d", i);
        snprintf(from, sizeof from, "l%d", i - 1);
        symlink(from, to);
    }
    OK(open("l38", O_RDONLY));
    OK(open("l39", O_RDONLY));
    OK(open("l40", O_RDONLY));
    OK(open("l41", O_RDONLY));
    SHOW(symlink("", "empty"));
    SHOW(symlink("x", ""));
    SHOW(symlink("x", "file"));
    SHOW(mkdir("", 0700));
    SHOW(mkdir("folder", 0700));
    SHOW(mkdir("file", 0700));
    SHOW(mkdir("absent/x", 0700));
    SHOW(mkdir("file/x", 0700));
    SHOW(mkdir("dangling", 0700));
    SHOW(mkdir("new/", 0700));
    SHOW(mkdir("/", 0700));
    SHOW(mkdir(".", 0700));
    SHOW(rmdir("new"));
    SHOW(rmdir("."));
    SHOW(rmdir("folder/.."));
    SHOW(rmdir("/"));
    SHOW(rmdir("file"));
    SHOW(rmdir("to_folder"));
    put_text("folder/inside", "");
    SHOW(rmdir("folder"));
    SHOW(unlink("folder"));
    SHOW(unlink("absent"));
    SHOW(unlink("file/"));
    SHOW(unlinkat(AT_FDCWD, "folder/inside", AT_REMOVEDIR));
    SHOW(unlinkat(AT_FDCWD, "folder/inside", 0));
    SHOW(unlinkat(AT_FDCWD, "folder", AT_REMOVEDIR));
    SHOW(unlinkat(AT_FDCWD, "folder", 0x77));
    char target[64];
    SHOW(readlink("to_file", target, sizeof target));
    SHOW(readlink("to_file", target, 2));
    SHOW(readlink("to_file", target, 0));
    SHOW(readlink("file", target, sizeof target));
    SHOW(readlink("absent", target, sizeof target));
}

int main(void)
{
    matrix();
    access_modes();
    temporary();
    names();
    return 0;
}
