/* What the three C files share. */
#ifndef PINFOLD_INTERNAL_H
#define PINFOLD_INTERNAL_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A message being read. After a read past its end every further read gives
 * zeros and empty strings, and bad stays set. */
struct reader {
	const char *p, *end;
	bool bad;
};

uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
/* The string ends with a NUL inside the message; len may be NULL. */
const char *read_str(struct reader *r, uint32_t *len);

struct operation {
	uint32_t kind, flags;
	uint64_t set, clear, arg;
	const char *a, *b;
	uint32_t b_len;
	int source; /* OP_BIND: the detached mount */
};

void read_op(struct reader *r, struct operation *op);

/* Each returns 0, or -1 with errno set. Paths of operations are followed from
 * the current directory, which is the new root. */
int open_source(struct operation *op);
int apply(const struct operation *op, int project, int devices);
int make_devices(void);
int bind_devices(const int *nodes);
int open_devices(int *nodes);
enum { DEVICES = 6 };

/* The session: set up once, before the first run. */
struct session {
	uint32_t setting, uid, gid;
	char *project, *home;
	struct program {
		void *insns;
		uint16_t count;
	} filters[3]; /* FILTER_* */
};

enum { FILTER_BASE, FILTER_PINNED, FILTER_ANY };

/* Where init and the shell's process leave what the keeper reports when init
 * is gone: shared memory, since an exit status has room for neither. */
struct slot {
	uint64_t id;
	pid_t init; /* 0: free */
	struct fail fail;
	uint32_t finished, status;
	uint64_t user_us, system_us, max_rss_kib;
};

/* Runs in the clone: never returns. */
__attribute__((noreturn)) void command(const struct session *s, struct slot *slot, struct reader r,
				       const int *fds, int nfds);

int open_beneath(int dir, const char *path, uint64_t flags);
int landlock_allow(int ruleset, const char *path, uint64_t access);

#endif
