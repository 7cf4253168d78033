/* Where the fuzzer's victims are: a place that root can't leave, either.
 *
 * The root directory of a victim is a file system in memory, made by its worker and used for some batches. A victim as root could leave a changed root
 * (chroot, a step back through a descriptor), and what it does to mounts, names and processes would then meet the test itself. So each has
 *
 * - a name space of mounts with nothing in it but its jail: it pivots into it and takes away what was there before, so no step back leads out, and no
 *   name space that it enters again has another root;
 * - a name space of processes: it sees, signals, traces and limits nobody who is not of its batch, whatever number it says, and calls of reboot end it
 *   alone. Its first process gets the batch's orphans, and all end with it;
 * - a control group, and a name space of groups that begins there: the tree that it sees under /group is its own. Half of the batches have a limit on
 *   memory from the start.
 *
 * A victim that does not get there makes no call. What is left to it is what the whole machine has one of: clocks, the log, the names of message queues and
 * System V objects, the network's abstract names. Its worker needs none of them.
 */
#ifndef FUZZ_JAIL_H
#define FUZZ_JAIL_H
#include "control_groups.h"

/* How a batch ends whose first process did not get there; the step that failed is added. */
enum { NO_JAIL = 70, JAIL_STEPS = 10 };

/* 0, or the error of what failed. */
static int copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    int error = out < 0 ? errno : 0;
    ssize_t moved;
    while (error == 0 && (moved = sendfile(out, in, NULL, 1 << 20)) != 0)
        if (moved < 0)
            error = errno;
    close(in);
    close(out);
    return error;
}

static void drop_jail(const char *jail)
{
    for (int layer = 0; layer < 16 && umount2(jail, MNT_DETACH) == 0; layer++)
        ;
    rmdir(jail);
}

/* What a jail has, made in the directory that the worker stands in. Stops at the first step that fails and returns its error: with
 * memory or files used up, a later step would only say that something is not there. */
static int furnish_jail(void)
{
    static const char *const folders[] = { "field", "field/dir", "field/tmpfs", "field/bound", "proc", "dev", "dev/pts", "group" };
    static const struct { const char *name; int major, minor; } devices[] = { { "dev/null", 1, 3 }, { "dev/zero", 1, 5 },
        { "dev/full", 1, 7 }, { "dev/random", 1, 8 }, { "dev/tty", 5, 0 }, { "dev/ptmx", 5, 2 } };
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++)
        if (mkdir(folders[i], 0777) < 0 || chmod(folders[i], 0777) < 0)
            return errno;
    if (mount("devpts", "dev/pts", "devpts", 0, NULL) < 0)
        return errno;
    for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++)
        if (mknod(devices[i].name, S_IFCHR | 0666, makedev((unsigned)devices[i].major, (unsigned)devices[i].minor)) < 0 ||
            chmod(devices[i].name, 0666) < 0)
            return errno;
    if (symlink("file", "field/link") < 0 || symlink("absent", "field/dangling") < 0 || symlink("loop", "field/loop") < 0 ||
        mkfifo("field/fifo", 0666) < 0 || chmod("field/fifo", 0666) < 0)
        return errno;
    int error = copy_file("/abi/tiny", "field/tiny");
    if (error != 0)
        return error;
    int script = open("field/script", O_CREAT | O_WRONLY, 0755);
    if (script < 0)
        return errno;
    static const char text[] = "#!/field/tiny script\n";
    error = write(script, text, sizeof text - 1) < 0 ? errno : 0;
    close(script);
    if (error != 0)
        return error;
    int sparse = open("field/sparse", O_CREAT | O_WRONLY, 0666);
    if (sparse < 0)
        return errno;
    error = ftruncate(sparse, 1ll << 40) < 0 ? errno : 0;
    close(sparse);
    return error;
}

/* A root directory for victims: a file system of its own, so that all of it can be dropped. 0, or why it is not complete. */
static int fill_jail(const char *jail)
{
    char here[128];
    if ((mkdir(jail, 0755) < 0 && errno != EEXIST) || mount("tmpfs", jail, "tmpfs", 0, NULL) < 0 || !getcwd(here, sizeof here) ||
        chdir(jail) < 0)
        return errno;
    int error = furnish_jail();
    return chdir(here) < 0 ? errno : error;
}

/* Makes a jail. Other workers' victims may have filled memory and all places for open files; that is tried again until they have been
 * killed. False when it can't be made. */
static int make_jail(int me, const char *jail, long long patience_ms)
{
    long long limit = now_ms() + patience_ms;
    for (;;) {
        int error = fill_jail(jail);
        if (error == 0)
            return 1;
        progress("fuzz worker %d: no jail: %s", me, ERRNO_NAME(error));
        drop_jail(jail);
        if ((error != ENOMEM && error != ENOSPC && error != ENFILE) || now_ms() > limit) {
            printf("FAILED: worker %d: no jail: %s\n", me, ERRNO_NAME(error));
            return 0;
        }
        pause_ms(10);
    }
}

/* A control group for a batch; victims of nobody may change it. */
static int make_group(const char *group, uint64_t seed)
{
    static const char *const limits[] = { "max", "max", "max", "64M", "24M", "12M", "8M", "4M" };
    static const char *const files[] = { "", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control", "/memory.max", "/memory.high", "/io.max",
        "/pids.max", "/cpu.max" };
    char name[128];
    int error = make(group);
    if (error != 0)
        return error;
    snprintf(name, sizeof name, "%s/memory.max", group);
    error = put(name, limits[(seed >> 8) % (sizeof limits / sizeof *limits)]);
    for (unsigned i = 0; i < sizeof files / sizeof *files && error == 0 && (seed & 1); i++) {
        snprintf(name, sizeof name, TREE "/%s%s", group, files[i]);
        error = chown(name, 65534, 65534) < 0 ? errno : 0;
    }
    return error;
}

/* Takes a batch's group away with all that it made below; its processes have ended. Whether it is gone. */
static int drop_group(const char *group)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, TREE "/%s", group);
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            char below_it[PATH_MAX];
            if ((size_t)snprintf(below_it, sizeof below_it, "%s/%s", group, entry->d_name) < sizeof below_it)
                drop_group(below_it);
        }
    if (folder)
        closedir(folder);
    return is_taken_away(group);
}

/* What the first process of a batch does, in its own name space of processes. 0, or the number of the step that failed: then it is not where nothing leads
 * out. */
static int enter_jail(const char *jail, const char *group)
{
    char procs[128];
    snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
    return put(procs, "0") != 0                                  ? 1
           : unshare(CLONE_NEWNS | CLONE_NEWCGROUP) < 0            ? 2
           : mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? 3
           : chdir(jail) < 0                                       ? 4
           : mount("proc", "proc", "proc", 0, NULL) < 0            ? 5
           : mount("cgroup2", "group", "cgroup2", 0, "") < 0       ? 6
           : syscall(SYS_pivot_root, ".", ".") < 0                 ? 7
           : umount2(".", MNT_DETACH) < 0                          ? 8
           : chdir("/field") < 0                                   ? 9
                                                                   : 0;
}
#endif
