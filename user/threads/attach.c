/* The beginning of a traced process: it finds the buffer and maps it. And the writing of what the other files put together. */
#include "interpose.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "writer.h"

static struct ring idle;
struct ring *ring = &idle;
__thread bool cancelled_at_any_time;

static __thread uint32_t own_thread;
static uint32_t own_process;

void *function_behind(const char *name, const char *version)
{
    void *function = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
    if (!function)
        function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    return function;
}

void write_notes(const struct notes *notes)
{
    if (notes->count == 0)
        return;
    uint32_t bytes = 0;
    for (int i = 0; i < notes->count; i++)
        bytes += 4 * (WORDS_BEFORE_PARAMETERS + notes->note[i].words);
    bool put_off = cancelled_at_any_time;
    if (put_off)
        BEHIND(pthread_setcanceltype)(PTHREAD_CANCEL_DEFERRED, NULL);
    if (!own_thread)
        own_thread = (uint32_t)raw_call(SYS_gettid, 0, 0, 0, 0);
    /* Before room is taken: so records of one moment may be slightly out of order. */
    uint64_t time = time_stamp(), position;
    if (take_room(ring, bytes, &position)) {
        for (int i = 0; i < notes->count; i++) {
            const struct note *note = &notes->note[i];
            write_record(ring, position, note->event, own_thread, own_process, time, note->parameters, note->words);
            position += 4 * (WORDS_BEFORE_PARAMETERS + note->words);
        }
    }
    if (put_off)
        BEHIND(pthread_setcanceltype)(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
}

/* Up to what there is room for; the rest of the last word is zeros, at least one. */
void add_text(struct note *note, const char *text)
{
    uint32_t most = 4 * (WORDS_MAX - WORDS_BEFORE_PARAMETERS - note->words) - 1;
    uint32_t length = (uint32_t)strnlen(text, most);
    char *at = (char *)&note->parameters[note->words];
    note->words = (uint16_t)(note->words + length / 4 + 1);
    memset(at, 0, 4 * (length / 4 + 1));
    memcpy(at, text, length);
}

void cut_short(struct wait *wait)
{
    if (wait->ended)
        return;
    BEGIN(notes);
    add_pointer(note(&notes, THREAD_STATE_WAKE), wait->object);
    if (wait->mutex)
        add_pointer(note(&notes, MUTEX_TAKEN), wait->mutex);
    note(&notes, THREAD_STATE_CANCELLED);
    write_notes(&notes);
}

/* The first record of a process: after a fork, and for each program that it executes. */
void process_began(void)
{
    own_process = (uint32_t)raw_call(SYS_getpid, 0, 0, 0, 0);
    own_thread = own_process;
    char path[160] = "";
    if (raw_call(SYS_readlink, (long)"/proc/self/exe", (long)path, sizeof path - 1, 0) < 0)
        path[0] = '\0';
    BEGIN(notes);
    struct note *begins = note(&notes, PROCESS_INIT);
    add_word(begins, (uint32_t)raw_call(SYS_getppid, 0, 0, 0, 0));
    add_text(begins, path);
    struct note *thread = note(&notes, THREAD_INIT);
    add_pointer(thread, handle(pthread_self()));
    add_pointer(thread, NULL);
    add_text(thread, "main");
    note(&notes, START_USER_FUNC);
    write_notes(&notes);
}

/* The buffer twice in a row, behind the page of words. */
static struct ring *map(int descriptor)
{
    struct ring *first = mmap(NULL, RING_PAGE, PROT_READ, MAP_SHARED, descriptor, 0);
    if (first == MAP_FAILED)
        return NULL;
    uint64_t capacity = first->magic == RING_MAGIC ? first->capacity : 0;
    munmap(first, RING_PAGE);
    if (!capacity)
        return NULL;
    char *whole = mmap(NULL, RING_PAGE + 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED)
        return NULL;
    const int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_FIXED;
    if (mmap(whole, RING_PAGE + capacity, access, how, descriptor, 0) == MAP_FAILED ||
        mmap(whole + RING_PAGE + capacity, capacity, access, how, descriptor, RING_PAGE) == MAP_FAILED) {
        munmap(whole, RING_PAGE + 2 * capacity);
        return NULL;
    }
    return (struct ring *)(void *)whole;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv(RING_VARIABLE);
    int descriptor = path ? (int)raw_call(SYS_open, (long)path, O_RDWR | O_CLOEXEC, 0, 0) : -1;
    if (descriptor < 0)
        return;
    struct ring *found = map(descriptor);
    raw_call(SYS_close, descriptor, 0, 0, 0);
    if (!found)
        return;
    ring = found;
    atomic_fetch_add(&ring->programs, 1);
    pthread_atfork(NULL, NULL, process_began);
    process_began();
}

__attribute__((destructor)) static void end(void)
{
    BEGIN(notes);
    note(&notes, PROCESS_EXIT);
    write_notes(&notes);
}
