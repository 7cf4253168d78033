/* A sandbox of our own - name spaces of users, mounts, processes, System V objects, names and networks, a root of its own with bind mounts - and what is known to
 * lead out of such: each must be refused, with Linux's error. The attackers are root inside and nobody outside. */
#include "abi.h"
#include <linux/fs.h>
#include <linux/nsfs.h>
#include <sys/ptrace.h>
#include <sys/socket.h>

#define NEW (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
#define OUTSIDER 1000

#define DENIED(...)                                                                                                    \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(__VA_ARGS__);                                                                            \
        int error_ = errno;                                                                                            \
        printf("%s: %s\n", #__VA_ARGS__, result_ == -1 ? ERRNO_NAME(error_) : "LET THROUGH");                          \
    } while (0)

static int made(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return -1;
    int result = write(fd, text, strlen(text)) < 0 ? -1 : 0;
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static void map(uid_t user, gid_t group)
{
    char text[64];
    made("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "0 %u 1", user);
    if (made("/proc/self/uid_map", text))
        printf("uid_map: %s\n", ERRNO_NAME(errno));
    snprintf(text, sizeof text, "0 %u 1", group);
    if (made("/proc/self/gid_map", text))
        printf("gid_map: %s\n", ERRNO_NAME(errno));
}

/* What of the outside the attackers are given, as careless supervisors do. */
struct given {
    int outside_directory;
    int outside_file;
    pid_t victim;
};

static void private_root(void)
{
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    mkdir("jail", 0755);
    SHOW(mount("jail", "jail", "tmpfs", 0, NULL));
    mkdir("jail/old", 0755);
    mkdir("jail/proc", 0755);
    mkdir("jail/data", 0755);
    mkdir("jail/bin", 0755);
    mkdir("jail/place", 0755);
    SHOW(mount("data", "jail/data", NULL, MS_BIND, NULL));
    SHOW(mount(NULL, "jail/data", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL));
    SHOW(mount("proc", "jail/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    SHOW(syscall(SYS_pivot_root, "jail", "jail/old"));
    SHOW(chdir("/"));
    SHOW(umount2("/old", MNT_DETACH));
}

/* Runs in a sandbox of user 1000; returns how to wait for it. */
#define SANDBOX(...)                                                                                                   \
    do {                                                                                                               \
        REAP(CHILD({                                                                                                   \
            setgroups(0, NULL);                                                                                        \
            setresgid(OUTSIDER, OUTSIDER, OUTSIDER);                                                                   \
            setresuid(OUTSIDER, OUTSIDER, OUTSIDER);                                                                   \
            prctl(PR_SET_DUMPABLE, 1);                                                                                 \
            SHOW(unshare(NEW));                                                                                        \
            map(OUTSIDER, OUTSIDER);                                                                                   \
            REAP(CHILD({                                                                                               \
                private_root();                                                                                        \
                __VA_ARGS__;                                                                                           \
            }));                                                                                                       \
        }));                                                                                                           \
    } while (0)

static int climbs(void)
{
    /* As many as it takes. */
    for (int i = 0; i < 100; i++)
        if (chdir(".."))
            return -1;
    struct stat here;
    struct stat root;
    stat(".", &here);
    stat("/", &root);
    return here.st_ino == root.st_ino && here.st_dev == root.st_dev;
}

static void paths(void)
{
    printf("-- paths\n");
    SANDBOX({
        SHOW(climbs());
        DENIED(open("/old/etc/passwd", O_RDONLY));
        DENIED(open("/../../../outside", O_RDONLY));
        /* A root below, left behind with a descriptor of one's own. */
        mkdir("/inner", 0755);
        int top = open("/", O_RDONLY | O_DIRECTORY);
        SHOW(chroot("/inner"));
        SHOW(fchdir(top));
        for (int i = 0; i < 50; i++)
            chdir("..");
        SHOW(chroot("."));
        DENIED(access("/outside", F_OK));
        DENIED(access("/data/../../outside", F_OK));
        SHOW(symlink("../../../../../../outside", "/link"));
        DENIED(open("/link", O_RDONLY));
        SHOW(symlink("/proc/self/root/../../outside", "/link2"));
        DENIED(open("/link2", O_RDONLY));
        DENIED(open("/proc/1/root/../outside", O_RDONLY));
        DENIED(open("/proc/self/cwd/../../../outside", O_RDONLY));
    });
    /* A directory outside that a descriptor was left open of leads out on Linux, too: what is behind it stays as protected as it was. */
    int outside = open(".", O_RDONLY | O_DIRECTORY);
    SANDBOX({
        SHOW(fchdir(outside));
        SHOW(access("outside", F_OK));
        DENIED(open("outside", O_WRONLY));
        DENIED(openat(outside, "of_root", O_RDONLY));
        DENIED(unlinkat(outside, "outside", 0));
        DENIED(mkdirat(outside, "new", 0755));
        DENIED(fchmodat(outside, "outside", 0777, 0));
        DENIED(fchownat(outside, "outside", 0, 0, 0));
        DENIED(linkat(outside, "of_root", AT_FDCWD, "/mine", 0));
        DENIED(mount("outside", "outside", NULL, MS_BIND, NULL));
        DENIED(umount2(".", MNT_DETACH));
    });
    close(outside);
}

static void mounts(void)
{
    printf("-- mounts\n");
    SANDBOX({
        /* Flags that came with a mount stay. */
        DENIED(open("/data/file", O_WRONLY));
        DENIED(open("/data/new", O_CREAT | O_WRONLY, 0644));
        DENIED(mount(NULL, "/data", NULL, MS_REMOUNT, NULL));
        DENIED(mknod("/place/null", S_IFCHR | 0666, makedev(1, 3)));
        DENIED(mknod("/place/disk", S_IFBLK | 0666, makedev(8, 0)));
        SHOW(mknod("/place/fifo", S_IFIFO | 0666, 0));
        DENIED(mount("/dev/null", "/place", "ext4", 0, NULL));
        DENIED(mount("none", "/place", "devtmpfs", 0, NULL));
        DENIED(mount("none", "/place", "debugfs", 0, NULL));
        DENIED(mount("none", "/place", "sysfs", 0, NULL) ? -1 : (umount("/place"), errno = EPERM, -1));
        DENIED(mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL) ? -1 : open("/outside", O_RDONLY));
        /* A mount that covers nothing is nobody's secret; what one has mounted oneself may go. */
        SHOW(mount("more", "/place", "tmpfs", MS_NODEV, NULL));
        SHOW(umount("/place"));
        DENIED(umount("/old"));
        DENIED(umount("/"));
        DENIED(syscall(SYS_pivot_root, "/", "/old"));
        DENIED(made("/proc/sys/kernel/core_pattern", "|/tmp/evil"));
        DENIED(made("/proc/sys/vm/overcommit_memory", "1"));
        DENIED(made("/proc/sys/kernel/hostname", "inside"));
    });
    SHOW(access("jail/place/fifo", F_OK));
    /* What the outside has locked: a name space below it cannot take it away, nor what is below it. */
    REAP(CHILD({
        unshare(CLONE_NEWNS);
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
        mkdir("covered", 0755);
        put_text("covered/secret", "x");
        chmod("covered/secret", 0644);
        SHOW(mount("cover", "covered", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL));
        REAP(CHILD({
            setresgid(OUTSIDER, OUTSIDER, OUTSIDER);
            setresuid(OUTSIDER, OUTSIDER, OUTSIDER);
            prctl(PR_SET_DUMPABLE, 1);
            SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNS));
            map(OUTSIDER, OUTSIDER);
            DENIED(umount("covered"));
            DENIED(umount2("covered", MNT_DETACH));
            DENIED(access("covered/secret", F_OK));
            DENIED(mount(NULL, "covered", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL));
            DENIED(mount(NULL, "covered", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL));
            DENIED(mount(NULL, "covered", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC | MS_NOATIME, NULL));
            DENIED(mount(NULL, "covered", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOATIME, NULL));
            DENIED(mount(NULL, "covered", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RELATIME, NULL));
            /* A bind mount of what is around it, without what covers it. */
            mkdir("/tmp/.sandbox_bind", 0755);
            DENIED(mount(".", "/tmp/.sandbox_bind", NULL, MS_BIND, NULL));
            SHOW(mount(".", "/tmp/.sandbox_bind", NULL, MS_BIND | MS_REC, NULL));
            DENIED(access("/tmp/.sandbox_bind/covered/secret", F_OK));
            DENIED(umount2("/tmp/.sandbox_bind/covered", MNT_DETACH));
            SHOW(umount2("/tmp/.sandbox_bind", MNT_DETACH));
        }));
        rmdir("/tmp/.sandbox_bind");
    }));
}

static void identities(void)
{
    printf("-- identities\n");
    /* A program of root's: inside it gives what root is inside, which is nothing outside. */
    SANDBOX({
        DENIED(setresuid(5, 5, 5));
        DENIED(setgroups(0, NULL));
        DENIED(chown("/data/file", 0, 0));
        DENIED(made("/proc/self/uid_map", "0 0 1"));
        DENIED(made("/proc/self/setgroups", "allow"));
        DENIED(kill(-1, 0) ? -1 : (errno = EPERM, -1));
        DENIED(setpriority(PRIO_PROCESS, 0, -5));
        struct rlimit more = { RLIM_INFINITY, RLIM_INFINITY };
        struct rlimit few = { 10, 10 };
        setrlimit(RLIMIT_NPROC, &few);
        DENIED(setrlimit(RLIMIT_NPROC, &more));
        DENIED(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL));
        struct timespec time = { 1, 0 };
        DENIED(clock_settime(CLOCK_REALTIME, &time));
        DENIED(syscall(SYS_syslog, 5, NULL, 0));
    });
    REAP(CHILD({
        setresgid(OUTSIDER, OUTSIDER, OUTSIDER);
        setresuid(OUTSIDER, OUTSIDER, OUTSIDER);
        prctl(PR_SET_DUMPABLE, 1);
        SHOW(unshare(CLONE_NEWUSER));
        DENIED(made("/proc/self/gid_map", "0 1000 1"));
        DENIED(made("/proc/self/uid_map", "0 0 1"));
        DENIED(made("/proc/self/uid_map", "0 1000 2"));
        DENIED(made("/proc/self/uid_map", "0 1001 1"));
        DENIED(made("/proc/self/uid_map", "0 1000 1\n1 0 1"));
        DENIED(made("/proc/self/uid_map", "4294967295 1000 1"));
        DENIED(made("/proc/self/uid_map", "0 1000 0"));
        SHOW(made("/proc/self/setgroups", "deny"));
        SHOW(made("/proc/self/uid_map", "0 1000 1"));
        DENIED(made("/proc/self/uid_map", "0 1000 1"));
        SHOW(made("/proc/self/gid_map", "0 1000 1"));
        DENIED(chown("outside", 0, 0));
        DENIED(chmod("outside", 0777));
        DENIED(open("of_root", O_RDONLY));
        DENIED(mount("none", "/", "tmpfs", 0, NULL));
        SHOW(open("mine", O_RDONLY) >= 0);
        /* Set-user-ID: of one's own files only, and outside it gives what it gave before. */
        SHOW(chmod("mine", 04755));
        struct stat about;
        stat("outside", &about);
        SHOW(about.st_uid);
        /* A name space below is no way up. */
        SHOW(unshare(CLONE_NEWUSER));
        DENIED(made("/proc/self/uid_map", "0 1000 1"));
        DENIED(setresuid(0, 0, 0));
        DENIED(mount("none", "/", "tmpfs", 0, NULL));
    }));
    struct stat about;
    stat("mine", &about);
    printf("mine: %o %u\n", about.st_mode, about.st_uid);
}

static void others(pid_t victim)
{
    printf("-- others\n");
    char path[64];
    REAP(CHILD({
        int namespaces[8];
        static const char *const kinds[] = { "user", "mnt", "pid", "uts", "ipc", "net", "cgroup", "time" };
        for (int i = 0; i < 8; i++) {
            snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
            namespaces[i] = open(path, O_RDONLY);
        }
        int process = (int)syscall(SYS_pidfd_open, victim, 0);
        setgroups(0, NULL);
        setresgid(OUTSIDER, OUTSIDER, OUTSIDER);
        setresuid(OUTSIDER, OUTSIDER, OUTSIDER);
        prctl(PR_SET_DUMPABLE, 1);
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        map(OUTSIDER, OUTSIDER);
        for (int i = 0; i < 8; i++) {
            errno = 0;
            int result = setns(namespaces[i], 0);
            printf("setns to the %s outside: %s\n", kinds[i], result ? ERRNO_NAME(errno) : "LET THROUGH");
        }
        DENIED(setns(process, CLONE_NEWNS));
        DENIED(setns(process, CLONE_NEWUSER));
        DENIED(syscall(SYS_pidfd_getfd, process, 0, 0));
        DENIED(ptrace(PTRACE_ATTACH, victim, NULL, NULL));
        DENIED(ptrace(PTRACE_SEIZE, victim, NULL, NULL));
        DENIED(kill(victim, SIGTERM));
        DENIED(syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0));
        char byte = 1;
        struct iovec here = { &byte, 1 };
        struct iovec there = { &victim, 1 };
        DENIED(process_vm_readv(victim, &here, 1, &there, 1, 0));
        DENIED(process_vm_writev(victim, &here, 1, &there, 1, 0));
        snprintf(path, sizeof path, "/proc/%d/mem", victim);
        DENIED(open(path, O_RDWR));
        snprintf(path, sizeof path, "/proc/%d/maps", victim);
        DENIED(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/environ", victim);
        DENIED(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/root", victim);
        DENIED(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/cwd/outside", victim);
        DENIED(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/fd/0", victim);
        DENIED(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/exe", victim);
        DENIED(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", victim);
        DENIED(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/oom_score_adj", victim);
        DENIED(open(path, O_WRONLY));
        snprintf(path, sizeof path, "/proc/%d/uid_map", victim);
        DENIED(made(path, "0 0 1"));
        DENIED(syscall(SYS_process_madvise, process, &there, 1, MADV_COLD, 0));
        DENIED(syscall(SYS_kcmp, victim, getpid(), 0, 0, 0));
        DENIED(syscall(SYS_move_pages, victim, 0, NULL, NULL, NULL, 0));
        DENIED(setpriority(PRIO_PROCESS, victim, 19));
        DENIED(prlimit(victim, RLIMIT_NOFILE, &(struct rlimit){ 1, 1 }, NULL));
        struct sched_param zero = { 0 };
        DENIED(sched_setscheduler(victim, SCHED_IDLE, &zero));
    }));
}

/* The file that runs is not written while it runs, by whatever name (what broke runc). */
static void programs(void)
{
    printf("-- programs\n");
    char text[4096];
    int from = open("/proc/self/exe", O_RDONLY);
    int to = open("program", O_WRONLY | O_CREAT | O_TRUNC, 0777);
    ssize_t bytes;
    while ((bytes = read(from, text, sizeof text)) > 0)
        write(to, text, bytes);
    close(from);
    close(to);
    chmod("program", 0777);
    int word[2], go[2];
    pipe(word);
    pipe(go);
    pid_t runs = CHILD({
        char first[16], second[16];
        snprintf(first, sizeof first, "%d", word[1]);
        snprintf(second, sizeof second, "%d", go[0]);
        execl("program", "sandbox_escapes", "waits", first, second, NULL);
    });
    hear(word[0]);
    DENIED(open("program", O_WRONLY));
    DENIED(open("program", O_RDWR | O_TRUNC));
    DENIED(truncate("program", 0));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/exe", runs);
    DENIED(open(path, O_WRONLY));
    DENIED(open(path, O_RDWR));
    int place = open(path, O_PATH);
    snprintf(text, sizeof text, "/proc/self/fd/%d", place);
    DENIED(open(text, O_WRONLY));
    int readable = open(path, O_RDONLY);
    snprintf(text, sizeof text, "/proc/self/fd/%d", readable);
    DENIED(open(text, O_WRONLY));
    DENIED(ftruncate(readable, 0));
    /* It ends: whoever kept a descriptor may write by permission, as on Linux. */
    tell(go[1]);
    REAP(runs);
    int late = open(text, O_WRONLY);
    TRUE(late >= 0);
    close(late);
    /* A descriptor for writing keeps it from being executed. */
    int writer = open("program", O_WRONLY);
    REAP(CHILD({
        execl("program", "sandbox_escapes", "ends", NULL);
        printf("written meanwhile: %s\n", ERRNO_NAME(errno));
    }));
    close(writer);
    /* A script that names its own interpreter by /proc/self/exe runs what runs it, and no more. */
    put_text("script", "#!/proc/self/exe\n");
    chmod("script", 0755);
    REAP(CHILD({
        execl("script", "script", "ends", NULL);
        printf("script: %s\n", ERRNO_NAME(errno));
    }));
    close(place);
    close(readable);
}

static void overlays(void)
{
    printf("-- overlays\n");
    /* The upper directory is root's: nothing may be made there by way of a lower one. */
    mkdir("upper_of_root", 0755);
    mkdir("work_of_root", 0755);
    mkdir("theirs", 0777);
    chmod("theirs", 0777);
    REAP(CHILD({
        setresgid(OUTSIDER, OUTSIDER, OUTSIDER);
        setresuid(OUTSIDER, OUTSIDER, OUTSIDER);
        prctl(PR_SET_DUMPABLE, 1);
        unshare(CLONE_NEWUSER | CLONE_NEWNS);
        map(OUTSIDER, OUTSIDER);
        SHOW(mount("t", "theirs", "tmpfs", 0, NULL));
        mkdir("theirs/low", 0777);
        mkdir("theirs/low/sub", 0777);
        chmod("theirs/low", 0777);
        chmod("theirs/low/sub", 0777);
        mkdir("theirs/up", 0755);
        mkdir("theirs/work", 0755);
        mkdir("theirs/merged", 0755);
        put_text("theirs/low/sub/file", "x");
        SHOW(mount("o", "theirs/merged", "overlay", 0, "lowerdir=theirs/low,upperdir=theirs/up,workdir=theirs/work"));
        SHOW(mkdir("theirs/merged/sub/new", 0755));
        SHOW(access("theirs/up/sub/new", F_OK));
        /* What hides the old name belongs to who mounted it. */
        put_text("theirs/low/sub/second", "y");
        SHOW(rename("theirs/merged/sub/file", "theirs/merged/sub/moved"));
        SHOW(access("theirs/merged/sub/file", F_OK));
        SHOW(rename("theirs/merged/sub/moved", "theirs/merged/sub/second"));
        struct stat hidden;
        SHOW(lstat("theirs/up/sub/file", &hidden));
        SHOW(S_ISCHR(hidden.st_mode));
        SHOW(umount("theirs/merged"));
    }));
    chmod(".", 0777);
    REAP(CHILD({
        setresgid(OUTSIDER, OUTSIDER, OUTSIDER);
        setresuid(OUTSIDER, OUTSIDER, OUTSIDER);
        prctl(PR_SET_DUMPABLE, 1);
        mkdir("low", 0777);
        mkdir("low/sub", 0777);
        mkdir("work", 0755);
        mkdir("merged", 0755);
        unshare(CLONE_NEWUSER | CLONE_NEWNS);
        map(OUTSIDER, OUTSIDER);
        SHOW(mount("o", "merged", "overlay", 0, "lowerdir=low,upperdir=upper_of_root,workdir=work"));
        DENIED(mkdir("merged/sub/new", 0755));
        DENIED(open("merged/sub/new", O_CREAT | O_WRONLY, 0755));
        DENIED(rename("merged/sub", "merged/other"));
        DENIED(mkdir("merged/direct", 0755));
        umount("merged");
        SHOW(mount("o", "merged", "overlay", 0, "lowerdir=low,upperdir=work,workdir=work_of_root"));
        DENIED(mkdir("merged/sub/new", 0755));
        umount("merged");
    }));
    SHOW(access("upper_of_root/sub", F_OK));
    SHOW(access("work_of_root/work", F_OK));
}

/* A directory is moved out of what a mount shows while somebody stands in it: `..` leads nowhere from there. */
static void stands_outside(const char *here)
{
    printf("%s\n", here);
    char text[4096];
    SHOW(access("..", F_OK));
    SHOW(access("../..", F_OK));
    SHOW(access("../../secret", F_OK));
    SHOW(chdir(".."));
    SHOW(access("c", F_OK));
    SHOW(access("c/..", F_OK));
    SHOW(access("c/../../../secret", F_OK));
    SHOW(open("../../../../../../../../outside", O_RDONLY));
    SHOW(chdir("c"));
    SHOW(chdir(".."));
    SHOW(getcwd(text, sizeof text) == NULL);
    SHOW(mkdir("new", 0755));
    SHOW(rmdir("new"));
}

static void moved(void)
{
    printf("-- moved\n");
    REAP(CHILD({
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
        SHOW(unshare(CLONE_NEWNS));
        mkdir("tree", 0755);
        mkdir("tree/shared", 0755);
        mkdir("tree/shared/a", 0755);
        mkdir("tree/shared/a/b", 0755);
        mkdir("tree/shared/a/b/c", 0755);
        mkdir("tree/other", 0755);
        put_text("tree/secret", "s");
        mkdir("shown", 0755);
        SHOW(mount("tree/shared", "shown", NULL, MS_BIND, NULL));
        int top = open("tree", O_RDONLY);
        SHOW(chdir("shown/a/b"));
        SHOW(renameat(top, "shared/a/b", top, "other/b"));
        stands_outside("moved by others");
        SHOW(renameat(top, "other/b", top, "shared/a/b"));
        SHOW(chdir(".."));
        SHOW(access("b/c", F_OK));
    }));
    /* Who is kept in does it himself, with mounts of his own. */
    mkdir("cage", 0777);
    chmod("cage", 0777);
    REAP(CHILD({
        setresgid(OUTSIDER, OUTSIDER, OUTSIDER);
        setresuid(OUTSIDER, OUTSIDER, OUTSIDER);
        prctl(PR_SET_DUMPABLE, 1);
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        map(OUTSIDER, OUTSIDER);
        mkdir("cage/old", 0755);
        SHOW(mount("cage", "cage", NULL, MS_BIND, NULL));
        SHOW(syscall(SYS_pivot_root, "cage", "cage/old"));
        SHOW(chdir("/"));
        SHOW(umount2("/old", MNT_DETACH));
        mkdir("a", 0755);
        mkdir("a/x", 0755);
        mkdir("a/x/b", 0755);
        mkdir("a/x/b/c", 0755);
        mkdir("m", 0755);
        SHOW(mount("a/x", "m", NULL, MS_BIND, NULL));
        int top = open("/a", O_RDONLY);
        SHOW(chdir("m/b"));
        SHOW(renameat(top, "x/b", top, "free"));
        stands_outside("moved by oneself");
    }));
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    if (count > 1) {
        if (!strcmp(words[1], "waits")) {
            tell(atoi(words[2]));
            hear(atoi(words[3]));
        }
        return 0;
    }
    umask(022);
    chmod(".", 0755);
    put_text("outside", "outside");
    put_text("of_root", "secret");
    chmod("of_root", 0600);
    put_text("mine", "mine");
    chown("mine", OUTSIDER, OUTSIDER);
    mkdir("data", 0755);
    put_text("data/file", "data");
    chown("data/file", OUTSIDER, OUTSIDER);
    mkdir("jail", 0777);
    int go[2];
    pipe(go);
    pid_t victim = CHILD({
        close(go[1]);
        hear(go[0]);
    });
    paths();
    mounts();
    identities();
    others(victim);
    programs();
    moved();
    overlays();
    close(go[1]);
    REAP(victim);
    return 0;
}
