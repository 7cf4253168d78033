/* rename, renameat2, link, unlink: every combination of kinds, flags, and what open files see. */
#include "abi.h"

static void fresh(void)
{
    char command[] = "rm -rf a b c d e";
    (void)command;
    for (int i = 0; i < 5; i++) {
        char name[2] = { (char)('a' + i), 0 };
        unlink(name);
        char inner[8];
        snprintf(inner, sizeof inner, "%s/x", name);
        unlink(inner);
        rmdir(inner);
        rmdir(name);
    }
}

static void make(const char *name, char kind)
{
    char inner[16];
    switch (kind) {
    case 'f':
        put_text(name, name);
        break;
    case 'e':
        mkdir(name, 0755);
        break;
    case 'd':
        mkdir(name, 0755);
        snprintf(inner, sizeof inner, "%s/x", name);
        put_text(inner, "x");
        break;
    case 'l':
        symlink("c", name);
        break;
    case 'p':
        mkfifo(name, 0600);
        break;
    }
}

static char kind_of(const char *name)
{
    struct stat about;
    if (lstat(name, &about) < 0)
        return '-';
    return S_ISREG(about.st_mode) ? 'f' : S_ISDIR(about.st_mode) ? (about.st_nlink, 'd') : S_ISLNK(about.st_mode) ? 'l' : 'p';
}

static void matrix(unsigned flags, const char *title)
{
    static const char kinds[] = "-fedlp";
    for (int from = 0; from < 6; from++)
        for (int to = 0; to < 6; to++) {
            fresh();
            make("a", kinds[from]);
            make("b", kinds[to]);
            int result = (int)syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", flags);
            printf("%s %c to %c: %s, then %c %c\n", title, kinds[from], kinds[to], result < 0 ? ERRNO_NAME(errno) : "ok",
                   kind_of("a"), kind_of("b"));
        }
    fresh();
}

static void special(void)
{
    make("a", 'd');
    SHOW(rename("a", "a/x/y"));
    SHOW(rename("a", "a/y"));
    SHOW(rename("a/.", "b"));
    SHOW(rename("a", "."));
    SHOW(rename("a/..", "b"));
    SHOW(rename("/", "b"));
    SHOW(rename("a", "/"));
    SHOW(rename("", "b"));
    SHOW(rename("a", ""));
    SHOW(rename("a/", "b/"));
    SHOW(rename("b/x", "c/"));
    SHOW(rename("b/x/", "c"));
    SHOW(rename("b/x", "b/x"));
    put_text("e", "same");
    SHOW(link("e", "d"));
    SHOW(rename("e", "d"));
    printf("both stay: %c %c\n", kind_of("e"), kind_of("d"));
    SHOW(rename("e", "absent/x"));
    SHOW(rename("e", "d/x"));
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "e", AT_FDCWD, "d", 3));
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "e", AT_FDCWD, "d", 0x80));
    SHOW(rename("e", "/proc/e"));
    fresh();
    /* An open folder keeps its identity; its parent changes. */
    mkdir("a", 0755);
    mkdir("b", 0755);
    mkdir("a/x", 0755);
    int fd = open("a/x", O_RDONLY);
    SHOW(rename("a/x", "b/x"));
    struct stat one, other;
    fstatat(fd, "..", &one, 0);
    stat("b", &other);
    TRUE(one.st_ino == other.st_ino);
    stat("a", &one);
    SHOW(one.st_nlink);
    SHOW(other.st_nlink);
    int here = open(".", O_RDONLY);
    SHOW(chdir("b/x"));
    SHOW(rename("../../b", "../../c"));
    char where[256];
    printf("%s\n", getcwd(where, sizeof where));
    SHOW(rmdir("../x"));
    SHOW(syscall(SYS_getcwd, where, sizeof where));
    SHOW(mkdir("y", 0700));
    OK(open("y", O_CREAT | O_RDWR, 0600));
    OK(open(".", O_RDONLY));
    fchdir(here);
}

static void links(void)
{
    struct stat about;
    put_text("one", "linked");
    SHOW(link("one", "two"));
    SHOW(link("one", "two"));
    stat("two", &about);
    SHOW(about.st_nlink);
    SHOW(link("absent", "x"));
    mkdir("folder", 0755);
    SHOW(link("folder", "x"));
    SHOW(link("one", "folder/x"));
    SHOW(link("one", "absent/x"));
    symlink("one", "sym");
    SHOW(link("sym", "hardsym"));
    printf("%c\n", kind_of("hardsym"));
    SHOW(linkat(AT_FDCWD, "sym", AT_FDCWD, "hardfile", AT_SYMLINK_FOLLOW));
    printf("%c\n", kind_of("hardfile"));
    SHOW(linkat(AT_FDCWD, "one", AT_FDCWD, "z", 0x10));
    int fd = open("one", O_RDWR);
    const char *names[] = { "one", "two", "folder/x", "hardfile" };
    for (int i = 0; i < 4; i++) {
        SHOW(unlink(names[i]));
        fstat(fd, &about);
        SHOW(about.st_nlink);
    }
    char text[16] = "";
    SHOW(pread(fd, text, 6, 0));
    SHOW(write(fd, "LINKED AGAIN", 12));
    SHOW(lseek(fd, 0, SEEK_END));
    printf("%s\n", text);
    char path[64], target[256];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t count = readlink(path, target, sizeof target - 1);
    target[count < 0 ? 0 : count] = 0;
    printf("%s\n", target);
    int again = open(path, O_RDONLY);
    SHOW(read(again, text, 6));
    printf("%s\n", text);
    put_text("one", "a new file");
    SHOW(pread(fd, text, 6, 0));
    printf("%s\n", text);
    /* Replacing a file under a reader. */
    put_text("new", "replacement");
    int reader = open("one", O_RDONLY);
    SHOW(rename("new", "one"));
    SHOW(read(reader, text, 10));
    printf("%.10s | %s\n", text, get_text("one"));
}

int main(void)
{
    matrix(0, "rename");
    matrix(1, "NOREPLACE");
    matrix(2, "EXCHANGE");
    special();
    links();
    return 0;
}
