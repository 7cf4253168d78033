/* Bytes out of band of local streams (MSG_OOB): the mark, what reads and looks find there, SO_OOBINLINE, polls and SIGURG. */
#include "abi.h"
#include <linux/sockios.h>
#include <sys/socket.h>
#include <sys/un.h>

static int pair[2];

static void show(const char *what, size_t room, int flags)
{
    char text[64] = {0};
    struct iovec vector = {text, room};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    ssize_t got = recvmsg(pair[0], &message, flags | MSG_DONTWAIT);
    if (got < 0)
        printf("%s: %s", what, ERRNO_NAME(errno));
    else
        printf("%s: %zd \"%s\" flags %#x", what, got, text, message.msg_flags);
    int at_mark = -1;
    struct pollfd poller = {pair[0], POLLIN | POLLPRI, 0};
    poll(&poller, 1, 0);
    if (ioctl(pair[0], SIOCATMARK, &at_mark))
        perror("SIOCATMARK");
    printf(", mark %d, poll %#x\n", at_mark, poller.revents);
}

static void put(const char *text, int flags)
{
    ssize_t sent = send(pair[1], text, strlen(text), flags | MSG_NOSIGNAL);
    printf("sent %zd of \"%s\"%s\n", sent, text, flags & MSG_OOB ? ", the last one urgent" : "");
}

static void inline_too(int on)
{
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
}

static void basics(void)
{
    puts("- the mark");
    show("nothing", 9, MSG_OOB);
    put("abc!", MSG_OOB);
    put("def", 0);
    show("look out of band", 9, MSG_OOB | MSG_PEEK);
    show("look", 9, MSG_PEEK);
    show("read", 9, 0);
    show("look at the mark", 9, MSG_PEEK);
    show("out of band", 9, MSG_OOB);
    show("again", 9, MSG_OOB);
    show("look at where it was", 9, MSG_PEEK);
    show("read", 9, 0);
    show("read", 9, 0);
    puts("- passed over");
    put("abc!", MSG_OOB);
    put("def", 0);
    show("read", 2, 0);
    show("read", 9, 0);
    show("read at the mark", 9, 0);
    show("out of band", 9, MSG_OOB);
    puts("- received before");
    put("abc!", MSG_OOB);
    put("def", 0);
    show("out of band", 9, MSG_OOB);
    show("look", 9, MSG_PEEK);
    show("read", 9, 0);
    show("read", 9, 0);
    puts("- two");
    put("a!", MSG_OOB);
    put("b?", MSG_OOB);
    put("c", 0);
    show("read", 9, 0);
    show("out of band", 9, MSG_OOB);
    show("read", 9, 0);
    puts("- nothing else");
    put("!", MSG_OOB);
    show("look", 9, MSG_PEEK);
    show("out of band", 9, MSG_OOB);
    show("read", 9, 0);
    put("!", MSG_OOB);
    show("read", 9, 0);
    puts("- all of it");
    put("abc!", MSG_OOB);
    put("def", 0);
    show("wait for all", 6, MSG_WAITALL);
    SHOW(recv(pair[0], (void *)8, 1, MSG_OOB));
    show("after the fault", 1, MSG_OOB);
    show("read", 9, 0);
}

static void in_line(void)
{
    puts("- in line");
    inline_too(1);
    put("abc!", MSG_OOB);
    put("def", 0);
    show("out of band", 9, MSG_OOB);
    show("look", 9, MSG_PEEK);
    show("read", 9, 0);
    show("look", 9, MSG_PEEK);
    show("read", 9, 0);
    show("read", 9, 0);
    put("a!", MSG_OOB);
    put("b?", MSG_OOB);
    show("read", 9, 0);
    show("read", 9, 0);
    inline_too(0);
}

static void refused(void)
{
    puts("- refused");
    int other[2], value = -1;
    SHOW(send(pair[1], "", 0, MSG_OOB));
    for (int kind = SOCK_DGRAM; kind <= SOCK_SEQPACKET; kind += SOCK_SEQPACKET - SOCK_DGRAM) {
        SHOW(socketpair(AF_UNIX, kind, 0, other));
        SHOW(send(other[0], "x", 1, MSG_OOB));
        SHOW(recv(other[0], &value, 1, MSG_OOB));
        close(other[0]);
        close(other[1]);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(send(fd, "x", 1, MSG_OOB));
    SHOW(recv(fd, &value, 1, MSG_OOB));
    SHOW(ioctl(fd, SIOCATMARK, (void *)8));
    close(fd);
}

static volatile sig_atomic_t urgent, owner_told;

static void on_urgent(int signal)
{
    (void)signal;
    urgent++;
}

static void told(void)
{
    puts("- who is told");
    signal(SIGURG, on_urgent);
    put("!", MSG_OOB);
    SHOW(urgent);
    SHOW(fcntl(pair[0], F_SETOWN, getpid()));
    SHOW(fcntl(pair[1], F_SETOWN, getpid()));
    put("x", 0);
    SHOW(urgent);
    put("!", MSG_OOB);
    SHOW(urgent);
    /* Whoever the signal of the file is for, this one is SIGURG. */
    SHOW(fcntl(pair[0], F_SETSIG, SIGUSR1));
    put("!", MSG_OOB);
    SHOW(urgent);
    SHOW(fcntl(pair[0], F_SETOWN, -getpgrp()));
    pid_t child = CHILD({
        signal(SIGURG, on_urgent);
        while (!urgent)
            pause_ms(1);
        puts("the group, too");
    });
    while (waitpid(child, NULL, WNOHANG) == 0) {
        send(pair[1], "!", 1, MSG_OOB | MSG_DONTWAIT);
        pause_ms(10);
        recv(pair[0], (char[64]){0}, 64, MSG_DONTWAIT);
    }
    signal(SIGURG, SIG_DFL);
    while (recv(pair[0], (char[64]){0}, 64, MSG_DONTWAIT) > 0)
        ;
    SHOW(fcntl(pair[0], F_SETOWN, 0));
    child = CHILD({
        struct pollfd poller = {pair[0], POLLPRI, 0};
        SHOW(poll(&poller, 1, -1));
        SHOW(poller.revents);
    });
    TRUE(wait_state(child, "S"));
    ssize_t sent = send(pair[1], "quiet", 5, 0);
    sent += send(pair[1], "!", 1, MSG_OOB);
    REAP(child);
    SHOW(sent);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLPRI | EPOLLET};
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event));
    SHOW(epoll_wait(epoll, &event, 1, -1));
    SHOW(event.events);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    put("!", MSG_OOB);
    SHOW(epoll_wait(epoll, &event, 1, -1));
    close(epoll);
}

static void connected(void)
{
    puts("- by name");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int bytes = snprintf(address.sun_path + 1, 64, "unix_urgent.%d", getpid());
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + bytes;
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    pair[1] = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(bind(listener, (void *)&address, length));
    SHOW(listen(listener, 1));
    SHOW(connect(pair[1], (void *)&address, length));
    SHOW(sendto(pair[1], "x", 1, MSG_OOB, (void *)&address, length));
    put("before!", MSG_OOB);
    pair[0] = accept(listener, NULL, NULL);
    show("read", 9, 0);
    show("out of band", 9, MSG_OOB);
    put("!", MSG_OOB);
    close(pair[0]);
    put("!", MSG_OOB);
    close(pair[1]);
    close(listener);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    basics();
    in_line();
    refused();
    told();
    close(pair[0]);
    close(pair[1]);
    connected();
    return 0;
}
