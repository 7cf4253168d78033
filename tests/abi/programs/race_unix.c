/* Races of local sockets: who connects while the listener is closed or shut down, who accepts, who binds the same name, who sends while
 * the receiver ends, two that connect to each other, and descriptors in flight to connections that nobody accepts.
 * abi: limit 60
 */
#include "abi.h"
#include <sys/socket.h>
#include <sys/un.h>

static int rounds = 300;
static struct sockaddr_un address;
static socklen_t address_length;
static pthread_barrier_t barrier;

static void fail(const char *what)
{
    printf("%s: %s\n", what, ERRNO_NAME(errno));
    fflush(stdout);
    _exit(1);
}

static void name_it(const char *what)
{
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    address_length = offsetof(struct sockaddr_un, sun_path) + 1 + snprintf(address.sun_path + 1, 90, "%s%d", what, getpid());
}

static int make(int kind)
{
    int fd = socket(AF_UNIX, kind, 0);
    if (fd < 0)
        fail("socket");
    return fd;
}

static int listener(int kind, int backlog)
{
    int fd = make(kind);
    if (bind(fd, (void *)&address, address_length) || listen(fd, backlog))
        fail("listener");
    return fd;
}

static int shared;

static void *run(pthread_t *thread, void *(*body)(void *), void *argument)
{
    if (pthread_create(thread, NULL, body, argument))
        fail("thread");
    return NULL;
}

/* Connects over and over; what it got into is at its end once the listener is gone. */
static void *connects(void *unused)
{
    (void)unused;
    for (int round = 0; round < rounds; round++) {
        int fd = make(SOCK_STREAM);
        pthread_barrier_wait(&barrier);
        if (connect(fd, (void *)&address, address_length) == 0) {
            char byte;
            ssize_t got = read(fd, &byte, 1);
            if (got > 0 || (got < 0 && errno != ECONNRESET))
                fail("read of what was not accepted");
        } else if (errno != ECONNREFUSED) {
            fail("connect beside close");
        }
        close(fd);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void connect_beside_close(int how)
{
    pthread_t threads[2];
    name_it("close");
    pthread_barrier_init(&barrier, NULL, 3);
    for (int index = 0; index < 2; index++)
        run(&threads[index], connects, NULL);
    for (int round = 0; round < rounds; round++) {
        int fd = listener(SOCK_STREAM, 5);
        pthread_barrier_wait(&barrier);
        if (how && shutdown(fd, SHUT_RD))
            fail("shutdown");
        close(fd);
        pthread_barrier_wait(&barrier);
    }
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    pthread_barrier_destroy(&barrier);
    printf("connect beside %s: done\n", how ? "shutdown" : "close");
}

static void *accepts(void *unused)
{
    (void)unused;
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);
        for (;;) {
            int fd = accept(shared, NULL, NULL);
            if (fd < 0) {
                if (errno != EINVAL)
                    fail("accept beside shutdown");
                break;
            }
            if (write(fd, "a", 1) != 1)
                fail("write to who was accepted");
            close(fd);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* All who got in before the shutdown are accepted by one of the threads, each once. */
static void accept_beside_shutdown(void)
{
    pthread_t threads[2];
    name_it("accept");
    pthread_barrier_init(&barrier, NULL, 3);
    for (int index = 0; index < 2; index++)
        run(&threads[index], accepts, NULL);
    for (int round = 0; round < rounds; round++) {
        int clients[3];
        shared = listener(SOCK_STREAM, 5);
        pthread_barrier_wait(&barrier);
        for (int index = 0; index < 3; index++) {
            clients[index] = make(SOCK_STREAM);
            if (connect(clients[index], (void *)&address, address_length))
                fail("connect");
        }
        if (shutdown(shared, SHUT_RD))
            fail("shutdown");
        pthread_barrier_wait(&barrier);
        for (int index = 0; index < 3; index++) {
            char byte;
            if (read(clients[index], &byte, 1) != 1 || read(clients[index], &byte, 1) != 0)
                fail("read of who was accepted");
            close(clients[index]);
        }
        close(shared);
    }
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    pthread_barrier_destroy(&barrier);
    puts("accept beside shutdown: done");
}

static atomic_int winners;
static int by_path;

static void *binds(void *unused)
{
    (void)unused;
    for (int round = 0; round < rounds; round++) {
        int fd = make(SOCK_DGRAM);
        pthread_barrier_wait(&barrier);
        if (bind(fd, (void *)&address, address_length) == 0)
            atomic_fetch_add(&winners, 1);
        else if (errno != EADDRINUSE)
            fail("bind beside bind");
        pthread_barrier_wait(&barrier);
        close(fd);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void two_binders(void)
{
    pthread_t threads[2];
    if (by_path) {
        strcpy(address.sun_path, "bound");
        address_length = sizeof address;
    } else {
        name_it("bind");
    }
    pthread_barrier_init(&barrier, NULL, 3);
    for (int index = 0; index < 2; index++)
        run(&threads[index], binds, NULL);
    for (int round = 0; round < rounds; round++) {
        atomic_store(&winners, 0);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        if (atomic_load(&winners) != 1)
            fail("winners");
        if (by_path && unlink("bound"))
            fail("unlink");
        pthread_barrier_wait(&barrier);
    }
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    pthread_barrier_destroy(&barrier);
    printf("two binders of %s: done\n", by_path ? "a path" : "an abstract name");
}

/* One socket, two names: it gets one of them, and leaves no file for the other. */
static int one_socket;

static void *binds_one(void *argument)
{
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    strcpy(own.sun_path, argument);
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);
        if (bind(one_socket, (void *)&own, sizeof own) == 0)
            atomic_fetch_add(&winners, 1);
        else if (errno != EINVAL)
            fail("bind of one");
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void one_gets_two_names(void)
{
    pthread_t threads[2];
    pthread_barrier_init(&barrier, NULL, 3);
    run(&threads[0], binds_one, "left");
    run(&threads[1], binds_one, "right");
    for (int round = 0; round < rounds; round++) {
        one_socket = make(SOCK_STREAM);
        atomic_store(&winners, 0);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        int left = unlink("left"), right = unlink("right");
        if (atomic_load(&winners) != 1 || left + right != -1)
            fail("names of one");
        close(one_socket);
    }
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    pthread_barrier_destroy(&barrier);
    puts("two names for one: done");
}

static void *sends(void *unused)
{
    (void)unused;
    for (int round = 0; round < rounds; round++) {
        int fd = make(SOCK_DGRAM);
        if (connect(fd, (void *)&address, address_length))
            fail("connect of a sender");
        pthread_barrier_wait(&barrier);
        /* More than may wait: it sleeps until the receiver is gone. */
        while (send(fd, "message", 7, MSG_NOSIGNAL) == 7)
            ;
        if (errno != ECONNREFUSED)
            fail("send beside close");
        if (send(fd, "message", 7, MSG_NOSIGNAL) != -1 || errno != ENOTCONN)
            fail("send after close");
        close(fd);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void send_beside_close(void)
{
    pthread_t threads[2];
    name_it("send");
    pthread_barrier_init(&barrier, NULL, 3);
    int fd = make(SOCK_DGRAM);
    if (bind(fd, (void *)&address, address_length))
        fail("bind");
    for (int index = 0; index < 2; index++)
        run(&threads[index], sends, NULL);
    for (int round = 0; round < rounds; round++) {
        char buffer[8];
        pthread_barrier_wait(&barrier);
        for (int count = 0; count < round % 40; count++)
            if (read(fd, buffer, sizeof buffer) != 7)
                fail("read");
        close(fd);
        pthread_barrier_wait(&barrier);
        fd = make(SOCK_DGRAM);
        if (bind(fd, (void *)&address, address_length))
            fail("bind again");
        pthread_barrier_wait(&barrier);
    }
    for (int index = 0; index < 2; index++)
        pthread_join(threads[index], NULL);
    close(fd);
    pthread_barrier_destroy(&barrier);
    puts("send beside close: done");
}

/* Two datagram sockets that connect to each other and send, and are connected to nobody again. */
static struct sockaddr_un ends[2];
static int sockets[2];

static void *crosses(void *argument)
{
    int own = argument != NULL;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    for (int round = 0; round < rounds * 5; round++) {
        char byte;
        if (connect(sockets[own], (void *)&ends[!own], sizeof ends[0]) && errno != EPERM)
            fail("connect across");
        if (send(sockets[own], "c", 1, MSG_DONTWAIT) < 0 && errno != EPERM && errno != EAGAIN && errno != ENOTCONN &&
            errno != ECONNRESET)
            fail("send across");
        if (recv(sockets[own], &byte, 1, MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != ECONNRESET)
            fail("receive across");
        if (connect(sockets[own], &none, sizeof none))
            fail("disconnect");
    }
    return NULL;
}

static void across(void)
{
    pthread_t threads[2];
    for (int index = 0; index < 2; index++) {
        memset(&ends[index], 0, sizeof ends[index]);
        ends[index].sun_family = AF_UNIX;
        snprintf(ends[index].sun_path + 1, 40, "cross%d.%d", index, getpid());
        sockets[index] = make(SOCK_DGRAM);
        if (bind(sockets[index], (void *)&ends[index], sizeof ends[index]))
            fail("bind across");
    }
    run(&threads[0], crosses, NULL);
    run(&threads[1], crosses, "");
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    close(sockets[0]);
    close(sockets[1]);
    puts("across: done");
}

static ssize_t pass(int through, const int *files, int count)
{
    char byte = 'f';
    struct iovec vector = {&byte, 1};
    char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), files, count * sizeof(int));
    return sendmsg(through, &message, MSG_NOSIGNAL);
}

/* Waits until the other end of a pipe is closed by who held it. */
static void ends_at(int pipe_end, const char *what)
{
    char byte;
    printf("%s: read %zd\n", what, read(pipe_end, &byte, 1));
}

/* Nobody can reach: a listener in the inbox of a connection that waits at it. */
static void listener_in_its_own_queue(int also_itself)
{
    int ends[2];
    name_it("cycle");
    if (pipe(ends))
        fail("pipe");
    int fd = listener(SOCK_STREAM, 5), client = make(SOCK_STREAM);
    if (connect(client, (void *)&address, address_length))
        fail("connect");
    int files[3] = {fd, ends[1], client};
    if (pass(client, files, also_itself ? 3 : 2) != 1)
        fail("pass");
    close(ends[1]);
    close(fd);
    if (also_itself) {
        close(client);
        /* Any end of a socket, or a sending of one, has what is lost looked for. */
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            fail("pair");
        pass(pair[0], pair, 1);
        close(pair[0]);
        close(pair[1]);
        ends_at(ends[0], "a lost listener");
    } else {
        close(client);
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            fail("pair");
        pass(pair[0], pair, 1);
        close(pair[0]);
        close(pair[1]);
        ends_at(ends[0], "a listener whose client is gone");
    }
    close(ends[0]);
}

/* What waits at a listener that somebody has is not lost, though it is in flight itself. */
static void waiting_descriptors_live(void)
{
    int pair[2];
    name_it("alive");
    int fd = listener(SOCK_STREAM, 5), client = make(SOCK_STREAM);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || connect(client, (void *)&address, address_length))
        fail("connect");
    if (pass(client, pair, 1) != 1 || write(pair[1], "still there", 11) != 11)
        fail("pass");
    close(pair[0]);
    close(client);
    for (int count = 0; count < 20; count++) {
        int other[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, other))
            fail("pair");
        pass(other[0], other, 2);
        close(other[0]);
        close(other[1]);
    }
    int accepted = accept(fd, NULL, NULL);
    char byte, buffer[16] = {0};
    struct iovec vector = {&byte, 1};
    char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(accepted, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        fail("recvmsg");
    int passed;
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
    printf("%zd ", read(passed, buffer, sizeof buffer));
    puts(buffer);
    close(passed);
    close(accepted);
    close(fd);
    close(pair[1]);
}

int main(void)
{
    char directory[] = "/tmp/race_unix.XXXXXX";
    if (!mkdtemp(directory) || chdir(directory))
        fail("directory");
    signal(SIGPIPE, SIG_IGN);
    connect_beside_close(0);
    connect_beside_close(1);
    accept_beside_shutdown();
    two_binders();
    by_path = 1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    two_binders();
    one_gets_two_names();
    send_beside_close();
    across();
    listener_in_its_own_queue(0);
    listener_in_its_own_queue(1);
    waiting_descriptors_live();
    return 0;
}
