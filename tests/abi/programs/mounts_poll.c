/* Polling the lists of mounts: a change is told once to each open file, by poll, select and epoll. */
#include "abi.h"

static const char *events_name(int events)
{
    static char text[64];
    snprintf(text, sizeof text, "%s%s%s%s", events & POLLIN ? " in" : "", events & POLLPRI ? " pri" : "",
             events & POLLERR ? " err" : "", events & ~(POLLIN | POLLPRI | POLLERR) ? " more" : "");
    return text;
}

static void show(const char *what, int file, int wanted)
{
    struct pollfd one = {.fd = file, .events = (short)wanted};
    int count = poll(&one, 1, 0);
    printf("%s: %d%s\n", what, count, events_name(one.revents));
}

int main(void)
{
    const char *names[] = {"/proc/self/mounts", "/proc/mounts", "/proc/self/mountinfo", "/proc/thread-self/mountinfo"};
    char text[65536];
    mkdir("place", 0755);
    for (int index = 0; index < 4; index++) {
        int file = open(names[index], O_RDONLY), other = open(names[index], O_RDONLY);
        printf("%s\n", names[index]);
        show("at first", file, POLLIN | POLLPRI);
        show("only what is exceptional", file, POLLPRI);
        mount("none", "place", "tmpfs", 0, NULL);
        show("mounted", file, POLLPRI);
        show("again", file, POLLIN | POLLPRI);
        show("by another file", other, POLLIN | POLLPRI);
        mount(NULL, "place", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID, NULL);
        umount("place");
        TRUE(pread(file, text, sizeof text, 0) > 0);
        show("read before", file, POLLIN | POLLPRI);
        show("asked for nothing", file, 0);
        mount("none", "place", "tmpfs", 0, NULL);
        show("asked for nothing", file, 0);
        umount("place");
        fd_set exceptional;
        FD_ZERO(&exceptional);
        FD_SET(file, &exceptional);
        struct timeval now = {0, 0};
        SHOW(select(file + 1, NULL, NULL, &exceptional, &now));
        FD_SET(file, &exceptional);
        SHOW(select(file + 1, NULL, NULL, &exceptional, &now));
        pid_t child = CHILD({
            usleep(30000);
            mount("none", "place", "tmpfs", 0, NULL);
        });
        struct pollfd one = {.fd = file, .events = POLLPRI};
        printf("waited: %d", poll(&one, 1, 20000));
        printf("%s\n", events_name(one.revents));
        waitpid(child, NULL, 0);
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLPRI}, found = {0};
        SHOW(epoll_ctl(set, EPOLL_CTL_ADD, file, &event));
        SHOW(epoll_wait(set, &found, 1, 0));
        child = CHILD({
            usleep(30000);
            umount("place");
        });
        SHOW(epoll_wait(set, &found, 1, 20000));
        printf("%s\n", events_name((int)found.events));
        SHOW(epoll_wait(set, &found, 1, 0));
        waitpid(child, NULL, 0);
        close(set);
        close(file);
        close(other);
    }
    int file = open("/proc/self/mountstats", O_RDONLY);
    mount("none", "place", "tmpfs", 0, NULL);
    show("mountstats", file, POLLIN | POLLPRI);
    SHOW(umount("place"));
    return 0;
}
