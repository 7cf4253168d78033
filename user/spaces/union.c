/* Unions of directories, made of overlays.
 *
 * A union has components in an order; a name means what the first one has that has it. The overlay at its place lists them: all are lower layers, or the first is the upper layer,
 * which new files go to. What was at the place is a component itself, named by the place. To add one, the overlay is taken away, so that the place shows that component again, and
 * another one with the longer list is mounted.
 *
 * So only the first directory can be the one where files are created, and what is changed in a later one is copied there first; without one nothing in the union can be changed.
 */
#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* What stands for its device in the tables of mounts. */
#define SOURCE "bind"

struct components {
    const char *paths[COMPONENTS_MAX];
    size_t length;
    /* Whether files are created in the first one, and its work directory. */
    int creation;
    const char *work;
};

static void insert(struct components *components, enum order order, const char *path)
{
    if (components->length == COMPONENTS_MAX)
        fail("a union has %d directories at most", COMPONENTS_MAX);
    if (order == ORDER_BEFORE)
        memmove(components->paths + 1, components->paths, components->length * sizeof *components->paths);
    components->paths[order == ORDER_BEFORE ? 0 : components->length] = path;
    components->length++;
}

/* The value of an option, up to the next comma; a copy. */
static char *option(const char *options, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = options; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && at[length] == '=')
            return strndup(at + length + 1, strcspn(at + length + 1, ","));
    return NULL;
}

/* What the place consists of: of a union that is there already, or of itself. */
static int components_of(struct components *components, const char *place)
{
    int fd = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail_at(0, "%s", place);
    struct table table = read_table("/proc/self/mountinfo");
    const struct entry *here = mount_of(&table, fd);
    close(fd);
    int is_union = here && !strcmp(here->type, "overlay") && !strcmp(here->source, SOURCE) && !strcmp(here->target, place);
    if (!is_union) {
        insert(components, ORDER_AFTER, place);
        return 0;
    }
    char *upper = option(here->options, "upperdir"), *lower = option(here->options, "lowerdir"), *end = NULL;
    if (upper)
        insert(components, ORDER_AFTER, upper);
    components->creation = upper != NULL;
    components->work = option(here->options, "workdir");
    for (char *path = lower ? strtok_r(lower, ":", &end) : NULL; path; path = strtok_r(NULL, ":", &end))
        insert(components, ORDER_AFTER, path);
    return 1;
}

/* The work directory of a union that files are created in: on the same file system as they, and not below them. */
static const char *work_directory(const struct step *step, const char *source)
{
    if (step->work) {
        char *given = realpath(step->work, NULL);
        if (!given)
            fail_at(step->line, "%s", step->work);
        return given;
    }
    const char *slash = strrchr(source, '/');
    char *path = allocate(strlen(source) + sizeof ".-union");
    sprintf(path, "%.*s/.%s-union", (int)(slash - source), source, slash + 1);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        fail_at(step->line, "%s, for work beside %s (-w names another directory)", path, source);
    struct stat own, beside;
    if (stat(source, &own) < 0 || lstat(path, &beside) < 0 || !S_ISDIR(beside.st_mode) || beside.st_uid != geteuid())
        fail_at(step->line, "%s is no directory of the caller's own", path);
    if (own.st_dev != beside.st_dev) {
        rmdir(path);
        errno = 0;
        fail_at(step->line, "%s is a mount of its own: name a directory on it, beside the one that is bound, with -w", source);
    }
    return path;
}

static int mount_union(const struct components *components, const char *place)
{
    char options[OPTIONS_MAX];
    size_t used = 0, first = components->creation ? 1 : 0;
    used += (size_t)snprintf(options, sizeof options, "lowerdir=");
    for (size_t index = first; index < components->length && used < sizeof options; index++)
        used += (size_t)snprintf(options + used, sizeof options - used, "%s%s", index > first ? ":" : "", components->paths[index]);
    if (components->creation && used < sizeof options)
        used += (size_t)snprintf(options + used, sizeof options - used, ",upperdir=%s,workdir=%s", components->paths[0], components->work);
    if (used >= sizeof options) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mount(SOURCE, place, "overlay", 0, options);
}

void unite(const struct step *step, const char *place)
{
    struct components before = { .length = 0 };
    char *source = realpath(step->source, NULL);
    struct stat about;
    if (!source || stat(source, &about) < 0)
        fail_at(step->line, "%s", step->source);
    errno = 0;
    if (!S_ISDIR(about.st_mode))
        fail_at(step->line, "%s: only directories make a union", step->source);
    if (strpbrk(source, ":,\\ \t\n") || strpbrk(place, ":,\\ \t\n"))
        fail_at(step->line, "a directory with a colon, comma, backslash or blank in its path can't be in a union");
    if (step->recursive || step->flags)
        fail_at(step->line, "a union has no options, and nothing is bound recursively into it");
    if (step->creation && step->order == ORDER_AFTER)
        fail_at(step->line, "files can be created in a union's first directory only: -b with -c");
    int is_union = components_of(&before, place);
    if (before.creation && step->order == ORDER_BEFORE)
        fail_at(step->line, "files are created in %s, which must stay the first directory of %s", before.paths[0], place);
    struct components after = before;
    insert(&after, step->order, source);
    if (step->creation) {
        after.creation = 1;
        after.work = work_directory(step, source);
    }
    if (is_union && umount2(place, MNT_DETACH) < 0)
        fail_at(step->line, "taking the union at %s apart", place);
    if (mount_union(&after, place) == 0)
        return;
    int error = errno;
    if (is_union && mount_union(&before, place) < 0)
        note("the union that was at %s is lost", place);
    errno = error;
    fail_at(step->line, "making a union at %s", place);
}
