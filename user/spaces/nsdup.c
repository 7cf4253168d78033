/* `nsdup`: a command in a name space of mounts with the binds, the unions and the mounts of 9P that another process has.
 *
 * What the other process has, and the caller has not, is in the difference of their tables of mounts. A bind is a mount of a file system that the caller has mounted somewhere, too,
 * with enough of it to reach the same directory: that is its source. File systems that can't be mounted a second time, as those in memory and of user programs, are
 * told of and left out.
 */
#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int is_same(const struct entry *one, const struct entry *other)
{
    return one->major == other->major && one->minor == other->minor && !strcmp(one->root, other->root) && !strcmp(one->target, other->target);
}

static int has(const struct table *table, const struct entry *wanted)
{
    for (size_t index = 0; index < table->length; index++)
        if (is_same(&table->entries[index], wanted))
            return 1;
    return 0;
}

/* What is left of a path after a directory that it begins with; 0 if it doesn't. */
static const char *below(const char *path, const char *directory)
{
    size_t length = strlen(directory);
    if (!strcmp(directory, "/"))
        return path;
    if (strncmp(path, directory, length) || (path[length] && path[length] != '/'))
        return NULL;
    return path + length;
}

/* A path at which the caller sees what the entry shows. */
static char *source_of(const struct table *own, const struct entry *wanted, const char *seen)
{
    struct stat there, here;
    int known = stat(seen, &there) == 0 && there.st_dev == makedev(wanted->major, wanted->minor);
    for (size_t index = 0; index < own->length; index++) {
        const struct entry *entry = &own->entries[index];
        const char *rest = below(wanted->root, entry->root);
        if (entry->major != wanted->major || entry->minor != wanted->minor || !rest)
            continue;
        char *path = allocate(strlen(entry->target) + strlen(rest) + 2);
        sprintf(path, "%s%s%s", strcmp(entry->target, "/") ? entry->target : "", *rest == '/' || !*rest ? "" : "/", rest);
        if (!*path)
            strcpy(path, "/");
        int fits = lstat(path, &here) == 0 && here.st_dev == makedev(wanted->major, wanted->minor);
        if (fits && (!known || here.st_ino == there.st_ino))
            return path;
        free(path);
    }
    return NULL;
}

/* What the kernel shows among the options and takes from nobody. */
static const char *without_shown(char *options)
{
    char *kept = allocate(strlen(options) + 1), *end = NULL;
    for (char *word = strtok_r(options, ",", &end); word; word = strtok_r(NULL, ",", &end)) {
        if (!strcmp(word, "rw") || !strcmp(word, "ro") || !strcmp(word, "relatime"))
            continue;
        strcat(kept, *kept ? "," : "");
        strcat(kept, word);
    }
    return kept;
}

/* What makes the entry; 0 if nothing can. */
static int step_for(struct step *step, const struct table *own, const struct entry *entry, const char *pid)
{
    char seen[PATH_MAX];
    snprintf(seen, sizeof seen, "/proc/%s/root%s", pid, entry->target);
    *step = (struct step){ .target = entry->target, .flags = entry->flags & ~(unsigned long)MS_RELATIME };
    if (!strcmp(entry->type, "9p")) {
        if (strstr(entry->options, "trans=fd") || strstr(entry->options, "rfdno=")) {
            note("%s: a server that is reached by descriptors, left out", entry->target);
            return 0;
        }
        step->type = "9p";
        step->source = entry->source;
        step->options = without_shown(entry->options);
        return 1;
    }
    if (!strcmp(entry->type, "overlay") && !strcmp(entry->source, "bind")) {
        if (strstr(entry->options, "upperdir=")) {
            note("%s: a union in which files are created can be in one name space only, left out", entry->target);
            return 0;
        }
        step->type = "overlay";
        step->source = entry->source;
        step->options = without_shown(entry->options);
        return 1;
    }
    step->source = source_of(own, entry, seen);
    if (!step->source)
        note("%s: a file system (%s) that the caller has not got, left out", entry->target, entry->type);
    return step->source != NULL;
}

/* A path as a profile has it. */
static void print_word(const char *word)
{
    for (; *word; word++)
        if (strchr(" \t\n\\#", *word))
            printf("\\%03o", (unsigned char)*word);
        else
            putchar(*word);
}

static const char *const names_of_flags[] = { "ro", "nosuid", "nodev", "noexec" };

static void print_step(const struct step *step)
{
    fputs(step->type ? "mount " : "bind ", stdout);
    if (step->type)
        printf("%s ", step->type);
    print_word(step->source);
    putchar(' ');
    print_word(step->target);
    const char *before = " ";
    for (size_t index = 0; index < sizeof names_of_flags / sizeof *names_of_flags; index++)
        if (step->flags >> index & 1) {
            printf("%s%s", before, names_of_flags[index]);
            before = ",";
        }
    if (step->type && step->options && *step->options) {
        fputs(before, stdout);
        print_word(step->options);
    }
    putchar('\n');
}

int nsdup_main(int count, char **words)
{
    static const char usage[] = "usage: nsdup [-r] [-U] PID COMMAND [ARGUMENT...] | nsdup -p PID";
    static struct step steps[STEPS_MAX];
    struct space space = { .blank = 0 };
    int print = 0;
    for (int letter; (letter = getopt(count, words, "+rUp")) != -1;) {
        if (letter == 'r')
            space.restricted = 1;
        else if (letter == 'U')
            space.own_users = 1;
        else if (letter == 'p')
            print = 1;
        else
            fail("%s", usage);
    }
    int left = count - optind;
    if (left < 1 || (print ? left != 1 : left < 2))
        fail("%s", usage);
    const char *pid = words[optind];
    if (!*pid || pid[strspn(pid, "0123456789")])
        fail("%s: no process number", pid);
    char path[64];
    if (snprintf(path, sizeof path, "/proc/%s/mountinfo", pid) >= (int)sizeof path)
        fail("%s: no process number", pid);
    struct table theirs = read_table(path), own = read_table("/proc/self/mountinfo");
    size_t made = 0;
    for (size_t index = 0; index < theirs.length; index++) {
        const struct entry *entry = &theirs.entries[index];
        if (has(&own, entry) || !strcmp(entry->target, "/"))
            continue;
        if (made == STEPS_MAX)
            fail("process %s has more than %d mounts of its own", pid, STEPS_MAX);
        made += (size_t)step_for(&steps[made], &own, entry, pid);
    }
    if (!print)
        run_in_space(&space, steps, made, words + optind + 1);
    for (size_t index = 0; index < made; index++)
        print_step(&steps[index]);
    return 0;
}
