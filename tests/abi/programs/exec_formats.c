/* What executes a file: formats registered with binfmt_misc, first lines of scripts, and what the program then finds. Execution domains. */
#include "abi.h"
#include <linux/binfmts.h>
#include <sys/auxv.h>
#include <sys/personality.h>

#define ME "/abi/bin/exec_formats"

extern char **environ;

static int report(int count, char **words)
{
    printf("%d words:", count);
    for (int i = 0; i < count; i++)
        printf(" [%s]", words[i]);
    const char *name = (const char *)getauxval(AT_EXECFN);
    printf("\n  execfn %s, flags %lu, secure %lu, euid %d\n", name, getauxval(AT_FLAGS), getauxval(AT_SECURE), (int)geteuid());
    long descriptor = (long)getauxval(AT_EXECFD);
    errno = 0;
    if (descriptor != 0) {
        char text[20] = "";
        ssize_t got = pread(descriptor, text, 8, 0);
        printf("  open file: %zd bytes, %.4s\n", got, text);
    }
    char comm[17] = "";
    prctl(PR_GET_NAME, comm);
    char exe[200] = "";
    readlink("/proc/self/exe", exe, sizeof exe - 1);
    printf("  exe is the interpreter: %d\n", strstr(exe, "abi") != NULL);
    if (strncmp(name, "/dev/", 5))
        printf("  comm %s\n", comm);
    return 0;
}

static int write_to(const char *path, const char *text, size_t length)
{
    int file = open(path, O_WRONLY);
    if (file < 0)
        return -1;
    ssize_t done = write(file, text, length);
    int error = errno;
    close(file);
    errno = error;
    return (int)done;
}

#define WRITE(path, text) SHOW(write_to(path, text, sizeof(text) - 1))

static void try(const char *path, char *const *words)
{
    REAP(CHILD({
        execve(path, words, environ);
        printf("%s: %s\n", path, ERRNO_NAME(errno));
    }));
}

static void program(const char *path, const char *text, size_t length)
{
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    if (write(file, text, length) != (ssize_t)length)
        abort();
    close(file);
    chmod(path, 0755);
}

static void rules(void)
{
    mkdir("misc", 0755);
    SHOW(mount("none", "misc", "binfmt_misc", 0, NULL));
    struct statfs about;
    statfs("misc", &about);
    printf("type %lx\n", (long)about.f_type);
    struct stat status;
    stat("misc/register", &status);
    printf("register %o\n", status.st_mode);
    stat("misc/status", &status);
    printf("status %o: %s", status.st_mode, get_text("misc/status"));
    SHOW(open("misc/new", O_CREAT | O_WRONLY, 0644));
    WRITE("misc/register", "");
    WRITE("misc/register", ":a:E::b::");
    WRITE("misc/register", ":abi_a/b:E::xyz::" ME ":");
    WRITE("misc/register", "::E::xyz::" ME ":");
    WRITE("misc/register", ":..:E::xyz::" ME ":");
    WRITE("misc/register", ":abi_x:E::::" ME ":");
    WRITE("misc/register", ":abi_x:E::x/y::" ME ":");
    WRITE("misc/register", ":abi_x:X::xyz::" ME ":");
    WRITE("misc/register", ":abi_x:M::::" ME ":");
    WRITE("misc/register", ":abi_x:M:0:abcd:\\xff\\xff:" ME ":");
    WRITE("misc/register", ":abi_x:M:9999:abcd::" ME ":");
    WRITE("misc/register", ":abi_x:E::abix:::");
    WRITE("misc/register", ":abi_x:E::abix::" ME ":Z");
    WRITE("misc/register", ":abi_x:E::abix::" ME ":F9");
    WRITE("misc/register", ":abi_none:E::abin::/does/not/exist:F");
    WRITE("misc/register", ":abi_x:E::abix::" ME ":");
    WRITE("misc/register", ":abi_x:E::abiy::" ME ":");
    WRITE("misc/register", "|abi_m|M|4|\\x00A\\x42|\\xff\\xdf\\xff|" ME "|P\n");
    WRITE("misc/register", ":abi_c:M::ABIC::" ME ":OCF");
    WRITE("misc/register", ":abi_twice:E::abit::./twice.abix:O");
    printf("%s", get_text("misc/abi_x"));
    printf("%s", get_text("misc/abi_m"));
    printf("%s", get_text("misc/abi_c"));
    stat("misc/abi_x", &status);
    printf("rule %o\n", status.st_mode);

    program("twice.abix", "some text", 9);
    program("one.abix", "some text", 9);
    program("two", "1234\0aB rest", 12);
    program("three", "ABIC and more", 13);
    program("four.abit", "text", 4);
    program("five.abix.not", "text", 4);
    char *words[] = { "zero", "report", "second", NULL };
    try("./one.abix", words);
    try("./two", words);
    try("./three", words);
    try("./four.abit", words);
    try("./five.abix.not", words);
    chmod("three", 04755);
    chown("three", 77, 77);
    chmod("three", 04755);
    try("./three", words);
    program("script", "#!./one.abix report\n", 20);
    try("./script", words);
    program("noexec.abix", "text", 4);
    chmod("noexec.abix", 0644);
    try("./noexec.abix", words);

    WRITE("misc/abi_x", "0");
    printf("%s", get_text("misc/abi_x"));
    try("./one.abix", words);
    WRITE("misc/abi_x", "2");
    WRITE("misc/abi_x", "1\n");
    WRITE("misc/status", "0");
    try("./one.abix", words);
    printf("status: %s", get_text("misc/status"));
    WRITE("misc/status", "1");
    WRITE("misc/abi_x", "-1");
    SHOW(access("misc/abi_x", F_OK));
    try("./one.abix", words);
    WRITE("misc/abi_m", "-1");
    WRITE("misc/abi_c", "-1");
    WRITE("misc/abi_twice", "-1");
    SHOW(umount("misc"));
}

static void first_lines(void)
{
    char *words[] = { "zero", "report", "second", NULL };
    const char *lines[] = {
        "#!" ME, "#!" ME "\n", "#! \t" ME " \t\n", "#!" ME " one  two \t \nmore", "#!" ME "\r\n",
        "#!" ME "\tx", "#!\n", "#!", "#!   ", "#!/\n", "#!" ME "\\\n", "# !" ME "\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        program("line", lines[i], strlen(lines[i]));
        printf("line %zu ", i);
        try("./line", words);
    }
    program("line", "#!" ME "\0x y\n", sizeof("#!" ME "\0x y\n") - 1);
    try("./line", words);
    char big[400];
    memset(big, 'x', sizeof big);
    memcpy(big, "#!" ME " ", strlen("#!" ME " "));
    program("line", big, sizeof big);
    REAP(CHILD({
        int pipes[2];
        pipe(pipes);
        if (fork() == 0) {
            dup2(pipes[1], 1);
            execve("./line", words, environ);
            _exit(1);
        }
        close(pipes[1]);
        char text[1000] = "";
        size_t length = 0;
        for (ssize_t got; (got = read(pipes[0], text + length, sizeof text - 1 - length)) > 0;)
            length += got;
        char *from = strstr(text, "[x");
        printf("argument of %zd letters\n", from ? strchr(from, ']') - from - 1 : -1);
    }));
    memset(big, 'x', sizeof big);
    memcpy(big, "#!/", 3);
    program("line", big, sizeof big);
    try("./line", words);
    for (int depth = 1; depth <= 7; depth++) {
        char name[20];
        char text[60];
        snprintf(name, sizeof name, "./chain%d", depth);
        snprintf(text, sizeof text, depth == 1 ? "#!" ME "\n" : "#!./chain%d\n", depth - 1);
        program(name, text, strlen(text));
        printf("chain %d ", depth);
        try(name, words);
    }
    /* By descriptor. */
    program("line", "#!" ME " report\n", strlen("#!" ME " report\n"));
    int keeps = open("line", O_RDONLY);
    dup2(keeps, 20);
    dup3(keeps, 21, O_CLOEXEC);
    close(keeps);
    REAP(CHILD({ SHOW(syscall(SYS_execveat, 21, "", words, environ, AT_EMPTY_PATH)); }));
    REAP(CHILD({ SHOW(syscall(SYS_execveat, 20, "", words, environ, AT_EMPTY_PATH)); }));
    int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REAP(CHILD({ SHOW(syscall(SYS_execveat, folder, "line", words, environ, 0)); }));
    chmod("line", 06755);
    chown("line", 77, 77);
    chmod("line", 06755);
    try("./line", words);
    int busy = open("line", O_WRONLY);
    try("./line", words);
    close(busy);
    /* Other machines' programs. */
    int me = open(ME, O_RDONLY);
    char head[4096];
    ssize_t got = read(me, head, sizeof head);
    close(me);
    head[18] = 40;
    program("arm", head, got);
    try("./arm", words);
    head[18] = 62;
    head[5] = 2;
    program("big_endian", head, got);
    try("./big_endian", words);
    head[5] = 1;
    head[16] = 1;
    program("object", head, got);
    try("./object", words);
    head[16] = 4;
    program("core", head, got);
    try("./core", words);
}

static int domain_of_child(void)
{
    printf("%x\n", personality(0xffffffff));
    return 0;
}

static void domains(void)
{
    SHOW(personality(0xffffffff));
    struct utsname names;
    REAP(CHILD({
        SHOW(personality(PER_LINUX32 | ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC));
        printf("%x\n", personality(0xffffffff));
        uname(&names);
        printf("%s\n", names.machine);
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        page[0] = (char)0xc3;
        ((void (*)(void))page)();
        SHOW(mprotect(page, 4096, PROT_READ));
        ((void (*)(void))page)();
        printf("executed\n");
        fflush(stdout);
        if (fork() == 0)
            execl(ME, "exec_formats", "domain", NULL);
        wait(NULL);
        printf("%x\n", personality(0xffffffff));
    }));
    REAP(CHILD({
        SHOW(personality(UNAME26));
        uname(&names);
        printf("%.4s\n", names.release);
        SHOW(personality(0x12345678));
        printf("%x\n", personality(0xffffffff));
    }));
    REAP(CHILD({
        personality(MMAP_PAGE_ZERO);
        execl(ME, "exec_formats", "zero", NULL);
    }));
    REAP(CHILD({
        personality(ADDR_NO_RANDOMIZE | ADDR_COMPAT_LAYOUT);
        execl(ME, "exec_formats", "low", NULL);
    }));
    REAP(CHILD({
        personality(ADDR_NO_RANDOMIZE);
        execl(ME, "exec_formats", "low", NULL);
    }));
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "domain"))
        return domain_of_child();
    if (count > 1 && !strcmp(words[1], "zero")) {
        volatile int *volatile null = NULL;
        printf("zero %d\n", *null);
        return 0;
    }
    if (count > 1 && !strcmp(words[1], "low")) {
        char *first = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *second = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("upwards %d, below half %d\n", second > first, (uintptr_t)first < 0x400000000000);
        return 0;
    }
    if (count > 1)
        return report(count, words);
    chmod(".", 0777);
    first_lines();
    rules();
    domains();
    return 0;
}
