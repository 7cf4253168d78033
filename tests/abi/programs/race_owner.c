/* A file's mode and owner change in one step: who gives a file the set-user-ID bit while it is given to another owner does not give that one's
 * rights away, and a write that takes the bit away does not undo a change of the mode beside it.
 * abi: limit 100
 */
#include "abi.h"
#include <sched.h>

enum { ROUNDS = 3000, NOBODY = 99 };

static atomic_int *shared;

static void spin(unsigned rounds)
{
    for (volatile unsigned i = 0; i < rounds; i++)
        ;
}

/* The owner sets the bit again and again; root takes the file and gives it back. */
static int given_away(void)
{
    int wrong = 0;
    close(open("taken", O_CREAT | O_RDWR, 0755));
    atomic_store(&shared[0], 0);
    pid_t owner = fork();
    if (owner == 0) {
        setresuid(NOBODY, NOBODY, NOBODY);
        while (!atomic_load(&shared[0]))
            chmod("taken", 04755);
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct stat status;
        chown("taken", NOBODY, 0);
        spin(round * 37 % 2000);
        chown("taken", 0, 0);
        stat("taken", &status);
        wrong += status.st_uid == 0 && (status.st_mode & S_ISUID);
    }
    atomic_store(&shared[0], 1);
    waitpid(owner, NULL, 0);
    unlink("taken");
    return wrong;
}

/* Nobody, who may write the file, writes it while root takes all permissions away: whichever is first, they are gone. */
static int written(void)
{
    int wrong = 0;
    int file = open("written", O_CREAT | O_RDWR, 0777);
    atomic_store(&shared[0], 0);
    atomic_store(&shared[1], 0);
    pid_t writer = fork();
    if (writer == 0) {
        setresuid(NOBODY, NOBODY, NOBODY);
        for (int round = 1; round <= ROUNDS; round++) {
            while (atomic_load(&shared[0]) != round)
                sched_yield();
            pwrite(file, "x", 1, 0);
            atomic_store(&shared[1], round);
        }
        _exit(0);
    }
    for (int round = 1; round <= ROUNDS; round++) {
        struct stat status;
        fchmod(file, 06777);
        atomic_store(&shared[0], round);
        spin(round * 13 % 3000);
        fchmod(file, 0600);
        while (atomic_load(&shared[1]) != round)
            sched_yield();
        fstat(file, &status);
        wrong += (status.st_mode & 07777) != 0600;
    }
    waitpid(writer, NULL, 0);
    close(file);
    unlink("written");
    return wrong;
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    umask(0);
    SHOW(given_away());
    SHOW(written());
    return 0;
}
