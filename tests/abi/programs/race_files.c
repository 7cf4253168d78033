/* Names that come and go while others use them: opening with O_CREAT never finds nothing, a name that is replaced by rename is always
 * there, and a FIFO and a watch lose nothing.
 * abi: limit 100
 * abi: long
 */
#include "abi.h"
#include <sys/inotify.h>

enum { ROUNDS = 2000, THREADS = 3 };

static atomic_int failed, stop;

/* All make the same file and remove it. */
static void *make_and_remove(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        int file = open("made", O_CREAT | O_RDWR, 0600);
        if (file < 0)
            atomic_fetch_add(&failed, 1);
        close(file);
        unlink("made");
    }
    return unused;
}

static void *replace(void *unused)
{
    while (!atomic_load(&stop)) {
        close(open("new", O_CREAT | O_RDWR, 0600));
        if (rename("new", "replaced") != 0)
            atomic_fetch_add(&failed, 1000);
    }
    return unused;
}

static void *find(void *unused)
{
    struct stat status;
    for (int i = 0; i < ROUNDS; i++) {
        int file = open("replaced", O_RDONLY);
        if (file < 0 || stat("replaced", &status) != 0 || access("./replaced", F_OK) != 0)
            atomic_fetch_add(&failed, 1);
        close(file);
    }
    return unused;
}

static int in_threads(void *(*body)(void *), void *(*other)(void *))
{
    pthread_t threads[THREADS], one;
    atomic_store(&failed, 0);
    atomic_store(&stop, 0);
    if (other)
        pthread_create(&one, NULL, other, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, body, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, 1);
    if (other)
        pthread_join(one, NULL);
    return atomic_load(&failed);
}

/* Opens and closes the FIFO for the last time, again and again. */
static void *open_and_close(void *unused)
{
    while (!atomic_load(&stop))
        close(open("fifo", O_RDWR));
    return unused;
}

static void *write_and_read(void *unused)
{
    for (int i = 0; i < ROUNDS / 2; i++) {
        char byte = 0;
        int fifo = open("fifo", O_RDWR | O_NONBLOCK);
        if (write(fifo, "x", 1) != 1)
            atomic_fetch_add(&failed, 1);
        ssize_t got = read(fifo, &byte, 1);
        /* Another one may have read it, and left its own. */
        if (got != 1 && errno != EAGAIN)
            atomic_fetch_add(&failed, 1);
        close(fifo);
    }
    return unused;
}

/* Watches of others come and go on the same directory. */
static void *watch_and_forget(void *unused)
{
    while (!atomic_load(&stop)) {
        int watches[3];
        for (int i = 0; i < 3; i++) {
            watches[i] = inotify_init1(IN_NONBLOCK);
            inotify_add_watch(watches[i], ".", IN_CREATE);
        }
        for (int i = 0; i < 3; i++)
            close(watches[i]);
    }
    return unused;
}

static int events_lost(void)
{
    int early = inotify_init1(IN_NONBLOCK), lost = 0;
    inotify_add_watch(early, ".", IN_ATTRIB);
    int mine = inotify_init1(IN_NONBLOCK);
    inotify_add_watch(mine, ".", IN_CREATE);
    /* What was in the list before is gone. */
    close(early);
    pthread_t threads[2];
    atomic_store(&stop, 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, watch_and_forget, NULL);
    for (int i = 0; i < ROUNDS / 4; i++) {
        char buffer[4096];
        close(open("watched", O_CREAT | O_RDWR, 0600));
        lost += read(mine, buffer, sizeof buffer) <= 0;
        unlink("watched");
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    close(mine);
    return lost;
}

/* Of two events at the same time one comes of a watch for one. */
static void *touch(void *unused)
{
    while (atomic_load(&stop) == 0)
        ;
    utimensat(AT_FDCWD, "once", NULL, 0);
    return unused;
}

static int more_than_one(void)
{
    int wrong = 0;
    close(open("once", O_CREAT | O_RDWR, 0600));
    for (int i = 0; i < 200; i++) {
        int one = inotify_init1(IN_NONBLOCK);
        inotify_add_watch(one, "once", IN_ATTRIB | IN_ONESHOT);
        pthread_t threads[2];
        atomic_store(&stop, 0);
        for (int t = 0; t < 2; t++)
            pthread_create(&threads[t], NULL, touch, NULL);
        atomic_store(&stop, 1);
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], NULL);
        struct inotify_event events[8];
        ssize_t got = read(one, events, sizeof events);
        wrong += got < (ssize_t)sizeof events[0] || events[0].mask != IN_ATTRIB;
        close(one);
    }
    return wrong;
}

int main(void)
{
    SHOW(in_threads(make_and_remove, NULL));
    close(open("replaced", O_CREAT | O_RDWR, 0600));
    SHOW(in_threads(find, replace));
    mkfifo("fifo", 0600);
    SHOW(in_threads(write_and_read, open_and_close));
    SHOW(events_lost());
    SHOW(more_than_one());
    return 0;
}
