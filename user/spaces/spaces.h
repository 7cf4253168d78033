/* What `bind`, `newns` and `nsdup` share: tools for private name spaces as Plan 9 has them (docs/src/name-spaces.md).
 *
 * They are one program, which looks at the name that it was called by. All three end in `mount_all`: `bind` with one step, `newns` with those of a profile, `nsdup` with
 * those that make what another process has.
 */
#ifndef SPACES_H
#define SPACES_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

/* What a profile may have at most; more is refused before anything is mounted. */
enum { STEPS_MAX = 256, PROFILE_BYTES_MAX = 65536, WORDS_MAX = 8 };
/* Directories of a union; and the bytes of a mount's options, which the kernel takes a page of. */
enum { COMPONENTS_MAX = 64, OPTIONS_MAX = 4096 };

enum order { ORDER_REPLACE, ORDER_BEFORE, ORDER_AFTER };

/* Something to mount, or to bind. */
struct step {
    /* The line of the profile, or 0. */
    int line;
    /* Of a mount only; a bind has none. */
    const char *type;
    const char *source, *target;
    /* Flags of mount(2), and options for the file system. */
    unsigned long flags;
    const char *options;
    /* Of a bind only: with all that is mounted below; where it goes; whether new files go there. */
    int recursive;
    enum order order;
    int creation;
    /* Where a union that files are created in has its work directory; beside the source if there is none. */
    const char *work;
};

/* What a name space is to be like. */
struct space {
    int blank, restricted, own_users;
};

/* A line of mountinfo. */
struct entry {
    int id;
    unsigned int major, minor;
    char *root, *target, *type, *source, *options;
    unsigned long flags;
};

struct table {
    struct entry *entries;
    size_t length;
};

/* Says what is wrong, with the name of the tool, and ends with status 125. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
/* The same with the error that `errno` has, and with the line of the profile. */
__attribute__((noreturn, format(printf, 2, 3))) void fail_at(int line, const char *format, ...);
/* Says something and goes on. */
__attribute__((format(printf, 1, 2))) void note(const char *format, ...);
extern const char *tool;
extern const char *profile;

void *allocate(size_t bytes);
char *copy_of(const char *text);

/* Splits `ro,nosuid,size=1m` into flags of mount(2) and what the file system is to hear. */
void take_options(struct step *step, const char *text);
/* Takes `\040` and the like for the bytes that they stand for, in place. */
void decode(char *text);

struct table read_table(const char *path);
/* The mount that a descriptor's file is on, or 0. */
const struct entry *mount_of(const struct table *table, int fd);

/* Opens a place below a root directory that no path leads out of; with `make`, makes what is missing: a directory, or a file. */
int open_place(int root, const char *path, int make, int directory);
/* The path of what a descriptor has open. */
char *path_of(int fd);

/* Makes a union of what is at the place and the step's source. */
void unite(const struct step *step, const char *place);

size_t read_profile(const char *path, struct step *steps);
void mount_all(const struct step *steps, size_t count, int root, int make);

/* Gives this process a name space of mounts of its own. */
void enter_space(const struct space *space);
/* Does so, mounts the steps there, and executes the command. */
__attribute__((noreturn)) void run_in_space(const struct space *space, const struct step *steps, size_t count, char **command);
/* Takes from this process, and from those it starts, every call that changes what is mounted. */
void restrict_mounts(void);

int bind_main(int count, char **words);
int newns_main(int count, char **words);
int nsdup_main(int count, char **words);
#endif
