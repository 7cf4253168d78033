/* `newns`: a command in a name space of mounts of its own, which a profile may describe. */
#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STATUS_NOT_EXECUTABLE = 126, STATUS_MISSING = 127 };

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        fail_at(0, "%s", path);
    close(fd);
}

/* A name space of users in which the caller is who he is outside, and may mount. */
static void enter_users(void)
{
    char map[64];
    uid_t user = geteuid();
    gid_t group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        fail_at(0, "making a name space of users");
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1\n", user, user);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1\n", group, group);
    write_file("/proc/self/gid_map", map);
}

/* So that what is executed may go on mounting: these stay with a program that has none of its own. The second counts for files of the caller's own only; the work
 * directory of a union is one that even he may not write otherwise. */
static void keep_capabilities(void)
{
    static const unsigned int kept[] = { CAP_SYS_ADMIN, CAP_DAC_OVERRIDE };
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        fail_at(0, "capget");
    for (size_t index = 0; index < sizeof kept / sizeof *kept; index++)
        data[0].inheritable |= 1u << kept[index];
    if (syscall(SYS_capset, &header, data) < 0)
        fail_at(0, "capset");
    for (size_t index = 0; index < sizeof kept / sizeof *kept; index++)
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, kept[index], 0, 0) < 0)
            fail_at(0, "keeping the right to mount");
}

void enter_space(const struct space *space)
{
    int own_users = space->own_users;
    if (!own_users && unshare(CLONE_NEWNS) < 0) {
        if (errno != EPERM)
            fail_at(0, "making a name space of mounts");
        own_users = 1;
    }
    if (own_users)
        enter_users();
    /* Nothing is to go back. Normal users can't say so, and their name spaces are private without. */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 && errno != EPERM)
        fail_at(0, "keeping mounts from others");
    if (own_users && geteuid() != 0 && !space->restricted)
        keep_capabilities();
}

/* Mounts the steps below a new root directory, in which there is nothing else, and makes that the root. */
static void build_blank(const struct step *steps, size_t count)
{
    char staging[] = "/tmp/newns.XXXXXX";
    int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 || !mkdtemp(staging))
        fail_at(0, "%s", staging);
    if (mount("newns", staging, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") < 0)
        fail_at(0, "an empty root directory");
    int root = open(staging, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        fail_at(0, "%s", staging);
    mount_all(steps, count, root, 1);
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        fail_at(0, "changing the root directory");
    unlinkat(old, staging + 1, AT_REMOVEDIR);
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        fail_at(0, "leaving the former root directory");
    close(old);
    close(root);
}

void run_in_space(const struct space *space, const struct step *steps, size_t count, char **command)
{
    enter_space(space);
    if (space->blank)
        build_blank(steps, count);
    else
        mount_all(steps, count, AT_FDCWD, 0);
    if (space->restricted)
        restrict_mounts();
    execvp(command[0], command);
    int error = errno;
    note("%s: %s", command[0], strerror(error));
    exit(error == ENOENT ? STATUS_MISSING : STATUS_NOT_EXECUTABLE);
}

int newns_main(int count, char **words)
{
    static const char usage[] = "usage: newns [-b] [-r] [-U] [-f PROFILE] COMMAND [ARGUMENT...]";
    static struct step steps[STEPS_MAX];
    struct space space = { .blank = 0 };
    const char *file = NULL;
    for (int letter; (letter = getopt(count, words, "+brUf:")) != -1;) {
        if (letter == 'b')
            space.blank = 1;
        else if (letter == 'r')
            space.restricted = 1;
        else if (letter == 'U')
            space.own_users = 1;
        else if (letter == 'f')
            file = optarg;
        else
            fail("%s", usage);
    }
    if (optind == count)
        fail("%s", usage);
    size_t made = file ? read_profile(file, steps) : 0;
    run_in_space(&space, steps, made, words + optind);
}
