/* Arguments for the fuzzer's calls: each kind of argument is what a program might pass, and now and then anything at all.
 *
 * Structures are built in the arena, a mapping whose pages other threads unmap and protect meanwhile; one of their words
 * is broken now and then. Everything is drawn from a number generator, one for each thread.
 */
#ifndef FUZZ_VALUES_H
#define FUZZ_VALUES_H
#include "guest.h"

enum { PAGE = 4096, ARENA_PAGES = 40, STRUCT_PAGES = 8, FILES_MAX = 64, SA_RESTORER_FLAG = 0x04000000 };

static __thread uint64_t random_state;
enum { THREADS = 3 };
static int thread_ids[THREADS];
static char *arena;

static const char *const paths[] = { "", ".", "..", "/", "file", "dir", "dir/x", "link", "fifo", "dir/..", "dir/../file", "./././file",
    "name", "dir/name", "absent/x", "dangling", "loop", "tmpfs", "tmpfs/a", "bound", "/field/file", "/field/dir/sub", "/proc", "/proc/self/stat",
    "/proc/self/maps", "/proc/self/smaps", "/proc/self/fd", "/proc/self/fd/5", "/proc/self/fd/9", "/proc/self/fdinfo/5", "/proc/self/mem",
    "/proc/self/exe", "/proc/self/cwd", "/proc/self/root", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/comm",
    "/proc/self/status", "/proc/self/oom_score_adj", "/proc/self/task", "/proc/self/mountinfo", "/proc/self/limits", "/proc/thread-self/stat",
    "/proc/1/status", "/proc/1/fd", "/proc/meminfo", "/proc/stat", "/proc/interrupts", "/proc/slabinfo", "/proc/locks", "/proc/kmsg",
    "/proc/mounts", "/proc/starling", "/proc/starling/missing_syscalls", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname",
    "/proc/sys/fs/file-nr", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/ptmx", "/dev/tty", "/dev/pts/0", "/dev/pts/1",
    "/dev/pts", "tiny", "script", "sparse", "door", "/group", "/group/a", "/group/cgroup.procs", "/group/memory.current", "/group/memory.stat",
    "/group/a/memory.events", "/group/a/io.stat", "/proc/self/ns/uts", "/proc/self/timens_offsets", "/proc/self/cgroup" };
static const char *const types[] = { "tmpfs", "proc", "devpts", "devtmpfs", "sysfs", "none", "ramfs", "cgroup2", "overlay" };
static const char *const attribute_names[] = { "user.a", "user.b", "trusted.x", "security.capability", "system.posix_acl_access",
    "user.", "user", "", "user.a-rather-long-name-that-goes-on-for-a-while-until-it-is-long" };

static uint64_t draw(void)
{
    return next_random(&random_state);
}

static uint64_t below(uint64_t bound)
{
    return (draw() >> 8) % bound;
}

/* Anything a careless or hostile program might pass. */
static uint64_t anything(void)
{
    uint64_t value = draw(), high = value >> 8;
    switch (value % 13) {
    case 0: return 0;
    case 1: return 1;
    case 2: return high % 16;
    case 3: return high % PAGE;
    case 4: return 1ull << high % 64;
    case 5: return (1ull << high % 64) - 1;
    case 6: return ~0ull - high % 16;
    case 7: return value;
    case 8: return (uint32_t)value;
    case 9: return (uintptr_t)arena + high % (ARENA_PAGES * PAGE);
    case 10: return (uintptr_t)arena + high % (ARENA_PAGES + 1) * PAGE - (value >> 40) % 16;
    case 11: return 0xffff800000000000ull + (value >> 20);
    default: return 0x7ffffffff000ull - high % 8192;
    }
}

/* Room for a structure: mostly in pages that are left alone, sometimes across pages, or up to the end. */
static char *room(size_t bytes)
{
    switch (below(16)) {
    case 0: return arena + below(ARENA_PAGES - 1) * PAGE + PAGE - below(bytes + 8);
    case 1: return arena + ARENA_PAGES * PAGE - bytes;
    default: return arena + below((STRUCT_PAGES * PAGE - bytes) / 8) * 8;
    }
}

/* A structure of so many words, one of which may be broken. */
static uint64_t record(const uint64_t *words, size_t count)
{
    char *place = room(count * 8);
    memcpy(place, words, count * 8);
    if (below(6) == 0) {
        uint64_t broken = anything();
        memcpy(place + below(count) * 8, &broken, 8);
    }
    return below(40) == 0 ? (uint64_t)(uintptr_t)(arena + ARENA_PAGES * PAGE - below(count * 8)) : (uint64_t)(uintptr_t)place;
}

static uint64_t text_of(const char *const *texts, size_t count)
{
    const char *text = texts[below(count)];
    char *place = room(strlen(text) + 1);
    strcpy(place, text);
    return (uintptr_t)place;
}

static uint64_t path(void)
{
    if (below(40))
        return text_of(paths, sizeof paths / sizeof *paths);
    /* Long: of many parts, or of one part that is too long. */
    size_t length = 200 + below(4200);
    char *place = arena + below(PAGE);
    memset(place, 'n', length);
    for (size_t at = 1; at < length && below(2); at += 1 + below(255))
        place[at] = '/';
    place[length] = 0;
    return (uintptr_t)place;
}

static uint64_t buffer(void)
{
    switch (below(12)) {
    case 0: return (uintptr_t)arena + below(ARENA_PAGES) * PAGE - below(64);
    case 1: return 0;
    default: return (uintptr_t)arena + below(ARENA_PAGES * PAGE);
    }
}

static uint64_t length(void)
{
    switch (below(12)) {
    case 0: return 0;
    case 1: return below(1 << 20);
    case 2: return anything();
    case 3: return PAGE * below(20);
    case 4: return below(0x10000);
    default: return below(600);
    }
}

static uint64_t offset(void)
{
    switch (below(8)) {
    case 0: return anything();
    case 1: return PAGE * below(64);
    case 2: return 0x7fffffffffffffffull - below(8192);
    default: return below(40000);
    }
}

/* Some flags: none, one, a few; those of open(2) and friends are likely. */
static uint64_t flags(void)
{
    switch (below(8)) {
    case 0: case 1: return 0;
    case 2: return O_NONBLOCK;
    case 3: return O_CLOEXEC;
    case 4: return O_NONBLOCK | O_CLOEXEC;
    case 5: return 1ull << below(16) | 1ull << below(32);
    case 6: return below(8);
    default: return 1ull << below(20);
    }
}

static uint64_t open_flags(void)
{
    static const int some[] = { O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NONBLOCK, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_TMPFILE, O_CLOEXEC,
        O_NOCTTY, O_SYNC, O_ASYNC, O_DIRECT };
    uint64_t value = below(4) | (below(3) ? O_NONBLOCK : 0);
    for (uint64_t count = below(4); count > 0; count--)
        value |= (uint64_t)some[below(sizeof some / sizeof *some)];
    return value;
}

static uint64_t mapping_flags(void)
{
    static const int some[] = { MAP_GROWSDOWN, MAP_NORESERVE, MAP_POPULATE, MAP_LOCKED, MAP_STACK, MAP_HUGETLB, MAP_NONBLOCK };
    uint64_t value = 1 + below(3);
    if (below(3))
        value |= MAP_FIXED;
    if (below(3))
        value |= MAP_ANONYMOUS;
    return below(4) ? value : value | (uint64_t)some[below(7)];
}

static uint64_t own_id(void)
{
    switch (below(10)) {
    case 0: return 0;
    case 1: return 0x40000000 + below(100);
    case 2: return (uint64_t)-(int64_t)getpid();
    default: return (uint64_t)getpid();
    }
}

static uint64_t own_thread(void)
{
    return below(8) ? (uint64_t)thread_ids[below(THREADS)] : 0;
}

/* A thread's number for messages: of one of this process's threads, of nobody, or anything. */
static uint64_t message_id(void)
{
    static _Atomic uint64_t known[THREADS];
    if (below(8) == 0)
        known[below(THREADS)] = (uint64_t)syscall(4097, below(3) ? 0 : 1);
    uint64_t id = known[below(THREADS)];
    return below(20) ? id : below(2) ? id + (1ull << (32 + below(31))) : anything();
}

/* What a message operation does: mostly something that exists. */
static uint64_t message_operation(void)
{
    static const uint8_t some[] = { 1, 2, 3, 6, 7, 9, 11, 15 };
    return below(20) ? some[below(sizeof some)] : anything();
}

static uint64_t message_timeouts(void)
{
    uint64_t halves[2];
    for (int i = 0; i < 2; i++)
        halves[i] = below(3) == 0 ? 0 : below(12) ? below(3000) : below(2) ? 0xffffffff : draw() & 0xffffffff;
    return halves[1] << 32 | halves[0];
}

static uint64_t child_id(void)
{
    return below(2) ? ~0ull : (uint64_t)getpid() + below(40);
}

/* A process that does nothing but stand for what tracers and their like may act on: nobody else must be. */
static uint64_t own_child(void);

static uint64_t trace_request(void)
{
    return below(30) ? below(2) ? below(34) : 0x4200 + below(0x12) : anything();
}

static uint64_t unshared(void)
{
    static const uint32_t some[] = { CLONE_FS, CLONE_FILES, CLONE_SYSVSEM, CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER,
        CLONE_NEWPID, CLONE_NEWNET, 0x80 /* CLONE_NEWTIME */, CLONE_THREAD, CLONE_VM, CLONE_SIGHAND };
    return some[below(sizeof some / sizeof *some)] | (below(3) ? 0 : some[below(sizeof some / sizeof *some)]);
}

static uint64_t short_time(void)
{
    uint64_t words[4] = { 0, below(3000000), 0, below(4) ? below(3000000) : 0x3fffffff - below(2) };
    return below(12) ? record(words, 4) : 0;
}

static uint64_t interval(uint64_t unit)
{
    uint64_t words[4] = { 0, below(4) ? 0 : below(9000000 / unit), below(8) == 0, below(4000000 / unit) };
    return record(words, 4);
}

static uint64_t set_of_signals(void)
{
    uint64_t words[1] = { below(3) ? 1ull << below(64) | 1ull << below(64) : draw() };
    return below(12) ? record(words, 1) : 0;
}

static uint64_t vector(void)
{
    uint64_t words[32];
    for (int i = 0; i < 16; i++) {
        words[2 * i] = buffer();
        words[2 * i + 1] = below(30) ? below(3000) : length();
    }
    return record(words, 32);
}

/* A context of asynchronous transfers, of which a victim has one from the start. */
static uint64_t transfer_context;

/* Names of message queues: few, so that they can be removed. */
enum { QUEUE_NAMES = 4 };

static uint64_t queue_name(unsigned queue)
{
    return 'q' | (uint64_t)('0' + queue) << 8;
}

static uint64_t transfer_blocks(void)
{
    uint64_t blocks[4];
    for (int i = 0; i < 4; i++) {
        uint64_t words[8] = { draw(), below(8) ? 0 : draw(), below(9) | (3 + below(24)) << 32, buffer(), below(3000), offset(), 0, below(4) ? 0 : 1 | (3 + below(24)) << 32 };
        if (below(2)) {
            words[2] |= 7;
            words[3] = vector();
            words[4] = below(17);
        }
        blocks[i] = record(words, 8);
    }
    return record(blocks, 4);
}

static uint64_t poll_set(void)
{
    uint64_t words[16];
    for (int i = 0; i < 16; i++)
        words[i] = below(FILES_MAX) | (1ull << below(16) | 1) << 32;
    return record(words, 16);
}

static uint64_t message(void)
{
    uint64_t words[7] = { below(2) ? 0 : buffer(), below(120), vector(), below(17), below(2) ? 0 : buffer(), below(200), 0 };
    return record(words, 7);
}

static uint64_t socket_address(void)
{
    uint64_t words[14] = { below(8) ? 1 : below(32) };
    memcpy((char *)words + 2, below(2) ? "file" : "\0abstract", 9);
    return record(words, 14);
}

static uint64_t scheduling_attributes(void)
{
    uint64_t words[7] = { 48 | below(8) << 32, below(8) ? 0 : flags(), below(41) - 20, 0, 0, 0, 0 };
    words[2] |= below(8) ? 0 : below(50) << 32;
    return record(words, 7);
}

static uint64_t wait_vector(void)
{
    uint64_t words[3 * 8];
    for (int i = 0; i < 8; i++) {
        words[3 * i] = 0;
        words[3 * i + 1] = (uintptr_t)arena + below(64) * 4;
        words[3 * i + 2] = 2 | (below(2) ? 128 : 0);
    }
    return record(words, 24);
}

static uint64_t strings(void)
{
    uint64_t words[9] = { 0 };
    for (uint64_t i = 0, count = below(9); i < count; i++)
        words[i] = below(20) ? path() : anything();
    return below(16) ? record(words, 9) : 0;
}

static uint64_t any_record(void)
{
    uint64_t words[16];
    for (int i = 0; i < 16; i++)
        words[i] = below(3) ? below(64) : anything();
    return record(words, 16);
}

/* What the second argument of prctl and the third of fcntl may be. */
static uint64_t number_or_record(void)
{
    return below(2) ? below(64) : below(2) ? any_record() : flags();
}

static void nothing(int, siginfo_t *, void *);
static uint64_t restorer; /* Where glibc returns from signal handlers. */

static uint64_t action(void)
{
    uint64_t handler = below(8) ? (uintptr_t)nothing : below(2);
    /* With SA_RESTORER, where glibc's own function returns from a handler. */
    uint64_t words[4] = { handler, SA_RESTORER_FLAG | (below(3) ? 0 : 1ull << below(32)), restorer, below(2) ? 0 : draw() };
    return below(3) ? record(words, 4) : 0;
}

static uint64_t page_address(void)
{
    uint64_t page = below(8) ? STRUCT_PAGES + below(ARENA_PAGES - STRUCT_PAGES) : below(ARENA_PAGES);
    return below(24) ? below(8) ? (uintptr_t)arena + page * PAGE : 0 : anything();
}

static uint64_t value(char kind)
{
    static const int commands[] = { 0x5401, 0x5402, 0x5403, 0x5404, 0x5405, 0x5409, 0x540b, 0x540e, 0x540f, 0x5410, 0x5411, 0x5412, 0x5413,
        0x5414, 0x5415, 0x541b, 0x541d, 0x5420, 0x5421, 0x5422, 0x5423, 0x5424, 0x5429, 0x5441, 0x5450, 0x5451, 0x5452, 0x5460, 2,
        (int)0x80045430, 0x40045431, (int)0x80045438, 0x40045436, (int)0x80086601 };
    /* Never any process: root could stop whoever watches. */
    if (below(40) == 0 && kind != 't' && kind != 'T')
        return anything();
    switch (kind) {
    case 'f': return below(30) ? 3 + below(below(3) ? 24 : FILES_MAX) : (uint64_t)-(int64_t)below(3);
    case 'd': return below(2) ? (uint64_t)AT_FDCWD : 3 + below(24);
    case 'j': return 3 + below(FILES_MAX);
    case 'p': case 'P': return path();
    case 'b': return buffer();
    case 'n': return length();
    case 'h': return offset();
    case 'H': { uint64_t words[1] = { offset() }; return below(2) ? 0 : record(words, 1); }
    case 'L': return below(120);
    case 'i': return below(16);
    case 'I': return below(26);
    case 'x': return below(12);
    case 'm': return below(2) ? 0777 : below(01000) | (below(3) ? 0 : below(16) << 12);
    case 'o': return open_flags();
    case 's': return below(8) ? below(65) : below(2) ? SIGKILL : 100;
    case 't': return own_id();
    case 'T': return own_thread();
    case 'c': return child_id();
    case '6': return own_child();
    case '7': return trace_request();
    case 'U': return unshared();
    /* Of the log: nothing that clears it. */
    case '<': return below(2) ? 3 : below(2) ? 9 + below(2) : 11 + below(20);
    case '0': return 0xfee1dead;
    case '9': return below(8) ? 672274793 : 85072278;
    /* Ctrl-Alt-Del's effect; nothing; restart and power off, of the batch's name space. */
    case ';': { static const uint32_t ends[] = { 0x89abcdef, 0, 1, 0x01234567, 0x4321fedc }; return ends[below(5)]; }
    case '[': { uint64_t words[18] = { below(8) ? 128 : below(200) }; return record(words, 18); }
    case ']': return draw() & draw() & 0xff7;
    case '_': return draw() & draw() & 0x4007ffff;
    case 'k': return short_time();
    case 'K': { uint64_t words[4] = { 0, below(3000), 0, below(3000) }; return below(12) ? record(words, 4) : 0; }
    case 'J': return interval(1000);
    case 'O': return interval(1);
    case 'v': return vector();
    case 'V': return below(30) ? below(17) : below(1100);
    case 'q': return set_of_signals();
    case '8': return 8;
    case 'u': return below(3) ? 65534 : below(2) ? ~0ull : below(70000);
    case 'w': return (uintptr_t)arena + below(64) * 4 + (below(30) ? 0 : 1);
    case '?': return below(14) | (below(2) ? 128 : 0) | (below(8) ? 0 : 256);
    case 'a': return page_address();
    case 'l': return below(12) ? PAGE * (1 + below(6)) : length();
    case 'r': return below(8) ? below(8) : 1ull << below(28);
    case 'g': return mapping_flags();
    case 'D': return below(2) ? 0 : (uintptr_t)sbrk(0) + below(40) * PAGE - 10 * PAGE;
    case 'e': { uint64_t words[2] = { 1ull << below(32) | below(32), draw() }; return record(words, 2); }
    case 'y': { uint64_t words[2] = { below(300), below(4) ? below(3000) : ~0ull }; return below(3) ? record(words, 2) : 0; }
    case 'E': return below(2) ? 0 : below(2) ? 0x100ull << below(6) : 0x1000 | flags();
    case 'B': return flags();
    case 'z': return 0;
    case '1': return 1 + below(3);
    case '2': return below(30) ? transfer_context : below(2) ? page_address() : anything();
    case '3': return transfer_blocks();
    case '5': { uint64_t words[2] = { queue_name(below(QUEUE_NAMES)), 0 }; return below(20) ? record(words, 2) : path(); }
    case '4': { uint64_t words[1] = { 0 }; return record(words, 1); }
    case 'C': return below(12) ? (uint64_t)commands[below(sizeof commands / sizeof *commands)] : 0x5400 + below(128);
    case 'F': return below(3) ? below(17) : below(40) ? 1024 + below(20) : below(100);
    case 'G': return number_or_record();
    case 'S': return any_record();
    case 'X': return text_of(attribute_names, sizeof attribute_names / sizeof *attribute_names);
    case 'M': return text_of(types, sizeof types / sizeof *types);
    case 'N': return poll_set();
    case '^': { uint64_t words[2] = { draw() & draw() & 0xffff, 0 }; return below(3) ? record(words, 2) : 0; }
    case '@': return action();
    case '$': { uint64_t words[16] = { below(65), (uint64_t)(below(3) ? -1 : -(int)below(7)), own_id() }; return record(words, 16); }
    case '&': { uint64_t words[8] = { draw(), below(65) | below(5) << 32, own_thread() }; return below(3) ? record(words, 8) : 0; }
    case '%': return scheduling_attributes();
    case '!': return wait_vector();
    case '=': { uint64_t words[3] = { open_flags(), below(2) ? 0 : 0777, below(2) ? 0 : 1ull << below(6) }; return record(words, 3); }
    case '~': { uint64_t words[2] = { set_of_signals(), 8 }; return record(words, 2); }
    case '#': { uint64_t words[2] = { draw() | 1, draw() }; return record(words, 2); }
    case '*': { uint64_t words[1] = { 0x20080522 | own_thread() << 32 }; return record(words, 1); }
    case ')': { uint64_t words[3] = { page_address(), below(3) ? 0 : 2, 4 * PAGE }; return record(words, 3); }
    case ':': return message();
    case '+': return socket_address();
    case 'A': return strings();
    case '"': return below(20) ? below(72) : 0x59616d61;
    case '|': return 0x1001 + below(4);
    case 'R': { uint64_t words[3] = { (uintptr_t)arena + below(64) * 8, below(64) - 32, 0 }; return record(words, 3); }
    case '(': return 32;
    case '\\': return 0x53053053;
    case '`': return message_id();
    case '{': return message_operation();
    case '}': return message_timeouts();
    case 'Y': return below(6);
    case 'W': return below(20) ? below(6) | below(3) << 15 : below(40);
    case 'Q': return below(2) ? 0 : below(16) << 12;
    case 'Z': return below(20) ? 0600 | below(2) << 9 | below(2) << 10 | below(0100) : below(1 << 16);
    case '\'': return below(20) ? below(2) : anything();
    default: return anything();
    }
}
#endif
