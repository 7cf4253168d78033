/* Core dumps: when there is one, where, and what is in it. The pattern is set and set back, so nobody else may dump beside.
 *
 * abi: alone
 */
#include "abi.h"
#include <elf.h>
#include <sys/procfs.h>
#include <sys/user.h>

static void set_knob(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        printf("%s: %s\n", path, ERRNO_NAME(errno));
    close(file);
}

#define PATTERN(text) set_knob("/proc/sys/kernel/core_pattern", text)

static void unlimited(void)
{
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    setrlimit(RLIMIT_CORE, &limit);
}

static void ended(pid_t child, const char *what)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        abort();
    printf("%s: %s, dumped %d\n", what, WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "no signal", !!WCOREDUMP(status));
}

static void file(const char *path)
{
    struct stat about;
    if (lstat(path, &about) < 0)
        printf("  %s: %s\n", path, ERRNO_NAME(errno));
    else
        printf("  %s: mode %o, owner %d, %s\n", path, about.st_mode, about.st_uid, about.st_size > 0 ? "not empty" : "empty");
}

static void when(void)
{
    PATTERN("core");
    ended(CHILD(abort()), "without a limit that allows it");
    file("core");
    ended(CHILD({ struct rlimit limit = { 4095, 1 << 30 }; setrlimit(RLIMIT_CORE, &limit); abort(); }), "below a page");
    file("core");
    ended(CHILD({ unlimited(); abort(); }), "unlimited");
    file("core");
    unlink("core");
    const int numbers[] = { SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS, SIGTERM, SIGKILL, SIGUSR1, SIGHUP };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ended(CHILD({ unlimited(); kill(getpid(), numbers[i]); pause(); }), signal_name(numbers[i]));
        unlink("core");
    }
    ended(CHILD({ struct rlimit limit = { 8192, 1 << 30 }; setrlimit(RLIMIT_CORE, &limit); abort(); }), "cut off");
    unlink("core");
    ended(CHILD({ unlimited(); prctl(PR_SET_DUMPABLE, 0); abort(); }), "not dumpable");
    file("core");
    ended(CHILD({ unlimited(); setresuid(7, 7, 7); abort(); }), "after setuid");
    file("core");
    mkdir("open", 0777);
    chmod("open", 0777);
    ended(CHILD({ unlimited(); chdir("open"); setresuid(7, 7, 7); prctl(PR_SET_DUMPABLE, 1); umask(0); abort(); }), "a user's own");
    file("open/core");
    put_text("core", "was there");
    chmod("core", 0644);
    ended(CHILD({ unlimited(); abort(); }), "over a file");
    file("core");
    link("core", "core2");
    ended(CHILD({ unlimited(); abort(); }), "over a file with two names");
    unlink("core");
    unlink("core2");
    put_text("core", "another one's");
    chown("core", 7, 7);
    ended(CHILD({ unlimited(); abort(); }), "over another one's file");
    unlink("core");
    symlink("elsewhere", "core");
    ended(CHILD({ unlimited(); abort(); }), "over a link");
    unlink("core");
    mkdir("core", 0755);
    ended(CHILD({ unlimited(); abort(); }), "over a directory");
    rmdir("core");
}

static void *aborter(void *nothing)
{
    abort();
    return nothing;
}

/* The second thread of process 2 of a new name space ends it. */
static void in_name_space(void)
{
    unshare(CLONE_NEWPID);
    if (fork() == 0) {
        int status;
        if (fork() == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, aborter, NULL);
            pause();
        }
        wait(&status);
        _exit(WIFSIGNALED(status) && WCOREDUMP(status) ? 0 : 1);
    }
    int status;
    wait(&status);
    kill(getpid(), WEXITSTATUS(status) == 0 ? SIGTERM : SIGKILL);
}

static void names(void)
{
    PATTERN("a.%s.%u.%g.%%.%z.%d.%e%");
    ended(CHILD({ unlimited(); prctl(PR_SET_NAME, "n/a me"); abort(); }), "letters");
    file("a.6.0.0.%..1.n!a me");
    PATTERN("sub/%e");
    mkdir("sub", 0755);
    ended(CHILD({ unlimited(); prctl(PR_SET_NAME, ".."); abort(); }), "below");
    file("sub/!.");
    set_knob("/proc/sys/kernel/core_uses_pid", "1");
    PATTERN("with");
    pid_t child = CHILD({ unlimited(); abort(); });
    char name[40];
    snprintf(name, sizeof name, "with.%d", child);
    ended(child, "number");
    TRUE(access(name, F_OK) == 0);
    /* In another name space: its own numbers, and those of the first one. */
    ended(CHILD({ unlimited(); in_name_space(); }), "in a name space");
    file("with.2");
    set_knob("/proc/sys/kernel/core_uses_pid", "0");
    PATTERN("own.%p.%i");
    ended(CHILD({ unlimited(); in_name_space(); }), "own numbers");
    file("own.2.3");
    PATTERN("first.%P.%I");
    ended(CHILD({ unlimited(); in_name_space(); }), "numbers of the first one");
    DIR *here = opendir(".");
    for (struct dirent *entry; (entry = readdir(here));) {
        int process;
        int thread;
        if (sscanf(entry->d_name, "first.%d.%d", &process, &thread) == 2)
            TRUE(process != thread && (process != 2 || thread != 3));
    }
    closedir(here);
    PATTERN("");
    ended(CHILD({ unlimited(); abort(); }), "nothing written");
    PATTERN("\n");
    ended(CHILD({ unlimited(); abort(); }), "no name");
    PATTERN("core");
    printf("filter %s", get_text("/proc/self/coredump_filter"));
    set_knob("/proc/self/coredump_filter", "0x7");
    printf("filter %s", get_text("/proc/self/coredump_filter"));
    printf("child's %s", ({ fflush(stdout); get_text("/proc/self/coredump_filter"); }));
    set_knob("/proc/self/coredump_filter", "0x33");
}

static int in_dump(Elf64_Phdr *headers, int count, uintptr_t address, int core, char *into, size_t length)
{
    for (int i = 0; i < count; i++)
        if (headers[i].p_type == PT_LOAD && address >= headers[i].p_vaddr && address + length <= headers[i].p_vaddr + headers[i].p_filesz)
            return pread(core, into, length, headers[i].p_offset + (address - headers[i].p_vaddr)) == (ssize_t)length;
    return 0;
}

static char *private_page, *shared_page, *hidden_page, *unwanted_page, *read_page, *reserved;
enum { RESERVED = 256 << 20 };
static volatile int ready;

static void *sleeper(void *number)
{
    register long mark asm("r12") = 0x1234500 + (long)number;
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    for (;;)
        asm volatile("syscall" : : "a"(SYS_pause), "r"(mark) : "rcx", "r11", "memory");
    return NULL;
}

static void contents(void)
{
    const size_t page = 4096;
    private_page = mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(private_page + 5 * page, "in the middle of private memory");
    shared_page = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    strcpy(shared_page, "shared memory");
    hidden_page = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(hidden_page, "hidden memory");
    mprotect(hidden_page, page, PROT_NONE);
    unwanted_page = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(unwanted_page, "unwanted");
    madvise(unwanted_page, page, MADV_DONTDUMP);
    /* Unlike all others, so that it is a mapping of its own. Reading leaves nothing that would be worth a dump. */
    reserved = mmap(NULL, RESERVED, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TRUE(reserved[100 * page] == 0);
    put_text("mapped", "a file's text");
    int mapped = open("mapped", O_RDWR);
    read_page = mmap(NULL, page, PROT_READ, MAP_SHARED, mapped, 0);
    pid_t child = CHILD({
        unlimited();
        pthread_t threads[3];
        for (long i = 0; i < 3; i++)
            pthread_create(&threads[i], NULL, sleeper, (void *)i);
        while (ready < 3)
            sched_yield();
        asm volatile("mov $0xabcdef, %%r12; movq %%r12, %%xmm9; mov $0, %%rax; movl $7, (%%rax)" : : : "rax", "r12", "memory");
    });
    ended(child, "with threads");
    int core = open("core", O_RDONLY);
    Elf64_Ehdr header;
    pread(core, &header, sizeof header, 0);
    printf("elf %d, type %d, machine %d, header %d, entries of %d\n", !memcmp(header.e_ident, "\177ELF\2\1\1", 7), header.e_type, header.e_machine, header.e_ehsize, header.e_phentsize);
    Elf64_Phdr *headers = calloc(header.e_phnum, sizeof *headers);
    pread(core, headers, header.e_phnum * sizeof *headers, header.e_phoff);
    printf("first is notes %d\n", headers[0].p_type == PT_NOTE);
    char text[64];
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)private_page + 5 * page, core, text, 40) && !strcmp(text, "in the middle of private memory"));
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)private_page + 8 * page, core, text, 40) && text[0] == 0);
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)shared_page, core, text, 40) && !strcmp(text, "shared memory"));
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)hidden_page, core, text, 40) && !strcmp(text, "hidden memory"));
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)unwanted_page, core, text, 8));
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)read_page, core, text, 8));
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)reserved, core, text, 8));
    TRUE(in_dump(headers, header.e_phnum, (uintptr_t)reserved + 100 * page, core, text, 8));
    TRUE(lseek(core, 0, SEEK_END) < RESERVED);
    /* Notes. */
    char *notes = malloc(headers[0].p_filesz);
    pread(core, notes, headers[0].p_filesz, headers[0].p_offset);
    int statuses = 0;
    int marks = 0;
    for (size_t at = 0; at < headers[0].p_filesz;) {
        Elf64_Nhdr *note = (Elf64_Nhdr *)(notes + at);
        char *owner = notes + at + sizeof *note;
        char *body = owner + ((note->n_namesz + 3) & ~3);
        at += sizeof *note + ((note->n_namesz + 3) & ~3) + ((note->n_descsz + 3) & ~3);
        switch (note->n_type) {
        case NT_PRSTATUS: {
            struct elf_prstatus *status = (void *)body;
            struct user_regs_struct *registers = (void *)&status->pr_reg;
            if (statuses++ == 0) {
                printf("%s prstatus %u bytes: signal %d, code %d, r12 %llx, rax %llx, vector registers %d, cs %llx\n", owner, note->n_descsz, status->pr_cursig,
                       status->pr_info.si_code, registers->r12, registers->rax, status->pr_fpvalid, registers->cs);
                TRUE(status->pr_pid == child && status->pr_ppid == getpid() && status->pr_sid == getsid(0));
            } else if (registers->r12 >= 0x1234500 && registers->r12 <= 0x1234502 && registers->orig_rax == SYS_pause) {
                marks |= 1 << (registers->r12 - 0x1234500);
            }
            break;
        }
        case NT_PRPSINFO: {
            struct elf_prpsinfo *names = (void *)body;
            printf("prpsinfo %u bytes: %.16s, %c, uid %d\n", note->n_descsz, names->pr_fname, names->pr_sname, names->pr_uid);
            TRUE(names->pr_pid == child && names->pr_ppid == getpid());
            break;
        }
        case NT_SIGINFO: {
            siginfo_t *information = (void *)body;
            printf("siginfo %u bytes: %d %d address %p\n", note->n_descsz, information->si_signo, information->si_code, information->si_addr);
            break;
        }
        case NT_AUXV:
            TRUE(note->n_descsz % 16 == 0 && note->n_descsz > 200);
            break;
        case NT_FILE: {
            long *words = (long *)body;
            TRUE(words[0] >= 2 && words[1] == 4096);
            break;
        }
        case NT_FPREGSET:
            if (statuses == 1)
                printf("fpregset %u bytes, xmm9 %lx\n", note->n_descsz, *(long *)(body + 160 + 9 * 16));
            break;
        }
    }
    printf("threads %d, marks %x\n", statuses, marks);
    close(core);
    unlink("core");
}

int main(void)
{
    struct rlimit none = { 0, RLIM_INFINITY };
    SHOW(setrlimit(RLIMIT_CORE, &none));
    static char before[200];
    snprintf(before, sizeof before, "%s", get_text("/proc/sys/kernel/core_pattern"));
    before[strcspn(before, "\n")] = 0;
    when();
    names();
    contents();
    PATTERN(before);
    return 0;
}
