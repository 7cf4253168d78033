/* Carrying out steps: what a mount's options mean, places below a root directory, mounting and binding. */
#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned long set, cleared;
} words_of_flags[] = {
    { "ro", MS_RDONLY, 0 },         { "rw", 0, MS_RDONLY },         { "nosuid", MS_NOSUID, 0 },
    { "suid", 0, MS_NOSUID },       { "nodev", MS_NODEV, 0 },       { "dev", 0, MS_NODEV },
    { "noexec", MS_NOEXEC, 0 },     { "exec", 0, MS_NOEXEC },       { "noatime", MS_NOATIME, 0 },
    { "nodiratime", MS_NODIRATIME, 0 }, { "relatime", MS_RELATIME, 0 }, { "nosymfollow", MS_NOSYMFOLLOW, 0 },
};

void take_options(struct step *step, const char *text)
{
    char *left = allocate(strlen(text) + 1), *copy = copy_of(text), *end = NULL;
    for (char *word = strtok_r(copy, ",", &end); word; word = strtok_r(NULL, ",", &end)) {
        size_t number = sizeof words_of_flags / sizeof *words_of_flags, index = 0;
        while (index < number && strcmp(word, words_of_flags[index].name))
            index++;
        if (index < number) {
            step->flags = (step->flags & ~words_of_flags[index].cleared) | words_of_flags[index].set;
        } else {
            strcat(left, *left ? "," : "");
            strcat(left, word);
        }
    }
    free(copy);
    step->options = *left ? left : NULL;
}

static int open_below(int root, const char *path, int flags, mode_t mode)
{
    struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC), .mode = mode };
    how.resolve = root == AT_FDCWD ? 0 : RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* Makes a directory below the root, whose parent is there. */
static int make_directory(int root, const char *path)
{
    char *parent = copy_of(path), *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : parent;
    if (slash)
        *slash = 0;
    int folder = open_below(root, slash && slash != parent ? parent : "/", O_PATH | O_DIRECTORY, 0);
    int result = folder < 0 ? -1 : mkdirat(folder, name, 0755);
    if (folder >= 0)
        close(folder);
    free(parent);
    return result == 0 || errno == EEXIST ? 0 : -1;
}

int open_place(int root, const char *path, int make, int directory)
{
    int fd = open_below(root, path, O_PATH, 0);
    if (fd >= 0 || !make || errno != ENOENT)
        return fd;
    char *so_far = copy_of(path);
    for (char *end = so_far; *end && (end = strchr(end + 1, '/'));) {
        *end = 0;
        int here = open_below(root, so_far, O_PATH | O_DIRECTORY, 0);
        if (here >= 0)
            close(here);
        else if (make_directory(root, so_far) < 0)
            return -1;
        *end = '/';
    }
    free(so_far);
    if (directory)
        return make_directory(root, path) < 0 ? -1 : open_below(root, path, O_PATH, 0);
    int file = open_below(root, path, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (file >= 0)
        close(file);
    return open_below(root, path, O_PATH, 0);
}

/* The name by which a call finds what a descriptor has open. */
static const char *name_of(int fd)
{
    static char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return name;
}

char *path_of(int fd)
{
    char path[PATH_MAX];
    ssize_t length = readlink(name_of(fd), path, sizeof path - 1);
    if (length < 0)
        fail_at(0, "/proc/self/fd");
    path[length] = 0;
    return copy_of(path);
}

/* The flags that a mount has already: who may not clear them must say them again. */
static unsigned long flags_at(const char *path)
{
    struct statvfs about;
    if (statvfs(path, &about) < 0)
        return 0;
    return ((about.f_flag & ST_RDONLY) ? MS_RDONLY : 0) | ((about.f_flag & ST_NOSUID) ? MS_NOSUID : 0) |
           ((about.f_flag & ST_NODEV) ? MS_NODEV : 0) | ((about.f_flag & ST_NOEXEC) ? MS_NOEXEC : 0) |
           ((about.f_flag & ST_NOATIME) ? MS_NOATIME : 0) | ((about.f_flag & ST_NODIRATIME) ? MS_NODIRATIME : 0) |
           ((about.f_flag & ST_RELATIME) ? MS_RELATIME : 0);
}

static void bind_at(const struct step *step, const char *place)
{
    unsigned long kind = MS_BIND | (step->recursive ? MS_REC : 0);
    if (mount(step->source, place, NULL, kind, NULL) < 0)
        fail_at(step->line, "binding %s to %s", step->source, step->target);
    if (step->flags) {
        unsigned long flags = step->flags | flags_at(place);
        if (mount(NULL, place, NULL, MS_REMOUNT | MS_BIND | flags, NULL) < 0)
            fail_at(step->line, "setting the options of %s", step->target);
    }
}

static void carry_out(const struct step *step, int root, int make)
{
    struct stat source;
    int directory = 1;
    if (!step->type) {
        if (stat(step->source, &source) < 0)
            fail_at(step->line, "%s", step->source);
        directory = S_ISDIR(source.st_mode);
    }
    int fd = open_place(root, step->target, make, directory);
    if (fd < 0)
        fail_at(step->line, "%s", step->target);
    char *place = path_of(fd);
    close(fd);
    if (step->type) {
        if (mount(step->source, place, step->type, step->flags, step->options) < 0)
            fail_at(step->line, "mounting %s at %s", step->type, step->target);
    } else if (step->order == ORDER_REPLACE) {
        bind_at(step, place);
    } else {
        unite(step, place);
    }
    free(place);
}

void mount_all(const struct step *steps, size_t count, int root, int make)
{
    for (size_t index = 0; index < count; index++)
        carry_out(&steps[index], root, make);
}
