/* confine PROGRAM ARGUMENT...: becomes that program, confined by seccomp as systemd confines a unit. "unit.h" beside
   it says how: the numbers of SystemCallFilter= in `allowed`, those of RestrictAddressFamilies= in `families`.
   MemoryDenyWriteExecute=, RestrictNamespaces= and SystemCallArchitectures=native are always on. What is not
   allowed fails with EPERM. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unit.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
#define RULES_MAX 4096
#define NAMESPACES (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static struct sock_filter rules[RULES_MAX];
static unsigned short count;

static void rule(unsigned short code, unsigned value, unsigned char yes, unsigned char no)
{
	rules[count++] = (struct sock_filter){ code, yes, no, value };
}

static void load(size_t offset)
{
	rule(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

static void answer(unsigned what)
{
	rule(BPF_RET | BPF_K, what, 0, 0);
}

static void deny(int why)
{
	answer(SECCOMP_RET_ERRNO | (unsigned)why);
}

/* The low half of an argument; both architectures are little-endian. */
static size_t argument(int which)
{
	return offsetof(struct seccomp_data, args) + 8 * (size_t)which;
}

/* A call that has all of these bits in an argument fails; one of them is enough where `any` is set. */
static void deny_bits(unsigned call, int which, unsigned bits, int any)
{
	load(offsetof(struct seccomp_data, nr));
	rule(BPF_JMP | BPF_JEQ | BPF_K, call, 0, any ? 3 : 4);
	load(argument(which));
	if (any) {
		rule(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
	} else {
		rule(BPF_ALU | BPF_AND | BPF_K, bits, 0, 0);
		rule(BPF_JMP | BPF_JEQ | BPF_K, bits, 0, 1);
	}
	deny(EPERM);
}

static void write_rules(void)
{
	size_t i;

	load(offsetof(struct seccomp_data, arch));
	rule(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	deny(EPERM);
	deny_bits(SYS_mmap, 2, PROT_WRITE | PROT_EXEC, 0);
	deny_bits(SYS_mprotect, 2, PROT_EXEC, 1);
	deny_bits(SYS_pkey_mprotect, 2, PROT_EXEC, 1);
	deny_bits(SYS_shmat, 2, SHM_EXEC, 1);
	deny_bits(SYS_clone, 0, NAMESPACES, 1);
	load(offsetof(struct seccomp_data, nr));
	/* Its flags cannot be looked at: systemd says that it is not there, and clone is used. */
	rule(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
	deny(ENOSYS);
	rule(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, (unsigned char)(2 + 2 * COUNT(families)));
	load(argument(0));
	for (i = 0; i < COUNT(families); i++) {
		rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)families[i], 0, 1);
		answer(SECCOMP_RET_ALLOW);
	}
	deny(EAFNOSUPPORT);
	for (i = 0; i < COUNT(allowed); i++) {
		rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
		answer(SECCOMP_RET_ALLOW);
	}
	deny(EPERM);
}

int main(int argc, char **argv)
{
	struct sock_fprog program = { .filter = rules };

	if (argc < 2 || COUNT(allowed) > RULES_MAX / 2 - 64)
		return 125;
	write_rules();
	program.len = count;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("confine");
		return 125;
	}
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 126;
}
