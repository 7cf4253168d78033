/* Filters of sockets (SO_ATTACH_FILTER and its kin): which programs are taken, what local and netlink messages are dropped or cut, and the lock. */
#include "abi.h"
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define ATTACH(fd, ...) ({ struct sock_filter code_[] = {__VA_ARGS__}; attach(fd, code_, LENGTH(code_)); })

static int attach(int fd, struct sock_filter *code, unsigned short count)
{
    struct sock_fprog program = {count, code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static int set(int fd, int name, int value)
{
    return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

static int get(int fd, int name)
{
    int value = -7;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) ? -1 : value;
}

static void show(const char *what, int fd)
{
    char text[64] = {0};
    ssize_t got = recv(fd, text, sizeof text - 1, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0)
        printf("%s: %s\n", what, ERRNO_NAME(errno));
    else
        printf("%s: %zd \"%s\"\n", what, got, text);
}

/* A program of one instruction and a return of what it comes to; how much of a message of 20 bytes it keeps. */
static void one(const char *name, unsigned short code, unsigned constant)
{
    int pair[2];
    char text[32];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    struct sock_filter program[] = {
        BPF_STMT(BPF_LDX | BPF_IMM, 3), BPF_STMT(BPF_LD | BPF_IMM, 9), {code, 0, 0, constant}, BPF_STMT(BPF_RET | BPF_A, 0)};
    if (attach(pair[0], program, LENGTH(program)))
        printf("%s: %s\n", name, ERRNO_NAME(errno));
    else {
        send(pair[1], "\1\2\3\4\5\6\7\10\0\0\0\13\14\15\16\17\20\21\22\23", 20, 0);
        printf("%s: keeps %zd\n", name, recv(pair[0], text, sizeof text, MSG_DONTWAIT));
    }
    close(pair[0]);
    close(pair[1]);
}

static void programs(void)
{
    puts("- programs");
    one("byte", BPF_LD | BPF_B | BPF_ABS, 5);
    one("half", BPF_LD | BPF_H | BPF_ABS, 10);
    one("word", BPF_LD | BPF_W | BPF_ABS, 8);
    one("byte behind", BPF_LD | BPF_B | BPF_ABS, 20);
    one("half behind", BPF_LD | BPF_H | BPF_ABS, 19);
    one("word behind", BPF_LD | BPF_W | BPF_ABS, 17);
    one("relative byte", BPF_LD | BPF_B | BPF_IND, 4);
    one("relative half", BPF_LD | BPF_H | BPF_IND, 7);
    one("relative word", BPF_LD | BPF_W | BPF_IND, 5);
    one("relative behind", BPF_LD | BPF_B | BPF_IND, 17);
    one("relative, before", BPF_LD | BPF_B | BPF_IND, -1);
    one("length", BPF_LD | BPF_W | BPF_LEN, 0);
    one("header", BPF_LDX | BPF_B | BPF_MSH, 0);
    one("header behind", BPF_LDX | BPF_B | BPF_MSH, 20);
    one("remainder", BPF_ALU | BPF_MOD | BPF_K, 5);
    one("remainder by zero", BPF_ALU | BPF_MOD | BPF_K, 0);
    one("by x", BPF_ALU | BPF_DIV | BPF_X, 0);
    one("network's header", BPF_LD | BPF_B | BPF_ABS, SKF_NET_OFF + 6);
    one("device's header", BPF_LD | BPF_B | BPF_ABS, SKF_LL_OFF + 6);
    one("protocol", BPF_LD | BPF_H | BPF_ABS, SKF_AD_OFF + SKF_AD_PROTOCOL);
    one("kind", BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE);
    one("interface", BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_IFINDEX);
    one("mark", BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_MARK);
    one("xor", BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_ALU_XOR_X);
    one("unknown", BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_MAX);
    one("between", BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + 2);
    one("returned x", BPF_RET | BPF_X, 0);
    one("long header", BPF_LDX | BPF_H | BPF_MSH, 0);
    one("immediate byte", BPF_LD | BPF_B | BPF_IMM, 0);
    one("unwritten memory", BPF_LD | BPF_MEM, 0);
    one("loop", BPF_JMP | BPF_JA, -2);
}

static void attaching(void)
{
    int pair[2];
    struct sock_filter code[4200], shown[8];
    struct sock_fprog program = {1, code};
    puts("- attaching");
    for (size_t index = 0; index < LENGTH(code); index++)
        code[index] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 3);
    SHOW(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    SHOW(set(pair[0], SO_DETACH_FILTER, 0));
    socklen_t length = 5;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_GET_FILTER, shown, &length));
    SHOW(length);
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program - 1));
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program + 1));
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_ATTACH_FILTER, (void *)8, sizeof program));
    SHOW(attach(pair[0], code, 0));
    SHOW(attach(pair[0], code, 4097));
    SHOW(attach(pair[0], NULL, 1));
    SHOW(attach(pair[0], (void *)8, 1));
    SHOW(attach(pair[0], code, 2));
    length = 0;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_GET_FILTER, NULL, &length));
    SHOW(length);
    length = 1;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_GET_FILTER, shown, &length));
    length = 2;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_GET_FILTER, (void *)8, &length));
    length = 8;
    memset(shown, 0, sizeof shown);
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_GET_FILTER, shown, &length));
    printf("length %u, code %#x, constant %u, behind %#x\n", length, shown[1].code, shown[1].k, shown[2].code);
    SHOW(send(pair[1], "message", 7, 0));
    SHOW(ATTACH(pair[0], BPF_STMT(BPF_RET | BPF_K, 5)));
    SHOW(send(pair[1], "message", 7, 0));
    SHOW(set(pair[0], SO_DETACH_FILTER, 0));
    SHOW(set(pair[0], SO_DETACH_FILTER, 0));
    SHOW(send(pair[1], "message", 7, 0));
    for (int count = 0; count < 4; count++)
        show("cut as it was sent", pair[0]);
    /* What is locked stays. */
    SHOW(get(pair[0], SO_LOCK_FILTER));
    SHOW(set(pair[0], SO_LOCK_FILTER, 0));
    SHOW(attach(pair[0], code, 1));
    SHOW(set(pair[0], SO_LOCK_FILTER, 7));
    SHOW(get(pair[0], SO_LOCK_FILTER));
    SHOW(set(pair[0], SO_LOCK_FILTER, 1));
    SHOW(set(pair[0], SO_LOCK_FILTER, 0));
    SHOW(set(pair[0], SO_DETACH_FILTER, 0));
    SHOW(attach(pair[0], code, 1));
    SHOW(attach(pair[0], code, 0));
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_DETACH_FILTER, &length, 3));
    SHOW(send(pair[1], "message", 7, 0));
    show("locked", pair[0]);
    SHOW(set(pair[1], SO_DETACH_FILTER, 0));
    close(pair[0]);
    close(pair[1]);
}

#define BEGINS_WITH_K                                                                                                  \
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'k', 0, 1), BPF_STMT(BPF_RET | BPF_K, 4), BPF_STMT(BPF_RET | BPF_K, 0)

static void of_kind(const char *name, int kind)
{
    int pair[2], count;
    printf("- %s\n", name);
    SHOW(socketpair(AF_UNIX, kind, 0, pair));
    SHOW(ATTACH(pair[0], BEGINS_WITH_K));
    SHOW(send(pair[1], "dropped", 7, 0));
    SHOW(send(pair[1], "k", 1, 0));
    SHOW(send(pair[1], "kept in part", 12, 0));
    SHOW(send(pair[0], "other side", 10, 0));
    SHOW(ioctl(pair[0], FIONREAD, &count));
    SHOW(count);
    for (int index = 0; index < 3; index++)
        show("received", pair[0]);
    show("other side", pair[1]);
    static char large[50000];
    memset(large, 'k', sizeof large);
    SHOW(send(pair[1], large, sizeof large, 0));
    SHOW(recv(pair[0], large, sizeof large, MSG_DONTWAIT));
    /* A file that goes with what is dropped is closed. */
    int pipe_ends[2];
    SHOW(pipe(pipe_ends));
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec vector = {"file", 4};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(&control.header), &pipe_ends[1], sizeof(int));
    SHOW(sendmsg(pair[1], &message, 0));
    close(pipe_ends[1]);
    while (kind == SOCK_STREAM && recv(pair[0], large, sizeof large, MSG_DONTWAIT) > 0)
        ;
    struct pollfd poller = {pipe_ends[0], POLLIN, 0};
    SHOW(poll(&poller, 1, -1));
    SHOW(poller.revents == POLLHUP);
    close(pipe_ends[0]);
    close(pair[0]);
    close(pair[1]);
}

static void by_name(void)
{
    puts("- by name");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int bytes = snprintf(address.sun_path + 1, 64, "socket_filters.%d", getpid());
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + bytes;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0), other = socket(AF_UNIX, SOCK_DGRAM, 0);
    SHOW(bind(fd, (void *)&address, length));
    SHOW(ATTACH(fd, BEGINS_WITH_K));
    /* What is dropped does not fill the receiver. */
    int sent = 0;
    while (sent < 1000 && sendto(other, "dropped", 7, MSG_DONTWAIT, (void *)&address, length) == 7)
        sent++;
    SHOW(sent);
    SHOW(sendto(other, "kept", 4, MSG_DONTWAIT, (void *)&address, length));
    show("received", fd);
    show("received", fd);
    SHOW(shutdown(fd, SHUT_RD));
    SHOW(sendto(other, "dropped", 7, MSG_DONTWAIT | MSG_NOSIGNAL, (void *)&address, length));
    SHOW(sendto(other, "kept", 4, MSG_DONTWAIT | MSG_NOSIGNAL, (void *)&address, length));
    close(fd);
    close(other);
}

/* Asks for the loopback; how long the answer is. */
static ssize_t ask(int fd, unsigned sequence)
{
    struct { struct nlmsghdr header; struct ifinfomsg link; } request = {
        {sizeof request, RTM_GETLINK, NLM_F_REQUEST, sequence, 0}, {.ifi_index = 1}};
    static char answer[8192];
    if (send(fd, &request, sizeof request, 0) != sizeof request)
        return -2;
    return recv(fd, answer, sizeof answer, MSG_DONTWAIT);
}

static void of_netlink(void)
{
    puts("- netlink");
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    TRUE(ask(fd, 1) > 100);
    /* The first words of an answer are in the machine's order. */
    SHOW(ATTACH(fd, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct nlmsghdr, nlmsg_seq)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htobe32(2), 0, 1), BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, 40)));
    SHOW(ask(fd, 1));
    SHOW(ask(fd, 2));
    SHOW(ask(fd, 3));
    /* The name of the link is an attribute behind the header. */
    SHOW(ATTACH(fd, BPF_STMT(BPF_LDX | BPF_IMM, IFLA_IFNAME),
                BPF_STMT(BPF_LD | BPF_IMM, NLMSG_LENGTH(sizeof(struct ifinfomsg))),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_NLATTR), BPF_STMT(BPF_RET | BPF_A, 0)));
    SHOW(ask(fd, 4));
    SHOW(set(fd, SO_DETACH_FILTER, 0));
    TRUE(ask(fd, 5) > 100);
    close(fd);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    programs();
    attaching();
    of_kind("datagrams", SOCK_DGRAM);
    of_kind("packets", SOCK_SEQPACKET);
    of_kind("stream", SOCK_STREAM);
    by_name();
    of_netlink();
    return 0;
}
