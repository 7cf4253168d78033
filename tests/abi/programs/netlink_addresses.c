/* Addresses of the loopback in a network of one's own: given, listed, taken away; and who may. */
#include "abi.h"
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>

struct request {
    struct nlmsghdr header;
    struct ifaddrmsg address;
    struct rtattr local;
    unsigned char bytes[4];
    struct rtattr full;
    unsigned char same[4];
};

static int fd;

/* Prints how requests ended, and the addresses of the loopback that come. */
static void answers(void)
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
                printf("  %s\n", error->error ? ERRNO_NAME(-error->error) : "done");
            } else if (header->nlmsg_type == RTM_NEWADDR) {
                struct ifaddrmsg *address = NLMSG_DATA(header);
                if (address->ifa_family != AF_INET)
                    continue;
                printf("  link %d prefix %d scope %d flags %#x:", address->ifa_index, address->ifa_prefixlen, address->ifa_scope, address->ifa_flags);
                int rest = IFA_PAYLOAD(header);
                for (struct rtattr *a = IFA_RTA(address); RTA_OK(a, rest); a = RTA_NEXT(a, rest)) {
                    unsigned char *bytes = RTA_DATA(a);
                    if (a->rta_type == IFA_LOCAL || a->rta_type == IFA_ADDRESS)
                        printf(" %d.%d.%d.%d", bytes[0], bytes[1], bytes[2], bytes[3]);
                    if (a->rta_type == IFA_LABEL)
                        printf(" %s", (char *)bytes);
                    if (a->rta_type == IFA_FLAGS)
                        printf(" flags %#x", *(unsigned *)bytes);
                    if (a->rta_type == IFA_CACHEINFO)
                        printf(" life %x %x", ((unsigned *)bytes)[0], ((unsigned *)bytes)[1]);
                }
                printf("\n");
            }
        }
    }
}

static void change(const char *what, int kind, int flags, int prefix, int link, int last)
{
    struct request r = {
        { sizeof r, kind, NLM_F_REQUEST | NLM_F_ACK | flags, 1, 0 },
        { AF_INET, prefix, IFA_F_PERMANENT, RT_SCOPE_HOST, link },
        { 8, IFA_LOCAL }, { 127, 0, 0, last }, { 8, IFA_ADDRESS }, { 127, 0, 0, last },
    };
    printf("%s\n", what);
    OK(send(fd, &r, sizeof r, 0));
    answers();
}

static void list(int family)
{
    struct {
        struct nlmsghdr header;
        struct ifaddrmsg address;
    } r = { { sizeof r, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 2, 0 }, { .ifa_family = family } };
    printf("addresses\n");
    OK(send(fd, &r, sizeof r, 0));
    answers();
}

static void flags(void)
{
    struct ifreq r = { .ifr_name = "lo" };
    OK(ioctl(fd, SIOCGIFFLAGS, &r));
    printf("flags %#x\n", (unsigned short)r.ifr_flags);
}

static void up(int on)
{
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = on ? IFF_UP : 0 };
    SHOW(ioctl(fd, SIOCSIFFLAGS, &r));
}

int main(void)
{
    OK(unshare(CLONE_NEWNET));
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl own = { .nl_family = AF_NETLINK };
    OK(bind(fd, (void *)&own, sizeof own));
    flags();
    list(AF_INET);
    change("new", RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, 8, 1, 1);
    change("new, again", RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, 8, 1, 1);
    change("new, again, not exclusive", RTM_NEWADDR, NLM_F_CREATE, 8, 1, 1);
    change("new, replacing", RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, 8, 1, 1);
    change("a net too small", RTM_NEWADDR, NLM_F_CREATE, 33, 1, 2);
    change("no such link", RTM_NEWADDR, NLM_F_CREATE, 8, 12345, 2);
    up(1);
    flags();
    list(AF_UNSPEC);
    change("deleted, of another net", RTM_DELADDR, 0, 16, 1, 1);
    change("deleted", RTM_DELADDR, 0, 8, 1, 1);
    change("deleted, again", RTM_DELADDR, 0, 8, 1, 1);
    list(AF_INET);
    up(0);
    up(1);
    list(AF_INET);
    fflush(stdout);
    pid_t other = CHILD({
        OK(unshare(CLONE_NEWUSER));
        change("without the right", RTM_NEWADDR, NLM_F_CREATE, 8, 1, 7);
        up(0);
        OK(unshare(CLONE_NEWNET));
        fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        change("in a network of one's own", RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, 8, 1, 1);
        up(1);
        list(AF_INET);
    });
    REAP(other);
    list(AF_INET);
    return 0;
}
