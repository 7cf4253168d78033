/* vhangup: what was open is cut off, and the terminal can be opened again, as login(1) does it. */
#include "abi.h"

int main(void)
{
    struct termios settings;
    char text[32] = "";
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    SHOW(grantpt(master));
    SHOW(unlockpt(master));
    const char *name = ptsname(master);
    pid_t child = CHILD({
        SHOW(setsid() > 0);
        int before = open(name, O_RDWR);
        TRUE(before >= 0);
        signal(SIGHUP, SIG_IGN);
        SHOW(syscall(SYS_vhangup));
        SHOW(read(before, text, sizeof text));
        SHOW(write(before, "x", 1));
        SHOW(tcgetattr(before, &settings));
        struct pollfd about = { before, POLLIN | POLLOUT, 0 };
        SHOW(poll(&about, 1, 0));
        printf("%x\n", about.revents);
        SHOW(open("/dev/tty", O_RDWR));
        int after = open(name, O_RDWR);
        TRUE(after >= 0);
        SHOW(tcgetattr(after, &settings));
        TRUE(tcgetsid(after) == getpid());
        SHOW(read(before, text, sizeof text));
        SHOW(write(before, "x", 1));
        close(before);
        SHOW(write(after, "again", 5));
        SHOW(read(master, text, sizeof text));
        SHOW(write(master, "line\n", 5));
        SHOW(read(after, text, sizeof text));
    });
    REAP(child);
    return 0;
}
