/* The connections of file servers as directories: what waits, limits, and the end by hand. */
#include "fuse.h"

static char control[64];

static const char *in(const char *name)
{
    static char path[4][100];
    static int turn;
    char *place = path[turn++ % 4];
    snprintf(place, sizeof path[0], "c/%s/%s", control, name);
    return place;
}

static void show_text(const char *name)
{
    char text[100] = "";
    int fd = open(in(name), O_RDONLY);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (count < 0)
        printf("   %s: %s\n", name, ERRNO_NAME(errno));
    else
        printf("   %s: %s", name, text);
    if (fd >= 0)
        close(fd);
}

static int write_text(const char *name, const char *text)
{
    int fd = open(in(name), O_WRONLY);
    if (fd < 0)
        return -1;
    ssize_t count = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return count;
}

static void show_mode(const char *name)
{
    struct stat found;
    stat(name[0] ? in(name) : in("."), &found);
    printf("   %s: %o %d:%d\n", name, found.st_mode, found.st_uid, found.st_gid);
}

int main(void)
{
    struct stat found;
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    mkdir("c", 0755);
    make_world();
    add_node(1, "file", S_IFREG | 0644, "0123456789");
    SHOW(mount("none", "c", "fusectl", 0, NULL));
    SHOW(mount_world("m", 0, ""));
    SHOW(stat("m", &found));
    snprintf(control, sizeof control, "%d", minor(found.st_dev));
    SHOW(access(in("."), F_OK));
    show_mode("");
    show_mode("waiting");
    show_mode("abort");
    show_mode("max_background");
    show_mode("congestion_threshold");
    show_text("waiting");
    show_text("max_background");
    show_text("congestion_threshold");
    SHOW(write_text("max_background", "20\n"));
    SHOW(write_text("congestion_threshold", "15"));
    SHOW(write_text("max_background", "x"));
    SHOW(write_text("waiting", "1"));
    show_text("max_background");
    show_text("congestion_threshold");
    world->silent = 1ull << FUSE_LOOKUP;
    pid_t waiting = CHILD(SHOW(stat("m/file", &found)));
    for (int tries = 0; tries < LOOKS && atomic_load(&world->waiting_opcode) != FUSE_LOOKUP; tries++)
        pause_ms(1);
    show_text("waiting");
    int fd = open("m", O_RDONLY | O_DIRECTORY);
    int aborted = write_text("abort", "1");
    REAP(waiting);
    SHOW(aborted);
    SHOW(stat("m/file", &found));
    SHOW(fstat(fd, &found));
    close(fd);
    int ended;
    SHOW(waitpid(world->pid, &ended, 0) == world->pid);
    printf("   %s\n", how_ended(ended));
    SHOW(umount("m"));
    SHOW(access(in("."), F_OK));
    SHOW(umount("c"));
    return 0;
}
