/* Name spaces of the system's names and of mounts: made, shared, entered, and their files. */
#include "abi.h"
#include <linux/nsfs.h>

static void names(const char *who)
{
    struct utsname seen;
    uname(&seen);
    printf("%s: %s %s\n", who, seen.nodename, seen.domainname);
}

static void setting(const char *path)
{
    char text[80] = "";
    int fd = open(path, O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    printf("%s: %.*s", path, (int)bytes, text);
    close(fd);
}

static int same(const char *one, const char *other)
{
    struct stat a, b;
    if (stat(one, &a) || stat(other, &b))
        return -1;
    return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static void of_names(void)
{
    sethostname("outer", 5);
    setdomainname("outside", 7);
    names("outside");
    int ends[2];
    int back[2];
    pipe(ends);
    pipe(back);
    pid_t child = CHILD({
        SHOW(unshare(CLONE_NEWUTS));
        names("new");
        SHOW(sethostname("inner", 5));
        SHOW(setdomainname("", 0));
        names("inside");
        setting("/proc/sys/kernel/hostname");
        setting("/proc/sys/kernel/domainname");
        int fd = open("/proc/sys/kernel/hostname", O_WRONLY);
        write(fd, "written\n", 8);
        close(fd);
        names("written");
        REAP(CHILD(names("its child")));
        fflush(stdout);
        tell(ends[1]);
        hear(back[0]);
        names("after all");
    });
    hear(ends[0]);
    names("still outside");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
    SHOW(same(path, "/proc/self/ns/uts"));
    int own = open("/proc/self/ns/uts", O_RDONLY);
    int its = open(path, O_RDONLY);
    TRUE(own >= 0 && its >= 0);
    SHOW(setns(its, CLONE_NEWIPC));
    SHOW(setns(its, CLONE_NEWUTS));
    names("entered");
    SHOW(same(path, "/proc/self/ns/uts"));
    SHOW(sethostname("from outside", 12));
    tell(back[1]);
    REAP(child);
    names("its maker is gone");
    SHOW(setns(own, 0));
    names("back");
    SHOW(ioctl(its, NS_GET_NSTYPE) == CLONE_NEWUTS);
    SHOW(ioctl(its, NS_GET_PARENT));
    SHOW(ioctl(its, NS_GET_OWNER_UID, &own));
    int users = ioctl(its, NS_GET_USERNS);
    TRUE(users >= 0);
    uid_t owner = 7;
    SHOW(ioctl(users, NS_GET_NSTYPE) == CLONE_NEWUSER);
    SHOW(ioctl(users, NS_GET_OWNER_UID, &owner));
    SHOW(owner);
    SHOW(ioctl(its, 0xb7ff));
    char byte;
    SHOW(read(its, &byte, 1));
    SHOW(lseek(its, 0, SEEK_CUR));
    struct stat about;
    fstat(its, &about);
    printf("%o %ld %ld\n", about.st_mode, (long)about.st_nlink, (long)about.st_size);
    struct statfs system;
    fstatfs(its, &system);
    printf("%lx\n", (long)system.f_type);
}

static void refused(void)
{
    int file = open("/", O_RDONLY);
    SHOW(setns(-1, 0));
    SHOW(setns(file, 0));
    SHOW(setns(file, CLONE_NEWUTS));
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    SHOW(setns(self, 0));
    SHOW(setns(self, CLONE_VM));
    SHOW(setns(self, CLONE_NEWUTS | CLONE_NEWIPC));
    SHOW(setns(self, CLONE_NEWUSER));
    SHOW(unshare(CLONE_NEWUTS | 0x1));
    struct clone_args {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } arguments = { .flags = CLONE_NEWNS | CLONE_FS };
    SHOW(syscall(SYS_clone3, &arguments, sizeof arguments));
    arguments.flags = CLONE_NEWIPC | CLONE_SYSVSEM;
    SHOW(syscall(SYS_clone3, &arguments, sizeof arguments));
    REAP(CHILD({
        int uts = open("/proc/self/ns/uts", O_RDONLY);
        setresuid(1, 1, 1);
        SHOW(unshare(CLONE_NEWUTS));
        SHOW(unshare(CLONE_NEWNS));
        SHOW(unshare(CLONE_NEWIPC));
        SHOW(setns(uts, 0));
        SHOW(unshare(0));
        arguments.flags = CLONE_NEWUTS;
        SHOW(syscall(SYS_clone3, &arguments, sizeof arguments));
    }));
    close(file);
}

static void of_mounts(void)
{
    mkdir("place", 0755);
    SHOW(mount("none", "/", NULL, MS_PRIVATE | MS_REC, NULL));
    int ends[2];
    int back[2];
    pipe(ends);
    pipe(back);
    pid_t child = CHILD({
        SHOW(unshare(CLONE_NEWNS));
        SHOW(access("place", F_OK));
        SHOW(mount("inside", "place", "tmpfs", 0, NULL));
        close(open("place/inner", O_CREAT | O_RDWR, 0644));
        fflush(stdout);
        tell(ends[1]);
        hear(back[0]);
        SHOW(access("place/inner", F_OK));
    });
    hear(ends[0]);
    SHOW(access("place/inner", F_OK));
    SHOW(mount("outside", "place", "tmpfs", 0, NULL));
    close(open("place/outer", O_CREAT | O_RDWR, 0644));
    char path[64];
    char here[4096];
    getcwd(here, sizeof here);
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
    SHOW(same(path, "/proc/self/ns/mnt"));
    int own = open("/proc/self/ns/mnt", O_RDONLY);
    int its = open(path, O_RDONLY);
    snprintf(path, sizeof path, "/proc/%d/root", child);
    int its_root = open(path, O_PATH | O_DIRECTORY);
    int root = open("/", O_PATH | O_DIRECTORY);
    SHOW(setns(its, CLONE_NEWNS));
    char now[4096];
    SHOW(strcmp(getcwd(now, sizeof now), "/"));
    /* A root that was changed is not a name space's. */
    SHOW(fchdir(its_root));
    SHOW(chroot("."));
    SHOW(chdir(here));
    SHOW(access("place/inner", F_OK));
    SHOW(access("place/outer", F_OK));
    SHOW(setns(own, CLONE_NEWNS));
    SHOW(fchdir(root));
    SHOW(chroot("."));
    SHOW(chdir(here));
    SHOW(access("place/outer", F_OK));
    SHOW(umount("place"));
    tell(back[1]);
    REAP(child);
    close(its);
    /* Who shares its root with others enters none. */
    REAP(CHILD({
        int other_fd = open("/proc/self/ns/mnt", O_RDONLY);
        void *enter(void *argument)
        {
            (void)argument;
            SHOW(setns(other_fd, CLONE_NEWNS));
            SHOW(unshare(CLONE_FS));
            SHOW(setns(other_fd, CLONE_NEWNS));
            return NULL;
        }
        pthread_t thread;
        pthread_create(&thread, NULL, enter, NULL);
        pthread_join(thread, NULL);
    }));
    rmdir("place");
}

int main(void)
{
    /* What happens to the machine's names and mounts stays here. */
    SHOW(unshare(CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWIPC));
    of_names();
    refused();
    of_mounts();
    return 0;
}
