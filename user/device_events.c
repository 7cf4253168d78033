/* The program of /proc/sys/kernel/hotplug: started for every device event with what there is to say in its environment, as root, without
 * open files, a child of process 1 that nobody needs to wait for. This program is its own helper.
 *
 * abi: guest
 */
#include "guest.h"
#include <linux/loop.h>

#define SETTING "/proc/sys/kernel/hotplug"
#define EVENTS "/tmp/device-events"



static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "-";
}

/* What the kernel starts: one line into the pipe, in one write. */
static int helper(const char *subsystem)
{
    char line[512];
    int opened = dup(0) >= 0;
    int pipe = open(EVENTS, O_WRONLY);
    int count = snprintf(line, sizeof line, "%s %s %s %s %s:%s %s files=%d user=%d parent=%d home=%s\n", subsystem, variable("ACTION"),
                         variable("DEVPATH"), variable("SUBSYSTEM"), variable("MAJOR"), variable("MINOR"), variable("DEVNAME"), opened,
                         (int)getuid(), (int)getppid(), variable("HOME"));
    return write(pipe, line, (size_t)count) == count ? 0 : 1;
}

static void set(const char *program)
{
    int fd = open(SETTING, O_WRONLY | O_TRUNC);
    EXPECT(write(fd, program, strlen(program)) == (ssize_t)strlen(program), "%s", ERRNO_NAME(errno));
    close(fd);
}

/* The next line of the pipe that is about the test's device: the machine's own may still be found meanwhile. */
static const char *next_event(int pipe)
{
    static char line[512];
    do {
        size_t used = 0;
        while (used < sizeof line - 1 && read(pipe, line + used, 1) == 1 && line[used] != '\n')
            used++;
        line[used] = 0;
    } while (line[0] && !strstr(line, "/loop55 "));
    return line;
}

int main(int count, char **arguments)
{
    if (count > 1 && getenv("ACTION"))
        return helper(arguments[1]);
    const char *self = "/abi/bin/device_events";
    char long_path[300], expected[512];
    EXPECT(!strcmp(contents_of(SETTING), "\n"), "'%s' before anybody set it", contents_of(SETTING));
    unlink(EVENTS);
    EXPECT(!mkfifo(EVENTS, 0600), "%s", ERRNO_NAME(errno));
    int pipe = open(EVENTS, O_RDWR), control = open("/dev/loop-control", O_RDWR);
    set(self);
    EXPECT(!strncmp(contents_of(SETTING), self, strlen(self)), "'%s'", contents_of(SETTING));
    EXPECT(ioctl(control, LOOP_CTL_ADD, 55) == 55, "%s", ERRNO_NAME(errno));
    snprintf(expected, sizeof expected,
             "block add /devices/virtual/block/loop55 block 7:55 loop55 files=0 user=0 parent=1 home=/");
    const char *event = next_event(pipe);
    EXPECT(!strcmp(event, expected), "%s", event);
    EXPECT(ioctl(control, LOOP_CTL_REMOVE, 55) == 55, "%s", ERRNO_NAME(errno));
    event = next_event(pipe);
    EXPECT(!strncmp(event, "block remove /devices/virtual/block/loop55 ", 43), "%s", event);

    /* Asked for by hand, as programs do that came too late. */
    EXPECT(ioctl(control, LOOP_CTL_ADD, 55) == 55, "%s", ERRNO_NAME(errno));
    event = next_event(pipe);
    EXPECT(!strncmp(event, "block add ", 10), "%s", event);

    /* A program that is not there, and a path that is too long, harm nobody. */
    set("/does/not/exist\n");
    EXPECT(ioctl(control, LOOP_CTL_REMOVE, 55) == 55, "%s", ERRNO_NAME(errno));
    memset(long_path, '/', sizeof long_path);
    int fd = open(SETTING, O_WRONLY);
    EXPECT(write(fd, long_path, sizeof long_path) == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    close(fd);
    set("\n");
    EXPECT(!strcmp(contents_of(SETTING), "\n"), "'%s'", contents_of(SETTING));

    /* Devices by class and by number. */
    EXPECT(!strcmp(contents_of("/sys/class/mem/null/dev"), "1:3\n"), "%s", contents_of("/sys/class/mem/null/dev"));
    EXPECT(!strcmp(contents_of("/sys/dev/char/1:5/uevent"), "MAJOR=1\nMINOR=5\nDEVNAME=zero\nDEVMODE=0666\n"), "%s",
           contents_of("/sys/dev/char/1:5/uevent"));
    unlink(EVENTS);
    return verdict_failed;
}
