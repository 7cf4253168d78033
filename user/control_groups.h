/* What the programs about control groups share: the tree, mounted at a place of their own, and short ways to its files. */
#ifndef CONTROL_GROUPS_H
#define CONTROL_GROUPS_H
#include "guest.h"

#define TREE "/sys/fs/cgroup"

static inline void mount_groups(void)
{
    mkdir(TREE, 0755);
    if (mount("cgroup2", TREE, "cgroup2", 0, "") < 0 && errno != EBUSY) {
        printf("FAILED: mount: %s\n", strerror(errno));
        exit(1);
    }
}

/* Writes to a file of a group; 0, or the error's number. */
static inline int put(const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, TREE "/%s", file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = write(fd, text, strlen(text)) < 0 ? errno : 0;
    close(fd);
    return error;
}

static inline int put_number(const char *file, long number)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    return put(file, text);
}

/* What a file of a group shows; good until the next but seven calls. */
static inline const char *get(const char *file)
{
    static char texts[8][4096];
    static int turn;
    char path[512], *text = texts[turn++ % 8];
    snprintf(path, sizeof path, TREE "/%s", file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof texts[0] - 1);
    if (count < 0)
        count = snprintf(text, sizeof texts[0], "%s", strerrorname_np(errno));
    if (fd >= 0)
        close(fd);
    text[count] = 0;
    return text;
}

static inline int make(const char *group)
{
    char path[512];
    snprintf(path, sizeof path, TREE "/%s", group);
    return mkdir(path, 0755) < 0 ? errno : 0;
}

static inline int take_away(const char *group)
{
    char path[512];
    snprintf(path, sizeof path, TREE "/%s", group);
    return rmdir(path) < 0 ? errno : 0;
}

/* The number behind a name in a file of a group; -1 when it is missing. */
static inline long number_in(const char *file, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, TREE "/%s", file);
    return figure(path, name);
}

/* Waits until a file of a group has a line; whether it came. */
static inline int comes_to(const char *file, const char *name, long value)
{
    for (int tries = 0; tries < PATIENCE_CS; tries++) {
        if (number_in(file, name) == value)
            return 1;
        pause_ms(10);
    }
    return 0;
}

/* Removes a group that processes are leaving. */
static inline int is_taken_away(const char *group)
{
    int error = EBUSY;
    for (int tries = 0; tries < PATIENCE_CS && (error = take_away(group)) == EBUSY; tries++)
        pause_ms(10);
    return error == 0;
}

#define SAYS(file, text) EXPECT(!strcmp(get(file), text), "%s is %s", file, get(file))
#define FAILS(error, call)                                                                                             \
    do {                                                                                                               \
        int failed_ = (call);                                                                                          \
        EXPECT(failed_ == (error), "%s says %s", #call, failed_ ? strerrorname_np(failed_) : "0");                     \
    } while (0)
#define WORKS(call) FAILS(0, call)
#endif
