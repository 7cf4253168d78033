/* A descriptor table that threads share, changed while others look descriptors up: what is stable is always found, what
 * changes is one file or the other, and nobody sees a file that is gone.
 * abi: limit 60
 */
#include "abi.h"

enum { ROUNDS = 3000, READERS = 3 };

static int stable, changing, files[2];
static atomic_int stop, missed, wrong;

static void *read_stable(void *unused)
{
    (void)unused;
    char byte;
    while (!atomic_load(&stop)) {
        if (pread(stable, &byte, 1, 0) != 1)
            atomic_fetch_add(&missed, 1);
        else if (byte != 'a')
            atomic_fetch_add(&wrong, 1);
        /* dup2 replaces in one step: there is always a file. */
        if (pread(changing, &byte, 1, 0) != 1)
            atomic_fetch_add(&missed, 1);
        else if (byte != 'a' && byte != 'b')
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

/* Files that live only as long as their descriptor: who reads one gets its byte, or EBADF. */
static void *read_short_lived(void *argument)
{
    int descriptor = (int)(long)argument;
    char byte;
    while (!atomic_load(&stop)) {
        ssize_t got = read(descriptor, &byte, 1);
        if (got == 1 ? byte != 0 : errno != EBADF)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[READERS];
    char name[] = "/tmp/descriptor_race.XXXXXX";
    for (int i = 0; i < 2; i++) {
        strcpy(name, "/tmp/descriptor_race.XXXXXX");
        files[i] = mkstemp(name);
        unlink(name);
        TRUE(write(files[i], i ? "b" : "a", 1) == 1);
    }
    stable = files[0];
    changing = dup(files[0]);
    int short_lived = 100;
    pthread_create(&threads[0], NULL, read_stable, NULL);
    pthread_create(&threads[1], NULL, read_stable, NULL);
    pthread_create(&threads[2], NULL, read_short_lived, (void *)(long)short_lived);
    int failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        failed += dup2(files[i & 1], changing) != changing;
        int zero = open("/dev/zero", O_RDONLY);
        failed += dup2(zero, short_lived) != short_lived;
        close(zero);
        failed += close(short_lived) != 0;
        /* The table grows under the readers. */
        if (i % 500 == 0)
            failed += dup2(files[0], 200 + 150 * (i / 500)) < 0;
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    printf("failed %d, missed %d, wrong %d\n", failed, missed, wrong);
    /* An open file that two processes have moves its position by what both write. */
    int shared = dup(files[0]);
    lseek(shared, 0, SEEK_SET);
    for (int child = 0; child < 2; child++)
        CHILD(for (int i = 0; i < 2000; i++) write(shared, "12345678", 8));
    while (wait(NULL) > 0)
        ;
    SHOW((int)lseek(shared, 0, SEEK_CUR));
    SHOW((int)lseek(shared, 0, SEEK_END));
    /* A pipe's end is gone when its descriptor is closed, and not a grace period later. */
    for (int i = 0; i < 3; i++) {
        int ends[2];
        char byte;
        pipe(ends);
        close(ends[1]);
        SHOW(read(ends[0], &byte, 1));
        close(ends[0]);
    }
    return 0;
}
