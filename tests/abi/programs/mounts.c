/* mount, umount and chroot: tmpfs, proc, bind mounts, flags that must count, what is busy, who may. */
#include "abi.h"

int main(void)
{
    char where[256];
    mkdir("t", 0755);
    mkdir("b", 0755);
    put_text("b/inside", "bound");
    put_text("f", "file");
    put_text("t/hidden", "hidden");
    SHOW(mount("none", "t", "tmpfs", 0, "size=64k,mode=711"));
    SHOW(access("t/hidden", F_OK));
    struct stat about;
    stat("t", &about);
    printf("mode %o\n", about.st_mode);
    put_text("t/x", "in the new file system");
    int fd = open("t/big", O_CREAT | O_WRONLY, 0600);
    static char block[100000];
    SHOW(write(fd, block, sizeof block));
    SHOW(write(fd, block, 1));
    SHOW(umount("t"));
    close(fd);
    SHOW(rename("t/x", "x"));
    SHOW(link("t/x", "x"));
    SHOW(rmdir("t"));
    chdir("t");
    SHOW(umount("/tmp/mounts/t"));
    chdir("..");
    SHOW(mount("none", "t", "tmpfs", MS_REMOUNT | MS_RDONLY, NULL));
    OK(open("t/x", O_WRONLY));
    OK(open("t/x", O_RDONLY));
    OK(open("t/new", O_CREAT | O_WRONLY, 0600));
    SHOW(mkdir("t/d", 0700));
    SHOW(unlink("t/x"));
    SHOW(chmod("t/x", 0));
    SHOW(access("t/x", W_OK));
    SHOW(utimensat(AT_FDCWD, "t/x", NULL, 0));
    SHOW(umount("t"));
    SHOW(umount("t"));
    printf("%s\n", get_text("t/hidden"));

    SHOW(mount("b", "t", NULL, MS_BIND, NULL));
    printf("%s\n", get_text("t/inside"));
    put_text("t/from-t", "x");
    SHOW(access("b/from-t", F_OK));
    SHOW(mount(NULL, "t", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    OK(open("t/inside", O_WRONLY));
    OK(open("b/inside", O_WRONLY));
    SHOW(umount("t"));
    SHOW(mount("f", "b/inside", NULL, MS_BIND, NULL));
    printf("%s\n", get_text("b/inside"));
    SHOW(unlink("b/inside"));
    SHOW(umount("b/inside"));
    printf("%s\n", get_text("b/inside"));
    SHOW(mount("f", "t", NULL, MS_BIND, NULL));
    SHOW(mount("b", "f", NULL, MS_BIND, NULL));
    SHOW(mount("absent", "t", NULL, MS_BIND, NULL));

    SHOW(mount("none", "t", "proc", 0, NULL));
    SHOW(access("t/self/stat", F_OK));
    SHOW(umount("t"));
    SHOW(mount("none", "t", "nonsense", 0, NULL));
    SHOW(mount("none", "absent", "tmpfs", 0, NULL));
    SHOW(mount("none", "f", "tmpfs", 0, NULL));
    SHOW(mount("none", "t", "tmpfs", 0, "nonsense=1"));
    SHOW(mount(NULL, "t", "tmpfs", 0, NULL));
    SHOW(umount("t"));
    SHOW(umount("absent"));
    SHOW(umount("f"));
    SHOW(umount2("t", 0x100));
    REAP(CHILD({ setresuid(1, 1, 1); SHOW(mount("none", "t", "tmpfs", 0, NULL)); SHOW(umount("/proc")); SHOW(chroot(".")); }));

    /* Flags that must do what they say. */
    SHOW(mount("none", "t", "tmpfs", MS_NOEXEC | MS_NODEV | MS_NOSUID, NULL));
    int in = open("/abi/hello", O_RDONLY), out = open("t/hello", O_CREAT | O_WRONLY, 0755);
    ssize_t count;
    while ((count = read(in, block, sizeof block)) > 0)
        write(out, block, (size_t)count);
    close(out);
    SHOW(execl("t/hello", "hello", NULL));
    mknod("t/null", S_IFCHR | 0666, makedev(1, 3));
    OK(open("t/null", O_RDWR));
    TRUE(strstr(get_text("/proc/self/mounts"), "/tmp/mounts/t tmpfs rw,nosuid,nodev,noexec") != NULL);
    /* Mounts stack. */
    SHOW(mount("none", "t", "tmpfs", 0, NULL));
    SHOW(access("t/hello", F_OK));
    put_text("t/second", "");
    SHOW(umount("t"));
    SHOW(access("t/hello", F_OK));
    fd = open("t/hello", O_RDONLY);
    SHOW(umount("t"));
    SHOW(umount2("t", MNT_DETACH));
    SHOW(access("t/hello", F_OK));
    SHOW(read(fd, block, 4));
    close(fd);

    /* A tree of mounts and what is seen through "..". */
    mkdir("m", 0755);
    mount("none", "m", "tmpfs", 0, NULL);
    mkdir("m/n", 0755);
    mount("none", "m/n", "tmpfs", 0, NULL);
    chdir("m/n");
    printf("%s\n", getcwd(where, sizeof where));
    chdir("..");
    printf("%s\n", getcwd(where, sizeof where));
    chdir("..");
    printf("%s\n", getcwd(where, sizeof where));
    SHOW(umount("m"));
    SHOW(umount("m/n"));
    SHOW(umount("m"));

    /* chroot: "..", absolute links, the way out that must not be one. */
    mkdir("jail", 0755);
    mkdir("jail/inner", 0755);
    put_text("jail/marker", "in the jail");
    symlink("/marker", "jail/absolute");
    symlink("../../../../marker", "jail/relative");
    REAP(CHILD({
        SHOW(chroot("jail"));
        SHOW(chdir("/"));
        printf("%s | %s | %s\n", get_text("/marker"), get_text("/absolute"), get_text("/relative"));
        SHOW(access("/../../marker", F_OK));
        printf("%s\n", getcwd(where, sizeof where));
        SHOW(chdir("inner"));
        printf("%s\n", getcwd(where, sizeof where));
        SHOW(access("/abi/hello", F_OK));
    }));
    REAP(CHILD({
        chroot("jail");
        SHOW(syscall(SYS_getcwd, where, sizeof where) > 0);
        printf("%.13s\n", where);
    }));
    SHOW(chroot("f"));
    SHOW(chroot("absent"));
    SHOW(chroot((void *)8));
    return 0;
}
