/* Links: asked for by netlink, by requests on sockets, and through the library. */
#include "abi.h"
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

static int ask(int fd, int kind, int flags, int index)
{
    struct {
        struct nlmsghdr header;
        struct ifinfomsg link;
    } request = { { sizeof request, kind, NLM_F_REQUEST | flags, 5, 0 }, { .ifi_index = index } };
    return send(fd, &request, sizeof request, 0);
}

/* Reads answers until one ends them; prints what they say of the loopback. */
static void answers(int fd)
{
    char buffer[65536];
    for (int more = 1; more;) {
        int length = recv(fd, buffer, sizeof buffer, 0);
        if (length < 0) {
            printf("recv: %s\n", ERRNO_NAME(errno));
            return;
        }
        for (struct nlmsghdr *header = (void *)buffer; NLMSG_OK(header, (unsigned)length); header = NLMSG_NEXT(header, length)) {
            more = header->nlmsg_flags & NLM_F_MULTI && header->nlmsg_type != NLMSG_DONE;
            if (header->nlmsg_type == NLMSG_ERROR) {
                struct nlmsgerr *error = NLMSG_DATA(header);
                printf("error %s of %d\n", error->error ? ERRNO_NAME(-error->error) : "none", error->msg.nlmsg_type);
            } else if (header->nlmsg_type == NLMSG_DONE) {
                printf("done, sequence %u\n", header->nlmsg_seq);
            } else if (header->nlmsg_type == RTM_NEWLINK) {
                struct ifinfomsg *link = NLMSG_DATA(header);
                if (link->ifi_index != 1)
                    continue;
                printf("link %d kind %d flags %#x\n", link->ifi_index, link->ifi_type, link->ifi_flags);
                int rest = IFLA_PAYLOAD(header);
                for (struct rtattr *a = IFLA_RTA(link); RTA_OK(a, rest); a = RTA_NEXT(a, rest)) {
                    if (a->rta_type == IFLA_IFNAME)
                        printf("  name %s\n", (char *)RTA_DATA(a));
                    if (a->rta_type == IFLA_MTU)
                        printf("  mtu %u\n", *(unsigned *)RTA_DATA(a));
                    if (a->rta_type == IFLA_ADDRESS)
                        printf("  address of %d bytes\n", (int)RTA_PAYLOAD(a));
                }
            }
        }
    }
}

static void request(const char *name, int fd, unsigned long command, const char *link)
{
    struct ifreq r;
    memset(&r, 0, sizeof r);
    strcpy(r.ifr_name, link);
    int result = ioctl(fd, command, &r);
    if (result < 0)
        printf("%s of %s: %s\n", name, link, ERRNO_NAME(errno));
    else if (command == SIOCGIFFLAGS)
        printf("%s of %s: %#x\n", name, link, (unsigned short)r.ifr_flags);
    else if (command == SIOCGIFHWADDR)
        printf("%s of %s: %d\n", name, link, r.ifr_hwaddr.sa_family);
    else
        printf("%s of %s: %d\n", name, link, r.ifr_ifindex);
}

int main(void)
{
    SHOW(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE));
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl own = { .nl_family = AF_NETLINK };
    OK(bind(fd, (void *)&own, sizeof own));
    int option, length = sizeof option;
    SHOW(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &option, (socklen_t *)&length));
    SHOW(option);
    SHOW(ask(fd, RTM_GETLINK, NLM_F_DUMP, 0));
    answers(fd);
    SHOW(ask(fd, RTM_GETLINK, 0, 1));
    answers(fd);
    SHOW(ask(fd, RTM_GETLINK, 0, 12345));
    answers(fd);
    SHOW(ask(fd, RTM_GETLINK, 0, 0));
    answers(fd);
    SHOW(ask(fd, RTM_GETLINK, NLM_F_ACK, 1));
    answers(fd);
    answers(fd);
    SHOW(ask(fd, NLMSG_NOOP, NLM_F_ACK, 0));
    answers(fd);
    SHOW(send(fd, "short", 5, MSG_DONTWAIT));
    char byte;
    SHOW(recv(fd, &byte, 1, MSG_DONTWAIT));
    fflush(stdout);
    pid_t child = CHILD({
        OK(setuid(12345));
        SHOW(ask(fd, RTM_NEWLINK, NLM_F_ACK, 1));
        answers(fd);
        request("setting flags", fd, SIOCSIFFLAGS, "lo");
    });
    REAP(child);
    int local = socket(AF_UNIX, SOCK_DGRAM, 0);
    request("index", local, SIOCGIFINDEX, "lo");
    request("index", local, SIOCGIFINDEX, "nothing");
    request("flags", local, SIOCGIFFLAGS, "lo");
    request("mtu", local, SIOCGIFMTU, "lo");
    request("hardware address", local, SIOCGIFHWADDR, "lo");
    request("queue length", local, SIOCGIFTXQLEN, "lo");
    request("address", local, SIOCGIFADDR, "lo");
    request("index", open("/dev/null", O_RDONLY), SIOCGIFINDEX, "lo");
    struct ifreq r = { .ifr_ifindex = 1 };
    SHOW(ioctl(local, SIOCGIFNAME, &r));
    printf("%s\n", r.ifr_name);
    r.ifr_ifindex = 12345;
    SHOW(ioctl(local, SIOCGIFNAME, &r));
    SHOW(if_nametoindex("lo"));
    char name[IF_NAMESIZE];
    printf("%s\n", if_indextoname(1, name));
    struct if_nameindex *all = if_nameindex();
    printf("first: %u %s\n", all[0].if_index, all[0].if_name);
    return 0;
}
