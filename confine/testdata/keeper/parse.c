/*
 * The keeper's own parsers, from its own sources, under a sanitizer, valgrind or a
 * fuzzer. As a program it reads the files that it is given, each a byte that says
 * which parser and a message, and many small changes of each.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

static jmp_buf out;
static __attribute__((noreturn)) void leave(void)
{
	longjmp(out, 1);
}
#define _exit(code) leave()

#include "../../plan.c"
#include "../../command.c"
#include "../../keeper.c"

static void parse_run(struct reader *r, int nfds)
{
	static struct run run;
	static struct ending ending;
	struct receipt receipt = { 0 };
	int fds[FDS_MAX] = { -1, -1, -1, -1, -1 };

	ending_of_run = &ending;
	read_run(&run, r, fds, nfds);
	run.ops = *r;
	for (uint32_t i = 0; i < run.nops; i++) {
		struct operation op;
		read_op(r, &op);
		if (r->bad)
			refuse();
	}
	mounts_hold(&receipt, &run, &session);
}

static void parse_init(struct reader *r)
{
	static struct init init;

	session.project = session.home = NULL;
	if (read_init(r, &session, &init))
		for (uint32_t i = 0; i < init.nreport; i++)
			(void)strlen(read_str(r, NULL));
	free(session.project);
	free(session.home);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* exactly as long, so that a byte too far is seen */
	char *message = malloc(size ? size : 1);

	if (size > 0 && message) {
		memcpy(message, data + 1, size - 1);
		struct reader r = { message, message + size - 1, false };
		session.project = "/nonexistent";
		if (setjmp(out) == 0) {
			if (data[0] < 8)
				parse_run(&r, data[0]);
			else
				parse_init(&r);
		}
	}
	free(message);
	return 0;
}

#ifndef FUZZER
static uint64_t seed = 88172645463325252;

static uint64_t next(void) /* xorshift64 */
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

int main(int argc, char **argv)
{
	static uint8_t message[MSG_MAX * 4], changed[MSG_MAX * 4];
	long tries = strtol(argv[1], NULL, 10), done = 0;

	for (int i = 2; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, message, sizeof message);
		if (n <= 0)
			return 2;
		close(fd);
		for (size_t cut = 0; cut < (size_t)n && cut < 512; cut++, done++)
			LLVMFuzzerTestOneInput(message, cut);
		for (long t = 0; t < tries; t++, done++) {
			size_t size = (size_t)n;
			memcpy(changed, message, size);
			for (uint64_t k = next() % 8; k > 0; k--) {
				size_t at = next() % size;
				static const uint32_t odd[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff0, 65536, 200, 201 };
				if (at + 4 <= size && next() % 2)
					memcpy(changed + (at & ~(size_t)3), &odd[next() % COUNT(odd)], 4);
				else
					changed[at] = (uint8_t)next();
			}
			if (next() % 4 == 0)
				size = next() % size + 1;
			LLVMFuzzerTestOneInput(changed, size);
		}
	}
	dprintf(1, "%ld messages\n", done);
	return 0;
}
#endif
