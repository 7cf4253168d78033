/* A file server that never answers: who asks it can be killed, nobody else waits, and its end is everybody's. */
#include "fuse.h"
#include <sys/socket.h>

/* Waits until somebody asks what is not answered. */
static void await_silence(int opcode)
{
    for (int tries = 0; tries < LOOKS && atomic_load(&world->waiting_opcode) != opcode; tries++)
        pause_ms(1);
    atomic_store(&world->waiting_opcode, 0);
}

static void be_silent(int opcode)
{
    world->silent = 1ull << opcode;
}

static void interrupted(int sig)
{
    (void)sig;
}

int main(void)
{
    struct stat found;
    struct statfs status;
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    make_world();
    int file = add_node(1, "file", S_IFREG | 0644, "0123456789");
    add_node(1, "link", S_IFLNK | 0777, "file");
    add_node(1, "dir", S_IFDIR | 0755, NULL);
    SHOW(mount_world("m", 0, ""));

    /* The server does not even read. Who is not admitted does not wait, nor who looks elsewhere. */
    SHOW(stat("m/file", &found));
    kill(world->pid, SIGSTOP);
    wait_state(world->pid, "T");
    pid_t waiting = CHILD(stat("m/file", &found)), another = CHILD(open("m/new", O_RDWR | O_CREAT, 0666));
    wait_state(waiting, "SD");
    wait_state(another, "SD");
    REAP(CHILD({
        (void)!setresuid(2000, 2000, 2000);
        SHOW(stat("m/file", &found));
        SHOW(statfs("m", &status));
        sync();
        printf("   sync is over\n");
        int dir = open(".", O_RDONLY);
        SHOW(syncfs(dir));
    }));
    mkdir("n", 0755);
    SHOW(mount("n", "n", "tmpfs", 0, NULL));
    SHOW(umount("n"));
    SHOW(umount("m"));
    kill(waiting, SIGKILL);
    REAP(waiting);
    kill(another, SIGKILL);
    REAP(another);
    kill(world->pid, SIGCONT);
    SHOW(stat("m/file", &found));

    /* It reads, does not answer, and gives up what is interrupted: also by the end of who asked. */
    world->on_interrupt = 1;
    be_silent(FUSE_LOOKUP);
    waiting = CHILD(stat("m/file", &found));
    await_silence(FUSE_LOOKUP);
    kill(waiting, SIGKILL);
    REAP(waiting);
    be_silent(FUSE_OPEN);
    waiting = CHILD(open("m/file", O_RDONLY));
    await_silence(FUSE_OPEN);
    kill(waiting, SIGKILL);
    REAP(waiting);
    be_silent(FUSE_READ);
    waiting = CHILD({
        char text[10];
        int fd = open("m/file", O_RDONLY);
        (void)!read(fd, text, 10);
    });
    await_silence(FUSE_READ);
    kill(waiting, SIGKILL);
    REAP(waiting);
    world->silent = 0;

    /* Who receives into memory that never comes keeps nobody from sending, in streams and where it only looks. */
    static const int kinds[] = { SOCK_STREAM, SOCK_STREAM, SOCK_DGRAM, SOCK_DGRAM };
    for (int i = 0; i < 4; i++) {
        int ends[2];
        SHOW(socketpair(AF_UNIX, kinds[i], 0, ends));
        SHOW(send(ends[0], "first", 5, 0));
        be_silent(FUSE_READ);
        waiting = CHILD({
            int fd = open("m/file", O_RDWR);
            char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            (void)!recv(ends[1], map, 5, i % 2 ? MSG_PEEK : 0);
        });
        await_silence(FUSE_READ);
        SHOW(send(ends[0], "second", 6, 0));
        kill(waiting, SIGKILL);
        REAP(waiting);
        world->silent = 0;
        char text[20] = "";
        SHOW(recv(ends[1], text, sizeof text, MSG_DONTWAIT));
        printf("   %s\n", text);
        close(ends[0]);
        close(ends[1]);
    }

    /* A signal that does not kill is told to the server, who decides. */
    world->silent = 1ull << FUSE_GETATTR;
    struct sigaction action = { .sa_handler = interrupted };
    sigaction(SIGUSR1, &action, NULL);
    world->on_interrupt = 1;
    waiting = CHILD(SHOW(stat("m/dir", &found)));
    await_silence(FUSE_GETATTR);
    kill(waiting, SIGUSR1);
    REAP(waiting);
    TRUE(atomic_load(&world->interrupts) > 0);
    world->silent = 0;
    (void)file;

    /* The server's end. */
    be_silent(FUSE_MKDIR);
    waiting = CHILD(SHOW(mkdir("m/x", 0777)));
    await_silence(FUSE_MKDIR);
    end_server();
    REAP(waiting);
    SHOW(stat("m/file", &found));
    SHOW(umount("m"));

    /* Unmounting by force. */
    SHOW(mount_world("m", 0, ""));
    be_silent(FUSE_LOOKUP);
    waiting = CHILD(SHOW(stat("m/file", &found)));
    await_silence(FUSE_LOOKUP);
    /* Whether the mount goes as well depends on who is faster. */
    umount2("m", MNT_FORCE);
    REAP(waiting);
    umount2("m", MNT_DETACH);
    int ended;
    SHOW(waitpid(world->pid, &ended, 0) == world->pid);
    printf("   %s\n", how_ended(ended));
    return 0;
}
