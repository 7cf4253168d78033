/* The line discipline of a pseudo-terminal: canonical editing, raw modes, echo, translations, VMIN and VTIME. */
#include "abi.h"

static int master, slave;

static void open_pair(void)
{
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    int unlock = 0, number = -1;
    ioctl(master, TIOCSPTLCK, &unlock);
    ioctl(master, TIOCGPTN, &number);
    char name[32];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    slave = open(name, O_RDWR | O_NOCTTY);
    printf("pair: %s %s\n", master >= 0 ? "master" : ERRNO_NAME(errno), slave >= 0 ? "slave" : ERRNO_NAME(errno));
}

static void print_bytes(const char *what, const char *bytes, ssize_t count)
{
    printf("%s: ", what);
    if (count < 0)
        printf("%s", ERRNO_NAME(errno));
    for (ssize_t i = 0; i < count; i++)
        if (bytes[i] >= 32 && bytes[i] < 127)
            putchar(bytes[i]);
        else
            printf("\\%o", (unsigned char)bytes[i]);
    printf(" (%zd)\n", count);
}

/* What a reader of this descriptor gets now, without waiting. */
static void drain(const char *what, int fd)
{
    char bytes[512];
    ssize_t used = 0;
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    while (used < (ssize_t)sizeof bytes && poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN)) {
        ssize_t count = read(fd, bytes + used, sizeof bytes - used);
        if (count <= 0)
            break;
        used += count;
    }
    print_bytes(what, bytes, used);
}

/* Discipline work may be done a moment after the write, by another thread. Who asks whether there is something to read waits for that: the
 * slave for what was typed, then the master for its echo. */
static void settle(void)
{
    int ends[] = { slave, master };
    for (int i = 0; i < 2; i++)
        poll(&(struct pollfd){ .fd = ends[i], .events = POLLIN }, 1, 0);
    pause_ms(15);
}

static void type(const char *text)
{
    printf("type ");
    print_bytes("", text, (ssize_t)strlen(text));
    if (write(master, text, strlen(text)) < 0)
        printf("write: %s\n", ERRNO_NAME(errno));
    settle();
}

static void show_modes(void)
{
    struct termios modes;
    SHOW(tcgetattr(slave, &modes));
    printf("i %o o %o c %o l %o\n", modes.c_iflag, modes.c_oflag, modes.c_cflag & ~CBAUD, modes.c_lflag);
    for (int i = 0; i < 17; i++)
        printf("%d ", modes.c_cc[i]);
    printf("\n");
}

static void change(tcflag_t clear_input, tcflag_t clear_output, tcflag_t clear_local, tcflag_t set_local)
{
    struct termios modes;
    tcgetattr(slave, &modes);
    modes.c_iflag &= ~clear_input;
    modes.c_oflag &= ~clear_output;
    modes.c_lflag = (modes.c_lflag & ~clear_local) | set_local;
    tcsetattr(slave, TCSANOW, &modes);
}

static void canonical(void)
{
    type("hello");
    drain("slave before the newline", slave);
    type("\n");
    drain("slave", slave);
    drain("echo", master);
    type("ab\177c\n");
    drain("slave after erase", slave);
    drain("echo of erase", master);
    type("wrong\025right\n");
    drain("slave after kill", slave);
    drain("echo of kill", master);
    type("two words\027x\n");
    drain("slave after word erase", slave);
    drain("echo of word erase", master);
    type("a\026\003b\n");
    drain("slave after literal next", slave);
    drain("echo of literal next", master);
    type("tab\there\001\n");
    drain("slave with controls", slave);
    drain("echo of controls", master);
    type("cr\r");
    drain("slave after cr", slave);
    drain("echo of cr", master);
    type("part\004");
    drain("slave after end of file in a line", slave);
    type("\004");
    char byte;
    SHOW(read(slave, &byte, 1));
    drain("echo", master);
    type("one\ntwo\nthree\n");
    char text[64];
    print_bytes("first read", text, read(slave, text, sizeof text));
    print_bytes("second read", text, read(slave, text, 2));
    int count = 0;
    SHOW(ioctl(slave, FIONREAD, &count));
    SHOW(count);
    print_bytes("third read", text, read(slave, text, sizeof text));
    print_bytes("fourth read", text, read(slave, text, sizeof text));
    type("abc\022\n");
    drain("slave after reprint", slave);
    drain("echo of reprint", master);
    type("flush me");
    SHOW(tcflush(slave, TCIFLUSH));
    type("kept\n");
    drain("slave after flush", slave);
    drain("echo", master);
    type("\177\177\n");
    drain("slave after erase of nothing", slave);
    drain("echo of it", master);
}

static void output(void)
{
    write(slave, "line\nnext\ttab\r\n", 15);
    settle();
    drain("master", master);
    change(0, OPOST, 0, 0);
    write(slave, "line\n", 5);
    settle();
    drain("master without OPOST", master);
    struct termios modes;
    tcgetattr(slave, &modes);
    modes.c_oflag |= OPOST | OCRNL | OLCUC;
    tcsetattr(slave, TCSADRAIN, &modes);
    write(slave, "low\rer\n", 7);
    settle();
    drain("master with OCRNL OLCUC", master);
    modes.c_oflag = OPOST | ONLCR | XTABS;
    tcsetattr(slave, TCSADRAIN, &modes);
    write(slave, "ab\tcd\te\n", 8);
    settle();
    drain("master with XTABS", master);
    modes.c_oflag = OPOST | ONLCR;
    tcsetattr(slave, TCSANOW, &modes);
}

static void input_translations(void)
{
    struct termios modes, old;
    tcgetattr(slave, &old);
    modes = old;
    modes.c_iflag = INLCR;
    tcsetattr(slave, TCSANOW, &modes);
    type("a\nb\004");
    drain("INLCR", slave);
    modes.c_iflag = IGNCR;
    tcsetattr(slave, TCSANOW, &modes);
    type("a\rb\n");
    drain("IGNCR", slave);
    modes.c_iflag = ISTRIP | ICRNL;
    tcsetattr(slave, TCSANOW, &modes);
    type("\301\302\r");
    drain("ISTRIP", slave);
    modes.c_iflag = IUCLC | ICRNL;
    modes.c_lflag |= IEXTEN;
    tcsetattr(slave, TCSANOW, &modes);
    type("UPPER\r");
    drain("IUCLC", slave);
    tcsetattr(slave, TCSANOW, &old);
    drain("echo of all", master);
}

static void raw(void)
{
    struct termios modes;
    tcgetattr(slave, &modes);
    cfmakeraw(&modes);
    tcsetattr(slave, TCSANOW, &modes);
    show_modes();
    type("r\003\004\177\r\n");
    drain("raw", slave);
    drain("no echo", master);
    char text[64];
    modes.c_cc[VMIN] = 0;
    modes.c_cc[VTIME] = 0;
    tcsetattr(slave, TCSANOW, &modes);
    SHOW(read(slave, text, 10));
    modes.c_cc[VTIME] = 1;
    tcsetattr(slave, TCSANOW, &modes);
    long long start = now_ms();
    SHOW(read(slave, text, 10));
    TRUE(now_ms() - start >= 90);
    modes.c_cc[VMIN] = 3;
    modes.c_cc[VTIME] = 0;
    tcsetattr(slave, TCSANOW, &modes);
    pid_t child = CHILD({ char t[10]; print_bytes("VMIN 3", t, read(slave, t, 10)); });
    wait_state(child, "S");
    write(master, "a", 1);
    pause_ms(10);
    write(master, "b", 1);
    pause_ms(10);
    TRUE(waitpid(child, NULL, WNOHANG) == 0);
    write(master, "c", 1);
    REAP(child);
    modes.c_cc[VTIME] = 1;
    tcsetattr(slave, TCSANOW, &modes);
    child = CHILD({ char t[10]; print_bytes("VMIN 3 VTIME 1", t, read(slave, t, 10)); });
    wait_state(child, "S");
    write(master, "x", 1);
    REAP(child);
    modes.c_cc[VTIME] = 0;
    modes.c_cc[VMIN] = 1;
    tcsetattr(slave, TCSANOW, &modes);
    fcntl(slave, F_SETFL, O_NONBLOCK | O_RDWR);
    SHOW(read(slave, text, 10));
    fcntl(slave, F_SETFL, O_RDWR);
    SHOW(poll(&(struct pollfd){ .fd = slave, .events = POLLIN | POLLOUT }, 1, 0));
}

static void sizes_and_errors(void)
{
    struct winsize size = { 24, 80, 0, 0 };
    SHOW(ioctl(slave, TIOCGWINSZ, &size));
    printf("%d %d\n", size.ws_row, size.ws_col);
    size.ws_row = 50;
    size.ws_col = 132;
    SHOW(ioctl(master, TIOCSWINSZ, &size));
    memset(&size, 0, sizeof size);
    SHOW(ioctl(slave, TIOCGWINSZ, &size));
    printf("%d %d\n", size.ws_row, size.ws_col);
    struct termios modes;
    int null = open("/dev/null", O_RDWR), ends[2];
    pipe(ends);
    SHOW(tcgetattr(null, &modes));
    SHOW(tcgetattr(ends[0], &modes));
    SHOW(isatty(slave));
    SHOW(isatty(master));
    SHOW(isatty(null));
    SHOW(ioctl(slave, TCGETS, 8));
    SHOW(ioctl(slave, TIOCGWINSZ, 8));
    SHOW(ioctl(slave, 0x54ff));
    SHOW(lseek(slave, 0, SEEK_SET));
    SHOW(pread(slave, &modes, 1, 0));
    SHOW(tcdrain(slave));
    SHOW(tcflush(slave, 77));
    SHOW(tcflow(slave, 77));
    SHOW(tcsendbreak(slave, 0));
    int number;
    SHOW(ioctl(slave, TIOCGPTN, &number));
    struct stat about;
    fstat(slave, &about);
    printf("%o major %d\n", about.st_mode, major(about.st_rdev));
    int locked = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    ioctl(locked, TIOCGPTN, &number);
    char name[32];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    OK(open(name, O_RDWR | O_NOCTTY));
    close(locked);
    OK(open(name, O_RDWR | O_NOCTTY));
    OK(open("/dev/pts/999", O_RDWR));
}

static void locked_attributes(void)
{
    struct termios modes, locks;
    int on = 1, off = 0, discipline = 7;
    memset(&locks, 0xff, sizeof locks);
    SHOW(ioctl(slave, TIOCGLCKTRMIOS, &locks));
    printf("%x %x %x %x %d\n", locks.c_iflag, locks.c_oflag, locks.c_cflag, locks.c_lflag, locks.c_cc[VERASE]);
    locks.c_lflag = ECHO | NOFLSH;
    locks.c_cc[VERASE] = 1;
    SHOW(ioctl(master, TIOCSLCKTRMIOS, &locks));
    SHOW(tcgetattr(slave, &modes));
    struct termios before = modes;
    modes.c_lflag ^= ECHO | NOFLSH | ISIG;
    modes.c_cc[VERASE] = 'e';
    modes.c_cc[VKILL] = 'k';
    SHOW(tcsetattr(slave, TCSANOW, &modes));
    SHOW(tcgetattr(slave, &modes));
    printf("changed %x, erase %d, kill %c\n", modes.c_lflag ^ before.c_lflag, modes.c_cc[VERASE], modes.c_cc[VKILL]);
    SHOW(ioctl(slave, TIOCSLCKTRMIOS, 8));
    SHOW(ioctl(slave, TIOCGLCKTRMIOS, 8));
    pid_t child = CHILD({
        setuid(1000);
        SHOW(ioctl(slave, TIOCGLCKTRMIOS, &locks));
        SHOW(ioctl(slave, TIOCSLCKTRMIOS, &locks));
    });
    REAP(child);
    memset(&locks, 0, sizeof locks);
    SHOW(ioctl(slave, TIOCSLCKTRMIOS, &locks));
    SHOW(tcsetattr(slave, TCSANOW, &before));
    SHOW(ioctl(slave, TIOCSSOFTCAR, &on));
    SHOW(ioctl(slave, TIOCGSOFTCAR, &off));
    printf("soft carrier %d\n", off);
    SHOW(tcgetattr(slave, &modes));
    printf("CLOCAL %d\n", (modes.c_cflag & CLOCAL) != 0);
    SHOW(ioctl(slave, TIOCGETD, &discipline));
    printf("discipline %d\n", discipline);
    SHOW(ioctl(slave, TIOCSETD, &discipline));
    discipline = 12345;
    SHOW(ioctl(slave, TIOCSETD, &discipline));
}

static void hangup(void)
{
    char text[16];
    struct pollfd both = { .fd = master, .events = POLLIN | POLLOUT };
    write(slave, "last words", 10);
    close(slave);
    settle();
    print_bytes("master after the slave closed", text, read(master, text, 16));
    SHOW(read(master, text, 16));
    poll(&both, 1, 0);
    printf("%#x\n", both.revents & (POLLHUP | POLLERR));
    close(master);
    open_pair();
    close(master);
    SHOW(read(slave, text, 16));
    SHOW(write(slave, "x", 1));
    both.fd = slave;
    poll(&both, 1, 0);
    printf("%#x\n", both.revents & (POLLHUP | POLLERR | POLLIN));
    struct termios modes;
    SHOW(tcgetattr(slave, &modes));
}

int main(void)
{
    open_pair();
    show_modes();
    canonical();
    output();
    input_translations();
    raw();
    sizes_and_errors();
    locked_attributes();
    hangup();
    return 0;
}
