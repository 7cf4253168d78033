/* Controlling terminals and job control: sessions, foreground groups, ^C ^\ ^Z, SIGTTIN, SIGTTOU, SIGWINCH, SIGHUP. */
#include "abi.h"

static int master;
static int up[2];
static char slave_name[32];

static void open_master(void)
{
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int unlock = 0, number = -1;
    ioctl(master, TIOCSPTLCK, &unlock);
    ioctl(master, TIOCGPTN, &number);
    snprintf(slave_name, sizeof slave_name, "/dev/pts/%d", number);
}

static volatile int seen[65];

static void note(int number)
{
    seen[number]++;
}

static void note_all(void)
{
    static const int numbers[] = { SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, SIGHUP, SIGCONT };
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], note);
}

static int waits_for(int number)
{
    for (int i = 0; i < LOOKS && !seen[number]; i++)
        pause_ms(2);
    return seen[number];
}

/* A session leader on the slave runs the body; the parent types what it is told to. */
#define SESSION(...)                                                                                                   \
    CHILD({                                                                                                            \
        setsid();                                                                                                      \
        int slave = open(slave_name, O_RDWR);                                                                          \
        (void)slave;                                                                                                   \
        __VA_ARGS__;                                                                                                   \
    })

static void acquisition(void)
{
    open_master();
    REAP(SESSION({
        SHOW(tcgetpgrp(slave) == getpgrp());
        SHOW(tcgetsid(slave) == getsid(0));
        OK(open("/dev/tty", O_RDWR));
        SHOW(tcsetpgrp(slave, 0x3fffffff));
        SHOW(tcsetpgrp(slave, -1));
        SHOW(ioctl(slave, TIOCSCTTY, 0));
        signal(SIGHUP, SIG_IGN);
        SHOW(ioctl(slave, TIOCNOTTY));
        OK(open("/dev/tty", O_RDWR));
        SHOW(tcgetpgrp(slave));
    }));
    close(master);
    open_master();
    REAP(CHILD({
        setsid();
        int slave = open(slave_name, O_RDWR | O_NOCTTY);
        OK(open("/dev/tty", O_RDWR));
        SHOW(tcgetpgrp(slave));
        SHOW(ioctl(slave, TIOCSCTTY, 0));
        OK(open("/dev/tty", O_RDWR));
        REAP(CHILD({
            setsid();
            SHOW(ioctl(slave, TIOCSCTTY, 0));
            SHOW(tcgetpgrp(slave));
            OK(open("/dev/tty", O_RDWR));
        }));
        REAP(CHILD({ setpgid(0, 0); SHOW(setsid()); }));
        SHOW(setsid());
        SHOW(setpgid(0, 0));
        SHOW(getsid(1) != getsid(0));
        SHOW(getsid(0x3fffffff));
        SHOW(getpgid(0x3fffffff));
        SHOW(setpgid(1, 0));
        SHOW(setpgid(0, -1));
        SHOW(setpgid(0, 0x3fffffff));
    }));
    close(master);
}

static void keys(void)
{
    open_master();
    pid_t leader = SESSION({
        close(master);
        note_all();
        tell(up[1]);
        SHOW(waits_for(SIGINT));
        tell(up[1]);
        SHOW(waits_for(SIGQUIT));
        tell(up[1]);
        SHOW(waits_for(SIGTSTP));
        tell(up[1]);
        SHOW(waits_for(SIGWINCH));
        struct winsize size;
        ioctl(slave, TIOCGWINSZ, &size);
        printf("%d %d\n", size.ws_row, size.ws_col);
        tell(up[1]);
        SHOW(waits_for(SIGHUP));
        char byte;
        SHOW(read(slave, &byte, 1));
        SHOW(write(slave, &byte, 1));
        tell(up[1]);
    });
    hear(up[0]);
    write(master, "\003", 1);
    hear(up[0]);
    write(master, "\034", 1);
    hear(up[0]);
    write(master, "\032", 1);
    hear(up[0]);
    struct winsize size = { 33, 99, 0, 0 };
    ioctl(master, TIOCSWINSZ, &size);
    hear(up[0]);
    char echo[64];
    ssize_t count = read(master, echo, sizeof echo);
    printf("echo of the keys: %.*s\n", (int)(count < 0 ? 0 : count), echo);
    close(master);
    hear(up[0]);
    REAP(leader);
}

static void flushes(void)
{
    open_master();
    pid_t leader = SESSION({
        close(master);
        note_all();
        tell(up[1]);
        waits_for(SIGINT);
        tell(up[1]);
        char text[32];
        ssize_t count = read(slave, text, 32);
        printf("after the interrupt: %.*s", (int)count, text);
    });
    hear(up[0]);
    write(master, "lost\003", 5);
    hear(up[0]);
    write(master, "kept\n", 5);
    REAP(leader);
    close(master);
}

static void background(void)
{
    open_master();
    REAP(SESSION({
        int status;
        pid_t job = CHILD({ setpgid(0, 0); char byte; read(slave, &byte, 1); printf("read after fg: %c\n", byte); });
        setpgid(job, job);
        waitpid(job, &status, WUNTRACED);
        printf("background read: %s\n", how_ended(status));
        SHOW(tcsetpgrp(slave, job));
        SHOW(tcgetpgrp(slave) == job);
        kill(-job, SIGCONT);
        write(master, "Z\n", 2);
        waitpid(job, &status, 0);
        printf("%s\n", how_ended(status));
        signal(SIGTTOU, SIG_IGN);
        SHOW(tcsetpgrp(slave, getpgrp()));
        signal(SIGTTOU, SIG_DFL);
        job = CHILD({ setpgid(0, 0); printf("background write: %ld\n", (long)write(slave, "w", 1)); });
        waitpid(job, &status, WUNTRACED);
        printf("%s\n", how_ended(status));
        struct termios modes;
        tcgetattr(slave, &modes);
        modes.c_lflag |= TOSTOP;
        tcsetattr(slave, TCSANOW, &modes);
        job = CHILD({ setpgid(0, 0); write(slave, "w", 1); });
        waitpid(job, &status, WUNTRACED);
        printf("background write with TOSTOP: %s\n", how_ended(status));
        kill(job, SIGKILL);
        waitpid(job, &status, 0);
        job = CHILD({ setpgid(0, 0); tcsetattr(slave, TCSANOW, &modes); });
        waitpid(job, &status, WUNTRACED);
        printf("background tcsetattr: %s\n", how_ended(status));
        kill(job, SIGKILL);
        waitpid(job, &status, 0);
        job = CHILD({ setpgid(0, 0); signal(SIGTTIN, SIG_IGN); char byte; SHOW(read(slave, &byte, 1)); });
        REAP(job);
        job = CHILD({
            setpgid(0, 0);
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGTTOU);
            sigprocmask(SIG_BLOCK, &set, NULL);
            SHOW(write(slave, "w", 1));
            SHOW(tcsetattr(slave, TCSANOW, &modes));
        });
        REAP(job);
        /* An orphaned group cannot stop for the terminal: its read fails. */
        int inner[2];
        pipe(inner);
        pid_t middle = CHILD({
            setpgid(0, 0);
            if (fork() == 0) {
                hear(inner[0]);
                for (int i = 0; i < LOOKS && getppid() != 1; i++)
                    pause_ms(2);
                char byte;
                SHOW(read(slave, &byte, 1));
                fflush(stdout);
                tell(up[1]);
                _exit(0);
            }
        });
        REAP(middle);
        tell(inner[1]);
        /* The terminal is the session's as long as its leader lives. */
        hear(up[0]);
    }));
    close(master);
}

static void stopping(void)
{
    int down[2];
    pipe(down);
    open_master();
    REAP(SESSION({
        int status;
        pid_t job = CHILD({ setpgid(0, 0); tell(up[1]); for (;;) pause(); });
        setpgid(job, job);
        signal(SIGTTOU, SIG_IGN);
        tcsetpgrp(slave, job);
        hear(up[0]);
        write(master, "\032", 1);
        waitpid(job, &status, WUNTRACED);
        printf("^Z: %s\n", how_ended(status));
        kill(-job, SIGCONT);
        waitpid(job, &status, WCONTINUED);
        printf("%s\n", how_ended(status));
        write(master, "\003", 1);
        waitpid(job, &status, 0);
        printf("^C: %s\n", how_ended(status));
        /* The leader's death sends SIGHUP to the foreground group. */
        job = CHILD({ setpgid(0, 0); note_all(); tell(up[1]); int hangups = waits_for(SIGHUP); hear(down[0]); printf("job after its leader: HUP %d\n", hangups); fflush(stdout); tell(up[1]); _exit(0); });
        setpgid(job, job);
        tcsetpgrp(slave, job);
        hear(up[0]);
    }));
    tell(down[1]);
    hear(up[0]);
    close(master);
    /* A stopped group that becomes orphaned gets SIGHUP and SIGCONT. */
    pid_t middle = CHILD({
        setsid();
        pid_t job = CHILD({
            setpgid(0, 0);
            signal(SIGHUP, note);
            signal(SIGCONT, note);
            raise(SIGSTOP);
            hear(down[0]);
            printf("orphaned while stopped: HUP %d CONT %d\n", seen[SIGHUP], seen[SIGCONT]);
            fflush(stdout);
            tell(up[1]);
            _exit(0);
        });
        int status;
        waitpid(job, &status, WUNTRACED);
        printf("%s\n", how_ended(status));
    });
    REAP(middle);
    tell(down[1]);
    hear(up[0]);
}

int main(void)
{
    pipe(up);
    acquisition();
    keys();
    flushes();
    background();
    stopping();
    return 0;
}
