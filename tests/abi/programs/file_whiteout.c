/* renameat2 with RENAME_WHITEOUT, in memory: what has the old name, for whom, and what other flags do with it. */
#include "abi.h"

enum { NOREPLACE = 1, EXCHANGE = 2, WHITEOUT = 4 };

static long move(const char *from, const char *to, unsigned flags)
{
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

static void show(const char *name)
{
    struct stat about;
    if (lstat(name, &about) < 0)
        printf("  %s: %s\n", name, ERRNO_NAME(errno));
    else
        printf("  %s: mode %o links %d device %lx user %d group %d size %ld\n", name, about.st_mode, S_ISDIR(about.st_mode) ? 0 : (int)about.st_nlink,
               (long)about.st_rdev, about.st_uid, about.st_gid, S_ISREG(about.st_mode) ? (long)about.st_size : 0);
}

static void links(const char *name)
{
    struct stat about;
    stat(name, &about);
    printf("  %s has %d links\n", name, (int)about.st_nlink);
}

static void moves(void)
{
    put_text("file", "text");
    SHOW(move("file", "other", WHITEOUT));
    show("file");
    show("other");
    SHOW(move("other", "file", WHITEOUT | NOREPLACE));
    SHOW(move("other", "file", WHITEOUT | EXCHANGE));
    SHOW(move("other", "file", WHITEOUT));
    show("file");
    show("other");
    SHOW(unlink("other"));
    show("other");
    SHOW(move("none", "file", WHITEOUT));
    SHOW(link("file", "second"));
    SHOW(move("file", "second", WHITEOUT));
    show("file");
    SHOW(move("file", "third", 8));

    puts("-- directories");
    mkdir("from", 02755);
    chown("from", 0, 7);
    chmod("from", 02755);
    mkdir("to", 0755);
    mkdir("from/inner", 0755);
    links("from");
    SHOW(move("from/inner", "to/inner", WHITEOUT));
    links("from");
    links("to");
    show("from/inner");
    SHOW(rmdir("from"));
    SHOW(rmdir("from/inner"));
    SHOW(unlink("from/inner"));
    SHOW(rmdir("from"));
    SHOW(move("to/inner", "to/again", WHITEOUT));
    links("to");
    SHOW(move("to/again", "to/inner", WHITEOUT));
    SHOW(rmdir("to/again"));
}

static void of_a_user(void)
{
    puts("-- of a user");
    mkdir("his", 0777);
    chmod("his", 0777);
    mkdir("closed", 0755);
    put_text("closed/file", "x");
    REAP(CHILD({
        syscall(SYS_setgid, 1000);
        syscall(SYS_setuid, 1000);
        put_text("his/file", "y");
        SHOW(move("his/file", "his/other", WHITEOUT));
        show("his/file");
        SHOW(mknod("his/made", S_IFCHR, 0));
        SHOW(move("closed/file", "his/taken", WHITEOUT));
    }));
}

int main(void)
{
    umask(022);
    char folder[] = "/dev/shm/whiteoutXXXXXX";
    if (!mkdtemp(folder) || chdir(folder) < 0)
        return 1;
    chmod(folder, 0755);
    moves();
    of_a_user();
    chdir("/");
    execlp("rm", "rm", "-r", folder, NULL);
    return 2;
}
