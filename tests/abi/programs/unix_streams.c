/* Local sockets by name, with connections: binding, listening, connecting, accepting, what ends a connection, and whom it is from. Of
 * streams and of sequences of packets. */
#include "abi.h"
#include <sys/socket.h>
#include <sys/un.h>

static char directory[64];

static socklen_t named(struct sockaddr_un *address, const char *name)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (name[0] == '@') {
        address->sun_path[0] = 0;
        int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s.%d", name + 1, getpid());
        return offsetof(struct sockaddr_un, sun_path) + 1 + length;
    }
    strcpy(address->sun_path, name);
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1;
}

static int bind_to(int fd, const char *name)
{
    struct sockaddr_un address;
    socklen_t length = named(&address, name);
    return bind(fd, (void *)&address, length);
}

static int connect_to(int fd, const char *name)
{
    struct sockaddr_un address;
    socklen_t length = named(&address, name);
    return connect(fd, (void *)&address, length);
}

static int make(int kind)
{
    int fd = socket(AF_UNIX, kind, 0);
    if (fd < 0) {
        perror("socket");
        exit(1);
    }
    return fd;
}

static int listener(int kind, const char *name, int backlog)
{
    int fd = make(kind);
    if (bind_to(fd, name) || listen(fd, backlog)) {
        perror("listener");
        exit(1);
    }
    return fd;
}

static int client(int kind, const char *name)
{
    int fd = make(kind);
    if (connect_to(fd, name)) {
        perror("client");
        exit(1);
    }
    return fd;
}

static void show_address(const char *what, int result, const struct sockaddr_un *address, socklen_t length)
{
    printf("%s: ", what);
    if (result < 0) {
        printf("%s\n", ERRNO_NAME(errno));
        return;
    }
    if (length <= sizeof(sa_family_t)) {
        printf("unnamed, length %u\n", length);
        return;
    }
    const char *name = address->sun_path;
    size_t count = length - offsetof(struct sockaddr_un, sun_path);
    if (name[0] == 0) {
        /* What follows the dot is the process. */
        const char *dot = memchr(name + 1, '.', count - 1);
        printf("abstract %.*s\n", dot ? (int)(dot - name - 1) : (int)count - 1, name + 1);
    } else {
        printf("path %s, length %zu\n", name, count);
    }
}

static void show_names(const char *what, int fd)
{
    char text[64];
    struct sockaddr_un address = {0};
    socklen_t length = sizeof address;
    int result = getsockname(fd, (void *)&address, &length);
    snprintf(text, sizeof text, "%s, own name", what);
    show_address(text, result, &address, length);
    length = sizeof address;
    memset(&address, 0, sizeof address);
    result = getpeername(fd, (void *)&address, &length);
    snprintf(text, sizeof text, "%s, peer's name", what);
    show_address(text, result, &address, length);
}

static void show_poll(const char *what, int fd)
{
    struct pollfd poller = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM | POLLWRBAND, 0};
    int count = poll(&poller, 1, 0);
    printf("%s: poll %d %x\n", what, count, poller.revents);
}

static int option(int fd, int name)
{
    int value = -7;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) ? -1 : value;
}

static void show_peer(const char *what, int fd, pid_t expected)
{
    struct ucred who = {0};
    socklen_t length = sizeof who;
    int result = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length);
    printf("%s: peer %d, process %s, user %d, group %d\n", what, result,
           who.pid == expected ? "as expected" : who.pid == 0 ? "none" : "another", (int)who.uid, (int)who.gid);
}

static void making_and_binding(void)
{
    struct sockaddr_un address;
    struct stat status;
    puts("- making and binding");
    SHOW(socket(AF_UNIX, SOCK_STREAM | 0x100, 0));
    SHOW(socket(AF_UNIX, SOCK_RDM, 0));
    SHOW(socket(AF_UNIX, SOCK_STREAM, 2));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, AF_UNIX);
    SHOW(fcntl(fd, F_GETFD));
    SHOW(fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
    SHOW(option(fd, SO_TYPE));
    SHOW(option(fd, SO_DOMAIN));
    SHOW(option(fd, SO_PROTOCOL));
    SHOW(option(fd, SO_ACCEPTCONN));
    SHOW(option(fd, SO_ERROR));
    show_names("fresh", fd);
    show_poll("fresh", fd);
    show_peer("fresh", fd, getpid());
    char byte;
    SHOW(read(fd, &byte, 1));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    SHOW(listen(fd, 1));
    SHOW(accept(fd, NULL, NULL));
    SHOW(shutdown(fd, 3));
    SHOW(bind(fd, (void *)8, 16));
    SHOW(bind(fd, (void *)&address, -1));
    SHOW(bind(fd, (void *)&address, 129));
    memset(&address, 0, sizeof address);
    SHOW(bind(fd, (void *)&address, 20));
    address.sun_family = AF_INET;
    SHOW(bind(fd, (void *)&address, 20));
    address.sun_family = AF_UNIX;
    SHOW(bind(fd, (void *)&address, 1));
    SHOW(bind(fd, (void *)&address, 111));
    SHOW(bind_to(fd, "missing/socket"));
    SHOW(mkdir("plain", 0755));
    put_text("file", "text");
    SHOW(bind_to(fd, "file"));
    SHOW(bind_to(fd, "plain"));
    SHOW(bind_to(fd, "file/socket"));
    SHOW(symlink("nowhere", "dangling"));
    SHOW(bind_to(fd, "dangling"));
    SHOW(umask(027));
    SHOW(bind_to(fd, "socket"));
    SHOW(umask(022));
    SHOW(stat("socket", &status));
    printf("mode %o links %ld size %ld\n", status.st_mode, (long)status.st_nlink, (long)status.st_size);
    SHOW(open("socket", O_RDWR));
    SHOW(open("socket", O_RDONLY | O_NONBLOCK));
    OK(open("socket", O_PATH));
    SHOW(truncate("socket", 0));
    show_names("bound", fd);
    SHOW(bind_to(fd, "another"));
    SHOW(access("another", F_OK));
    SHOW(bind_to(fd, "socket"));
    SHOW(bind_to(fd, "@another"));
    int other = make(SOCK_STREAM);
    SHOW(bind_to(other, "socket"));
    SHOW(unlink("socket"));
    SHOW(bind_to(other, "socket"));
    SHOW(stat("socket", &status));
    printf("mode %o\n", status.st_mode);
    close(other);
    close(fd);
    /* The file stays; nobody is behind it. */
    fd = make(SOCK_STREAM);
    SHOW(bind_to(fd, "socket"));
    SHOW(connect_to(fd, "socket"));
    SHOW(unlink("socket"));
    /* The mode of the socket itself counts. */
    SHOW(fchmod(fd, 0640));
    SHOW(bind_to(fd, "socket"));
    SHOW(stat("socket", &status));
    printf("mode %o\n", status.st_mode);
    SHOW(unlink("socket"));
    close(fd);
    /* The longest names. */
    char longest[200];
    memset(longest, 'n', sizeof longest);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, longest, 108);
    fd = make(SOCK_STREAM);
    SHOW(bind(fd, (void *)&address, 110));
    socklen_t length = 128;
    union { struct sockaddr_un address; char bytes[128]; } big;
    SHOW(getsockname(fd, (void *)&big, &length));
    printf("length %u\n", length);
    longest[108] = 0;
    SHOW(unlink(longest));
    length = 5;
    memset(&big, 'x', sizeof big);
    SHOW(getsockname(fd, (void *)&big, &length));
    printf("length %u, %.6s\n", length, big.address.sun_path);
    length = -1;
    SHOW(getsockname(fd, (void *)&big, &length));
    SHOW(getsockname(fd, (void *)8, &length));
    close(fd);
}

static void abstract_names(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    puts("- abstract names");
    int fd = make(SOCK_STREAM), other = make(SOCK_DGRAM);
    SHOW(bind_to(fd, "@name"));
    show_names("abstract", fd);
    SHOW(bind_to(fd, "@name"));
    SHOW(bind_to(other, "@name"));
    SHOW(bind_to(fd, "@other"));
    SHOW(connect_to(other, "@name"));
    close(fd);
    SHOW(bind_to(other, "@name"));
    close(other);
    /* Chosen by the kernel. */
    fd = make(SOCK_SEQPACKET);
    SHOW(bind(fd, (void *)&address, sizeof(sa_family_t)));
    SHOW(bind(fd, (void *)&address, sizeof(sa_family_t)));
    socklen_t length = sizeof address;
    SHOW(getsockname(fd, (void *)&address, &length));
    printf("length %u, first %d, digits %zu\n", length, address.sun_path[0], strspn(address.sun_path + 1, "0123456789abcdef"));
    SHOW(bind_to(fd, "@name"));
    close(fd);
    /* Zero bytes count. */
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path + 1, 20, "zero%d", getpid());
    length = offsetof(struct sockaddr_un, sun_path) + 20;
    fd = make(SOCK_STREAM);
    other = make(SOCK_STREAM);
    SHOW(bind(fd, (void *)&address, length));
    SHOW(listen(fd, 5));
    SHOW(connect(other, (void *)&address, length - 1));
    SHOW(connect(other, (void *)&address, length));
    close(fd);
    close(other);
}

static void connecting(int kind)
{
    struct sockaddr_un address;
    printf("- connecting, kind %d\n", kind);
    int fd = make(kind), other = make(kind), datagram = make(SOCK_DGRAM);
    SHOW(bind_to(fd, "socket"));
    SHOW(connect_to(other, "socket"));
    SHOW(connect_to(datagram, "socket"));
    SHOW(connect_to(other, "missing"));
    SHOW(connect_to(other, "missing/socket"));
    SHOW(connect_to(other, "file"));
    SHOW(connect_to(other, "plain"));
    SHOW(connect_to(other, "@missing"));
    memset(&address, 0, sizeof address);
    SHOW(connect(other, (void *)&address, sizeof address));
    SHOW(connect(other, (void *)&address, 2));
    SHOW(connect(other, (void *)8, 20));
    SHOW(connect(other, (void *)&address, 200));
    SHOW(connect(0, (void *)&address, 20));
    SHOW(connect(-1, (void *)&address, 20));
    SHOW(listen(datagram, 1));
    SHOW(accept(datagram, NULL, NULL));
    SHOW(listen(fd, 3));
    SHOW(option(fd, SO_ACCEPTCONN));
    show_poll("listening", fd);
    show_names("listening", fd);
    show_peer("listening", fd, getpid());
    char byte;
    int count;
    SHOW(recv(fd, &byte, 1, MSG_DONTWAIT));
    SHOW(send(fd, &byte, 1, MSG_NOSIGNAL));
    SHOW(ioctl(fd, FIONREAD, &count));
    SHOW(connect_to(fd, "socket"));
    SHOW(fcntl(fd, F_SETFL, O_NONBLOCK));
    SHOW(accept(fd, NULL, NULL));
    SHOW(accept4(fd, NULL, NULL, 1));
    SHOW(connect_to(datagram, "socket"));
    SHOW(link("socket", "second"));
    SHOW(connect_to(other, "second"));
    SHOW(connect_to(other, "socket"));
    SHOW(connect_to(other, "missing"));
    SHOW(listen(other, 1));
    SHOW(bind_to(other, "late"));
    SHOW(listen(other, 1));
    show_poll("one waits", fd);
    show_poll("waiting", other);
    show_names("waiting", other);
    show_peer("waiting", other, getpid());
    SHOW(send(other, "early", 5, MSG_NOSIGNAL));
    int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    SHOW(fcntl(accepted, F_GETFD));
    SHOW(fcntl(accepted, F_GETFL) == (O_RDWR | O_NONBLOCK));
    show_poll("none waits", fd);
    show_names("accepted", accepted);
    show_peer("accepted", accepted, getpid());
    SHOW(option(accepted, SO_ACCEPTCONN));
    SHOW(option(accepted, SO_TYPE) == kind);
    char buffer[16] = {0};
    SHOW(read(accepted, buffer, sizeof buffer));
    puts(buffer);
    SHOW(read(accepted, buffer, sizeof buffer));
    SHOW(write(accepted, "back", 4));
    struct sockaddr_un from = {0};
    socklen_t length = sizeof from;
    int result = recvfrom(other, buffer, sizeof buffer, 0, (void *)&from, &length);
    show_address("from", result, &from, length);
    SHOW(sendto(other, "x", 1, 0, (void *)&address, sizeof address));
    address.sun_family = AF_UNIX;
    SHOW(sendto(other, "x", 1, 0, (void *)&address, sizeof address));
    SHOW(accept(accepted, NULL, NULL));
    /* The name is gone with the socket, not with the last connection. */
    close(fd);
    SHOW(write(accepted, "y", 1));
    show_names("accepted", accepted);
    fd = make(kind);
    SHOW(connect_to(fd, "socket"));
    close(other);
    show_poll("peer closed", accepted);
    show_names("peer closed", accepted);
    close(accepted);
    close(datagram);
    close(fd);
    SHOW(unlink("socket"));
    SHOW(unlink("second"));
    SHOW(unlink("late"));
}

static void addresses_of_accept(void)
{
    union { struct sockaddr_un address; char bytes[128]; } from;
    puts("- addresses of accept");
    int fd = listener(SOCK_STREAM, "socket", 8);
    int clients[4];
    for (int index = 0; index < 4; index++) {
        clients[index] = make(SOCK_STREAM);
        if (index == 1)
            SHOW(bind_to(clients[index], "@client"));
        SHOW(connect_to(clients[index], "socket"));
    }
    socklen_t length = sizeof from;
    int accepted = accept(fd, (void *)&from, &length);
    show_address("unnamed", accepted, &from.address, length);
    close(accepted);
    length = sizeof from;
    accepted = accept(fd, (void *)&from, &length);
    show_address("named", accepted, &from.address, length);
    close(accepted);
    length = -1;
    SHOW(accept(fd, (void *)&from, &length));
    SHOW(accept(fd, (void *)8, &length));
    /* The failed ones are lost. */
    show_poll("lost", clients[2]);
    SHOW(fcntl(fd, F_SETFL, O_NONBLOCK));
    SHOW(accept(fd, NULL, NULL));
    close(fd);
    for (int index = 0; index < 4; index++)
        close(clients[index]);
    SHOW(unlink("socket"));
}

static void backlog(void)
{
    puts("- backlog");
    int fd = listener(SOCK_STREAM, "socket", 1);
    int clients[8];
    for (int index = 0; index < 4; index++) {
        clients[index] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        SHOW(connect_to(clients[index], "socket"));
    }
    SHOW(listen(fd, 2));
    SHOW(connect_to(clients[2], "socket"));
    SHOW(connect_to(clients[3], "socket"));
    struct timeval limit = {0, 20000};
    SHOW(fcntl(clients[3], F_SETFL, 0));
    SHOW(setsockopt(clients[3], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    SHOW(connect_to(clients[3], "socket"));
    limit.tv_usec = 0;
    SHOW(setsockopt(clients[3], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    /* One that waits gets in when another one is accepted. */
    pid_t child = CHILD({
        SHOW(connect_to(clients[3], "socket"));
        SHOW(write(clients[3], "child", 5));
    });
    TRUE(wait_state(child, "S"));
    for (int index = 0; index < 3; index++)
        close(accept(fd, NULL, NULL));
    REAP(child);
    int accepted = accept(fd, NULL, NULL);
    char buffer[8] = {0};
    SHOW(read(accepted, buffer, sizeof buffer));
    puts(buffer);
    show_peer("child's", accepted, child);
    close(accepted);
    for (int index = 0; index < 4; index++)
        close(clients[index]);
    /* One that waits is refused when the listener goes; one that comes later, when it is shut down. */
    for (int how = 0; how < 2; how++) {
        SHOW(listen(fd, 0));
        clients[0] = client(SOCK_STREAM, "socket");
        clients[1] = make(SOCK_STREAM);
        if (how == 0) {
            SHOW(shutdown(fd, SHUT_RD));
        } else {
            child = CHILD({
                close(fd);
                SHOW(connect_to(clients[1], "socket"));
            });
            TRUE(wait_state(child, "S"));
            close(fd);
            REAP(child);
        }
        show_poll("still waiting", clients[0]);
        if (how == 0) {
            SHOW(fcntl(fd, F_SETFL, 0));
            OK(accept(fd, NULL, NULL));
            SHOW(accept(fd, NULL, NULL));
            SHOW(connect_to(clients[1], "socket"));
            show_poll("shut down", fd);
            close(fd);
            SHOW(unlink("socket"));
            fd = listener(SOCK_STREAM, "socket", 0);
        }
        char byte;
        SHOW(recv(clients[0], &byte, 1, MSG_DONTWAIT));
        SHOW(recv(clients[0], &byte, 1, MSG_DONTWAIT));
        SHOW(send(clients[0], "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) >= -1);
        close(clients[0]);
        close(clients[1]);
    }
    SHOW(unlink("socket"));
    TRUE(atoi(get_text("/proc/sys/net/core/somaxconn")) >= 128);
}

static void waiting_accept(void)
{
    puts("- a waiting accept");
    int fd = listener(SOCK_STREAM, "socket", 4);
    pid_t child = CHILD({
        int accepted = accept(fd, NULL, NULL);
        SHOW(accepted >= 0);
        char buffer[8] = {0};
        SHOW(read(accepted, buffer, sizeof buffer));
        SHOW(write(accepted, buffer, 3));
        show_peer("in the child", accepted, getppid());
    });
    TRUE(wait_state(child, "S"));
    int other = client(SOCK_STREAM, "socket");
    char buffer[8] = {0};
    int written = write(other, "abc", 3), got = read(other, buffer, sizeof buffer);
    REAP(child);
    printf("%d written, %d read: %s\n", written, got, buffer);
    show_peer("in the parent", other, getpid());
    close(other);
    child = CHILD(SHOW(accept(fd, NULL, NULL)));
    TRUE(wait_state(child, "S"));
    int result = shutdown(fd, SHUT_RDWR);
    REAP(child);
    printf("shutdown %d\n", result);
    close(fd);
    SHOW(unlink("socket"));
    fd = listener(SOCK_STREAM, "socket", 4);
    struct timeval limit = {0, 20000};
    SHOW(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    SHOW(accept(fd, NULL, NULL));
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    SHOW(epoll_wait(epoll, &event, 1, 0));
    int clients[2] = {client(SOCK_STREAM, "socket"), -1};
    SHOW(epoll_wait(epoll, &event, 1, -1));
    SHOW(epoll_wait(epoll, &event, 1, 0));
    clients[1] = client(SOCK_STREAM, "socket");
    SHOW(epoll_wait(epoll, &event, 1, -1));
    printf("events %x\n", event.events);
    close(clients[0]);
    close(clients[1]);
    /* Connections whose clients are gone are accepted still. */
    int accepted = accept(fd, NULL, NULL);
    show_poll("client gone", accepted);
    SHOW(read(accepted, buffer, 1));
    close(accepted);
    close(fd);
    close(epoll);
    SHOW(unlink("socket"));
}

static void permissions(void)
{
    puts("- permissions");
    if (chmod(directory, 0777)) {
        perror("chmod");
        exit(1);
    }
    int fd = listener(SOCK_STREAM, "socket", 4);
    SHOW(mkdir("closed", 0700));
    int inner = listener(SOCK_STREAM, "closed/socket", 4);
    SHOW(chmod("closed/socket", 0777));
    pid_t child = CHILD({
        if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
            _exit(1);
        int other = make(SOCK_STREAM);
        SHOW(connect_to(other, "socket"));
        SHOW(connect_to(other, "closed/socket"));
        SHOW(bind_to(other, "closed/mine"));
    });
    REAP(child);
    SHOW(chmod("socket", 0722));
    child = CHILD({
        if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
            _exit(1);
        int other = make(SOCK_STREAM);
        SHOW(connect_to(other, "socket"));
        show_peer("as another user", other, getppid());
    });
    REAP(child);
    int accepted = accept(fd, NULL, NULL);
    show_peer("of another user", accepted, child);
    close(accepted);
    close(inner);
    close(fd);
    SHOW(unlink("closed/socket"));
    SHOW(rmdir("closed"));
    SHOW(unlink("socket"));
}

static void renamed_files(void)
{
    puts("- renamed files");
    int fd = listener(SOCK_SEQPACKET, "socket", 4);
    SHOW(rename("socket", "moved"));
    int other = make(SOCK_SEQPACKET);
    SHOW(connect_to(other, "socket"));
    SHOW(symlink("moved", "link"));
    SHOW(connect_to(other, "link"));
    show_names("connected", other);
    SHOW(unlink("moved"));
    SHOW(unlink("link"));
    show_names("connected", other);
    close(other);
    close(fd);
}

/* What /proc/net/unix says of the sockets with a name. */
static void show_lines(const char *name)
{
    char wanted[64], line[256];
    snprintf(wanted, sizeof wanted, name[0] == '@' ? "%s.%d" : "%s", name, getpid());
    FILE *file = fopen("/proc/net/unix", "r");
    if (!file || !fgets(line, sizeof line, file)) {
        puts("no /proc/net/unix");
        return;
    }
    printf("%s", line);
    int counts[3][4] = {0};
    while (fgets(line, sizeof line, file)) {
        unsigned references, protocol, flags, type, state;
        unsigned long inode;
        char path[128] = "";
        if (sscanf(line, "%*[0-9a-f]: %X %X %X %X %X %lu %127s", &references, &protocol, &flags, &type, &state, &inode, path) < 6)
            printf("line: %s", line);
        if (strcmp(path, wanted) == 0 && type == SOCK_SEQPACKET && protocol == 0 && (flags == 0 || flags == 0x10000))
            counts[flags ? 2 : inode ? 1 : 0][state & 3]++;
    }
    fclose(file);
    for (int row = 0; row < 3; row++)
        printf("%s: %d %d %d\n", row == 0 ? "waiting" : row == 1 ? "others" : "listening", counts[row][1], counts[row][2], counts[row][3]);
}

static void listed(void)
{
    puts("- listed");
    int fd = make(SOCK_SEQPACKET);
    SHOW(bind_to(fd, "@listed"));
    show_lines("@listed");
    SHOW(listen(fd, 5));
    int first = client(SOCK_SEQPACKET, "@listed"), second = client(SOCK_SEQPACKET, "@listed");
    int accepted = accept(fd, NULL, NULL), copy = dup(accepted);
    show_lines("@listed");
    close(accepted);
    close(copy);
    close(first);
    close(second);
    close(fd);
    show_lines("@listed");
}

static void passed_credentials(void)
{
    puts("- credentials before the acceptance");
    int fd = listener(SOCK_STREAM, "socket", 4), on = 1;
    SHOW(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    int other = client(SOCK_STREAM, "socket");
    SHOW(write(other, "x", 1));
    int accepted = accept(fd, NULL, NULL);
    SHOW(setsockopt(accepted, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    char byte;
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(struct ucred))]; } control;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    SHOW(recvmsg(accepted, &message, 0));
    struct ucred *who = (void *)CMSG_DATA(&control.header);
    printf("process %s, user %d, group %d\n", who->pid == getpid() ? "own" : "another", (int)who->uid, (int)who->gid);
    /* A client that wants to know gets a name. */
    int wanting = make(SOCK_STREAM);
    SHOW(setsockopt(wanting, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    SHOW(connect_to(wanting, "socket"));
    struct sockaddr_un address = {0};
    socklen_t length = sizeof address;
    SHOW(getsockname(wanting, (void *)&address, &length));
    printf("length %u, first %d\n", length, address.sun_path[0]);
    close(wanting);
    close(accepted);
    close(other);
    close(fd);
    SHOW(unlink("socket"));
}

int main(void)
{
    strcpy(directory, "/tmp/unix_streams.XXXXXX");
    if (!mkdtemp(directory) || chdir(directory)) {
        perror("directory");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(022);
    making_and_binding();
    abstract_names();
    connecting(SOCK_STREAM);
    connecting(SOCK_SEQPACKET);
    addresses_of_accept();
    backlog();
    waiting_accept();
    permissions();
    renamed_files();
    passed_credentials();
    listed();
    return 0;
}
