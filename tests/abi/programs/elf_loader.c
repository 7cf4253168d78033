/* What execve accepts as a program: headers that are changed one field at a time. */
#include "abi.h"
#include <elf.h>

static char image[2 << 20];
static size_t image_bytes;

static void attempt(const char *what, size_t bytes)
{
    unlink("program");
    int fd = open("program", O_CREAT | O_WRONLY, 0755);
    if (write(fd, image, bytes) != (ssize_t)bytes)
        printf("short write\n");
    close(fd);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execl("./program", "program", NULL);
        _exit(100 + (errno == ENOEXEC ? 1 : errno == EINVAL ? 2 : errno == ENOMEM ? 3 : errno == ENOENT ? 4 : errno == EACCES ? 5 : errno == EIO ? 6 : errno == EFAULT ? 7 : 50));
    }
    int status;
    waitpid(child, &status, 0);
    static const char *const names[] = { "?", "ENOEXEC", "EINVAL", "ENOMEM", "ENOENT", "EACCES", "EIO", "EFAULT" };
    if (WIFEXITED(status) && WEXITSTATUS(status) >= 100 && WEXITSTATUS(status) < 108)
        printf("%s: %s\n", what, names[WEXITSTATUS(status) - 100]);
    else
        printf("%s: %s\n", what, how_ended(status));
}

int main(void)
{
    static char original[sizeof image];
    int fd = open("/abi/tiny", O_RDONLY);
    image_bytes = (size_t)read(fd, original, sizeof original);
    close(fd);
    Elf64_Ehdr *header = (void *)image;
#define FRESH() memcpy(image, original, sizeof image)
#define WITH(what, ...)                                                                                                \
    do {                                                                                                               \
        FRESH();                                                                                                       \
        Elf64_Phdr *program = (void *)(image + header->e_phoff);                                                       \
        (void)program;                                                                                                 \
        __VA_ARGS__;                                                                                                   \
        attempt(what, image_bytes);                                                                                    \
    } while (0)
    WITH("unchanged", );
    WITH("bad magic", image[1] = 'X');
    WITH("other machine", header->e_machine = EM_AARCH64);
    WITH("relocatable", header->e_type = ET_REL);
    WITH("core", header->e_type = ET_CORE);
    WITH("no program headers", header->e_phnum = 0);
    WITH("too many program headers", header->e_phnum = 65535);
    WITH("wrong size of a program header", header->e_phentsize = 32);
    WITH("program headers outside", header->e_phoff = 1 << 30);
    WITH("program headers far outside", header->e_phoff = ~0ull - 100);
    WITH("entry at 0", header->e_entry = 0);
    WITH("entry in the kernel", header->e_entry = 0xffffffff81000000);
    WITH("entry outside", header->e_entry = 0x700000000000);
    WITH("segment in the kernel", program[0].p_vaddr = 0xffffffff80000000);
    WITH("segment at the top", program[0].p_vaddr = 0x7ffffffff000);
    WITH("segment with a huge memory size", program[0].p_memsz = 1ull << 60);
    WITH("file size over memory size", for (int i = 0; i < header->e_phnum; i++) if (program[i].p_type == PT_LOAD) program[i].p_filesz = program[i].p_memsz + 4096);
    WITH("offset not congruent", for (int i = 0; i < header->e_phnum; i++) if (program[i].p_type == PT_LOAD) program[i].p_offset += 1);
    WITH("interpreter that is absent", { program[header->e_phnum - 1].p_type = PT_INTERP; program[header->e_phnum - 1].p_offset = 0; program[header->e_phnum - 1].p_filesz = 0; });
    WITH("no loadable segment", for (int i = 0; i < header->e_phnum; i++) if (program[i].p_type == PT_LOAD) program[i].p_type = PT_NULL);
    FRESH();
    attempt("half the header", 32);
    attempt("header only", sizeof *header);
    attempt("one byte", 1);
    attempt("four bytes", 4);
    FRESH();
    attempt("unchanged again", image_bytes);
    return 0;
}
