/* The kernel log: syslog(2), /dev/kmsg and /proc/kmsg show the same lines, with their priorities, to who may see them.
 *
 * abi: guest
 * abi: limit 60
 */
#include "guest.h"
#include <sys/klog.h>

enum { READ = 2, READ_ALL = 3, READ_CLEAR = 4, CLEAR = 5, CONSOLE_LEVEL = 8, SIZE_UNREAD = 9, SIZE_BUFFER = 10 };

static char text[1 << 18];

static int all_contains(const char *wanted)
{
    int count = klogctl(READ_ALL, text, sizeof text - 1);
    EXPECT(count >= 0, "%s", strerror(errno));
    text[count > 0 ? count : 0] = 0;
    return strstr(text, wanted) != NULL;
}

int main(void)
{
    int log = open("/dev/kmsg", O_RDWR | O_NONBLOCK);
    EXPECT(log >= 0, "%s", strerror(errno));
    EXPECT(lseek(log, 0, SEEK_END) == 0, "%s", strerror(errno));
    EXPECT(read(log, text, sizeof text) == -1 && errno == EAGAIN, "something at the end");
    EXPECT(write(log, "<3>a bad thing\n", 15) == 15, "%s", strerror(errno));
    EXPECT(write(log, "plain \\ thing", 13) == 13, "%s", strerror(errno));
    ssize_t count = read(log, text, sizeof text - 1);
    EXPECT(count > 0, "%s", strerror(errno));
    text[count > 0 ? count : 0] = 0;
    EXPECT(!strncmp(text, "11,", 3) && strstr(text, ",-;a bad thing\n"), "%s", text);
    EXPECT(read(log, text, 4) == -1 && errno == EINVAL, "a record in four bytes");
    count = read(log, text, sizeof text - 1);
    text[count > 0 ? count : 0] = 0;
    EXPECT(!strncmp(text, "12,", 3) && strstr(text, ",-;plain \\x5c thing\n"), "%s", text);
    static char huge[5000];
    EXPECT(write(log, memset(huge, 'x', sizeof huge), sizeof huge) == -1 && errno == EINVAL, "a huge line");

    EXPECT(all_contains("] a bad thing\n"), "%s", text);
    EXPECT(strstr(text, "<11>["), "%s", text);
    EXPECT(klogctl(SIZE_BUFFER, NULL, 0) >= 16384, "%d", klogctl(SIZE_BUFFER, NULL, 0));
    int unread = klogctl(SIZE_UNREAD, NULL, 0);
    EXPECT(unread > 0, "%d", unread);
    int kmsg = open("/proc/kmsg", O_RDONLY | O_NONBLOCK);
    EXPECT(kmsg >= 0, "%s", strerror(errno));
    size_t total = 0;
    while (total < sizeof text - 1 && (count = read(kmsg, text + total, sizeof text - 1 - total)) > 0)
        total += (size_t)count;
    text[total] = 0;
    EXPECT(count == -1 && errno == EAGAIN, "%zd", count);
    EXPECT(strstr(text, "] plain \\ thing\n"), "%s", text);
    EXPECT(klogctl(SIZE_UNREAD, NULL, 0) == 0, "read lines are unread");
    /* A line of a process that a fault killed. */
    pid_t victim = CHILD({ *(volatile int *)16 = 1; });
    waitpid(victim, NULL, 0);
    EXPECT(all_contains("killed by signal 11"), "%s", text);
    /* A reader waits for the next line. */
    fcntl(kmsg, F_SETFL, 0);
    while (klogctl(SIZE_UNREAD, NULL, 0) > 0)
        if (read(kmsg, text, sizeof text) <= 0)
            break;
    pid_t writer = CHILD({
        pause_ms(50);
        write(log, "the awaited line", 16);
    });
    count = read(kmsg, text, sizeof text - 1);
    text[count > 0 ? count : 0] = 0;
    EXPECT(strstr(text, "the awaited line\n"), "%s", text);
    waitpid(writer, NULL, 0);
    EXPECT(klogctl(CLEAR, NULL, 0) == 0, "%s", strerror(errno));
    EXPECT(!all_contains("the awaited line"), "%s", text);
    EXPECT(klogctl(77, NULL, 0) == -1 && errno == EINVAL, "an unknown action");
    EXPECT(klogctl(READ, NULL, 5) == -1 && errno == EINVAL, "no buffer");
    EXPECT(klogctl(CONSOLE_LEVEL, NULL, 9) == -1 && errno == EINVAL, "a level of nine");
    /* What he may while the log is restricted is the matter of log_readers. */
    put_text("/proc/sys/kernel/dmesg_restrict", "0");
    pid_t other = CHILD({
        setresuid(65534, 65534, 65534);
        if (klogctl(READ_ALL, text, sizeof text) < 0 || klogctl(CLEAR, NULL, 0) == 0 || open("/proc/kmsg", O_RDONLY) >= 0)
            _exit(1);
    });
    int status = -1;
    waitpid(other, &status, 0);
    EXPECT(status == 0, "an ordinary user: %x", status);
    put_text("/proc/sys/kernel/dmesg_restrict", "1");
    /* Polls: at the end nothing, then the next line, wherever it comes from, also to those who wait already. */
    struct pollfd both[2] = { { .fd = log, .events = POLLIN }, { .fd = kmsg, .events = POLLIN } };
    int set = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN | EPOLLET }, found;
    EXPECT(epoll_ctl(set, EPOLL_CTL_ADD, log, &event) == 0, "%s", strerror(errno));
    for (int round = 0; round < 50; round++) {
        lseek(log, 0, SEEK_END);
        while (poll(both + 1, 1, 0) > 0)
            read(kmsg, text, sizeof text);
        EXPECT(poll(both, 2, 0) == 0, "something at the end: %x %x", both[0].revents, both[1].revents);
        while (epoll_wait(set, &found, 1, 0) > 0)
            ;
        writer = CHILD({
            if (round % 3)
                usleep(round * 500);
            write(log, "the polled line", 15);
        });
        EXPECT(epoll_wait(set, &found, 1, 60000) == 1, "epoll does not hear of a line");
        EXPECT(poll(both, 2, 60000) > 0, "nobody hears of a line");
        while (both[1].revents == 0)
            poll(both, 2, 60000);
        EXPECT(both[0].revents == POLLIN && both[1].revents == POLLIN, "%x %x", both[0].revents, both[1].revents);
        waitpid(writer, NULL, 0);
    }
    EXPECT(read(log, text, sizeof text) > 0, "%s", strerror(errno));
    int write_only = open("/dev/kmsg", O_WRONLY);
    struct pollfd writing = { .fd = write_only, .events = POLLOUT };
    EXPECT(poll(&writing, 1, 0) == 1 && writing.revents == POLLERR, "%x", writing.revents);
    close(write_only);
    /* Far more lines than there is room for: the reader is told once, and goes on. */
    lseek(log, 0, SEEK_SET);
    for (int line = 0; line < 3000; line++)
        write(log, "one of very many lines that fill the log", 40);
    EXPECT(poll(both, 1, 0) == 1 && both[0].revents == (POLLIN | POLLERR), "%x", both[0].revents);
    EXPECT(read(log, text, sizeof text) == -1 && errno == EPIPE, "lost lines");
    EXPECT(read(log, text, sizeof text) > 0, "%s", strerror(errno));
    return verdict_failed;
}
