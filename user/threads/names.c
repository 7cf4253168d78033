/* What a function is called, to name a thread after its start routine. */
#include "interpose.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "writer.h"

/* The name in the table of symbols of a file, which also has those that the dynamic linker does not know. */
static bool search(const unsigned char *file, size_t size, uint64_t offset, char *buffer, size_t room)
{
    const Elf64_Ehdr *header = (const void *)file;
    if (size < sizeof *header || memcmp(file, ELFMAG, SELFMAG) != 0 || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shoff > size || (uint64_t)header->e_shnum * sizeof(Elf64_Shdr) > size - header->e_shoff)
        return false;
    const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr *table = &sections[i];
        if (table->sh_type != SHT_SYMTAB || table->sh_link >= header->e_shnum || table->sh_offset > size ||
            table->sh_size > size - table->sh_offset)
            continue;
        const Elf64_Shdr *texts = &sections[table->sh_link];
        if (texts->sh_offset > size || texts->sh_size > size - texts->sh_offset)
            continue;
        const Elf64_Sym *symbols = (const void *)(file + table->sh_offset);
        for (size_t n = 0; n < table->sh_size / sizeof *symbols; n++) {
            if (ELF64_ST_TYPE(symbols[n].st_info) != STT_FUNC || symbols[n].st_value != offset ||
                symbols[n].st_name >= texts->sh_size)
                continue;
            const char *name = (const char *)file + texts->sh_offset + symbols[n].st_name;
            size_t length = strnlen(name, texts->sh_size - symbols[n].st_name);
            snprintf(buffer, room, "%.*s", (int)length, name);
            return true;
        }
    }
    return false;
}

static bool name_in_file(const char *path, uint64_t address, uint64_t base, char *buffer, size_t room)
{
    int descriptor = (int)raw_call(SYS_open, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
    struct stat status;
    if (descriptor < 0)
        return false;
    bool found = false;
    if (fstat(descriptor, &status) == 0 && status.st_size > (off_t)sizeof(Elf64_Ehdr)) {
        size_t size = (size_t)status.st_size;
        unsigned char *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (file != MAP_FAILED) {
            bool fixed = ((const Elf64_Ehdr *)(const void *)file)->e_type == ET_EXEC;
            found = search(file, size, fixed ? address : address - base, buffer, room);
            munmap(file, size);
        }
    }
    raw_call(SYS_close, descriptor, 0, 0, 0);
    return found;
}

/* Its name, or its file and its place there. */
const char *name_of_function(const void *address, char *buffer, size_t room)
{
    Dl_info info;
    int saved = errno;
    if (!dladdr(address, &info) || !info.dli_fname) {
        snprintf(buffer, room, "%p", address);
    } else if (info.dli_sname && info.dli_saddr == address) {
        snprintf(buffer, room, "%s", info.dli_sname);
    } else {
        /* A program's own name may be relative to where it began. */
        const char *path = info.dli_fname[0] == '/' ? info.dli_fname : "/proc/self/exe";
        uint64_t base = (uintptr_t)info.dli_fbase;
        if (!name_in_file(path, (uintptr_t)address, base, buffer, room))
            snprintf(buffer, room, "%s+0x%lx", info.dli_fname, (unsigned long)((uintptr_t)address - base));
    }
    errno = saved;
    return buffer;
}
